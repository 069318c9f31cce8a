//! Answers as servers really stream them, over whole runs: what comes of them on the disk, of record, and in the request
//! that follows, which a server takes that accepts nothing doubtful.

use std::{fs, sync::Arc, time::Duration};

use herder::{
    actor::LiveDelta,
    domain::{
        event::{Event, RunEnd},
        id::RunId,
    },
    model::{
        anthropic::{self, Anthropic},
        http,
    },
};
use serde_json::{Value, json};

use crate::{
    http::{answering, stage, strictly},
    stage::{Plan, Stage},
    support::{
        chat::{self, chunk},
        messages,
        server::{Answer, Protocol, Rules, Server, Step},
    },
};

/// Runs a task to its end.
pub(crate) async fn ended(stage: &Stage) -> (RunId, RunEnd) {
    let submitted = stage.submit("ws", &Value::Null, &json!({ "script": null }));
    (submitted.run, stage.end(submitted).await)
}

/// The classes of the failures that were followed by another request.
pub(crate) async fn retried(stage: &Stage, run: RunId) -> Vec<&'static str> {
    let log = stage.log(run).await.into_iter();
    log.filter_map(|one| {
        let Event::ModelRetry(retry) = one.fact.event else { return None };
        Some(retry.class.as_str())
    })
    .collect()
}

/// A body in one piece.
pub(crate) fn body(text: impl Into<String>) -> Step {
    Step::Bytes(text.into().into_bytes())
}

pub(crate) fn event(event: &Value) -> String {
    format!("data: {event}\n\n")
}

fn piece(piece: Value) -> Value {
    chunk(&json!({ "tool_calls": [piece] }), None)
}

fn read(id: &str, path: &str) -> Value {
    let arguments = json!({ "path": path }).to_string();
    json!({ "id": id, "type": "function", "function": { "name": "read", "arguments": arguments } })
}

/// Streams events that end with the finish reason. Expects a result for each call, and the next request to say what
/// was called by which id with which arguments.
async fn makes(what: &str, mut events: Vec<Value>, finish: Option<&str>, calls: &[(&str, Value, &str)]) {
    events.push(chunk(&json!({}), finish));
    let server = answering([Answer::Stream(events), chat::text("done")]).await;
    let stage = stage(&server).await;
    stage.write("ws", "one.txt", "the first\n");
    stage.write("ws", "two.txt", "the second\n");
    let (run, end) = ended(&stage).await;
    assert_eq!((server.refusals(), end.outcome.to_string()), (Vec::new(), "done".to_owned()), "{what}");
    let results = stage.results(run).await;
    assert_eq!(results.len(), calls.len(), "{what}");
    let requests = server.requests();
    assert_eq!(requests.len(), 2, "{what}");
    let messages = requests[1]["messages"].as_array().unwrap();
    for (at, (id, arguments, output)) in calls.iter().enumerate() {
        let asked = &messages[1]["tool_calls"][at];
        assert_eq!(asked["id"], *id, "{what}");
        let replayed: Value = serde_json::from_str(asked["function"]["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(replayed, *arguments, "{what}");
        let result = messages.iter().find(|message| message["tool_call_id"] == *id).unwrap();
        assert!(result["content"].as_str().unwrap().contains(output), "{what}: {result}");
    }
    assert!(results.iter().all(|result| result.ok), "{what}: {results:?}");
}

#[tokio::test]
async fn calls_are_made_whatever_the_server_leaves_out_or_repeats() {
    let done = Some("tool_calls");
    let path = |path: &str| json!({ "path": path });
    let two = |ids: [&'static str; 2]| {
        [(ids[0], path("one.txt"), "the first"), (ids[1], path("two.txt"), "the second")]
    };
    let parts = vec![piece(read("c_a", "one.txt")), piece(read("c_b", "two.txt"))];
    makes("no index", parts, done, &two(["c_a", "c_b"])).await;
    let both = vec![chunk(&json!({ "tool_calls": [read("c_a", "one.txt"), read("c_b", "two.txt")] }), None)];
    makes("no index, one delta", both, done, &two(["c_a", "c_b"])).await;
    let parts = vec![
        piece(json!({ "id": "c_a", "type": "function", "function": { "name": "bash", "arguments": "" } })),
        piece(json!({ "function": { "arguments": "{\"command\":" } })),
        piece(json!({ "function": { "arguments": "\"echo hi\"}" } })),
    ];
    makes("no index, in pieces", parts, done, &[("c_a", json!({ "command": "echo hi" }), "hi\n")]).await;
    let parts = vec![
        piece(json!({ "index": 0, "id": "c_a", "function": { "name": "grep", "arguments": "{" } })),
        piece(json!({ "index": 0, "id": "", "function": { "name": "", "arguments": "\"pattern\":" } })),
        piece(json!({ "index": 0, "id": "", "function": { "name": "", "arguments": "\"second\"}" } })),
    ];
    makes("empty id and name", parts, done, &[("c_a", json!({ "pattern": "second" }), "two.txt")]).await;
    let half = |index: u64, id: &str, half: &str| {
        let function = if id.is_empty() { json!({}) } else { json!({ "name": "read" }) };
        let mut call = json!({ "index": index, "function": function });
        call["function"]["arguments"] = half.into();
        if !id.is_empty() {
            call["id"] = id.into();
        }
        piece(call)
    };
    let parts = vec![
        half(0, "c_a", "{\"path\":"),
        half(1, "c_b", "{\"path\":"),
        half(0, "", "\"one.txt\"}"),
        half(1, "", "\"two.txt\"}"),
    ];
    makes("in turns", parts, done, &two(["c_a", "c_b"])).await;
    let object = json!({ "name": "bash", "arguments": { "command": "printf ok" } });
    let parts = vec![piece(json!({ "index": 0, "id": "c_a", "type": "function", "function": object }))];
    makes("an object", parts, done, &[("c_a", json!({ "command": "printf ok" }), "ok")]).await;
    let parts = vec![chunk(&json!({ "tool_calls": [read("dup", "one.txt"), read("dup", "two.txt")] }), None)];
    makes("one id for two", parts, done, &two(["dup", "dup_2"])).await;
}

#[tokio::test]
async fn calls_are_made_whatever_reason_the_answer_ends_for() {
    for finish in [Some("stop"), Some("other"), Some("function_call"), Some(""), None] {
        let events = vec![chunk(&json!({ "content": "Let me look." }), None), piece(read("c_a", "one.txt"))];
        let call = ("c_a", json!({ "path": "one.txt" }), "the first");
        makes(&format!("{finish:?}"), events, finish, &[call]).await;
    }
}

#[tokio::test]
async fn calls_of_a_server_that_speaks_messages_are_put_together_between_its_pings() {
    let [bare, parted] = ["t1", "t2"].map(|id| messages::uses(id, "list", &json!({})));
    let mut events = messages::events(&[bare, parted], "tool_use");
    for event in &mut events {
        if event["index"] == 1 && event["type"] == "content_block_start" {
            event["content_block"]["name"] = "read".into();
        }
        // The first call says nothing of its arguments; the second one's come in pieces that are no JSON by themselves.
        if event["type"] == "content_block_delta" {
            event["delta"]["partial_json"] = "".into();
        }
    }
    let last = events.iter().rposition(|event| event["type"] == "content_block_stop").unwrap();
    for part in ["a.txt\"}", "th\":\"", "{\"pa"] {
        let delta = json!({ "type": "input_json_delta", "partial_json": part });
        events.insert(last, json!({ "type": "content_block_delta", "index": 1, "delta": delta }));
        events.insert(last, json!({ "type": "ping" }));
    }
    let rules = Rules { protocol: Protocol::Messages, ..Rules::default() };
    let end = messages::answer(&[messages::words("done")], "end_turn");
    let server = strictly(rules, [Answer::Stream(events), end]).await;
    let stage = Plan { provider: speaks_messages(&server), ..Plan::default() }.start().await;
    stage.write("ws", "a.txt", "noted\n");
    let (run, end) = ended(&stage).await;
    assert_eq!((server.refusals(), end.outcome.to_string()), (Vec::new(), "done".to_owned()));
    let results = stage.results(run).await;
    assert!(results.iter().all(|result| result.ok) && results.len() == 2, "{results:?}");
    assert!(results.iter().any(|result| result.output.contains("noted")), "{results:?}");
    let asked = server.requests()[1]["messages"][1]["content"].clone();
    assert_eq!((&asked[0]["input"], &asked[1]["input"]), (&json!({}), &json!({ "path": "a.txt" })));
}

pub(crate) fn speaks_messages(server: &Server) -> Arc<Anthropic> {
    let settings = anthropic::Settings { base_url: server.base_url(), ..anthropic::Settings::default() };
    Arc::new(Anthropic::new(http::client().unwrap(), settings).unwrap())
}

#[tokio::test]
async fn chunks_that_say_nothing_are_no_trouble_and_usage_counts_once() {
    let spent = json!({ "prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30 });
    let bare = |content: &str, finish: &str| {
        format!(
            r#"data: {{"choices":[{{"index":0,"delta":{{"content":"{content}"}},"finish_reason":{finish}}}]}}"#
        )
    };
    let usage = event(&json!({ "id": "cmpl-1", "choices": [], "usage": spent }));
    let (hel, lo) = (bare("hel", "null"), bare("lo", "\"stop\""));
    let table = [
        [
            event(&json!({ "id": "cmpl-1", "choices": [], "prompt_filter_results": [] })),
            format!("{hel}\n\n"),
            event(&json!({ "id": "cmpl-1", "choices": null })),
            format!("{lo}\n\n"),
            usage.clone(),
            event(&json!({ "usage": spent })),
            "data: [DONE]\n\n".to_owned(),
        ]
        .concat(),
        format!(
            ": PROCESSING\n\n:\n\n{hel}\n\n: cost=0.0001\n{lo}\n\n: [DONE]\n\n{usage}: [DONE]\n\ndata: [DONE]\n\n"
        ),
        format!(
            "id: 1\n{hel}\n\n: ping\n\nid: 2\nevent: message\n\ndata:\n\n{lo}\n\n{usage}: ping\n\ndata: [DONE]\n\n"
        ),
    ];
    for streamed in table {
        let server = answering([Answer::Raw(vec![body(streamed.clone())])]).await;
        let stage = stage(&server).await;
        let (_, end) = ended(&stage).await;
        assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), "hello"), "{streamed}");
        assert_eq!((end.usage.input, end.usage.output, end.usage.estimated), (21, 9, false), "{streamed}");
    }
}

#[tokio::test]
async fn a_letter_that_the_network_cuts_is_whole_of_record_and_for_whoever_watches() {
    for letter in ["那", "😀"] {
        let streamed = event(&chunk(&json!({ "content": format!("<{letter}>") }), Some("stop")));
        let begins = streamed.find(letter).unwrap();
        for cut in begins + 1..begins + letter.len() {
            let (head, tail) = streamed.as_bytes().split_at(cut);
            let [head, tail] = [head, tail].map(|part| Step::Bytes(part.to_vec()));
            let wait = Step::Wait(Duration::from_millis(10));
            let server = answering([Answer::Raw(vec![head, wait, tail, body("data: [DONE]\n\n")])]).await;
            let stage = stage(&server).await;
            let mut live = stage.supervisor.services().live.subscribe();
            let (_, end) = ended(&stage).await;
            assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), &*format!("<{letter}>")));
            let mut shown = String::new();
            while let Ok(live) = live.try_recv() {
                let LiveDelta::Text(text) = live.what else { panic!("{live:?}") };
                shown.push_str(&text);
            }
            assert_eq!(shown, format!("<{letter}>"), "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn surrogate_halves_are_joined_or_replaced_and_stop_nothing() {
    // Halves that come one in each piece, and one that stays alone.
    let call = |part: &str| piece(json!({ "index": 0, "function": { "arguments": part } }));
    let begun = json!({ "index": 0, "id": "c_a", "function": { "name": "write",
        "arguments": r#"{"path":"e.txt","content":"\ud83d"# } });
    for (rest, written) in [(r#"\ude00"}"#, "😀"), ("\"}", "\u{FFFD}")] {
        let events = vec![piece(begun.clone()), call(rest), chunk(&json!({}), Some("tool_calls"))];
        let server = answering([Answer::Stream(events), chat::text("done")]).await;
        let stage = stage(&server).await;
        let (_, end) = ended(&stage).await;
        assert_eq!((server.refusals(), end.outcome.to_string()), (Vec::new(), "done".to_owned()));
        assert_eq!(fs::read(stage.path("ws", "e.txt")).unwrap(), written.as_bytes());
    }
    let alone = r#"data: {"choices":[{"delta":{"content":"bye \ud83e"},"finish_reason":"stop"}]}"#;
    let server = answering([Answer::Raw(vec![body(format!("{alone}\n\n"))])]).await;
    let (_, end) = ended(&stage(&server).await).await;
    assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), "bye \u{FFFD}"));
}

#[tokio::test]
async fn a_call_of_an_answer_that_breaks_off_is_never_made_and_leaves_no_trace() {
    let call = |arguments: &str| {
        let function = json!({ "name": "write", "arguments": arguments });
        event(&piece(json!({ "index": 0, "id": "c_a", "type": "function", "function": function })))
    };
    let half = call(r#"{"path":"out.txt","content":"first ha"#);
    let whole = call(r#"{"path":"out.txt","content":"all of it"}"#);
    let done = "data: [DONE]\n\n";
    let torn = [
        vec![body(half.clone()), Step::Drop],
        vec![body(half.clone())],
        vec![body(format!("{half}{done}"))],
        vec![body(whole), Step::Drop],
    ];
    for steps in torn {
        let server = answering([Answer::Raw(steps.clone()), chat::text("done")]).await;
        let stage = stage(&server).await;
        let (run, end) = ended(&stage).await;
        assert_eq!((end.outcome.to_string(), end.turns), ("done".to_owned(), 1), "{steps:?}");
        assert!(!stage.path("ws", "out.txt").exists(), "{steps:?}");
        assert_eq!(retried(&stage, run).await, ["transient"], "{steps:?}");
        assert_eq!(stage.transcript(run).await, ["user: task", "model: done"], "{steps:?}");
        assert_eq!(server.bodies()[0], server.bodies()[1], "{steps:?}");
    }
}

#[tokio::test]
async fn a_call_of_an_answer_that_is_cut_at_its_limit_is_not_made_and_is_answered() {
    let function = json!({ "name": "write", "arguments": r#"{"path":"out.txt","content":"first ha"# });
    let call = piece(json!({ "index": 0, "id": "c_a", "type": "function", "function": function }));
    let cut = Answer::Stream(vec![call, chunk(&json!({}), Some("length"))]);
    let server = answering([cut]).await;
    let stage = stage(&server).await;
    let (run, end) = ended(&stage).await;
    assert_eq!(end.outcome.to_string(), "blocked: truncated");
    assert!(!stage.path("ws", "out.txt").exists());
    let results = stage.results(run).await;
    assert_eq!((results.len(), results[0].call.as_str(), results[0].ok), (1, "c_a", false));
}
