//! How often a server is asked about each line of a batch that is killed: what was answered is never asked for again, and a
//! line that herder dies of each time is not tried for ever.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::{Value, json};

use crate::{
    model::{
        chat,
        server::{Answer, Server},
    },
    support::{Place, assert_sound, field, sorted, until},
};

const STATE: &str = "out.jsonl.state";
/// One line at a time, so that it is known which one is open at a death.
const BATCH: [&str; 10] =
    ["batch", "in.jsonl", "-o", "out.jsonl", "--config", "c.toml", "--model", "m", "-j", "1"];

/// A batch of these lines over a model at the server.
fn place(server: &Server, lines: &[String]) -> Place {
    let place = Place::new();
    let base_url = server.base_url();
    place.write(
        "c.toml",
        format!("[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{base_url}\"\n"),
    );
    let task = |id: &String| json!({"id": id, "task": format!("Do {id}."), "workspace": "work"});
    place.tasks("in.jsonl", &lines.iter().map(task).collect::<Vec<_>>());
    place
}

fn is_about(request: &Value, line: &str) -> bool {
    request["messages"].to_string().contains(&format!("Do {line}."))
}

/// How often the server was asked about each line.
fn asked(server: &Server, lines: &[String]) -> BTreeMap<String, usize> {
    let requests = server.requests();
    let count = |line: &String| requests.iter().filter(|request| is_about(request, line)).count();
    lines.iter().map(|line| (line.clone(), count(line))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_are_done_are_not_asked_about_again_though_the_next_batch_dies_before_its_first_result() {
    let lines: Vec<String> = (1..=10).map(|number| format!("line-{number:02}")).collect();
    let (done, open) = lines.split_at(6);
    let (answers, hangs) = (Arc::new(AtomicBool::default()), open.to_vec());
    let all = answers.clone();
    let server = Server::start(move |request| {
        let hangs = hangs.iter().any(|line| is_about(request, line)) && !all.load(Ordering::SeqCst);
        if hangs { Answer::Hang } else { chat::text("ready") }
    })
    .await;
    let place = place(&server, &lines);
    let deaths = 3;
    for death in 1..=deaths {
        let batch = place.start(&BATCH);
        server.asked(done.len() + death).await;
        until("what is done is told", || place.results("out.jsonl").len() == done.len());
        batch.kill();
    }
    answers.store(true, Ordering::SeqCst);
    place.herder(&BATCH).expect(0);
    let asked = asked(&server, &lines);
    assert!(done.iter().all(|line| asked[line] == 1), "{asked:?}");
    assert_eq!(open.iter().map(|line| asked[line]).sum::<usize>(), open.len() + deaths, "{asked:?}");
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), lines);
    assert_eq!(field(&results, "outcome"), ["done"; 10]);
    let events = place.events(STATE);
    assert_sound(&events);
    assert_eq!(events.iter().filter(|event| event["kind"] == "submitted").count(), lines.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_herder_dies_of_each_time_is_given_up_and_the_others_are_done_once() {
    let lines = ["a", "b", "c", "d"].map(|name| format!("line-{name}")).to_vec();
    let deadly = "line-c";
    let server = Server::start(
        move |request| {
            if is_about(request, deadly) { Answer::Hang } else { chat::text("ready") }
        },
    )
    .await;
    let place = place(&server, &lines);
    // A death counts if what it interrupts is of record by then, which may take one more.
    let mut deaths = 0;
    loop {
        let batch = place.start(&BATCH);
        let all_told = || place.results("out.jsonl").len() == lines.len();
        until("it is at that line, or has ended", || asked(&server, &lines)[deadly] > deaths || all_told());
        if all_told() {
            assert_eq!(batch.wait(), Some(1));
            break;
        }
        batch.kill();
        deaths += 1;
        assert!(deaths < 20, "it is tried for ever");
    }
    assert!(deaths >= 5, "given up after {deaths}");
    let once = |line: &str| (line.to_owned(), if line == deadly { deaths } else { 1 });
    let wanted: BTreeMap<_, _> = lines.iter().map(|line| once(line)).collect();
    assert_eq!(asked(&server, &lines), wanted);
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), lines);
    for result in &results {
        let wanted = if result["id"] == deadly {
            (json!("failed"), json!("restart_limit"))
        } else {
            (json!("done"), Value::Null)
        };
        assert_eq!((&result["outcome"], &result["detail"]), (&wanted.0, &wanted.1), "{result}");
    }
    // It stays given up.
    place.herder(&BATCH).expect(1);
    assert_eq!(asked(&server, &lines), wanted);
}
