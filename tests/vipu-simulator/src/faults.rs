//! Pure: what goes wrong on order, with which calls and how often.

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

/// An order to fail. Everything that is set happens, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "snake_case")]
pub struct Order {
    /// The calls that it is for. Missing: all.
    pub method: Option<Method>,
    /// How many calls it is for. Missing: all, until it is cleared.
    pub times: Option<u32>,
    /// Wait so many milliseconds before anything else.
    pub slow_ms: Option<u64>,
    /// Do nothing and answer this.
    pub fail: Option<Fail>,
    /// Answer CreatePartition as if no IPU were free.
    pub full: bool,
    /// The partition that CreatePartition forms goes to ERROR with these words.
    pub breaks: Option<String>,
    /// Do the work, and send an invalid reply.
    pub lie: Option<Lie>,
    /// Do the work, and let no reply come.
    pub lose_reply: Option<LostReply>,
    /// Every reply is large, comes as fast as it is taken, and never ends, until the order is cleared.
    pub endless: bool,
    /// The whole server cannot be reached, until the order is cleared.
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

/// A reply that says no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// Its code.
    pub code: CodeName,
    /// Its words.
    #[serde(default)]
    pub message: String,
}

/// How a reply is invalid, or the work was not what was asked. Each concerns those methods whose
/// reply holds such a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lie {
    /// Enums have numbers that nobody knows.
    UnknownEnums,
    /// The reply is about another partition.
    OtherId,
    /// CreatePartition makes half of the IPUs that it was asked for.
    HalfTheSize,
    /// Everything is listed twice.
    Twice,
    /// The list is empty.
    Nothing,
    /// A partition is listed that nobody made.
    Appearing,
    /// Texts are empty.
    EmptyTexts,
    /// Texts are very long.
    HugeTexts,
    /// Texts hold what controls a terminal, breaks a line, and turns the order of letters round.
    HostileTexts,
    /// Numbers are the largest that there are, and times beyond all calendars.
    HugeNumbers,
    /// Messages are left out of the reply.
    Bare,
}

/// How a reply does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostReply {
    /// The connection is cut.
    Cut,
    /// Nothing comes at all.
    Hang,
}

/// How a server cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// Connections are refused, and those that were there are cut.
    Refuse,
    /// Connections are taken and cut at once.
    Drop,
}

/// All that goes wrong with one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// How long to wait first.
    pub delay: Duration,
    /// What to answer instead of working.
    pub fail: Option<Fail>,
    /// Whether to act as if no IPU were free.
    pub full: bool,
    /// What breaks the partition once it is formed.
    pub breaks: Option<String>,
    /// How the reply lies.
    pub lie: Option<Lie>,
    /// How the reply is lost.
    pub lose_reply: Option<LostReply>,
}

/// The orders that stand.
#[derive(Clone, Debug, Default)]
pub struct Orders {
    next_id: u32,
    standing: Vec<(u32, Order)>,
}

impl Orders {
    /// Adds an order. Answers its number.
    pub fn add(&mut self, order: Order) -> u32 {
        self.next_id += 1;
        self.standing.push((self.next_id, order));
        self.next_id
    }

    /// Takes one order back. Answers false where it does not stand (any more).
    pub fn cancel(&mut self, id: u32) -> bool {
        let before = self.standing.len();
        self.standing.retain(|(number, _)| *number != id);
        self.standing.len() < before
    }

    /// Takes all orders back.
    pub fn clear(&mut self) {
        self.standing.clear();
    }

    /// The orders that stand, with their numbers.
    pub fn standing(&self) -> &[(u32, Order)] {
        &self.standing
    }

    /// How the server cannot be reached, where it cannot.
    pub fn down(&self) -> Option<Down> {
        self.standing.iter().find_map(|(_, order)| order.down)
    }

    /// Whether replies never end.
    pub fn is_endless(&self) -> bool {
        self.standing.iter().any(|(_, order)| order.endless)
    }

    /// What goes wrong with a call of `method` that comes now; counts it.
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
    fn an_order_strikes_its_method_as_often_as_it_says() {
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
    fn an_order_without_a_number_stands_until_it_is_taken_back() {
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
