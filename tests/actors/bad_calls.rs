//! Calls as models should not make them, against a server that accepts nothing doubtful: whatever they are, each has its
//! result, and the next request is accepted.

use std::sync::{Arc, Mutex};

use herder::{
    actor::supervisor::Submitted,
    config::policies,
    domain::{
        call::Failure,
        event::{InputKind, RunEnd},
        id::CallId,
        message::Message,
    },
    model::{ModelProvider as _, Request},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    http::{answering, provider, stage},
    stage::{Plan, Stage, replay},
    support::{
        chat,
        hear::hear,
        server::{Answer, Server, Step},
    },
};

/// Calls whose arguments are text, whatever it is.
pub(crate) fn raw(calls: &[(&str, &str, &str)]) -> Answer {
    let pieces = calls.iter().enumerate().map(|(index, (id, name, arguments))| {
        let call = json!({ "index": index, "id": id, "type": "function",
            "function": { "name": name, "arguments": arguments } });
        chat::chunk(&json!({ "tool_calls": [call] }), None)
    });
    let end = [chat::chunk(&json!({}), Some("tool_calls")), chat::usage(10, 5)];
    Answer::Stream(pieces.chain(end).collect())
}

fn submit(stage: &Stage, more: &Value) -> Submitted {
    let mut task = json!({ "script": null });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    stage.submit("ws", &Value::Null, &task)
}

/// Has the model make these calls, then say that it is done. Returns the results: whether each is good, and its text.
async fn made(calls: &[(&str, &str, &str)], more: &Value) -> (Vec<(bool, String)>, Server, RunEnd) {
    let server = answering([raw(calls), chat::text("done")]).await;
    let stage = stage(&server).await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = submit(&stage, more);
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!((server.refusals(), end.outcome.to_string()), (Vec::new(), "done".to_owned()), "{calls:?}");
    let results = stage.results(run).await;
    assert_eq!(results.len(), calls.len());
    (results.iter().map(|result| (result.ok, result.output.to_string())).collect(), server, end)
}

/// The arguments that the second request holds, as text.
fn replayed(server: &Server) -> String {
    let calls = &server.requests()[1]["messages"][1]["tool_calls"];
    calls[0]["function"]["arguments"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn no_arguments_are_an_empty_object() {
    for arguments in ["", "null", " "] {
        let (results, server, _) = made(&[("c_a", "list", arguments)], &json!({})).await;
        assert_eq!((results[0].0, replayed(&server)), (true, "{}".to_owned()), "{arguments:?}");
    }
}

#[tokio::test]
async fn arguments_that_are_no_object_are_refused_and_go_back_as_one() {
    let table = [
        (r#""a.txt""#, "not a string"),
        ("[]", "not an array"),
        ("7", "must be a JSON object"),
        ("true", "must be a JSON object"),
        ("{\"path\":\"a\u{b}b\"}", "not valid JSON"),
        (r#""{\"path\":\"a.txt\"}""#, "not a string"),
        (r#"{"path":"a.txt"}{"path":"a.txt"}"#, "not valid JSON"),
        ("<tool_call>{\"path\"", "not valid JSON"),
        (r#"{"path": "cat <<EOF"#, "not valid JSON"),
    ];
    for (arguments, told) in table {
        let (results, server, _) = made(&[("c_a", "read", arguments)], &json!({})).await;
        let (ok, output) = &results[0];
        assert!(!ok && output.contains(told), "{arguments:?}: {output}");
        let replayed: Value = serde_json::from_str(&replayed(&server)).unwrap();
        assert_eq!(replayed, json!({ "invalid_arguments": arguments }));
    }
}

#[tokio::test]
async fn a_log_that_holds_arguments_which_are_no_object_is_read_and_gone_on_with() {
    let reply = r#"{"calls": [{"id": "c_a", "name": "bash", "arguments": "{\"command\": \"cat <<EOF"}],
        "stop": "tool_calls", "usage": {"input": 1, "output": 1}}"#;
    let reply: herder::domain::message::Reply = serde_json::from_str(reply).unwrap();
    let arguments: Value = serde_json::from_str(reply.calls[0].arguments.as_str()).unwrap();
    assert_eq!(arguments, json!({ "invalid_arguments": "\"{\\\"command\\\": \\\"cat <<EOF\"" }));
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_told_with_those_that_are_and_its_siblings_run() {
    let calls = [("c_a", "open_window", "{}"), ("c_b", "read", r#"{"path":"a.txt"}"#), ("c_c", "", "{}")];
    let (results, ..) = made(&calls[..2], &json!({})).await;
    assert!(!results[0].0 && results[0].1.contains("the tools are: bash, edit, grep, list, read, write"));
    assert!(results[1].0 && results[1].1.contains("noted"), "{results:?}");
    let (results, server, _) = made(&[("c_a", "open the window!", "{}")], &json!({})).await;
    assert!(!results[0].0);
    let name = &server.requests()[1]["messages"][1]["tool_calls"][0]["function"]["name"];
    assert_eq!(name, "open_the_window_");
}

#[tokio::test]
async fn of_sixty_calls_sixteen_run_and_each_of_the_others_is_told_why_not() {
    let ids: Vec<_> = (0..60).map(|n| format!("c_{n}")).collect();
    let calls: Vec<_> = ids.iter().map(|id| (id.as_str(), "read", r#"{"path":"a.txt"}"#)).collect();
    let (results, server, end) = made(&calls, &json!({ "limits": { "max_calls_per_turn": 16 } })).await;
    let (ran, refused): (Vec<_>, Vec<_>) = results.into_iter().partition(|(ok, _)| *ok);
    assert_eq!((ran.len(), refused.len(), end.calls), (16, 44, 60));
    let told = "not executed: over the limit of 16 calls in one answer; ask again for it in a later one";
    assert!(refused.iter().all(|(_, output)| output == told));
    assert_eq!(server.requests()[1]["messages"].as_array().unwrap().len(), 62);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_ended_while_it_runs_has_its_result_in_the_next_request() {
    let batch =
        [("c_a", "bash", r#"{"command":"echo > begun; sleep 60"}"#), ("c_b", "read", r#"{"path":"a.txt"}"#)];
    let server = answering([raw(&batch), chat::text("done")]).await;
    let stage = stage(&server).await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = submit(&stage, &json!({}));
    let run = submitted.run;
    stage.until_file("ws", "begun").await;
    stage.supervisor.ask(run, herder::actor::run::say(InputKind::Steer, "go on without it")).await.unwrap();
    stage.supervisor.cancel_call(run, CallId::new("c_a")).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(server.refusals(), Vec::<String>::new());
    let messages = server.requests()[1]["messages"].clone();
    assert_eq!((&messages[2]["tool_call_id"], &messages[3]["tool_call_id"]), (&json!("c_a"), &json!("c_b")));
    assert!(messages[2]["content"].as_str().unwrap().contains("cancelled"), "{messages}");
}

#[tokio::test]
async fn a_call_of_an_answer_that_never_ended_leaves_nothing_behind() {
    let call = json!({ "index": 0, "id": "c_a", "type": "function",
        "function": { "name": "bash", "arguments": "{\"command\":\"echo > ran\"}" } });
    let begun = format!("data: {}\n\n", chat::chunk(&json!({ "tool_calls": [call] }), None));
    let server =
        Server::start(move |_| Answer::Raw(vec![Step::Bytes(begun.clone().into_bytes()), Step::Hang])).await;
    let stage = stage(&server).await;
    let submitted = submit(&stage, &json!({}));
    let run = submitted.run;
    server.sent(1).await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    assert_eq!(
        (stage.results(run).await, stage.transcript(run).await),
        (Vec::new(), vec!["user: task".to_owned()])
    );
    assert!(!stage.path("ws", "ran").exists());
}

#[tokio::test]
async fn blank_words_are_never_sent() {
    let server = answering([chat::text("\n\n"), chat::text("{}")]).await;
    let stage = stage(&server).await;
    let submitted = submit(&stage, &json!({ "system": "  ", "response_format": { "type": "json_object" } }));
    let run = submitted.run;
    let blank = stage.supervisor.ask(run, herder::actor::run::say(InputKind::Steer, "\n")).await;
    assert!(blank.is_err(), "a blank input is taken");
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(server.refusals(), Vec::<String>::new());
    let roles: Vec<_> =
        server.requests()[1]["messages"].as_array().unwrap().iter().map(|one| one["role"].clone()).collect();
    assert_eq!(roles, ["user", "user"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fails_and_one_that_is_denied_leave_their_siblings_alone() {
    let batch = [
        ("c_a", "bash", r#"{"command":"exit 3"}"#),
        ("c_b", "read", r#"{"path":"a.txt"}"#),
        ("c_c", "write", r#"{"path":"x","content":"y"}"#),
        ("c_d", "edit", r#"{"path":"a.txt","old_text":"noted","new_text":"gone"}"#),
    ];
    let server = answering([raw(&batch), chat::text("done")]).await;
    // Elsewhere both may do something, so both are offered.
    let rules = r#"
        name = "test"
        [[rule]]
        tools = ["write"]
        path = ["x"]
        decision = "deny"
        reason = "not here"
        [[rule]]
        tools = ["edit"]
        path = ["a.txt"]
        decision = "ask"
        [[rule]]
        decision = "allow"
    "#;
    let policy = policies::parse("test.toml", rules).unwrap();
    let stage = Plan { provider: provider(&server), policy, ..Plan::default() }.start().await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = submit(&stage, &json!({}));
    let run = submitted.run;
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_eq!(server.refusals(), Vec::<String>::new());
    let told = stage.transcript(run).await[2..6].join("\n");
    assert!(told.contains("tool c_a: ") && told.contains("exit code 3"), "{told}");
    assert!(told.contains("noted") && told.contains("tool c_c: "), "{told}");
    assert!(told.contains("tool c_d: ") && stage.text("ws", "a.txt") == "noted\n", "{told}");
    let failures: Vec<_> = stage.results(run).await.iter().filter_map(|result| result.failure).collect();
    assert_eq!(failures.iter().filter(|failure| **failure == Failure::Denied).count(), 2, "{failures:?}");
    assert_eq!(failures.len(), 3, "the one that could be made was made: {failures:?}");
    assert!(!stage.path("ws", "x").exists());
}

#[tokio::test]
async fn a_call_that_fails_again_and_again_is_refused_and_the_run_ends_with_its_turns() {
    let turn = Arc::new(Mutex::new(0));
    let server = Server::start(move |_| {
        let mut turn = turn.lock().unwrap();
        *turn += 1;
        raw(&[(&format!("c_{turn}"), "read", r#"{"path":"missing.txt"}"#)])
    })
    .await;
    let stage = stage(&server).await;
    let submitted = submit(&stage, &json!({ "limits": { "max_turns": 20, "max_repeats": 3 } }));
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!(
        (end.outcome.to_string(), end.turns, server.requests().len()),
        ("budget: turns".to_owned(), 20, 20)
    );
    let failures: Vec<_> = stage.results(run).await.iter().map(|result| result.failure).collect();
    assert_eq!(
        failures[..4],
        [Failure::Failed, Failure::Failed, Failure::Failed, Failure::Repeated].map(Some)
    );
    assert!(failures[3..].iter().all(|failure| *failure == Some(Failure::Repeated)));
}

#[tokio::test]
async fn a_run_that_is_out_of_turns_keeps_what_it_did_and_every_call_is_answered() {
    let words = |n: u32| {
        let Answer::Stream(mut events) = raw(&[(&format!("c_{n}"), "read", r#"{"path":"a.txt"}"#)]) else {
            panic!("calls are streamed")
        };
        events.insert(0, chat::chunk(&json!({ "content": format!("step {n}") }), None));
        Answer::Stream(events)
    };
    let server = answering((1..=3).map(words)).await;
    let stage = stage(&server).await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = submit(&stage, &json!({ "limits": { "max_turns": 3 } }));
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!((end.outcome.to_string(), &*end.text, end.calls), ("budget: turns".to_owned(), "step 3", 3));
    assert!(stage.results(run).await.iter().all(|result| result.ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_cancelled_run_leaves_is_a_conversation_that_can_be_gone_on_with() {
    let batch =
        [("c_a", "bash", r#"{"command":"echo > begun; sleep 60"}"#), ("c_b", "read", r#"{"path":"a.txt"}"#)];
    let server = answering([raw(&batch), chat::text("done")]).await;
    let stage = stage(&server).await;
    stage.write("ws", "a.txt", "noted\n");
    let submitted = submit(&stage, &json!({}));
    let run = submitted.run;
    stage.until_file("ws", "begun").await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    let calls = stage.results(run).await;
    let failure = |id: &str| calls.iter().find(|result| result.call.as_str() == id).unwrap().failure;
    assert_eq!((calls.len(), failure("c_a")), (2, Some(Failure::Cancelled)));

    let state = replay(run, &stage.log(run).await);
    let goes_on = [Message::User("Try again.".into())];
    let messages = state.history().iter().cloned().chain(goes_on).collect();
    let request = Request::new("fake-1".into(), messages);
    let said = hear(provider(&server).stream(request, CancellationToken::new())).await;
    assert_eq!((server.refusals(), said.text.as_str()), (Vec::new(), "done"));
    let told = server.requests()[1]["messages"].clone();
    let roles: Vec<_> = told.as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "tool", "user"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_that_is_no_text_or_too_much_of_it_goes_to_the_model_as_text_that_says_so() {
    let odd = json!({ "command": r"printf 'ok \377\376 caf\351 \000 end\n'; exit 4" }).to_string();
    let batch = [
        ("c_a", "bash", odd.as_str()),
        ("c_b", "bash", r#"{"command":"head -c 5000 /bin/ls"}"#),
        ("c_c", "bash", r#"{"command":"seq 1 20000"}"#),
        ("c_d", "bash", r#"{"command":"head -c 200000000 /dev/zero"}"#),
    ];
    let (results, server, _) = made(&batch, &json!({})).await;
    // The server takes nothing but UTF-8 and JSON.
    let messages = server.requests()[1]["messages"].clone();
    let told = |id: &str| {
        let result = messages.as_array().unwrap().iter().find(|one| one["tool_call_id"] == id).unwrap();
        result["content"].as_str().unwrap().to_owned()
    };
    let replaced = "ok \u{fffd}\u{fffd} caf\u{fffd} \u{fffd} end\n[exit code 4]";
    assert_eq!((results.iter().filter(|(ok, _)| *ok).count(), told("c_a").as_str()), (3, replaced));
    assert!(told("c_b").starts_with("[binary output, 5000 bytes, not shown"), "{}", told("c_b"));
    let long = told("c_c");
    assert!(long.starts_with("1\n2\n") && long.ends_with("\n20000\n"), "{long}");
    assert!(long.contains("[18000 lines (99001 bytes) left out"), "{long}");
    assert!(told("c_d").starts_with("[binary output, 200000000 bytes, not shown"), "{}", told("c_d"));
}
