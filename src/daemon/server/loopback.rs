//! The TCP port: on this machine only, for who shows the token, and for no web page of another site.
//!
//! A page whose name was made to resolve to this machine is known by its `Host`, one that sends requests across sites by its
//! `Origin`. Knows nothing of users: who has the token is the owner.

use std::{
    io,
    net::{IpAddr, SocketAddr, TcpListener},
};

use axum::http::{HeaderMap, Uri, header, uri::Authority};

use super::{refusal::Refusal, token::Token};

/// Answered without a token: it says that the daemon lives, and nothing else.
const OPEN_PATH: &str = "/healthz";

/// Why the port is not listened on.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackError {
    #[error(
        "{0} can be reached from other machines, and the daemon listens on this one only: want 127.0.0.1:PORT or [::1]:PORT"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot listen on {address}")]
    Io {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}

/// Listens on a port of this machine; on a free one for port 0.
pub fn bind_loopback(address: SocketAddr) -> Result<TcpListener, LoopbackError> {
    if !address.ip().is_loopback() {
        return Err(LoopbackError::NotLoopback(address));
    }
    let listening = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listening.map_err(|source| LoopbackError::Io { address, source })
}

/// Refuses a request that did not come from a client of this machine that has the token.
pub(super) fn admit(token: &Token, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let host = local_host(uri, headers)?;
    same_origin(host.as_ref(), headers)?;
    if uri.path() == OPEN_PATH || shows(token, headers) { Ok(()) } else { Err(Refusal::Unauthorized) }
}

/// The host that the request is meant for, as the client named it.
fn local_host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Refusal> {
    let mut host = uri.authority().cloned();
    for named in headers.get_all(header::HOST) {
        host = Some(Authority::try_from(named.as_bytes()).map_err(|_| Refusal::ForeignHost)?);
        if !host.as_ref().is_some_and(is_local) {
            return Err(Refusal::ForeignHost);
        }
    }
    if uri.authority().is_some_and(|named| !is_local(named)) {
        return Err(Refusal::ForeignHost);
    }
    Ok(host)
}

fn is_local(authority: &Authority) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// A browser says where the page is from that sends a request; other clients say nothing.
fn same_origin(host: Option<&Authority>, headers: &HeaderMap) -> Result<(), Refusal> {
    for origin in headers.get_all(header::ORIGIN) {
        let site = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        let own = site.zip(host).is_some_and(|(site, host)| site.eq_ignore_ascii_case(host.as_str()));
        if !own {
            return Err(Refusal::ForeignOrigin);
        }
    }
    Ok(())
}

fn shows(token: &Token, headers: &HeaderMap) -> bool {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(shown), None) = (shown.next(), shown.next()) else { return false };
    let shown = shown.as_bytes();
    let scheme = shown.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "));
    scheme && token.is(shown[7..].trim_ascii())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn admitted(path: &str, headers: &[(header::HeaderName, &str)]) -> Result<(), Refusal> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), TOKEN).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        let token = Token::read(file.path()).unwrap();
        let headers: HeaderMap =
            headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        admit(&token, &path.parse().unwrap(), &headers)
    }

    fn with_token(more: &[(header::HeaderName, &str)]) -> Result<(), Refusal> {
        let mut headers = vec![(header::AUTHORIZATION, "Bearer 0123456789abcdef")];
        headers.extend_from_slice(more);
        admitted("/v1/runs", &headers)
    }

    #[test]
    fn only_the_whole_token_under_its_scheme_is_taken() {
        for right in ["Bearer 0123456789abcdef", "bearer 0123456789abcdef"] {
            assert_eq!(admitted("/v1/runs", &[(header::AUTHORIZATION, right)]), Ok(()), "{right}");
        }
        for wrong in
            ["", "Bearer", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer 0123456789abcde"]
        {
            let refused = admitted("/v1/runs", &[(header::AUTHORIZATION, wrong)]);
            assert_eq!(refused, Err(Refusal::Unauthorized), "{wrong:?}");
        }
        assert_eq!(admitted("/v1/runs", &[]), Err(Refusal::Unauthorized));
    }

    #[test]
    fn health_is_told_without_a_token_and_nothing_that_looks_like_it() {
        assert_eq!(admitted("/healthz", &[]), Ok(()));
        for path in ["/healthz/", "/healthz2", "//healthz", "/%68ealthz", "/v1/../healthz"] {
            assert_eq!(admitted(path, &[]), Err(Refusal::Unauthorized), "{path}");
        }
    }

    #[test]
    fn a_host_that_is_not_this_machine_is_refused_even_with_the_token() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:4711", "127.1.2.3", "[::1]:80"] {
            assert_eq!(with_token(&[(header::HOST, host)]), Ok(()), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
            "a b",
        ] {
            assert_eq!(with_token(&[(header::HOST, host)]), Err(Refusal::ForeignHost), "{host:?}");
        }
        assert_eq!(admitted("http://evil.example/healthz", &[]), Err(Refusal::ForeignHost));
    }

    #[test]
    fn a_page_of_another_site_is_refused_and_one_of_this_port_is_not() {
        let from = |origin| with_token(&[(header::HOST, "localhost:4711"), (header::ORIGIN, origin)]);
        assert_eq!(from("http://localhost:4711"), Ok(()));
        for origin in ["http://evil.example", "http://localhost:3000", "https://localhost:4711", "null", ""] {
            assert_eq!(from(origin), Err(Refusal::ForeignOrigin), "{origin:?}");
        }
        assert_eq!(with_token(&[(header::ORIGIN, "http://localhost")]), Err(Refusal::ForeignOrigin));
    }

    #[test]
    fn an_address_that_others_can_reach_is_not_listened_on() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let refused = bind_loopback(address.parse().unwrap());
            assert!(matches!(refused, Err(LoopbackError::NotLoopback(_))), "{address}");
        }
        assert!(
            bind_loopback("127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap().ip().is_loopback()
        );
    }
}
