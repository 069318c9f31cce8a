//! herder as one of several programs that do the same work, to be measured beside them in one run.
//!
//! The work is N runs of five model turns, four of them with a call of `add`. Prints one JSON line: wall time, CPU time and
//! memory from the end of a warm-up of one run. By itself with everything on: streaming HTTP, policy, the mutation queue,
//! the durable log. `--log memory` and `--model scripted --delay-ms D` take parts away.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may panic, and prints its result")]

mod support;

use std::{fs, sync::Arc, time::Instant};

use herder::model::{
    ModelProvider, Secret, http,
    openai::{OpenAi, Profile, Settings},
    scripted::Scripted,
};
use support::{Log, run_all, script, supervisor};

/// As the `herder` program has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Args {
    base_url: String,
    n: usize,
    concurrency: usize,
    threads: usize,
    log: Log,
    scripted: bool,
    delay_ms: u64,
}

fn args() -> Option<Args> {
    let mut args = Args {
        base_url: "http://127.0.0.1:8123/v1".to_owned(),
        n: 1_000,
        concurrency: 100,
        threads: 2,
        log: Log::Durable,
        scripted: false,
        delay_ms: 0,
    };
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let mut any = false;
    while let Some(flag) = given.next() {
        let value = given.next().unwrap_or_default();
        any = true;
        match flag.as_str() {
            "--base-url" => args.base_url = value,
            "--n" => args.n = value.parse().unwrap(),
            "--concurrency" => args.concurrency = value.parse().unwrap(),
            "--threads" => args.threads = value.parse().unwrap(),
            "--log" => args.log = if value == "memory" { Log::Memory } else { Log::Durable },
            "--model" => args.scripted = value == "scripted",
            "--delay-ms" => args.delay_ms = value.parse().unwrap(),
            // Flags of the other programs that make no difference here.
            "--stream" | "--turns" | "--variant" => {}
            unknown => panic!("unknown flag {unknown}"),
        }
    }
    any.then_some(args)
}

/// User and system CPU seconds of this process, all threads.
fn cpu_s() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks =
        |at: usize| fields[at].parse::<f64>().unwrap() / rustix::param::clock_ticks_per_second() as f64;
    (ticks(11), ticks(12))
}

fn status_kb(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

fn main() {
    // Without flags (as `cargo bench` runs every bench) there is no server to ask, so the model is scripted.
    let args = args().unwrap_or(Args {
        base_url: String::new(),
        n: 10_000,
        concurrency: 1_000,
        threads: 2,
        log: Log::Durable,
        scripted: true,
        delay_ms: 0,
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.threads)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(measure(args));
}

async fn measure(args: Args) {
    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().to_str().unwrap();
    let provider: Arc<dyn ModelProvider> = if args.scripted {
        Arc::new(Scripted::default())
    } else {
        let settings = Settings {
            base_url: args.base_url.clone(),
            api_key: Secret::new("sk-mock"),
            headers: std::collections::BTreeMap::new(),
            extra_body: serde_json::Map::new(),
            profile: Profile::default(),
        };
        Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap())
    };
    let script = args.scripted.then(|| script(args.delay_ms));
    let supervisor = supervisor(args.log, folder.path(), provider, args.concurrency).await;
    assert_eq!(run_all(&supervisor, 1, workspace, script.as_ref()).await, 1, "the warm-up failed");

    let idle_kb = status_kb("VmRSS:");
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let (before, start) = (cpu_s(), Instant::now());
    let ok = run_all(&supervisor, args.n, workspace, script.as_ref()).await;
    let (wall_s, after) = (start.elapsed().as_secs_f64(), cpu_s());
    println!(
        "{}",
        serde_json::json!({
            "peer": "herder", "n": args.n, "concurrency": args.concurrency, "turns": 5, "stream": true, "ok": ok,
            "wall_s": wall_s, "user_s": after.0 - before.0, "sys_s": after.1 - before.1,
            "idle_kb": idle_kb, "peak_kb": status_kb("VmHWM:"),
        })
    );
}
