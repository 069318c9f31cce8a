//! What a user sees of a provider that refuses, and of one that sends what is hard to read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use crate::{
    model::{
        chat,
        server::{Answer, Server, Step},
    },
    support::{Place, field, json_lines, sorted},
};

const NO_QUOTA: &str = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota"}}"#;

fn refusal(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Answer::Status { status, headers, body: body.to_owned() }
}

/// A folder whose only model is at the server.
fn place(server: &Server) -> Place {
    let place = Place::new();
    let base_url = server.base_url();
    place.write(
        "c.toml",
        format!("[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{base_url}\"\n"),
    );
    place
}

const RUN: [&str; 8] = ["run", "Say hello", "--config", "c.toml", "--model", "m", "--state", "runs"];

/// A server that refuses everybody until it is told to answer.
async fn refusing(answer: Answer) -> (Server, Arc<AtomicBool>) {
    let answers = Arc::new(AtomicBool::default());
    let does = answers.clone();
    let server =
        Server::start(
            move |_| {
                if does.load(Ordering::SeqCst) { chat::text("all well") } else { answer.clone() }
            },
        )
        .await;
    (server, answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_will_never_be_accepted_asks_no_more_than_could_help_and_says_why() {
    let wait = [("retry-after", "1")];
    let table = [
        (refusal(429, &wait, NO_QUOTA), "quota", "You exceeded your current quota"),
        (refusal(401, &[], "who are you?"), "auth", "HTTP 401: who are you?"),
        (refusal(422, &[], r#"{"detail":"x"}"#), "invalid", "HTTP 422: \"x\""),
        (
            refusal(400, &[], "request (9120 tokens) exceeds the available context size (8192 tokens)"),
            "context_overflow",
            "request (9120 tokens) exceeds",
        ),
        (
            Answer::Raw(vec![Step::Bytes(
                b"event: error\ndata: {\"error\":{\"message\":\"invalid request\",\"code\":400}}\n\n"
                    .to_vec(),
            )]),
            "invalid",
            "invalid request",
        ),
    ];
    for (answer, class, words) in table {
        let (server, _) = refusing(answer).await;
        let ended = place(&server).herder(&RUN).expect(1);
        let last = ended.err.lines().last().unwrap();
        assert!(last.starts_with(&format!("herder: the run ended as provider_error: {class}: ")), "{last}");
        assert!(last.contains(words), "{last} lacks {words}");
        // An answer with less room may be all that is needed.
        let asked = if class == "context_overflow" { 3 } else { 1 };
        assert_eq!((server.requests().len(), ended.out.as_str()), (asked, ""), "{class}");
    }
}

/// A batch of tasks that are all asked at once.
fn batch(place: &Place) {
    let task =
        |n: usize| json!({"id": format!("t{n}"), "task": "Say hello.", "workspace": "work", "model": "m"});
    place.tasks("in.jsonl", &(0..6).map(task).collect::<Vec<Value>>());
}

const BATCH: [&str; 8] = ["batch", "in.jsonl", "-o", "out.jsonl", "--config", "c.toml", "-j", "1"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_account_is_used_up_stops_with_one_sentence_and_goes_on_later() {
    let (server, answers) = refusing(refusal(429, &[("retry-after", "1")], NO_QUOTA)).await;
    let place = place(&server);
    batch(&place);
    let ended = place.herder(&BATCH).expect(1);
    let told: Vec<_> = ended.err.lines().filter(|line| line.starts_with("herder: account 127")).collect();
    assert_eq!(told.len(), 1, "{}", ended.err);
    let used_up = " is used up (HTTP 429: You exceeded your current quota (insufficient_quota)); go on when there is more";
    assert!(told[0].ends_with(used_up), "{}", told[0]);
    assert!(ended.err.contains("6 tasks not finished"), "{}", ended.err);
    assert_eq!((server.requests().len(), place.results("out.jsonl").len()), (1, 0));

    answers.store(true, Ordering::SeqCst);
    place.herder(&BATCH).expect(0);
    let results = place.results("out.jsonl");
    assert_eq!(sorted(field(&results, "id")), ["t0", "t1", "t2", "t3", "t4", "t5"]);
    assert!(results.iter().all(|line| line["outcome"] == "done" && line["attempt"] == 1), "{results:?}");
    assert_eq!(server.requests().len(), 7, "the run that was refused is the one that goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_key_is_refused_twice_stops_with_one_sentence_and_goes_on_with_another() {
    let (server, answers) = refusing(refusal(401, &[], r#"{"error":{"message":"no such key"}}"#)).await;
    let place = place(&server);
    batch(&place);
    let ended = place.herder(&BATCH).expect(1);
    let told = ended.err.lines().filter(|line| line.contains(" refuses the key ")).collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{}", ended.err);
    assert!(told[0].contains("no such key") && told[0].ends_with("go on with another key"), "{}", told[0]);
    assert_eq!(server.requests().len(), 2);
    assert_eq!(place.results("out.jsonl").len(), 0, "no task is burnt");

    answers.store(true, Ordering::SeqCst);
    place.herder(&BATCH).expect(0);
    let results = place.results("out.jsonl");
    let done = results.iter().filter(|line| line["outcome"] == "done").count();
    assert_eq!((results.len(), done), (6, 6), "{results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_letter_that_the_network_cuts_is_whole_on_stdout() {
    let event = |content: &str| {
        format!("data: {}\n\n", chat::chunk(&json!({"content": content}), Some("stop"))).into_bytes()
    };
    let streamed = event("那 😀");
    let steps: Vec<_> = streamed
        .chunks(1)
        .flat_map(|byte| [Step::Bytes(byte.to_vec()), Step::Wait(std::time::Duration::from_micros(100))])
        .collect();
    let server = Server::start(move |_| Answer::Raw(steps.clone())).await;
    let place = place(&server);
    assert_eq!(place.herder(&RUN).expect(0).out, "那 😀\n");
    let events = json_lines(&place.herder(&[&RUN[..], &["--json"]].concat()).expect(0).out);
    assert_eq!(events.last().unwrap()["data"]["text"], "那 😀");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_somebody_has_put_half_a_letter_in_is_read_to_its_end() {
    let server = Server::start(|_| chat::text("bye XX")).await;
    let place = place(&server);
    place.herder(&RUN).expect(0);
    let log = rusqlite::Connection::open(place.path("runs/log.db")).unwrap();
    // As versions without checksums wrote it.
    let spoil = r"UPDATE append SET sum = NULL, body = CAST(replace(CAST(body AS TEXT), 'bye XX', 'bye \ud83e') AS BLOB)";
    assert!(log.execute(spoil, []).unwrap() > 0);
    drop(log);
    let events = place.events("runs");
    let end = events.last().unwrap();
    assert_eq!((&end["kind"], &end["data"]["text"]), (&json!("run_end"), &json!("bye \u{FFFD}")));
    let listed = place.herder(&["ls", "--json", "--state", "runs"]).expect(0).json();
    assert_eq!(field(&listed, "outcome"), ["done"]);
    place.herder(&["show", listed[0]["id"].as_str().unwrap(), "--state", "runs"]).expect(0);
}
