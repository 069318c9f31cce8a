//! Batches that may cost so much and no more, against a server that charges and keeps its own account.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    daemon::Daemon,
    model::{
        bill::{Bill, INPUT, Manner, OUTPUT},
        server::{Answer, Server, Step},
    },
    support::{Place, assert_sound, field, until},
};

/// Tasks of one turn each.
fn place(server: &Server, tasks: usize, max_tokens: u32) -> Place {
    let place = Place::new();
    let (input, output) = (INPUT * 1_000_000, OUTPUT * 1_000_000);
    place.write(
        "c.toml",
        format!(
            "[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{}\"\n\
             input_usd_per_mtok = {}\noutput_usd_per_mtok = {}\n\
             [models.dear]\nprovider = \"openai\"\nbase_url = \"{}\"\n",
            server.base_url(),
            input as f64 / 1e9,
            output as f64 / 1e9,
            server.base_url(),
        ),
    );
    let task = |number: usize| {
        json!({"id": format!("t{number}"), "task": format!("Do it, {number}."), "workspace": "work", "tools": ["read"],
            "model": "m", "params": {"max_tokens": max_tokens}})
    };
    place.tasks("in.jsonl", &(0..tasks).map(task).collect::<Vec<Value>>());
    place
}

/// One answer in ten is charged without having been heard, if it may be.
async fn server(bill: &Bill, delay: Duration, breaks_off: bool) -> Server {
    let account = bill.clone();
    Server::start(move |request| {
        let manner = match account.next() % 10 {
            3 if breaks_off => Manner::BreaksOff,
            6 => Manner::Untold,
            _ => Manner::Told,
        };
        let answer = account.answer(request, manner, vec![json!({"content": "all done, and well"})], "stop");
        let Answer::Stream(events) = answer else { return answer };
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let body = format!("{body}data: [DONE]\n\n").into_bytes();
        Answer::Raw(vec![Step::Wait(delay), Step::Bytes(body)])
    })
    .await
}

fn batch<'a>(cost: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["batch", "in.jsonl", "-o", "out.jsonl", "--config", "c.toml", "-j", "16", "--max-cost", cost], more]
        .concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_stops_at_its_cap_and_the_same_command_with_a_larger_one_does_the_rest() {
    let bill = Bill::default();
    let server = server(&bill, Duration::ZERO, false).await;
    let place = place(&server, 60, 2_000);
    let ended = place.herder(&batch("0.12", &[])).expect(1);
    let cap = 120_000_000;
    assert!(bill.charged() <= cap, "{} of {cap}", bill.charged());
    let done = place.results("out.jsonl");
    let all = done.iter().all(|line| line["outcome"] == "done");
    assert!(all && !done.is_empty() && done.len() < 60, "{done:?} {}", ended.err);
    let rest = format!("{} tasks not started (budget: cost)", 60 - done.len());
    assert!(
        ended.err.contains(&format!("herder: {rest}; the same command with a larger --max-cost")),
        "{}",
        ended.err
    );
    let spent = bill.charged();
    let again = place.herder(&batch("0.12", &["--json"])).expect(1);
    let summary: Value = serde_json::from_str(again.err.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&summary["not_started"], &summary["unfinished"]),
        (&json!(60 - done.len()), &json!(60 - done.len()))
    );
    assert_eq!(bill.charged(), spent, "what was spent is known, so nothing is begun");
    place.herder(&batch("5", &[])).expect(0);
    let results = place.results("out.jsonl");
    assert_eq!(results.len(), 60);
    assert!(results.iter().all(|line| line["outcome"] == "done" && line["attempt"] == 1));
    let recorded: f64 = results.iter().map(|line| line["cost_usd"].as_f64().unwrap()).sum();
    let charged = bill.charged() as f64 / 1e9;
    println!("{} tasks for $0.12, all for ${charged:.4}, ${recorded:.4} of record", done.len());
    assert!(charged <= recorded && recorded < charged * 2.5, "{charged} {recorded}");
    assert_sound(&place.events("out.jsonl.state"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_killed_and_goes_on_stays_within_its_cap() {
    let bill = Bill::default();
    let server = server(&bill, Duration::from_millis(30), true).await;
    let place = place(&server, 200, 200);
    let cap = 160_000_000;
    for killed_at in [5, 20, 40] {
        let batch = place.start(&batch("0.16", &[]));
        until("some results", || place.results("out.jsonl").len() >= killed_at);
        batch.kill();
        assert!(bill.charged() <= cap, "{} of {cap}", bill.charged());
    }
    let ended = place.herder(&batch("0.16", &[])).expect(1);
    assert!(ended.err.contains("not started (budget: cost)"), "{}", ended.err);
    println!("charged {} of {cap}, {} results", bill.charged(), place.results("out.jsonl").len());
    assert!(bill.charged() <= cap, "{} of {cap}", bill.charged());
    let lost = place.herder(&["events", "--all", "--json", "--state", "out.jsonl.state"]).expect(0).json();
    assert!(field(&lost, "kind").contains(&"request_lost"), "what was under way at a kill is of record");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_may_spend_in_a_day_is_a_cap_for_each_command() {
    let bill = Bill::default();
    let server = server(&bill, Duration::ZERO, false).await;
    let place = place(&server, 60, 2_000);
    let config = place.read("c.toml");
    place.write("c.toml", format!("{config}[[budget]]\nuser = \"*\"\nper = \"day\"\nusd = 0.08\n"));
    let args = ["batch", "in.jsonl", "-o", "out.jsonl", "--config", "c.toml"];
    let ended = place.herder(&args).expect(1);
    assert!(ended.err.contains("not started (budget: cost)"), "{}", ended.err);
    let spent = bill.charged();
    assert!((40_000_000..=80_000_000).contains(&spent), "{spent}");
    place.herder(&args).expect(1);
    assert_eq!(bill.charged(), spent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_the_daemons_waits_for_a_larger_cap_and_then_goes_on_by_itself() {
    let bill = Bill::default();
    let server = server(&bill, Duration::ZERO, false).await;
    let place = place(&server, 40, 2_000);
    std::fs::create_dir_all(place.path(".config/herder")).unwrap();
    place.write(".config/herder/config.toml", place.read("c.toml"));
    let daemon = Daemon::start(&place);
    let args = ["batch", "in.jsonl", "--daemon", "--detach", "--max-cost", "0.05"];
    let id = place.herder(&args).expect(0).out.trim().to_owned();
    let batch = |place: &Place| {
        let mut list = place.herder(&["batches", "--json"]).expect(0).json();
        list.retain(|batch| batch["id"] == *id);
        list.remove(0)
    };
    let waits = |place: &Place| {
        let batch = batch(place);
        batch["waits_for"] == "budget: cost" && batch["open"] == 0
    };
    until("the batch waits for money", || waits(&place));
    let spent = bill.charged();
    assert!(spent <= 50_000_000 && batch(&place)["state"] == "open", "{spent}");
    daemon.kill();
    let daemon = Daemon::start(&place);
    until("the batch waits for money again", || waits(&place));
    assert_eq!(bill.charged(), spent, "what was spent before is known");
    place.herder(&["set", "--batch", &id, "--max-cost", "5"]).expect(0);
    until("the batch ends", || batch(&place)["state"] == "ended");
    let batch = batch(&place);
    assert_eq!((&batch["ended"], &batch["waits_for"]), (&json!({"done": 40}), &Value::Null));
    let users = place.herder(&["stats", "--by", "user", "--json"]).expect(0).json();
    assert!(users[0]["group"].as_str().is_some_and(|user| !user.is_empty()), "{users:?}");
    drop(daemon);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_on_what_nobody_knows_the_price_of_is_refused_at_the_start() {
    let server = server(&Bill::default(), Duration::ZERO, false).await;
    let place = place(&server, 1, 10);
    place.tasks("in.jsonl", &[json!({"id": "a", "task": "x", "workspace": "work", "model": "dear"})]);
    for args in [
        batch("1", &[]),
        vec!["batch", "in.jsonl", "--config", "c.toml", "--run-max-cost", "1"],
        vec!["run", "x", "--config", "c.toml", "--model", "dear", "--run-max-cost", "1", "--state", "s"],
    ] {
        let ended = place.herder(&args).expect(2);
        assert!(ended.err.contains("model \"dear\" has no known price"), "{}", ended.err);
        assert!(
            ended.err.contains("free = true") && ended.err.contains("config/models.toml"),
            "{}",
            ended.err
        );
    }
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_that_comes_later_on_what_nobody_knows_the_price_of_is_refused_too() {
    let server = server(&Bill::default(), Duration::from_secs(600), false).await;
    let place = place(&server, 1, 10);
    std::fs::create_dir_all(place.path(".config/herder")).unwrap();
    let config = place.read("c.toml");
    place.write(".config/herder/config.toml", &config);
    let daemon = Daemon::start(&place);
    let run = place.herder(&["submit", "x", "--model", "dear", "-w", "work"]).expect(0).out.trim().to_owned();
    place.tasks("in.jsonl", &[json!({"id": "a", "task": "x", "workspace": "work", "model": "dear"})]);
    let id = place.herder(&["batch", "in.jsonl", "--daemon", "--detach"]).expect(0).out.trim().to_owned();
    place.write(".config/herder/config.toml", format!("{config}[supervisor]\nmax_cost_usd = 5\n"));
    for args in
        [&["set", &run, "--max-cost", "1"][..], &["set", "--batch", &id, "--max-cost", "1"], &["reload"]]
    {
        let ended = place.herder(args);
        assert!(ended.err.contains("model \"dear\" has no known price"), "{args:?}: {}", ended.err);
    }
    drop(daemon);
}
