//! What the daemon does a second, over its socket and with its log durable.
//!
//! `--followers`, `--events`, `--latency` and `--start` are measures of the whole program in place of these.
#![expect(clippy::unwrap_used, reason = "a bench may panic")]

mod load;
mod process;
mod state;

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group};
use futures_util::future::join_all;
use process::{Connection, Daemon};
use serde_json::json;
use tokio::runtime::Runtime;

/// As the `herder` program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Requests of each connection in one round.
const ROUND: usize = 20;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Asks over each connection, again and again.
async fn round(connections: &mut [Connection], method: &str, path: &str, body: &str) {
    join_all(connections.iter_mut().map(|connection| async move {
        for _ in 0..ROUND {
            let (status, answer) = connection.ask(method, path, body).await;
            assert!(status < 300, "{status} {}", String::from_utf8_lossy(&answer));
        }
    }))
    .await;
}

/// Runs that wait: nothing is measured but their submission.
fn submissions(criterion: &mut Criterion) {
    let runtime = runtime();
    let daemon = runtime.block_on(Daemon::start(|_| {}));
    runtime.block_on(daemon.ask("POST", "/v1/pause", "{}"));
    let task = json!({ "task": "Wait.", "workspace": "/", "script": [{ "text": "done" }] }).to_string();
    let mut group = criterion.benchmark_group("daemon/submit");
    group.sampling_mode(SamplingMode::Flat).sample_size(10).measurement_time(Duration::from_secs(3));
    for connections in [1, 32] {
        let mut open = runtime.block_on(join_all((0..connections).map(|_| daemon.connect())));
        group.throughput(Throughput::Elements((connections * ROUND) as u64));
        group.bench_function(BenchmarkId::new("connections", connections), |bencher| {
            bencher.iter(|| runtime.block_on(round(&mut open, "POST", "/v1/runs", &task)));
        });
    }
    const LINES: usize = 10_000;
    let lines = load::lines(&daemon, LINES, |_| 0);
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function(BenchmarkId::new("batch", LINES), |bencher| {
        bencher.iter(|| runtime.block_on(daemon.ask("POST", "/v1/batches", &lines)));
    });
    group.finish();
}

fn questions(criterion: &mut Criterion) {
    let runtime = runtime();
    for (ended, open) in [(10_000, 0), (100_000, 0), (0, 10_000)] {
        let daemon = runtime.block_on(Daemon::start(|state| state::fill(state, ended, open)));
        let list = runtime.block_on(daemon.ask("GET", "/v1/runs?limit=1", ""));
        let run = format!("/v1/runs/{}", list["runs"][0]["id"].as_str().unwrap());
        let mut group = criterion.benchmark_group(format!("daemon/{ended} ended, {open} open"));
        group.sample_size(10).throughput(Throughput::Elements(ROUND as u64));
        let mut connection = [runtime.block_on(daemon.connect())];
        for path in
            ["/v1/status", &run, "/v1/runs", "/v1/runs?state=running", "/v1/runs?state=ended&label=team=x"]
        {
            let name = if path == run { "/v1/runs/RUN" } else { path };
            group.bench_function(name, |bencher| {
                bencher.iter(|| runtime.block_on(round(&mut connection, "GET", path, "")));
            });
        }
        group.finish();
    }
}

/// Events of the log, from its beginning.
fn events(criterion: &mut Criterion) {
    const EVENTS: usize = 20_000;
    let runtime = runtime();
    let daemon = runtime.block_on(Daemon::start(|state| state::fill(state, EVENTS / 2, 0)));
    let mut group = criterion.benchmark_group("daemon/events");
    group.sampling_mode(SamplingMode::Flat).sample_size(10);
    for followers in [1, 50] {
        group.throughput(Throughput::Elements((followers * EVENTS) as u64));
        group.bench_function(BenchmarkId::new("followers", followers), |bencher| {
            bencher.iter(|| runtime.block_on(load::read_events(&daemon, followers, EVENTS)));
        });
    }
    group.finish();
}

criterion_group!(benches, submissions, questions, events);

fn main() {
    let asked = |flag: &str| std::env::args().any(|arg| arg == flag);
    if asked("--followers") {
        runtime().block_on(load::followers());
    } else if asked("--events") {
        runtime().block_on(load::events());
    } else if asked("--latency") {
        runtime().block_on(load::latency());
    } else if asked("--start") {
        runtime().block_on(load::startup());
    } else {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
