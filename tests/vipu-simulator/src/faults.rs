//! Pure: the orders of faults: which fault, for which calls, and how often.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::codes::CodeName;

/// A method of the server, by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are those of host/proto/vipu.proto")]
pub enum Method {
    ListPartitions,
    ListIPUAttributes,
    CreatePartition,
    RemovePartition,
    ResetPartition,
    GetPartitionIpuofConfig,
    GetPartitionStatus,
    GetVersion,
}

/// An order of faults. All faults that are set happen, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Order {
    /// The methods that it applies to. If missing: all.
    pub method: Option<Method>,
    /// The number of calls that it applies to. If missing: all, until it is removed.
    pub times: Option<u32>,
    /// Wait for this number of milliseconds before anything else.
    pub slow_ms: Option<u64>,
    /// Do no work, and reply with this refusal.
    pub fail: Option<Fail>,
    /// Answer CreatePartition as if no IPU were free.
    pub full: bool,
    /// The partition that CreatePartition forms goes to ERROR with this text.
    pub breaks: Option<String>,
    /// Do the work, and send an invalid reply.
    pub lie: Option<Lie>,
    /// Do the work, and send no reply.
    pub lose_reply: Option<LostReply>,
    /// Until the order is removed, every reply is large and endless, and comes as fast as the
    /// caller reads.
    pub endless: bool,
    /// The server is unreachable until the order is removed.
    pub down: Option<Down>,
}

impl Order {
    /// An order for one method, which does nothing yet.
    pub fn on(method: Method) -> Self {
        Order {
            method: Some(method),
            ..Order::default()
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// Its code.
    pub code: CodeName,
    /// Its message.
    #[serde(default)]
    pub message: String,
}

/// Fault of a reply, or of the work. Each applies to the methods whose reply has such
/// content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    /// Enums have unknown numbers.
    UnknownEnums,
    /// The reply is about another partition.
    OtherId,
    /// CreatePartition creates a partition with half of the requested IPUs.
    HalfTheSize,
    /// Everything is listed twice.
    Twice,
    /// The list is empty.
    Nothing,
    /// The list contains a partition that no call created.
    Appearing,
    /// Texts are empty.
    EmptyTexts,
    /// Texts are very long.
    HugeTexts,
    /// Texts contain terminal controls, line breaks, and marks that reverse the order of letters.
    HostileTexts,
    /// Numbers are the largest possible, and times are beyond every calendar.
    HugeNumbers,
    /// The reply contains no messages.
    Bare,
    /// ListPartitions names no places of IPUs, as an older server might.
    NoPlaces,
}

/// Loss of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReply {
    /// The connection is cut.
    Cut,
    /// The connection stays open, without a reply.
    Hang,
}

/// Way in which a server is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// Connections are refused, and existing ones are closed.
    Refuse,
    /// Connections are accepted and closed at once.
    Drop,
}

/// The faults of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Delay before the work.
    pub delay: Duration,
    /// Failure to answer with instead of the work.
    pub fail: Option<Fail>,
    /// Whether to act as if no IPU were free.
    pub full: bool,
    /// Message with which the partition breaks once it is formed.
    pub breaks: Option<String>,
    /// Fault of the reply.
    pub lie: Option<Lie>,
    /// Loss of the reply.
    pub lose_reply: Option<LostReply>,
}

/// The active orders.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    next_id: u32,
    standing: Vec<(u32, Order)>,
}

impl Orders {
    /// Adds an order. Returns its number.
    pub fn add(&mut self, order: Order) -> u32 {
        self.next_id += 1;
        self.standing.push((self.next_id, order));
        self.next_id
    }

    /// Removes an order. Returns `false` if it is not active.
    pub fn cancel(&mut self, id: u32) -> bool {
        let before = self.standing.len();
        self.standing.retain(|(number, _)| *number != id);
        self.standing.len() < before
    }

    /// Removes all orders.
    pub fn clear(&mut self) {
        self.standing.clear();
    }

    /// Returns the active orders with their numbers.
    pub fn standing(&self) -> &[(u32, Order)] {
        &self.standing
    }

    /// Returns how the server is unreachable. `None`: it is reachable.
    pub fn down(&self) -> Option<Down> {
        self.standing.iter().find_map(|(_, order)| order.down)
    }

    /// Whether replies never end.
    pub fn is_endless(&self) -> bool {
        self.standing.iter().any(|(_, order)| order.endless)
    }

    /// Returns the faults of a new call of `method`, and counts the call.
    pub fn strike(&mut self, method: Method) -> Effects {
        let mut effects = Effects::default();
        for (_, order) in &mut self.standing {
            if order.method.is_some_and(|wanted| wanted != method) {
                continue;
            }
            if let Some(times) = &mut order.times {
                *times = times.saturating_sub(1);
            }
            effects.delay += Duration::from_millis(order.slow_ms.unwrap_or(0));
            effects.full |= order.full;
            effects.fail = effects.fail.or_else(|| order.fail.clone());
            effects.breaks = effects.breaks.or_else(|| order.breaks.clone());
            effects.lie = effects.lie.or(order.lie);
            effects.lose_reply = effects.lose_reply.or(order.lose_reply);
        }
        self.standing.retain(|(_, order)| order.times != Some(0));
        effects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_applies_to_its_method_as_often_as_it_says() {
        let mut orders = Orders::default();
        orders.add(Order {
            times: Some(2),
            full: true,
            ..Order::on(Method::CreatePartition)
        });
        assert!(!orders.strike(Method::RemovePartition).full);
        let struck: Vec<_> = (0..3)
            .map(|_| orders.strike(Method::CreatePartition).full)
            .collect();
        assert_eq!(struck, [true, true, false]);
        assert!(orders.standing().is_empty());
    }

    #[test]
    fn an_order_without_a_number_is_active_until_it_is_removed() {
        let mut orders = Orders::default();
        let id = orders.add(Order {
            slow_ms: Some(5),
            ..Order::default()
        });
        for _ in 0..100 {
            assert_eq!(orders.strike(Method::GetVersion).delay.as_millis(), 5);
        }
        assert!(orders.cancel(id));
        assert!(!orders.cancel(id));
        assert_eq!(orders.strike(Method::GetVersion), Effects::default());
    }

    #[test]
    fn several_orders_for_one_call_all_count() {
        let mut orders = Orders::default();
        orders.add(Order {
            slow_ms: Some(5),
            ..Order::default()
        });
        orders.add(Order {
            slow_ms: Some(7),
            lose_reply: Some(LostReply::Cut),
            ..Order::on(Method::CreatePartition)
        });
        let effects = orders.strike(Method::CreatePartition);
        assert_eq!(effects.delay.as_millis(), 12);
        assert_eq!(effects.lose_reply, Some(LostReply::Cut));
    }

    #[test]
    fn orders_are_read_as_people_write_them_and_a_misspelt_one_is_refused() {
        let order: Order = serde_json::from_str(
            r#"{"method": "CreatePartition", "times": 1,
                "fail": {"code": "RESOURCE_EXHAUSTED", "message": "full"}}"#,
        )
        .unwrap();
        let expected = Order {
            times: Some(1),
            fail: Some(Fail {
                code: CodeName::ResourceExhausted,
                message: "full".to_owned(),
            }),
            ..Order::on(Method::CreatePartition)
        };
        assert_eq!(order, expected);
        let error = serde_json::from_str::<Order>(r#"{"loose_reply": "cut"}"#).unwrap_err();
        assert!(error.to_string().contains("loose_reply"), "{error}");
    }
}
