//! The TCP port: who is let in, and who is not though they are on this machine.

use std::net::SocketAddr;

use herder::daemon::server::{Access, Limits, Listener, Role, Token, bind_loopback, serve};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::harness::{assert_refused, exchange, who};

struct Port {
    address: SocketAddr,
    token: String,
    _folder: TempDir,
    _serving: AbortOnDropHandle<()>,
}

impl Port {
    fn open(address: &str) -> Self {
        Self::open_as(address, Access::own())
    }

    fn open_as(address: &str, access: Access) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::read_or_make(&path).unwrap();
        let bound = bind_loopback(address.parse().unwrap()).unwrap();
        let address = bound.local_addr().unwrap();
        let listeners = vec![Listener::tcp(bound, token).unwrap()];
        let serving = serve(who(), access, Limits::default(), listeners, CancellationToken::new());
        Self {
            address,
            token: std::fs::read_to_string(path).unwrap().trim().to_owned(),
            _folder: folder,
            _serving: AbortOnDropHandle::new(tokio::spawn(serving)),
        }
    }

    async fn ask(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let mut request = format!("GET {path} HTTP/1.1\r\nconnection: close\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        exchange(TcpStream::connect(self.address).await.unwrap(), &request).await
    }
}

#[tokio::test]
async fn the_token_opens_the_port_and_nothing_else_does() {
    let port = Port::open("127.0.0.1:0");
    let right = format!("Bearer {}", port.token);
    let host = ("host", "localhost");
    let answer = port.ask("/who", &[host, ("authorization", &right)]).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""via":"Tcp""#), "{answer}");
    for wrong in ["Bearer", "Bearer nonsense", "Basic nonsense"] {
        let answer = port.ask("/who", &[host, ("authorization", wrong)]).await;
        assert_refused(&answer, 401, "unauthorized");
        assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
    }
    assert_refused(&port.ask("/who", &[host]).await, 401, "unauthorized");
    assert_refused(&port.ask("/no/such/route", &[host]).await, 401, "unauthorized");
    assert!(port.ask("/healthz", &[host]).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn the_token_lets_nobody_change_anything_or_answer_for_calls_unless_that_is_said() {
    for (access, role) in [
        (Access::own(), "Viewer"),
        (Access { tcp: Role::Operator, ..Access::own() }, "Operator"),
        (Access { tcp: Role::Approver, ..Access::own() }, "Approver"),
    ] {
        let port = Port::open_as("127.0.0.1:0", access);
        let token = format!("Bearer {}", port.token);
        let answer = port.ask("/who", &[("host", "localhost"), ("authorization", &token)]).await;
        assert!(answer.contains(&format!(r#""role":"{role}""#)), "{answer}");
    }
}

#[tokio::test]
async fn a_page_of_another_site_gets_nothing_even_with_the_token() {
    let port = Port::open("127.0.0.1:0");
    let token = format!("Bearer {}", port.token);
    let with = |name, value| vec![("authorization", token.as_str()), (name, value)];
    let rebound = port.ask("/who", &with("host", "evil.example")).await;
    assert_refused(&rebound, 403, "forbidden");
    assert_refused(&port.ask("/healthz", &[("host", "evil.example")]).await, 403, "forbidden");
    let mut across = with("host", "localhost");
    across.push(("origin", "http://evil.example"));
    assert_refused(&port.ask("/who", &across).await, 403, "forbidden");
}

#[tokio::test]
async fn the_other_kind_of_loopback_is_served_too() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let port = Port::open("[::1]:0");
    let host = format!("[::1]:{}", port.address.port());
    assert!(port.ask("/healthz", &[("host", &host)]).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_port_that_others_can_reach_is_not_served_whoever_bound_it() {
    let folder = tempfile::tempdir().unwrap();
    let token = Token::read_or_make(&folder.path().join("token")).unwrap();
    let wide = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    assert!(Listener::tcp(wide, token).is_err());
}
