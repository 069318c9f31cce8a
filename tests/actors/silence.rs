//! Servers that fall silent in the middle of an answer, whatever they send to hide it.

use std::{sync::Mutex, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::{
    http::{answering, provider},
    stage::{Plan, Stage},
    streams::{body, ended, event, retried, speaks_messages},
    support::{
        chat::chunk,
        messages::{self, framed},
        server::{Answer, Protocol, Rules, Server, Step},
    },
};

/// How long the model may say nothing; one that does speak is not held up for so long.
const STALL: Duration = Duration::from_secs(5);

/// The same, where nothing is spoilt by a model that is given up though it would have spoken.
const SHORT_STALL: Duration = Duration::from_secs(1);

/// A beginning, and what says nothing for much longer than it may.
fn endless(begun: String, nothing: &str) -> Answer {
    let wait = Step::Wait(Duration::from_millis(20));
    let pings = (0..1_000).flat_map(|_| [wait.clone(), body(nothing)]);
    Answer::Raw([body(begun)].into_iter().chain(pings).chain([Step::Hang]).collect())
}

/// A server that gives the first answer once, and the other one whenever it is asked again.
async fn once(rules: Rules, first: Answer, then: Answer) -> Server {
    let first = Mutex::new(Some(first));
    Server::strict(rules, move |_| first.lock().unwrap().take().unwrap_or_else(|| then.clone())).await
}

/// An answer whose connection ends with it.
fn last(whole: String) -> Answer {
    Answer::Raw(vec![body(whole), Step::Drop])
}

fn well() -> Answer {
    let spoken = event(&chunk(&json!({ "content": "all well" }), Some("stop")));
    last(format!("{spoken}data: [DONE]\n\n"))
}

async fn impatient(plan: Plan) -> Stage {
    plan.settings(|settings| settings.stall = STALL).start().await
}

/// The request is given up and sent again on another connection, and nothing of the first answer is left.
async fn assert_asked_again(what: &str, stage: &Stage, server: &Server) {
    let (run, end) = ended(stage).await;
    assert_eq!((end.outcome.to_string(), end.turns), ("done".to_owned(), 1), "{what}");
    let retried = retried(stage, run).await;
    assert!(!retried.is_empty() && retried.iter().all(|class| *class == "stall"), "{what}: {retried:?}");
    assert_eq!(stage.transcript(run).await, ["user: task", "model: all well"], "{what}");
    server.closed().await;
    let (bodies, most) = (server.bodies(), 1 + retried.len());
    assert!(
        (bodies.len()..=most).contains(&server.accepted()) && bodies.len() > 1,
        "{what}: {}",
        bodies.len()
    );
    assert!(bodies.iter().all(|body| *body == bodies[0]), "{what}");
}

#[tokio::test]
async fn a_server_that_says_nothing_more_is_asked_again_whatever_it_sends_to_hide_it() {
    let begun = || event(&chunk(&json!({ "content": "start" }), None));
    let empty = event(&chunk(&json!({ "content": "" }), None));
    let role = event(&chunk(&json!({ "role": "assistant" }), None));
    let table = [
        ("comments", endless(begun(), ": ping\n\n")),
        ("pings", endless(begun(), "event: ping\ndata: {\"type\": \"ping\"}\n\n")),
        ("empty pieces", endless(begun(), &empty)),
        ("pieces with a role alone", endless(begun(), &role)),
        ("nothing", Answer::Raw(vec![body(begun()), Step::Hang])),
        ("nothing after its head", Answer::Raw(vec![Step::Hang])),
    ];
    join_all(table.map(|(what, silent)| async move {
        let server = once(Rules::default(), silent, well()).await;
        let stage = impatient(Plan { provider: provider(&server), ..Plan::default() }).await;
        assert_asked_again(what, &stage, &server).await;
    }))
    .await;
}

#[tokio::test]
async fn so_is_one_that_speaks_messages_and_pings() {
    let begun = framed(&messages::events(&[messages::words("start")], "end_turn")[..4]);
    let delta = |delta: Value| json!({ "type": "content_block_delta", "index": 0, "delta": delta });
    let ping = framed(&[json!({ "type": "ping" })]);
    let empty = framed(&[delta(json!({ "type": "text_delta", "text": "" }))]);
    let table = [("pings", endless(begun.clone(), &ping)), ("empty pieces", endless(begun, &empty))];
    join_all(table.map(|(what, silent)| async move {
        let well = last(framed(&messages::events(&[messages::words("all well")], "end_turn")));
        let rules = Rules { protocol: Protocol::Messages, ..Rules::default() };
        let server = once(rules, silent, well).await;
        let stage = impatient(Plan { provider: speaks_messages(&server), ..Plan::default() }).await;
        assert_asked_again(what, &stage, &server).await;
    }))
    .await;
}

#[tokio::test]
async fn a_server_that_never_gets_to_a_word_is_given_up_with_a_connection_for_each_try() {
    let server = Server::start(|_| Answer::Raw(vec![Step::Hang])).await;
    let plan = Plan { provider: provider(&server), ..Plan::default() };
    let stage = plan.settings(|settings| settings.stall = SHORT_STALL).start().await;
    let (run, end) = ended(&stage).await;
    assert_eq!(end.outcome.to_string(), "provider_error: stall");
    assert_eq!(retried(&stage, run).await, ["stall"; 4]);
    server.closed().await;
    // A try may be over before anything of it has reached the server.
    let (requests, connections) = (server.requests().len(), server.accepted());
    assert!((1..=connections).contains(&requests) && connections <= 5, "{requests} by {connections}");
}

#[tokio::test]
async fn a_server_that_is_slow_to_begin_is_told_apart_from_one_that_falls_silent() {
    let slow = Answer::Raw(vec![
        Step::Wait(SHORT_STALL * 2),
        body(event(&chunk(&json!({ "content": "well" }), Some("stop")))),
    ]);
    let server = answering([slow]).await;
    let plan = Plan { provider: provider(&server), ..Plan::default() };
    let plan = plan.settings(|settings| {
        settings.stall = SHORT_STALL;
        settings.first_token = Some(Duration::from_secs(600));
    });
    let stage = plan.start().await;
    let (run, end) = ended(&stage).await;
    assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), "well"));
    assert_eq!(retried(&stage, run).await, Vec::<&str>::new());
}
