//! `kubectl ipu dashboard`: a page on localhost that shows where the IPUs of a cluster are, with
//! the kubeconfig and the rights of its user. It needs no server of the operator, and nothing from
//! the internet.
//!
//! Entry points:
//! - [`run`] serves the page until Ctrl-C. [`options`] are its options.
//! - [`watches`] stores a [`projection`] of each object in [`cluster`], in bounded memory. A watch
//!   ends with the rights of the user.
//! - [`view`] makes each view of the page from it, and [`server`] serves the views as JSON beside
//!   the page. [`server::guard`] authorizes requests.
//! - [`past`] keeps a few numbers of the last day, as far as this process has seen it.
//! - [`reading`] reads one partition, its owner and Pods on demand.
//! - [`queue`], [`pods`] and [`store`] are used by the other commands of the plugin, too.
//!
//! It writes nothing. It must not know guests, the V-IPU, or any other package of this workspace
//! but the API and the texts.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod error;
pub mod options;
pub mod past;
pub mod pods;
pub mod projection;
pub mod queue;
pub mod reading;
pub mod server;
pub mod shared;
pub mod shown;
pub mod store;
pub mod token;
pub mod view;
pub mod watches;

use std::future::pending;
use std::io::Write;
use std::net::SocketAddr;

use form_urlencoded::byte_serialize;
use jiff::Timestamp;
use kube::Client;
use tokio::net::TcpListener;
use tokio::time::interval;

use crate::error::DashboardError;
use crate::options::DashboardOptions;
use crate::server::serve::{LIMITS, serve};
use crate::server::{Guard, Sources, router};
use crate::shared::Shared;
use crate::view::JobObjects;

/// Returns the next things to do about an IPUJob, in sentences. They are those of
/// `kubectl ipu why`, which is in another package.
pub type Advise = fn(&JobObjects, Timestamp) -> Vec<String>;

/// The namespaces of a user.
#[derive(Clone, Copy, Debug)]
pub struct Namespaces<'a> {
    /// The namespace of the IPUJobs if the user may not list all.
    pub own: &'a str,
    /// The one that the page shows at first. `None`: all.
    pub shown: Option<&'a str>,
}

/// Serves the page until Ctrl-C. Its URL is written to `out` when it can be opened.
pub async fn run(
    client: Client,
    namespaces: Namespaces<'_>,
    options: &DashboardOptions,
    advise: Advise,
    out: &mut impl Write,
) -> Result<(), DashboardError> {
    let address = SocketAddr::new(options.address, options.port);
    let listen = |source| DashboardError::Listen(address, source);
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let token = token::generate().map_err(|_| DashboardError::Random)?;
    let guard = Guard::new(&token, &address.to_string(), address.port());
    let shared = Shared::default();
    let routes = router(Sources::new(shared.clone(), client.clone(), advise), guard);
    let text = startup_message(address, &token, namespaces.shown);
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(DashboardError::Write)?;
    let follow = async {
        // Boxed: it holds an object of each kind.
        Box::pin(watches::follow(&client, namespaces.own, &shared)).await;
        // The API server refused every watch. The page shows this.
        pending::<()>().await;
    };
    let sample = async {
        let mut ticks = interval(past::PERIOD.unsigned_abs());
        loop {
            ticks.tick().await;
            shared.sample(Timestamp::now());
        }
    };
    tokio::select! {
        never = sample => never,
        never = serve(listener, routes, LIMITS) => match never {},
        () = follow => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// The URL of the page.
fn startup_message(address: SocketAddr, token: &str, namespace: Option<&str>) -> String {
    let encoded = |name: &str| byte_serialize(name.as_bytes()).collect::<String>();
    let query = namespace.map(|name| format!("?namespace={}", encoded(name)));
    format!(
        "The dashboard is at http://{address}/{token}/{}\n\
         Whoever has this URL on this machine has your rights to read. Press Ctrl-C to end the dashboard.\n",
        query.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_has_the_secret_and_the_namespace() {
        let address = "[::1]:8001".parse().unwrap();
        let text = startup_message(address, "secret", Some("team"));
        let first = "The dashboard is at http://[::1]:8001/secret/?namespace=team\n";
        assert!(text.starts_with(first), "{text}");
    }
}
