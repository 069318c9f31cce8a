//! Measures of the whole program, each a line of JSON: what followers cost the runs, and how soon a daemon that is busy or
//! has much behind it answers.
#![expect(clippy::print_stdout, reason = "the result")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    process::{Connection, Daemon},
    state::fill,
};

const RUNS: usize = 1_000;
const TURNS: usize = 5;
const FOLLOWERS: usize = 200;
const STALLED: usize = 20;

/// Turns a second of a thousand runs: with nobody who follows them, and with many who do, some of whom stop reading.
pub(crate) async fn followers() {
    let daemon = Daemon::start(|_| {}).await;
    turns_a_second(&daemon, "warm-up").await;
    let mut rates = (Vec::new(), Vec::new());
    for round in 0..3 {
        rates.0.push(turns_a_second(&daemon, &format!("alone {round}")).await);
        let mut readers = tokio::task::JoinSet::new();
        let mut stalled = Vec::new();
        for number in 0..FOLLOWERS {
            let mut events = daemon.follow("/v1/events?after=now").await;
            if number < STALLED {
                stalled.push(events);
            } else {
                readers.spawn(async move { while events.read().await.is_some() {} });
            }
        }
        while daemon.ask("GET", "/v1/status", "").await["followers"] != FOLLOWERS {}
        rates.1.push(turns_a_second(&daemon, &format!("followed {round}")).await);
        readers.shutdown().await;
    }
    let (alone, followed) = (median(rates.0), median(rates.1));
    println!(
        "{}",
        json!({ "measure": "followers", "runs": RUNS, "followers": FOLLOWERS, "stalled": STALLED,
            "turns_per_s_alone": alone, "turns_per_s_followed": followed, "ratio": followed / alone })
    );
}

/// Runs a batch to its end.
async fn turns_a_second(daemon: &Daemon, name: &str) -> f64 {
    let lines = lines(daemon, RUNS, |_| 0);
    let began = Instant::now();
    let path = format!("/v1/batches?concurrency={RUNS}&name={}", name.replace(' ', "-"));
    let batch = daemon.ask("POST", &path, &lines).await;
    let path = format!("/v1/batches/{}", batch["id"].as_str().unwrap());
    let mut connection = daemon.connect().await;
    loop {
        let view: Value = serde_json::from_slice(&connection.ask("GET", &path, "").await.1).unwrap();
        if view["state"] == "ended" {
            return (RUNS * TURNS) as f64 / began.elapsed().as_secs_f64();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Tasks of five turns, four of them with a call, each of which takes as long to be asked for as `delay_ms` says of the task.
pub(crate) fn lines(daemon: &Daemon, count: usize, delay_ms: impl Fn(usize) -> usize) -> String {
    let script = |number| {
        let delay_ms = delay_ms(number);
        let call =
            json!({ "calls": [{ "name": "list", "arguments": { "path": "empty" } }], "delay_ms": delay_ms });
        let mut script = vec![call; TURNS - 1];
        script.push(json!({ "text": "done", "delay_ms": delay_ms }));
        script
    };
    let workspace = daemon.workspace();
    let _ = std::fs::create_dir(format!("{workspace}/empty"));
    let line = |number| {
        format!(
            "{}\n",
            json!({ "id": format!("t{number}"), "task": "Look around.", "workspace": workspace, "script": script(number) })
        )
    };
    (0..count).map(line).collect()
}

/// Events a second as they come, to one follower and to many.
pub(crate) async fn events() {
    let daemon = Daemon::start(|_| {}).await;
    turns_a_second(&daemon, "warm-up").await;
    let list = daemon.ask("GET", "/v1/runs?limit=1", "").await;
    let run = daemon.ask("GET", &format!("/v1/runs/{}", list["runs"][0]["id"].as_str().unwrap()), "").await;
    let events = RUNS * usize::try_from(run["events"].as_u64().unwrap()).unwrap();
    for followers in [1, 50] {
        let streams = join_all((0..followers).map(|_| daemon.follow("/v1/events?after=now"))).await;
        while daemon.ask("GET", "/v1/status", "").await["followers"] != followers {}
        let read = streams.into_iter().map(|mut stream| async move {
            let mut count = 0;
            // The head and the greeting are none. One that does not keep up is cut off.
            while count <= events
                && let Some(more) = stream.read().await
            {
                count += more;
            }
            count
        });
        let began = Instant::now();
        let name = format!("followed by {followers}");
        let (_, read) = tokio::join!(turns_a_second(&daemon, &name), join_all(read));
        let cut_off = read.iter().filter(|count| **count <= events).count();
        let per_s = read.into_iter().sum::<usize>() as f64 / began.elapsed().as_secs_f64();
        println!(
            "{}",
            json!({ "measure": "events as they come", "followers": followers, "events": events,
                "cut_off": cut_off, "per_s": per_s })
        );
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// How soon a daemon answers while ten thousand runs work, each a turn every few seconds.
pub(crate) async fn latency() {
    const WORKING: usize = 10_000;
    let daemon = Daemon::start(|_| {}).await;
    // Each at a pace of its own: work does not come all at one instant.
    let lines = lines(&daemon, WORKING, |number| 2_500 + number % 5_000);
    daemon.ask("POST", &format!("/v1/batches?concurrency={WORKING}"), &lines).await;
    while daemon.ask("GET", "/v1/status", "").await["load"]["live"] != WORKING {}
    let mut connection = daemon.connect().await;
    for path in ["/v1/status", "/v1/runs?limit=50", "/v1/runs?limit=50&state=running"] {
        tell(&format!("GET {path}"), &timed(&mut connection, "GET", vec![path.to_owned(); 300]).await);
    }
    let list = daemon.ask("GET", "/v1/runs?limit=300", "").await;
    let ids = list["runs"].as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap());
    let runs: Vec<String> = ids.map(|id| format!("/v1/runs/{id}")).collect();
    tell("GET /v1/runs/RUN", &timed(&mut connection, "GET", runs.clone()).await);
    for verb in ["pause", "resume", "cancel"] {
        let paths = runs.iter().map(|run| format!("{run}/{verb}")).collect();
        tell(&format!("POST {verb}"), &timed(&mut connection, "POST", paths).await);
    }
}

async fn timed(connection: &mut Connection, method: &str, paths: Vec<String>) -> Vec<Duration> {
    let mut times = Vec::new();
    for path in paths {
        let began = Instant::now();
        let (status, answer) = connection.ask(method, &path, "").await;
        times.push(began.elapsed());
        let fits = status == 200 || status == 409;
        assert!(fits, "{path}: {status} {}", String::from_utf8_lossy(&answer));
        // As somebody asks who looks at what comes.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    times.sort();
    times
}

fn tell(what: &str, times: &[Duration]) {
    let at = |percent: usize| times[(times.len() - 1) * percent / 100].as_secs_f64() * 1e3;
    println!("{}", json!({ "measure": what, "p50_ms": at(50), "p99_ms": at(99), "max_ms": at(100) }));
}

/// How soon a daemon is ready over what it has behind it, and how long commands take that ask it.
pub(crate) async fn startup() {
    for (ended, open) in [(0, 0), (10_000, 0), (0, 10_000), (100_000, 0), (100_000, 10_000)] {
        let daemon = Daemon::start(|state| fill(state, ended, open)).await;
        let ready_ms = daemon.ready_after.as_secs_f64() * 1e3;
        let mut commands = serde_json::Map::new();
        for words in ["status", "ls", "ls --json", "ls --standing running", "top --once"] {
            let args: Vec<&str> = words.split(' ').collect();
            let began = Instant::now();
            let mut command = daemon.command(&args);
            let ok = tokio::task::spawn_blocking(move || command.status().unwrap().success()).await.unwrap();
            assert!(ok, "{words}");
            commands.insert(words.to_owned(), json!(began.elapsed().as_secs_f64() * 1e3));
        }
        println!(
            "{}",
            json!({ "measure": "start", "ended": ended, "open": open, "ready_ms": ready_ms, "commands_ms": commands })
        );
    }
}

/// Reads events from the beginning until each of so many followers has so many.
pub(crate) async fn read_events(daemon: &Daemon, followers: usize, events: usize) {
    let read = |_| async {
        let mut stream = daemon.follow("/v1/events").await;
        let mut count = 0;
        // The head and the greeting are none.
        while count <= events {
            count += stream.read().await.unwrap();
        }
    };
    join_all((0..followers).map(read)).await;
}
