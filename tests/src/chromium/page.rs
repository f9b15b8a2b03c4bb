//! A page of Chromium, controlled by its DevTools protocol.

use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::files::{FileError, write};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Width of a page when it is opened, in pixels.
const WIDTH: u32 = 1_280;

/// Height of a page, in pixels.
const HEIGHT: u32 = 900;

/// Failure of a command of a page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Chromium cannot be reached.
    #[error("failed to connect to Chromium at {0}")]
    Connect(String, #[source] io::Error),
    /// The connection broke.
    #[error("the connection to Chromium broke")]
    Broken(#[source] Box<tungstenite::Error>),
    /// The connection was closed.
    #[error("Chromium closed the connection")]
    Closed,
    /// An answer is not JSON.
    #[error("failed to read what Chromium answers")]
    Json(#[from] serde_json::Error),
    /// A command failed.
    #[error("Chromium refuses {method}: {message}")]
    Refused {
        /// The command.
        method: &'static str,
        /// Error of Chromium.
        message: String,
    },
    /// A script failed.
    #[error("a script failed on the page: {0}")]
    Script(String),
    /// A screenshot is invalid.
    #[error("Chromium gave no picture")]
    Picture(#[source] base64::DecodeError),
    /// A screenshot cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A page.
#[derive(Debug)]
pub struct Page {
    socket: WebSocketStream<TcpStream>,
    session: Option<String>,
    commands: u64,
    problems: Vec<String>,
}

impl Page {
    /// Opens an empty page in the Chromium at this WebSocket.
    pub(super) async fn open(endpoint: &str) -> Result<Self, PageError> {
        let address = endpoint.strip_prefix("ws://").unwrap_or(endpoint);
        let (address, _) = address.split_once('/').unwrap_or((address, ""));
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|source| PageError::Connect(endpoint.to_owned(), source))?;
        let (socket, _) = client_async(endpoint, stream).await.map_err(broken)?;
        let mut page = Self {
            socket,
            session: None,
            commands: 0,
            problems: Vec::new(),
        };
        let empty = json!({"url": "about:blank"});
        let target = page.send("Target.createTarget", empty).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.send("Target.attachToTarget", attach).await?;
        page.session = attached["sessionId"].as_str().map(ToOwned::to_owned);
        for method in ["Page.enable", "Runtime.enable", "Log.enable"] {
            page.send(method, json!({})).await?;
        }
        page.resize(WIDTH).await?;
        Ok(page)
    }

    /// Sets the width of the page, in pixels.
    pub async fn resize(&mut self, width: u32) -> Result<(), PageError> {
        let size = json!({
            "width": width, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": false,
        });
        self.send("Emulation.setDeviceMetricsOverride", size)
            .await?;
        Ok(())
    }

    /// Moves the pointer to the middle of the first element that a selector finds.
    pub async fn point(&mut self, selector: &str) -> Result<(), PageError> {
        let script = format!(
            "(() => {{ const box = document.querySelector({selector:?}).getBoundingClientRect(); \
             return [box.left + box.width / 2, box.top + box.height / 2]; }})()"
        );
        let middle = self.evaluate(&script).await?;
        let event = json!({"type": "mouseMoved", "x": middle[0], "y": middle[1]});
        self.send("Input.dispatchMouseEvent", event).await?;
        Ok(())
    }

    /// Goes to a URL. It does not wait until the page is complete.
    pub async fn go(&mut self, url: &str) -> Result<(), PageError> {
        self.send("Page.navigate", json!({"url": url})).await?;
        Ok(())
    }

    /// Returns the value of a JavaScript expression, or of its promise.
    pub async fn evaluate(&mut self, expression: &str) -> Result<Value, PageError> {
        let asked = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let answer = self.send("Runtime.evaluate", asked).await?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(PageError::Script(details.to_string())),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// The text of the page, as users see it.
    pub async fn text(&mut self) -> Result<String, PageError> {
        let text = self.evaluate("document.body?.innerText ?? ''").await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Presses and releases a key that gives this text, or `Enter`.
    pub async fn press(&mut self, key: &str) -> Result<(), PageError> {
        let mut event = json!({"type": "keyDown", "key": key, "text": key});
        if key == "Enter" {
            event["text"] = json!("\r");
            event["code"] = json!(key);
            // Without it, the key does not activate a link or a button.
            event["windowsVirtualKeyCode"] = json!(13);
        }
        self.send("Input.dispatchKeyEvent", event.clone()).await?;
        event["type"] = json!("keyUp");
        self.send("Input.dispatchKeyEvent", event).await?;
        Ok(())
    }

    /// Sets the preferred colour scheme: `light` or `dark`.
    pub async fn prefer(&mut self, scheme: &str) -> Result<(), PageError> {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let media = json!({"features": [feature]});
        self.send("Emulation.setEmulatedMedia", media).await?;
        Ok(())
    }

    /// The violations that axe-core finds, one text for each rule. `axe` is the source of axe-core.
    pub async fn violations(&mut self, axe: &str) -> Result<Vec<String>, PageError> {
        self.evaluate(&format!("{axe}\n;undefined")).await?;
        let run = "axe.run(document, {resultTypes: ['violations']}).then((all) => all.violations.map((one) => \
                   `${one.id}: ${one.help}: ${one.nodes.map((node) => `${node.html} ${node.failureSummary}`).join('; ')}`))";
        let found = self.evaluate(run).await?;
        let found = found.as_array().into_iter().flatten();
        Ok(found
            .map(|one| one.as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// Writes a picture of the whole page.
    pub async fn picture(&mut self, file: &Path) -> Result<(), PageError> {
        let metrics = self.send("Page.getLayoutMetrics", json!({})).await?;
        let mut clip = metrics["cssContentSize"].clone();
        clip["scale"] = json!(1);
        let asked = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let answer = self.send("Page.captureScreenshot", asked).await?;
        let data = answer["data"].as_str().unwrap_or_default();
        let bytes = STANDARD.decode(data).map_err(PageError::Picture)?;
        Ok(write(file, bytes)?)
    }

    /// The errors and warnings of the page until now: of its scripts, of the network, and of its
    /// content security policy.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Sends a command, and returns its result. Events that arrive before it are recorded.
    async fn send(&mut self, method: &'static str, params: Value) -> Result<Value, PageError> {
        self.commands += 1;
        let mut command = json!({"id": self.commands, "method": method, "params": params});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let command = Message::text(command.to_string());
        self.socket.send(command).await.map_err(broken)?;
        loop {
            let mut answer = self.receive().await?;
            if answer["id"] != self.commands {
                self.problems.extend(problem(&answer));
                continue;
            }
            return match answer.get("error") {
                Some(error) => Err(PageError::Refused {
                    method,
                    message: error.to_string(),
                }),
                None => Ok(answer["result"].take()),
            };
        }
    }

    async fn receive(&mut self) -> Result<Value, PageError> {
        loop {
            let message = self.socket.next().await.ok_or(PageError::Closed)?;
            match message.map_err(broken)? {
                Message::Text(text) => return Ok(serde_json::from_str(text.as_str())?),
                Message::Close(_) => return Err(PageError::Closed),
                _ => {}
            }
        }
    }
}

fn broken(error: tungstenite::Error) -> PageError {
    PageError::Broken(Box::new(error))
}

/// The problem that an event reports, if it reports one.
fn problem(event: &Value) -> Option<String> {
    let params = &event["params"];
    let is_problem = |level: &Value| {
        let level = level.as_str().unwrap_or_default();
        ["assert", "error", "warning"].contains(&level)
    };
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(params["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if is_problem(&params["type"]) => {
            Some(params["args"].to_string())
        }
        "Log.entryAdded" if is_problem(&params["entry"]["level"]) => {
            Some(params["entry"].to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_warnings_are_problems() {
        let logged = |level: &str| json!({"method": "Log.entryAdded", "params": {"entry": {"level": level}}});
        let thrown = json!({"method": "Runtime.exceptionThrown", "params": {}});
        let called = json!({"method": "Runtime.consoleAPICalled", "params": {"type": "log"}});
        for (event, expected) in [
            (logged("error"), true),
            (logged("warning"), true),
            (logged("verbose"), false),
            (thrown, true),
            (called, false),
            (json!({"id": 1}), false),
        ] {
            assert_eq!(problem(&event).is_some(), expected, "{event}");
        }
    }
}
