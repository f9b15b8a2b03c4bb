//! The simulated server's side of the V-IPU user API.

use std::sync::Arc;

use proto::user_service_server::UserService;
use proto::version_service_server::VersionService;
use tokio_util::sync::CancellationToken;
use tonic::{Extensions, Request, Response, Status};
use vipu_client::proto;

use crate::faults::{Effects, Lie, LostReply, Method};
use crate::lies::Twist;
use crate::pod::Rejection;
use crate::server::Server;
use crate::wire;

/// Both services of one simulated controller.
#[derive(Clone, Debug)]
pub(super) struct Service {
    server: Arc<Server>,
}

/// The connection of a call. Cancelling it closes the connection.
#[derive(Clone, Debug)]
pub(super) struct Connection(pub(super) CancellationToken);

/// The V-IPU user that calls.
#[derive(Clone, Debug, Default)]
pub(super) struct User(pub(super) String);

impl Service {
    /// Returns the services for this state.
    pub(super) fn new(server: Arc<Server>) -> Self {
        Service { server }
    }

    /// Serves one call: records it, applies its faults, does the work, and replies.
    async fn serve<T: Twist>(
        &self,
        method: Method,
        partition: &str,
        extensions: &Extensions,
        work: impl AsyncFnOnce(&Server, &Effects) -> Result<T, Rejection>,
    ) -> Result<Response<T>, Status> {
        let Some((call, effects)) = self.server.begin(method, partition) else {
            return std::future::pending().await;
        };
        tokio::time::sleep(effects.delay).await;
        if let Some(fail) = &effects.fail {
            call.end(&format!("{:?}: {}", fail.code, fail.message));
            let code = tonic::Code::from_i32(fail.code as i32);
            return Err(Status::new(code, &fail.message));
        }
        let User(user) = extensions.get().cloned().unwrap_or_default();
        if let Some(status) = self.server.hide(&user, partition) {
            call.end(status.message());
            return Err(status);
        }
        let result = work(&self.server, &effects).await;
        if method == Method::CreatePartition && result.is_ok() {
            self.server
                .with(|world, _| world.users.made(&user, partition));
        }
        if let Some(how) = effects.lose_reply {
            call.end("lost");
            if let (LostReply::Cut, Some(connection)) = (how, extensions.get::<Connection>()) {
                connection.0.cancel();
            }
            return std::future::pending().await;
        }
        match result {
            Ok(mut reply) => {
                if let Some(lie) = effects.lie {
                    reply.twist(lie);
                }
                call.end("ok");
                Ok(Response::new(reply))
            }
            Err(rejection) => {
                call.end(&rejection.to_string());
                Err(self.server.status(&rejection))
            }
        }
    }
}

#[tonic::async_trait]
impl UserService for Service {
    async fn list_partitions(
        &self,
        request: Request<proto::ListPartitionsRequest>,
    ) -> Result<Response<proto::ListPartitionsReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let User(user) = extensions.get().cloned().unwrap_or_default();
        self.serve(
            Method::ListPartitions,
            "",
            &extensions,
            async |server, _| {
                server.with(|world, now| {
                    let name = world.pod.name.clone();
                    let asked = request.allocation_id;
                    let users = world.users.clone();
                    let partitions = world
                        .pod
                        .partitions(now)
                        .filter(|_| asked.is_empty() || asked == name)
                        .filter(|partition| users.sees(&user, &partition.id))
                        .map(|partition| wire::listed(&name, partition))
                        .collect();
                    Ok(proto::ListPartitionsReply { partitions })
                })
            },
        )
        .await
    }

    async fn list_ipu_attributes(
        &self,
        request: Request<proto::ListIpuAttributesRequest>,
    ) -> Result<Response<proto::ListIpuAttributesReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        self.serve(
            Method::ListIPUAttributes,
            "",
            &extensions,
            async |server, _| {
                Ok(server.with(|world, _| wire::attributes(&world.pod, &request.agents)))
            },
        )
        .await
    }

    async fn create_partition(
        &self,
        request: Request<proto::CreatePartitionRequest>,
    ) -> Result<Response<proto::CreatePartitionReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let spec = wire::spec(request);
        let id = spec.id.clone();
        let work = async |server: &Server, effects: &Effects| {
            if effects.full {
                return Err(Rejection::Full {
                    ipus: spec.ipus,
                    largest: 0,
                });
            }
            let mut made = spec.clone();
            if effects.lie == Some(Lie::HalfTheSize) {
                made.ipus /= 2;
            }
            let until =
                server.with(|world, now| world.pod.create(&made, effects.breaks.clone(), now))?;
            server.wait(&spec.id, until).await;
            server.with(|world, now| world.pod.usable(&spec.id, now).map(|_| ()))?;
            Ok(proto::CreatePartitionReply {
                partition_id: spec.id.clone(),
            })
        };
        self.serve(Method::CreatePartition, &id, &extensions, work)
            .await
    }

    async fn remove_partition(
        &self,
        request: Request<proto::RemovePartitionRequest>,
    ) -> Result<Response<proto::RemovePartitionReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let id = &request.partition_id;
        let work = async |server: &Server, _: &Effects| {
            let until = server.with(|world, now| world.pod.remove(id, request.force, now))?;
            server.wait(id, until).await;
            Ok(proto::RemovePartitionReply {})
        };
        self.serve(Method::RemovePartition, id, &extensions, work)
            .await
    }

    async fn reset_partition(
        &self,
        request: Request<proto::ResetPartitionRequest>,
    ) -> Result<Response<proto::ResetPartitionReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let id = &request.partition_id;
        let work = async |server: &Server, _: &Effects| {
            let until = server.with(|world, now| world.pod.reset(id, request.relocatable, now))?;
            server.wait(id, until).await;
            server.with(|world, now| world.pod.usable(id, now).map(|_| ()))?;
            Ok(proto::ResetPartitionReply {})
        };
        self.serve(Method::ResetPartition, id, &extensions, work)
            .await
    }

    async fn get_partition_ipuof_config(
        &self,
        request: Request<proto::GetPartitionIpuofConfigRequest>,
    ) -> Result<Response<proto::GetPartitionIpuofConfigReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let id = &request.partition_id;
        let gcd = request.gcd_id.map(|gcd| gcd.id);
        let work = async |server: &Server, _: &Effects| {
            server.with(|world, now| {
                let partition = world.pod.formed(id, now)?;
                let config = wire::ipuof_config(partition, gcd).ok_or_else(|| {
                    let count = partition.gcds;
                    Rejection::Invalid(format!("partition {id:?} has {count} GCDs, not {gcd:?}"))
                })?;
                Ok(proto::GetPartitionIpuofConfigReply {
                    ipuof_config: Some(config),
                })
            })
        };
        self.serve(Method::GetPartitionIpuofConfig, id, &extensions, work)
            .await
    }

    async fn get_partition_status(
        &self,
        request: Request<proto::GetPartitionStatusRequest>,
    ) -> Result<Response<proto::GetPartitionStatusReply>, Status> {
        let (_, extensions, request) = request.into_parts();
        let id = &request.partition_id;
        let work = async |server: &Server, _: &Effects| {
            server.with(|world, now| {
                let status = wire::status(world.pod.partition(id, now)?);
                Ok(proto::GetPartitionStatusReply {
                    status: Some(status),
                })
            })
        };
        self.serve(Method::GetPartitionStatus, id, &extensions, work)
            .await
    }
}

#[tonic::async_trait]
impl VersionService for Service {
    async fn get_version(
        &self,
        request: Request<proto::VersionRequest>,
    ) -> Result<Response<proto::VersionReply>, Status> {
        let (_, extensions, _) = request.into_parts();
        self.serve(Method::GetVersion, "", &extensions, async |_, _| {
            Ok(proto::VersionReply {
                version: wire::SERVER_VERSION.to_owned(),
            })
        })
        .await
    }
}
