//! The plugin as a program: its output and its exit status without an API server.
#![allow(
    clippy::unwrap_used,
    reason = "what a test's helper cannot do fails the test"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::process::{Command, Output};
use std::thread;

/// Runs the plugin with a kubeconfig of this content.
fn plugin(kubeconfig: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    fs::write(&path, kubeconfig).unwrap();
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-ipu"));
    plugin.args(arguments).env("KUBECONFIG", &path);
    plugin.output().unwrap()
}

/// Standard output of a command that succeeds.
fn printed(arguments: &[&str]) -> String {
    let output = plugin("", arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error of a command that fails.
fn refused(kubeconfig: &str, arguments: &[&str]) -> String {
    let output = plugin(kubeconfig, arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn version_and_commands_are_printed() {
    let version = format!("kubectl-ipu {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(printed(&["--version"]), version);
    let help = printed(&["--help"]);
    assert!(help.contains("Usage: kubectl ipu "), "{help}");
    for command in [
        "why",
        "top",
        "goodput",
        "nodes",
        "doctor",
        "cordon",
        "uncordon",
        "drain",
        "completion",
        "version",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
}

#[test]
fn an_unusable_kubeconfig_is_named() {
    let empty = refused("{}", &["why", "train"]);
    assert!(empty.contains("failed to read the kubeconfig"), "{empty}");
    let context = refused("{}", &["why", "train", "--context", "lab"]);
    assert!(context.contains("lab"), "{context}");
    let missing = refused("{}", &["top", "--kubeconfig", "/nowhere/config"]);
    assert!(missing.contains("/nowhere/config"), "{missing}");
}

#[test]
fn a_namespace_does_not_go_with_controllers() {
    let error = refused("{}", &["top", "controllers", "--namespace", "team"]);
    assert!(error.contains("--namespace team"), "{error}");
}

#[test]
fn it_completes_its_command_line_for_shells_and_for_kubectl() {
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = printed(&["completion", shell]);
        assert!(script.contains("goodput"), "{shell}: {script}");
    }
    // kubectl runs the plugin under another name, with the words of the command line.
    let folder = tempfile::tempdir().unwrap();
    let completer = folder.path().join("kubectl_complete-ipu");
    symlink(env!("CARGO_BIN_EXE_kubectl-ipu"), &completer).unwrap();
    let output = Command::new(&completer)
        .args(["goodput", "--by", "st"])
        .output()
        .unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answer, "state\tState of the IPUs\n:4\n");
}

#[test]
fn what_an_admin_types_is_checked_before_anything_is_read() {
    for (arguments, expected) in [
        (&["cordon"][..], "CONTROLLER"),
        (
            &["drain", "node/a"],
            "is neither the name of a VIPUController",
        ),
        (&["drain", "a", "--timeout", "soon"], "is not a duration"),
        (&["goodput", "--since", "1y"], "31d at most, or all"),
    ] {
        let error = refused("{}", arguments);
        assert!(error.contains(expected), "{error}");
    }
}

/// A token of OIDC that ends in the year 2100. The payload is `{"exp":4102444800}`.
const ID_TOKEN: &str = "eyJhbGciOiJub25lIn0.eyJleHAiOjQxMDI0NDQ4MDB9.c2lnbmVk";

/// A kubeconfig with this proxy, an API server that only the proxy finds, and a token of OIDC.
fn behind_a_proxy(proxy: &str) -> String {
    format!(
        "clusters:\n- {{name: lab, cluster: {{server: 'http://api.invalid:80', proxy-url: '{proxy}'}}}}\n\
         contexts:\n- {{name: lab, context: {{cluster: lab, user: me}}}}\ncurrent-context: lab\n\
         users:\n- name: me\n  user: {{auth-provider: {{name: oidc, config: {{id-token: {ID_TOKEN}}}}}}}\n"
    )
}

/// Reads the head of a request.
fn head(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    head
}

#[test]
fn a_token_of_oidc_goes_through_an_http_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let heads = thread::spawn(move || {
        let mut stream = BufReader::new(proxy.accept().unwrap().0);
        let connect = head(&mut stream);
        let connected = b"HTTP/1.1 200 OK\r\n\r\n";
        stream.get_mut().write_all(connected).unwrap();
        let request = head(&mut stream);
        let denied = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        stream.get_mut().write_all(denied).unwrap();
        (connect, request)
    });
    refused(&behind_a_proxy(&address), &["top", "--output", "json"]);
    let (connect, request) = heads.join().unwrap();
    assert!(
        connect.starts_with("CONNECT api.invalid:80 HTTP/1.1\r\n"),
        "{connect}"
    );
    let authorization = format!("authorization: Bearer {ID_TOKEN}\r\n");
    assert!(request.contains(&authorization), "{request}");
}

#[test]
fn a_socks_proxy_is_asked_for_the_host() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("socks5://{}", proxy.local_addr().unwrap());
    let asked = thread::spawn(move || {
        let (mut stream, _) = proxy.accept().unwrap();
        let mut hello = [0; 3];
        stream.read_exact(&mut hello).unwrap();
        // Version 5 without authentication.
        stream.write_all(&[5, 0]).unwrap();
        let mut request = [0; 18];
        stream.read_exact(&mut request).unwrap();
        // The host is not reachable.
        stream.write_all(&[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        (hello, request)
    });
    refused(&behind_a_proxy(&address), &["top", "--output", "json"]);
    let (hello, request) = asked.join().unwrap();
    assert_eq!(hello, [5, 1, 0]);
    assert_eq!(&request[5..16], b"api.invalid");
}
