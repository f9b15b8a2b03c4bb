//! Pure: the IPUs that every namespace has and requests, as a placement policy sees them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ipu_api::guest::namespace::{NamespaceContext, Usage, others};

/// The usage of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Usages(BTreeMap<Arc<str>, Usage>);

impl Usages {
    /// A partition waits.
    pub(crate) fn add_waiting(&mut self, namespace: &Arc<str>, ipus: u32) {
        let usage = self.of(namespace);
        usage.waiting_ipus = usage.waiting_ipus.saturating_add(ipus);
        usage.waiting_partitions += 1;
    }

    /// A partition waits no more.
    pub(crate) fn remove_waiting(&mut self, namespace: &Arc<str>, ipus: u32) {
        let usage = self.of(namespace);
        usage.waiting_ipus = usage.waiting_ipus.saturating_sub(ipus);
        usage.waiting_partitions = usage.waiting_partitions.saturating_sub(1);
    }

    /// A partition exists.
    pub(crate) fn add_placed(&mut self, namespace: &Arc<str>, ipus: u32) {
        let usage = self.of(namespace);
        usage.ipus = usage.ipus.saturating_add(ipus);
        usage.partitions += 1;
    }

    /// A partition exists no more.
    pub(crate) fn remove_placed(&mut self, namespace: &Arc<str>, ipus: u32) {
        let usage = self.of(namespace);
        usage.ipus = usage.ipus.saturating_sub(ipus);
        usage.partitions = usage.partitions.saturating_sub(1);
    }

    /// Returns the usage that a policy sees for the request of a waiting partition: that of its
    /// namespace without it, and that of the others.
    pub(crate) fn known(
        &self,
        namespace: &str,
        ipus: u32,
    ) -> (NamespaceContext, BTreeMap<String, Usage>) {
        let mut own = self.0.get(namespace).copied().unwrap_or_default();
        own.waiting_ipus = own.waiting_ipus.saturating_sub(ipus);
        own.waiting_partitions = own.waiting_partitions.saturating_sub(1);
        let context = NamespaceContext {
            // Recorded jobs have no namespaces with labels. Unknown labels would let policies wait
            // for them.
            labels: Some(BTreeMap::new()),
            usage: Some(own),
        };
        (context, others(&self.0, namespace))
    }

    /// Returns the IPUs of the partitions of a namespace.
    pub(crate) fn placed_ipus(&self, namespace: &str) -> u32 {
        self.0.get(namespace).map_or(0, |usage| usage.ipus)
    }

    /// Returns the IPUs that wait.
    pub(crate) fn waiting_ipus(&self) -> u64 {
        let waiting = self.0.values().map(|usage| u64::from(usage.waiting_ipus));
        waiting.sum()
    }

    fn of(&mut self, namespace: &Arc<str>) -> &mut Usage {
        self.0.entry(Arc::clone(namespace)).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sees_the_usage_without_itself() {
        let [vision, speech] = ["vision", "speech"].map(Arc::<str>::from);
        let mut usages = Usages::default();
        usages.add_waiting(&vision, 8);
        usages.add_waiting(&vision, 4);
        usages.add_placed(&speech, 16);
        let (own, others) = usages.known("vision", 8);
        let own = own.usage.unwrap();
        assert_eq!((own.waiting_ipus, own.waiting_partitions), (4, 1));
        assert_eq!(others["speech"].ipus, 16);
        assert_eq!(usages.waiting_ipus(), 12);
        assert_eq!(usages.placed_ipus("speech"), 16);
        assert_eq!(usages.placed_ipus("vision"), 0);
        usages.remove_placed(&speech, 16);
        usages.remove_waiting(&vision, 8);
        assert_eq!(usages.known("vision", 4).1, BTreeMap::new());
        assert_eq!(usages.waiting_ipus(), 4);
    }
}
