//! Five hundred runs that share a server which allows fifty requests at once and so many a minute, in real time.
//!
//! Prints what the metrics say of the account, second by second, when the limit was cut, and how long it all took, as a
//! multiple of what the server allows at best. By itself all modes, one after another; `auto` or `fixed` (how many runs
//! are live) with `told` or `untold` (whether the server's answers tell its limits) picks one; a number is another rate.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may panic, and prints its result")]

#[expect(dead_code, reason = "shared with tests that need more of it")]
#[path = "../tests/support/mod.rs"]
mod served;
#[expect(dead_code, reason = "shared with benches that need more of it")]
mod support;

use std::{sync::Arc, time::Duration};

use herder::{
    actor::{Settings, Supervisor},
    model::{
        Model,
        governor::{Account, Governor, Rates},
        http,
        openai::{self, OpenAi},
    },
    telemetry::{metric, prometheus},
};
use serde_json::json;
use served::limited::{self, Limited, Limits};
use support::{Log, run_all, tree};
use tokio::time::{Instant, interval, sleep};

const RUNS: usize = 500;
const TURNS: usize = 4;
const AT_ONCE: u32 = 50;
const MINUTE: Duration = Duration::from_secs(60);
const STALL: Duration = Duration::from_secs(10);

/// Seconds from one line of the chart to the next.
const LINE: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Mode {
    /// Whether runs start only as their model has places free.
    follows: bool,
    tells: bool,
    a_minute: usize,
}

/// One second of the metrics.
struct Sample {
    limit: usize,
    in_flight: usize,
    waiting: usize,
    live: usize,
}

fn limits(mode: Mode) -> Limits {
    Limits {
        seed: 1,
        at_once: AT_ONCE as usize,
        rate: (mode.a_minute, MINUTE),
        tells: mode.tells,
        latency: (Duration::from_secs(1), Duration::from_secs(4)),
        faults: 0.06,
        retry_after: vec![None, Some(("retry-after-ms", "1500")), None, Some(("retry-after", "5"))],
        turns: TURNS,
        tool: ("add", json!({ "a": 2, "b": 3 })),
    }
}

async fn start(server: &Limited, account: &str, mode: Mode, folder: &std::path::Path) -> Supervisor {
    let settings = openai::Settings { base_url: server.base_url(), ..openai::Settings::default() };
    let provider = Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap());
    let governor = Governor::new(Account::new(account), Rates::default());
    let model = Model { wire_name: "limited".into(), governor, ..Model::new("bench", provider) };
    let settings =
        Settings { max_live_runs: RUNS, follow_models: mode.follows, stall: STALL, ..Settings::default() };
    tree(Log::Durable, folder, model, settings).await
}

async fn measure(mode: Mode, metrics: &impl Fn() -> String) {
    let name = format!(
        "{}-{}",
        if mode.follows { "auto" } else { "fixed" },
        if mode.tells { "told" } else { "untold" }
    );
    // Beside the build: temporary files may lie in memory, which no log does.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let server = Limited::start(limits(mode)).await;
    let supervisor = start(&server, &name, mode, folder.path()).await;
    let governor = supervisor.services().models.get("bench").unwrap().governor.clone();
    let (mut chart, mut cuts) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let work = run_all(&supervisor, RUNS, folder.path().to_str().unwrap(), None);
    let draw = async {
        let mut second = interval(Duration::from_secs(1));
        loop {
            second.tick().await;
            chart.push(Sample::of(&metrics(), &name));
        }
    };
    let watch = async {
        loop {
            if let Some(at) = governor.view().last_cut.filter(|at| cuts.last() != Some(at)) {
                cuts.push(at);
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let done = tokio::select! { done = work => done, () = draw => 0, () = watch => 0 };
    let took = began.elapsed();
    supervisor.drain(Duration::ZERO).await;

    println!("\n{name}: {done} of {RUNS} runs done in {:.1} s", took.as_secs_f64());
    println!("   s  limit  in flight  waiting  live");
    for (second, sample) in chart.iter().enumerate().step_by(LINE) {
        println!("{second:4}  {sample}");
    }
    report(&server.account(), mode, took);
    let cuts: Vec<f64> = cuts.iter().map(|at| (*at - began).as_secs_f64()).collect();
    let gap = cuts.windows(2).map(|cuts| cuts[1] - cuts[0]).fold(f64::INFINITY, f64::min);
    println!("{} cuts, at least {gap:.1} s apart: {cuts:.1?}", cuts.len());
}

/// How it went for the server, and how fast it could have gone.
fn report(account: &limited::Account, Mode { a_minute, .. }: Mode, took: Duration) {
    let turns = || account.turns.values();
    let taken = account.taken.len();
    let by_places = turns().map(|turn| turn.busy).sum::<Duration>() / AT_ONCE;
    let (minutes, rest) = (taken / a_minute, taken % a_minute);
    let by_minutes = MINUTE * u32::try_from(minutes).unwrap() + by_places.mul_f64(rest as f64 / taken as f64);
    let mut chains = std::collections::HashMap::<&str, Duration>::new();
    for ((run, _), turn) in &account.turns {
        *chains.entry(run).or_default() += turn.busy;
    }
    let chain = chains.into_values().max().unwrap();
    let allowed = by_places.max(by_minutes).max(chain);
    println!(
        "{} served, {taken} taken, {} refused for what is out, {} for the minute; most out {}; {:?}",
        turns().map(|turn| turn.served).sum::<usize>(),
        account.beyond_places,
        account.beyond_rate,
        account.most_out,
        account.faults,
    );
    println!(
        "the server allows {:.1} s (places {:.1}, minutes {:.1}, longest run {:.1}); ratio {:.2}",
        allowed.as_secs_f64(),
        by_places.as_secs_f64(),
        by_minutes.as_secs_f64(),
        chain.as_secs_f64(),
        took.as_secs_f64() / allowed.as_secs_f64(),
    );
}

impl Sample {
    /// What a page of metrics says.
    fn of(page: &str, account: &str) -> Self {
        let value = |name: &str| {
            let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.parse().ok()).unwrap_or_default()
        };
        let account = |name: &str| value(&format!("{name}{{account=\"{account}\"}}"));
        Self {
            limit: account(metric::ACCOUNT_LIMIT),
            in_flight: account(metric::ACCOUNT_IN_FLIGHT),
            waiting: account(metric::ACCOUNT_WAITING),
            live: value(metric::RUNS_LIVE),
        }
    }
}

impl std::fmt::Display for Sample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { limit, in_flight, waiting, live } = self;
        let bar: String = (1..=*limit.max(in_flight))
            .map(|place| {
                if place == *limit {
                    '|'
                } else if place <= *in_flight {
                    '#'
                } else {
                    '.'
                }
            })
            .collect();
        write!(f, "{limit:5}  {in_flight:9}  {waiting:7}  {live:4}  {bar}")
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let asked: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let a_minute = asked.iter().find_map(|arg| arg.parse().ok());
    let is_asked = |name| asked.iter().any(|arg| arg == name);
    let metrics = prometheus::record().unwrap();
    for (follows, runs) in [(true, "auto"), (false, "fixed")] {
        for (tells, server) in [(false, "untold"), (true, "told")] {
            if asked.is_empty() || is_asked(runs) && is_asked(server) {
                measure(Mode { follows, tells, a_minute: a_minute.unwrap_or(900) }, &metrics).await;
            }
        }
    }
}
