//! Decodes messages of the V-IPU API within a budget: two bytes on the wire become a structure of
//! hundreds.

use std::marker::PhantomData;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::ProstCodec;

use super::proto::{IpuofDevice, Partition};

/// Steps in which a message may be read. A field takes two, one with a text three. The largest
/// reply is the attributes of all IPUs: of 256, as many as a V-POD has, with 60 attributes each it
/// takes 124,000.
const STEPS: usize = 1 << 17;

/// Memory that a message may take once it is decoded, beside its bytes: the larger of the messages
/// that a reply lists, in a vector that is copied as it grows.
pub(super) const DECODED: usize = STEPS / 2 * 3 * LISTED;

const LISTED: usize = if size_of::<Partition>() > size_of::<IpuofDevice>() {
    size_of::<Partition>()
} else {
    size_of::<IpuofDevice>()
};

/// A message has more fields than may be decoded.
#[derive(Debug, thiserror::Error)]
#[error("the message takes more than the limit of {STEPS} steps to decode")]
struct TooManyFields;

/// Codec of calls that leaves the replies undecoded.
#[derive(Debug)]
pub(super) struct RawReplies<T>(PhantomData<T>);

impl<T> Default for RawReplies<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + 'static> Codec for RawReplies<T> {
    type Encode = T;
    type Decode = Bytes;
    type Encoder = <ProstCodec<T, ()> as Codec>::Encoder;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, ()>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        RawDecoder
    }
}

/// Decodes each message as its bytes, without a copy.
#[derive(Debug)]
pub(super) struct RawDecoder;

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

/// Decodes a message within the budget.
pub(super) fn decode<U: Message + Default>(bytes: impl Buf) -> Result<U, Status> {
    let mut bytes = Counted { bytes, left: STEPS };
    let decoded = U::decode(&mut bytes);
    // A message that seems to end early may even be a whole one.
    if bytes.left == 0 {
        let mut status = Status::resource_exhausted(TooManyFields.to_string());
        status.set_source(Arc::new(TooManyFields));
        return Err(status);
    }
    decoded.map_err(|error| Status::internal(error.to_string()))
}

/// Bytes that end after this number of steps.
struct Counted<B> {
    bytes: B,
    left: usize,
}

impl<B: Buf> Buf for Counted<B> {
    fn remaining(&self) -> usize {
        if self.left == 0 {
            return 0;
        }
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        if self.left == 0 {
            return &[];
        }
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.left = self.left.saturating_sub(1);
        self.bytes.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::proto::list_ipu_attributes_reply::{Attributes, Entry};
    use crate::proto::{GetPartitionIpuofConfigReply, ListIpuAttributesReply, ListPartitionsReply};

    fn refused<U: Message + Default + std::fmt::Debug>(bytes: &[u8]) {
        let refused = decode::<U>(bytes).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let source = std::error::Error::source(&refused);
        assert!(source.is_some(), "it is not the controller that refuses");
    }

    #[test]
    fn the_attributes_of_the_largest_v_pod_are_decoded() {
        let attribute = |number| (format!("attribute-{number}"), "value".to_owned());
        let ipu = Attributes {
            attributes: (0..60).map(attribute).collect(),
        };
        let agent = |number| Entry {
            agent: format!("agent-{number}"),
            ipu_attributes: (0..4).map(|ipu_number| (ipu_number, ipu.clone())).collect(),
        };
        let reply = ListIpuAttributesReply {
            entries: (0..64).map(agent).collect(),
        };
        let decoded: ListIpuAttributesReply = decode(reply.encode_to_vec().as_slice()).unwrap();
        assert_eq!(decoded, reply);
    }

    #[test]
    fn a_message_of_many_small_fields_is_refused() {
        let reply = ListPartitionsReply {
            partitions: vec![Partition::default(); STEPS],
        };
        refused::<ListPartitionsReply>(&reply.encode_to_vec());
    }

    /// The message in the middle claims to be longer than the one around it.
    #[test]
    fn a_message_that_lies_about_its_length_is_refused() {
        let devices = [0x12, 0x00].repeat(1 << 20);
        let mut bytes = vec![0x0a, 0x01, 0x42];
        prost::encoding::encode_varint(devices.len() as u64, &mut bytes);
        bytes.extend(devices);
        refused::<GetPartitionIpuofConfigReply>(&bytes);
    }

    #[test]
    fn what_is_no_message_is_said_to_be_none() {
        let broken = decode::<ListPartitionsReply>([0xff; 16].as_slice()).unwrap_err();
        assert_eq!(broken.code(), Code::Internal);
    }
}
