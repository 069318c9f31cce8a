//! `--metrics`: Prometheus text on this machine while a command works.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::Duration,
};

use serde_json::json;

use crate::support::{Place, says, task, until};

fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// An address of this machine's that nobody but this process takes, so that a port of it that is free stays free.
fn own_address() -> String {
    let ip = Ipv4Addr::from_bits(0x7f40_0000 | std::process::id());
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap().to_string()
}

#[test]
fn metrics_are_served_while_a_batch_runs() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("quick", "x"), task("slow", json!([{"text": "x", "delay_ms": 600_000}]))]);
    let free = own_address();
    let batch = place.start(&["batch", "in.jsonl", "-o", "out.jsonl", "--metrics", &free]);
    let mut text = String::new();
    until("one run has ended and one is live", || {
        text = scrape(&free).unwrap_or_default();
        text.contains("herder_runs_ended_total{outcome=\"done\"} 1") && text.contains("herder_runs_live 1")
    });
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(
        text.contains("# TYPE herder_runs_live gauge") && text.contains("# HELP herder_runs_live "),
        "{text}"
    );
    for told in ["herder_store_commit_seconds_count", "herder_store_commit_requests_count"] {
        assert!(text.contains(told), "{text}");
    }
    batch.kill();
}

#[test]
fn an_address_that_others_reach_or_that_is_taken_is_refused() {
    let place = Place::new();
    place.tasks("in.jsonl", &[says("a", "x")]);
    let told = |address: &str| {
        place.herder(&["batch", "in.jsonl", "-o", "out.jsonl", "--metrics", address]).expect(2).err
    };
    assert_eq!(
        told("0.0.0.0:9090"),
        "herder: 0.0.0.0:9090 can be reached from other machines; want an address of this one, as 127.0.0.1:9090\n"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(told(&address).starts_with(&format!("herder: metrics cannot be served at {address}: ")));
    assert_eq!(place.names(), ["in.jsonl", "work"]);
}
