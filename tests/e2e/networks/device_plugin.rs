//! A device plugin as kubelets know it: it registers a resource, lists its devices, and allocates
//! them to containers. It has no device to add to a container.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use http::uri::PathAndQuery;
use libtest_mimic::Failed;
use prost::Message;
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService};
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;
use tower::service_fn;

use super::RESOURCE;

/// Version of the kubelet's interface.
const VERSION: &str = "v1beta1";

/// The plugin's socket, in the kubelet's folder of device plugins.
const SOCKET: &str = "rdma-shared.sock";

/// Devices of a node. Pods share the one card.
const DEVICES: usize = 63;

/// A running device plugin. It ends when this is dropped.
pub(super) struct DevicePlugin(#[expect(dead_code, reason = "it only ends the plugin")] DropGuard);

impl DevicePlugin {
    /// Starts it on the node with this folder of device plugins, and registers it.
    pub(super) async fn start(folder: &Path) -> Result<Self, Failed> {
        let socket = folder.join(SOCKET);
        if socket.exists() {
            // That of a plugin which has ended.
            fs::remove_file(&socket)?;
        }
        let listener = UnixListener::bind(&socket)?;
        let connections = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(connection, _)| connection);
            Some((accepted, listener))
        });
        let stop = CancellationToken::new();
        let server = Server::builder()
            .add_service(Plugin(stop.clone()))
            .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
        tokio::spawn(server);
        register(folder).await?;
        Ok(Self(stop.drop_guard()))
    }
}

/// Registers the plugin with the kubelet. The kubelet then connects to it.
async fn register(folder: &Path) -> Result<(), Failed> {
    let kubelet = format!("unix://{}", folder.join("kubelet.sock").display());
    let connection = Endpoint::from_shared(kubelet)?.connect().await?;
    let mut kubelet = tonic::client::Grpc::new(connection);
    kubelet.ready().await?;
    let request = Request::new(RegisterRequest {
        version: VERSION.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: RESOURCE.to_owned(),
    });
    let path = PathAndQuery::from_static("/v1beta1.Registration/Register");
    let codec = ProstCodec::<RegisterRequest, Empty>::default();
    kubelet.unary(request, path, codec).await?;
    Ok(())
}

/// The service. Its streams end with the token.
#[derive(Clone)]
struct Plugin(CancellationToken);

impl NamedService for Plugin {
    const NAME: &'static str = "v1beta1.DevicePlugin";
}

impl Service<http::Request<Body>> for Plugin {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let plugin = self.clone();
        Box::pin(async move { Ok(plugin.answer(request).await) })
    }
}

impl Plugin {
    async fn answer(self, request: http::Request<Body>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        match path.rsplit('/').next().unwrap_or_default() {
            "GetDevicePluginOptions" => {
                let options = service_fn(|_: Request<Empty>| async { Ok(Response::new(Empty {})) });
                let codec = ProstCodec::<Empty, Empty>::default();
                Grpc::new(codec).unary(options, request).await
            }
            "ListAndWatch" => {
                let list = service_fn(move |_: Request<Empty>| {
                    let devices = self.devices();
                    async { Ok(Response::new(devices)) }
                });
                let codec = ProstCodec::<ListAndWatchResponse, Empty>::default();
                Grpc::new(codec).server_streaming(list, request).await
            }
            "Allocate" => {
                let allocate = service_fn(|request: Request<AllocateRequest>| async {
                    let containers = request.into_inner().containers;
                    Ok(Response::new(AllocateResponse {
                        containers: vec![Empty {}; containers.len()],
                    }))
                });
                let codec = ProstCodec::<AllocateResponse, AllocateRequest>::default();
                Grpc::new(codec).unary(allocate, request).await
            }
            _ => Status::unimplemented(path).into_http(),
        }
    }

    /// The devices once, in a stream that stays open.
    fn devices(&self) -> BoxStream<'static, Result<ListAndWatchResponse, Status>> {
        let device = |number| Device {
            id: format!("rdma-{number}"),
            health: "Healthy".to_owned(),
        };
        let devices = (0..DEVICES).map(device).collect();
        let first = stream::iter([Ok(ListAndWatchResponse { devices })]);
        let stop = self.0.clone().cancelled_owned();
        first.chain(stream::pending()).take_until(stop).boxed()
    }
}

/// A message without a field that the plugin sets or reads.
#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct RegisterRequest {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(string, tag = "3")]
    resource_name: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
}

#[derive(Clone, PartialEq, Message)]
struct Device {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    health: String,
}

#[derive(Clone, PartialEq, Message)]
struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Empty>,
}

#[derive(Clone, PartialEq, Message)]
struct AllocateResponse {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Empty>,
}
