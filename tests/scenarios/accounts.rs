//! What a person sees of accounts, money and requests that fail, and what they can do about it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::{Value, json};

use crate::{
    daemon::Daemon,
    model::{
        chat::{chunk, text, usage},
        server::{Answer, Server},
    },
    support::{Place, assert_sound, field, until},
};

const BATCH: [&str; 7] = ["batch", "in.jsonl", "-o", "out.jsonl", "-j", "4", "--daemon"];

/// A place whose tasks ask this server, and whose daemon writes what it tells into `told.jsonl`.
fn place(server: &Server, tasks: usize) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path(".config/herder")).unwrap();
    let told = place.path("told.jsonl");
    let config = format!(
        "[models.m]\nprovider = \"openai\"\nmodel = \"fake-1\"\nbase_url = \"{}\"\naccount = \"team\"\n\
         input_usd_per_mtok = 0\noutput_usd_per_mtok = 20\n\
         [[notify]]\non = [\"latch-closed\", \"cap-80\"]\n\
         command = [\"sh\", \"-c\", \"cat >> {told}; echo >> {told}\"]\n",
        server.base_url(),
        told = told.display(),
    );
    place.write(".config/herder/config.toml", config);
    let task = |number: usize| {
        json!({"id": format!("t{number}"), "task": "Do it.", "workspace": "work", "tools": ["read"], "model": "m",
            "params": {"max_tokens": 5_000}})
    };
    place.tasks("in.jsonl", &(0..tasks).map(task).collect::<Vec<Value>>());
    place
}

fn refused(status: u16, said: &str, wait_s: u32) -> Answer {
    let body = json!({"error": {"message": said}}).to_string();
    let headers = vec![("content-type", "application/json".to_owned()), ("retry-after", wait_s.to_string())];
    Answer::Status { status, headers, body }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_up_account_is_shown_told_of_once_and_opened_by_resuming_its_model() {
    let used_up = Arc::new(AtomicBool::new(true));
    let empty = used_up.clone();
    let server = Server::start(move |_| {
        if empty.load(Ordering::SeqCst) { refused(402, "no credit left", 86_400) } else { text("all done") }
    })
    .await;
    let place = place(&server, 8);
    let _daemon = Daemon::start(&place);
    let watcher = place.start(&BATCH);
    let json = |args: &[&str]| place.herder(args).expect(0).json();
    until("all runs wait for their account", || {
        json(&["batches", "--json"]).first().is_some_and(|batch| batch["waits"][0]["runs"] == 8)
    });
    let status = json(&["status", "--json"]).remove(0);
    let shut = &status["shut"][0];
    assert_eq!((&shut["account"], &shut["reason"]), (&json!("team"), &json!("quota")));
    assert!(shut["until"].is_string(), "{shut}");
    assert!(shut["said"].as_str().unwrap().contains("no credit left"), "{shut}");
    let status = place.herder(&["status"]).expect(0).out;
    assert!(status.contains("shut       team: account used up until 20"), "{status}");
    let models = place.herder(&["models", "m"]).expect(0).out;
    assert!(models.contains("account used up"), "{models}");
    let listed = place.herder(&["ls"]).expect(0).out;
    assert_eq!(listed.matches(": account used up until 20").count(), 8, "{listed}");

    used_up.store(false, Ordering::SeqCst);
    place.herder(&["resume", "--model", "m"]).expect(0);
    assert_eq!(watcher.wait(), Some(0));
    assert_eq!(field(&place.results("out.jsonl"), "outcome"), ["done"; 8]);
    let again = json(&["resume", "--model", "m", "--json"]);
    assert!(again.is_empty() || again[0]["changed"] == false, "{again:?}");
    let audit = json(&["audit", "--verb", "resume", "--json"]);
    assert_eq!(field(&audit, "detail")[0], "account team opened");
    assert_eq!(json(&["status", "--json"])[0]["shut"], json!([]));
    until("it is told", || !place.results("told.jsonl").is_empty());
    let told = place.results("told.jsonl");
    assert_eq!(field(&told, "occasion"), ["latch-closed"]);
    assert_eq!((&told[0]["news"]["account"], &told[0]["news"]["reason"]), (&json!("team"), &json!("quota")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_shown_with_its_cap_and_told_of_once_when_most_is_spent() {
    let server = Server::start(|_| {
        let said = chunk(&json!({"content": "all done"}), None);
        Answer::Stream(vec![said, chunk(&json!({}), Some("stop")), usage(10, 4_500)])
    })
    .await;
    let place = place(&server, 10);
    let _daemon = Daemon::start(&place);
    let args = [&BATCH[..4], &["-j", "1", "--daemon", "--max-cost", "1.00"]].concat();
    let ended = place.herder(&args).expect(0);
    assert!(ended.err.contains("10 done") && ended.err.contains("$0.90 of $1.00"), "{}", ended.err);
    until("it is told", || !place.results("told.jsonl").is_empty());
    let status = place.herder(&["status"]).expect(0).out;
    assert!(status.contains("spent      $0.90"), "{status}");
    let told = place.results("told.jsonl");
    assert_eq!(field(&told, "occasion"), ["cap-80"]);
    let news = &told[0]["news"];
    assert_eq!((&news["kind"], &news["cap_usd"]), (&json!("batch"), &json!(1.0)));
    assert!((news["spent_usd"].as_f64().unwrap() - 0.81).abs() < 1e-9, "{news}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_sent_again_is_counted_shown_and_of_record() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        if asked.fetch_add(1, Ordering::SeqCst) == 0 {
            refused(503, "come back", 0)
        } else {
            text("all done")
        }
    })
    .await;
    let place = place(&server, 2);
    let foreground = &["batch", "in.jsonl", "-o", "out.jsonl", "-j", "1", "--json"];
    let ended = place.herder(foreground).expect(0);
    let summary: Value = serde_json::from_str(ended.err.lines().last().unwrap()).unwrap();
    assert_eq!(summary["retries"], 1, "{summary}");
    let shown = |args: &[&str]| {
        place.herder(&[&["show", "t0", "--state", "out.jsonl.state"], args].concat()).expect(0)
    };
    let requests = shown(&["--json"]).json()[0]["requests"].clone();
    let requests = requests.as_array().unwrap();
    assert_eq!(field(requests, "end"), ["retried", "answered"]);
    assert_eq!(requests[0]["class"], "overloaded");
    assert!(requests[0]["not_before"].is_string() && requests[1]["digest"].is_string(), "{requests:?}");
    let words = shown(&[]).out;
    assert!(words.contains("requests   2: 1 sent again"), "{words}");
    assert_sound(&place.events("out.jsonl.state"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_run_whose_account_only_a_person_can_open_is_not_waited_for() {
    let body = json!({"error": {"message": "no credit left", "type": "insufficient_quota"}}).to_string();
    let server = Server::start(move |_| {
        let headers = vec![("content-type", "application/json".to_owned())];
        Answer::Status { status: 429, headers, body: body.clone() }
    })
    .await;
    let place = place(&server, 1);
    let args = ["run", "Do it.", "--model", "m", "-w", "work", "--policy", "read-only"];
    let ended = place.herder(&args).expect(1);
    assert!(ended.err.contains("provider_error: quota"), "{}", ended.err);
    assert!(ended.err.contains("HTTP 429: no credit left"), "{}", ended.err);
}
