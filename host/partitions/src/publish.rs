//! The loops of the leader that write what others read: VIPUControllers, the capacity of nodes, the
//! summary of partitions, and the accounts of IPUPartitions.

pub mod account_recorder;
pub mod advertise;
pub mod controller_objects;
pub mod tracker;
