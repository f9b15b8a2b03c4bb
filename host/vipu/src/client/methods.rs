//! Pure: the calls of the V-IPU API, each with its path and its reply.

use prost::Message;

use crate::proto;

/// A request of the API, with its path and its reply.
pub(super) trait Call: Message + Clone + 'static {
    /// Name of the method in errors and spans.
    const METHOD: &'static str;
    /// Path of the HTTP request.
    const PATH: &'static str;
    /// Type of the reply.
    type Reply: Message + Default;
}

macro_rules! calls {
    ($($service:literal $method:literal $request:ident -> $reply:ident)*) => {$(
        impl Call for proto::$request {
            const METHOD: &'static str = $method;
            const PATH: &'static str = concat!("/virmgrpc.", $service, "/", $method);
            type Reply = proto::$reply;
        }
    )*};
}

calls! {
    "UserService" "ListPartitions" ListPartitionsRequest -> ListPartitionsReply
    "UserService" "ListIPUAttributes" ListIpuAttributesRequest -> ListIpuAttributesReply
    "UserService" "CreatePartition" CreatePartitionRequest -> CreatePartitionReply
    "UserService" "RemovePartition" RemovePartitionRequest -> RemovePartitionReply
    "UserService" "ResetPartition" ResetPartitionRequest -> ResetPartitionReply
    "UserService" "GetPartitionIpuofConfig" GetPartitionIpuofConfigRequest -> GetPartitionIpuofConfigReply
    "UserService" "GetPartitionStatus" GetPartitionStatusRequest -> GetPartitionStatusReply
    "VersionService" "GetVersion" VersionRequest -> VersionReply
}
