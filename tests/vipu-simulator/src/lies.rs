//! Pure: turns a correct reply into the invalid one of a fault.

use prost_types::Timestamp;
use vipu_client::proto;

use crate::faults::Lie;

/// A number that no enum of the V-IPU API has.
const UNKNOWN: i32 = 99;

/// Characters of a text that is far too long.
const HUGE: usize = 100_000;

/// Characters that no text for users may contain.
const HOSTILE: &str = "\u{1b}[31m\u{7}\r\n\0\u{9b}\u{202e}\u{2066}\u{200f}\u{2028}";

/// A reply that can be made invalid.
pub(super) trait Twist {
    /// Makes the reply invalid. A reply without such content does not change.
    fn twist(&mut self, lie: Lie);
}

impl Twist for proto::CreatePartitionReply {
    fn twist(&mut self, lie: Lie) {
        twist_id(&mut self.partition_id, lie);
    }
}

impl Twist for proto::RemovePartitionReply {
    fn twist(&mut self, _: Lie) {}
}

impl Twist for proto::ResetPartitionReply {
    fn twist(&mut self, _: Lie) {}
}

impl Twist for proto::VersionReply {
    fn twist(&mut self, lie: Lie) {
        twist_text(&mut self.version, lie);
    }
}

impl Twist for proto::ListPartitionsReply {
    fn twist(&mut self, lie: Lie) {
        match lie {
            Lie::Nothing => self.partitions.clear(),
            Lie::Twice => self.partitions.extend(self.partitions.clone()),
            Lie::Appearing => self.partitions.push(from_nowhere()),
            _ => {}
        }
        for partition in &mut self.partitions {
            twist_id(&mut partition.id, lie);
            match lie {
                Lie::UnknownEnums => partition.ready_state = UNKNOWN,
                Lie::Bare => partition.spec = None,
                _ => {}
            }
            if let Some(spec) = &mut partition.spec {
                twist_spec(spec, lie);
            }
        }
    }
}

impl Twist for proto::ListIpuAttributesReply {
    fn twist(&mut self, lie: Lie) {
        match lie {
            Lie::Nothing => self.entries.clear(),
            Lie::Twice => self.entries.extend(self.entries.clone()),
            _ => {}
        }
        for entry in &mut self.entries {
            twist_text(&mut entry.agent, lie);
            if lie == Lie::Bare {
                entry.ipu_attributes.clear();
            }
        }
    }
}

impl Twist for proto::GetPartitionStatusReply {
    fn twist(&mut self, lie: Lie) {
        if lie == Lie::Bare {
            self.status = None;
        }
        let Some(status) = &mut self.status else {
            return;
        };
        twist_id(&mut status.partition_id, lie);
        match lie {
            Lie::UnknownEnums => {
                status.ready_state = UNKNOWN;
                status.operation_state = -UNKNOWN;
            }
            Lie::HugeTexts => status.errors = vec!["x".repeat(HUGE); 100],
            Lie::HostileTexts => status.errors = vec![HOSTILE.to_owned()],
            Lie::EmptyTexts => status.errors = vec![String::new(); 100],
            Lie::HugeNumbers => {
                status.max_auto_reset_retries = u32::MAX;
                status.auto_reset_retry_count = u32::MAX;
                status.last_auto_reset_time = Some(Timestamp {
                    seconds: i64::MAX,
                    nanos: i32::MAX,
                });
            }
            _ => {}
        }
    }
}

impl Twist for proto::GetPartitionIpuofConfigReply {
    fn twist(&mut self, lie: Lie) {
        if lie == Lie::Bare {
            self.ipuof_config = None;
        }
        for gcd in self
            .ipuof_config
            .iter_mut()
            .flat_map(|c| &mut c.gcd_configs)
        {
            match lie {
                Lie::Nothing => gcd.devices.clear(),
                Lie::Twice => gcd.devices.extend(gcd.devices.clone()),
                _ => {}
            }
            for device in &mut gcd.devices {
                twist_text(&mut device.chip_id, lie);
                twist_text(&mut device.ip, lie);
                if lie == Lie::HugeNumbers {
                    device.device_id = u32::MAX;
                    device.routing_id = u32::MAX;
                }
            }
        }
    }
}

fn from_nowhere() -> proto::Partition {
    proto::Partition {
        id: "from-nowhere".to_owned(),
        spec: Some(proto::PartitionSpec {
            ipus: vec![proto::PartitionIpu::default(); 4],
            num_gcds: 1,
            ..Default::default()
        }),
        ready_state: proto::PartitionReadyState::PsActive.into(),
        ..Default::default()
    }
}

fn twist_spec(spec: &mut proto::PartitionSpec, lie: Lie) {
    match lie {
        Lie::HugeNumbers => {
            spec.num_gcds = u32::MAX;
            spec.num_replicas = u32::MAX;
            for ipu in &mut spec.ipus {
                ipu.topology_id = u32::MAX;
            }
        }
        Lie::NoPlaces => spec.ipus.fill(proto::PartitionIpu::default()),
        _ => {}
    }
}

fn twist_id(id: &mut String, lie: Lie) {
    if lie == Lie::OtherId {
        "somebody-elses".clone_into(id);
    }
    twist_text(id, lie);
}

fn twist_text(text: &mut String, lie: Lie) {
    match lie {
        Lie::EmptyTexts => text.clear(),
        Lie::HugeTexts => text.push_str(&"x".repeat(HUGE)),
        Lie::HostileTexts => text.push_str(HOSTILE),
        _ => {}
    }
}
