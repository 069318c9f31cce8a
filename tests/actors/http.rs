//! Runs whose model is a server that accepts nothing doubtful.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use herder::{
    domain::event::Event,
    model::{
        http,
        openai::{OpenAi, Settings},
    },
    store::sqlite::{Options, SqliteStore},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    stage::{Plan, Stage},
    support::{
        chat::{self, Brain},
        server::{Answer, Rules, Server, Step},
    },
};

/// A provider that asks this server.
pub(crate) fn provider(server: &Server) -> Arc<OpenAi> {
    let settings = Settings { base_url: server.base_url(), ..Settings::default() };
    Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap())
}

/// A server that gives these answers, one a request.
pub(crate) async fn answering(answers: impl IntoIterator<Item = Answer>) -> Server {
    strictly(Rules::default(), answers).await
}

/// The same, with more rules.
pub(crate) async fn strictly(rules: Rules, answers: impl IntoIterator<Item = Answer>) -> Server {
    let answers = Mutex::new(answers.into_iter().collect::<VecDeque<_>>());
    Server::strict(rules, move |_| answers.lock().unwrap().pop_front().expect("no more answers")).await
}

/// Over a log on the disk.
pub(crate) async fn stage(server: &Server) -> Stage {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(&folder.path().join("log.db"), Options::default()).unwrap();
    let plan = Plan { provider: provider(server), store: Arc::new(store), ..Plan::default() };
    plan.settings(|settings| settings.max_live_runs = 200).start_in(Arc::new(folder)).await
}

fn task(name: &str) -> Value {
    json!({ "script": null, "task": format!("Do it. {}", Brain::marker(name)) })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_runs_work_with_tools_at_once_and_every_request_is_valid() {
    let mut brain = Brain::default();
    for n in 0..200 {
        let one = |tool: &str, arguments: Value| (tool.to_owned(), arguments);
        let edit =
            json!({ "path": "notes.txt", "old_text": "# here\n", "new_text": format!("# here\n{n}\n") });
        let bash = json!({ "command": format!("echo {n} > own-{n}.txt") });
        let read = json!({ "path": "notes.txt" });
        let turns = vec![
            vec![one("read", read.clone()), one("edit", edit)],
            vec![one("bash", bash), one("read", json!({ "path": "missing.txt" }))],
            vec![one("read", read)],
        ];
        brain = brain.plan(&format!("t{n}"), chat::Plan { turns, text: format!("done {n}") });
    }
    let server = Server::start(move |request| brain.answer(request)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "# here\n");
    let runs: Vec<_> =
        (0..200).map(|n| (n, stage.submit("ws", &Value::Null, &task(&format!("t{n}"))))).collect();
    for (n, submitted) in runs {
        let end = stage.end(submitted).await;
        assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), &*format!("done {n}")));
        assert_eq!((end.turns, end.calls), (4, 5));
        assert_eq!(stage.text("ws", &format!("own-{n}.txt")), format!("{n}\n"));
    }
    assert_eq!((server.refusals(), server.requests().len()), (Vec::<String>::new(), 800));
    assert_eq!(stage.text("ws", "notes.txt").lines().collect::<HashSet<_>>().len(), 201);
}

#[tokio::test]
async fn a_server_that_has_too_much_to_do_is_asked_again_and_each_retry_is_of_record() {
    let answers = Mutex::new([429_u16, 503].into_iter());
    let server = Server::start(move |_| match answers.lock().unwrap().next() {
        Some(status) => {
            let headers = vec![("retry-after-ms", "20".to_owned())];
            Answer::Status { status, headers, body: "{}".to_owned() }
        }
        None => chat::text("all well"),
    })
    .await;
    let stage = stage(&server).await;
    let submitted = stage.submit("ws", &Value::Null, &task("t"));
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!((end.outcome.to_string(), &*end.text, end.turns), ("done".to_owned(), "all well", 1));
    let log = stage.log(run).await.into_iter();
    let retries: Vec<_> = log
        .filter_map(|one| {
            let Event::ModelRetry(retry) = one.fact.event else { return None };
            assert!(retry.not_before.since(one.fact.at) >= Duration::from_millis(20));
            Some((retry.attempt, retry.class.as_str()))
        })
        .collect();
    assert_eq!(retries, [(1, "rate_limit"), (2, "overloaded")]);
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn a_cancel_during_the_wait_that_a_server_asked_for_ends_the_run_with_one_request_sent() {
    let seconds = ("retry-after", "50".to_owned());
    // Were the other one heeded, the run would wait without its slot.
    let both = vec![("retry-after-ms", "50000".to_owned()), ("retry-after", "90".to_owned())];
    for (status, headers) in [(503, vec![seconds.clone()]), (429, vec![seconds]), (429, both)] {
        let headers = headers.clone();
        let refusal = Answer::Status { status, headers, body: "{}".to_owned() };
        let server = Server::start(move |_| refusal.clone()).await;
        let stage = stage(&server).await;
        let submitted = stage.submit("ws", &Value::Null, &task("t"));
        let run = submitted.run;
        stage.until(run, "model_retry", 1).await;
        let since = std::time::Instant::now();
        stage.supervisor.cancel(run).await.unwrap();
        assert_eq!(stage.outcome(submitted).await, "cancelled");
        assert!(since.elapsed() < Duration::from_secs(45), "{:?}", since.elapsed());
        assert_eq!((server.requests().len(), stage.kinds(run).await.contains(&"parked")), (1, false));
    }
}

#[tokio::test]
async fn a_cancel_in_the_middle_of_an_answer_ends_the_run_and_closes_the_connection() {
    let word = format!("data: {}\n\n", chat::chunk(&json!({ "content": "well" }), None));
    let server =
        Server::start(move |_| Answer::Raw(vec![Step::Bytes(word.clone().into_bytes()), Step::Hang])).await;
    let stage = stage(&server).await;
    let submitted = stage.submit("ws", &Value::Null, &task("t"));
    server.sent(1).await;
    stage.supervisor.cancel(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    server.closed().await;
}

#[tokio::test]
async fn a_cancel_while_the_server_says_nothing_closes_the_connection() {
    let server = Server::start(|_| Answer::Hang).await;
    let stage = stage(&server).await;
    let submitted = stage.submit("ws", &Value::Null, &task("t"));
    server.asked(1).await;
    stage.supervisor.cancel(submitted.run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    server.closed().await;
}

// Where nothing but the end of the answer is waited for, it comes at once, however busy the machine is.
#[tokio::test(start_paused = true)]
async fn the_turns_of_a_run_go_over_one_connection() {
    let read = || vec![("read".to_owned(), json!({ "path": "notes.txt" }))];
    let plan = chat::Plan { turns: (0..5).map(|_| read()).collect(), text: "done".to_owned() };
    let brain = Brain::default().plan("one", plan);
    let slow_to_end = move |request: &Value| {
        let Answer::Stream(events) = brain.answer(request) else { panic!("the brain streams") };
        let body: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
        let body = Step::Bytes(format!("{body}data: [DONE]\n\n").into_bytes());
        Answer::Raw(vec![body, Step::Wait(Duration::from_millis(2))])
    };
    let server = Server::start(slow_to_end).await;
    let stage = Plan { provider: provider(&server), ..Plan::paused() }.start().await;
    stage.write("ws", "notes.txt", "noted\n");
    let end = stage.end(stage.submit("ws", &Value::Null, &task("one"))).await;
    assert_eq!((end.outcome.to_string(), end.turns), ("done".to_owned(), 6));
    // On a busy machine the next request may be out before a connection is free again.
    assert!(server.accepted() <= 3, "{} connections", server.accepted());
}

#[tokio::test]
async fn what_was_sent_is_of_record_with_the_tools_that_were_on_offer() {
    let read = vec![vec![("read".to_owned(), json!({ "path": "notes.txt" }))]];
    let plan = chat::Plan { turns: read, text: "done".to_owned() };
    let brain = Brain::default().plan("one", plan.clone()).plan("two", plan);
    let server = Server::start(move |request| brain.answer(request)).await;
    let stage = stage(&server).await;
    stage.write("ws", "notes.txt", "noted\n");
    let mut sent = Vec::new();
    for (name, tools) in [("one", json!(["read"])), ("two", json!(["read", "list"]))] {
        let mut task = task(name);
        task["tools"] = tools;
        let submitted = stage.submit("ws", &Value::Null, &task);
        let run = submitted.run;
        assert_eq!(stage.outcome(submitted).await, "done");
        for envelope in stage.log(run).await {
            if let Event::Message(reply) = envelope.fact.event {
                sent.push(reply.request.clone().unwrap());
            }
        }
    }
    let digests: HashSet<_> = sent.iter().map(|sent| sent.digest.clone().unwrap()).collect();
    assert_eq!((sent.len(), digests.len()), (4, 4), "each request was another one");
    let tools: Vec<_> = sent.iter().map(|sent| sent.tools.clone().unwrap()).collect();
    assert!(tools.iter().all(|digest| digest.len() == 64));
    assert!(tools[0] == tools[1] && tools[2] == tools[3] && tools[0] != tools[2], "{tools:?}");
    assert_eq!(sent.iter().map(|sent| sent.included).collect::<Vec<_>>(), [1, 3, 1, 3]);
}
