//! Reads the body of a request into one buffer, so that the memory of a body is not larger than its
//! bytes.

use axum::Error;
use axum::body::{Body, Bytes};
use http_body_util::BodyExt;

/// Failure to read a body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is too long.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// It ended early.
    #[error("the client closed the connection before the end of the body")]
    Broken(#[source] Error),
}

/// Reads a body of at most `max` bytes.
pub async fn read(mut body: Body, max: usize) -> Result<Vec<u8>, BodyError> {
    let mut text = Vec::new();
    while let Some(piece) = next(&mut body).await? {
        if text.len() + piece.len() > max {
            return Err(BodyError::TooLong(max));
        }
        text.extend_from_slice(&piece);
    }
    Ok(text)
}

/// Reads the next chunk of a body; `None` is its end. A chunk of one byte keeps its whole receive
/// buffer allocated, so the caller copies it and drops it before it reads the next.
pub async fn next(body: &mut Body) -> Result<Option<Bytes>, BodyError> {
    while let Some(frame) = body.frame().await {
        // Frames without data are trailers, which are not used.
        if let Ok(piece) = frame.map_err(BodyError::Broken)?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

#[cfg(any(test, feature = "fixtures"))]
pub mod fixtures;

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use futures::stream;

    use super::fixtures::byte_by_byte;
    use super::*;

    #[tokio::test]
    async fn a_body_that_comes_byte_by_byte_takes_no_more_than_its_bytes() {
        let (body, most) = byte_by_byte(&[7; 4_096]);
        let text = read(body, 4_096).await.unwrap();
        assert_eq!(text, [7; 4_096]);
        assert!(text.capacity() <= 8_192, "{}", text.capacity());
        assert_eq!(most.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let long = read(byte_by_byte(&[7; 11]).0, 10).await;
        assert!(matches!(long, Err(BodyError::TooLong(10))), "{long:?}");
        let broken = stream::iter([Ok(Bytes::from("a")), Err(std::io::Error::other("gone"))]);
        let broken = read(Body::from_stream(broken), 10).await;
        assert!(matches!(broken, Err(BodyError::Broken(_))), "{broken:?}");
    }
}
