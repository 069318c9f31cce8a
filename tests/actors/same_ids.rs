//! Ids of calls that are unique in one answer and nowhere else, against a server that wants each of them once.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bad_calls::raw,
    http::{answering, provider, strictly},
    stage::{Plan, Stage},
    streams::{ended, speaks_messages},
    support::{
        chat, messages,
        server::{Answer, Protocol, Rules, Server},
    },
};

const ID: &str = "bash:0";

/// Commands that leave a line behind each; the last two are the same.
fn commands() -> [Value; 3] {
    ["echo 1 | tee -a ran", "echo 2 | tee -a ran", "echo 2 | tee -a ran"]
        .map(|command| json!({ "command": command }))
}

fn asks(arguments: &Value) -> Answer {
    raw(&[(ID, "bash", &arguments.to_string())])
}

/// Each call was made, and the last request shows each with the result that is its own.
fn assert_all_ran(stage: &Stage, server: &Server) {
    assert_eq!(stage.text("ws", "ran"), "1\n2\n2\n");
    assert_eq!(server.refusals(), Vec::<String>::new());
    let last = server.requests().last().unwrap().clone();
    let messages = last["messages"].as_array().unwrap();
    let told: Vec<_> = messages[1..].chunks(2).map(|pair| (&pair[0]["tool_calls"][0], &pair[1])).collect();
    assert_eq!(told.len(), 3);
    for ((call, result), (output, arguments)) in
        told.into_iter().zip(["1\n", "2\n", "2\n"].iter().zip(commands()))
    {
        assert_eq!(call["id"], result["tool_call_id"]);
        assert_eq!(call["function"]["arguments"], arguments.to_string());
        assert_eq!(result["content"], *output);
    }
}

#[tokio::test]
async fn an_id_that_comes_again_in_every_turn_is_another_call_each_time() {
    let answers = commands().iter().map(asks).chain([chat::text("done")]).collect::<Vec<_>>();
    let server = answering(answers).await;
    let stage = Plan { provider: provider(&server), ..Plan::default() }.start().await;
    let (_, end) = ended(&stage).await;
    assert_eq!((end.outcome.to_string(), end.turns, end.calls), ("done".to_owned(), 4, 3));
    assert_all_ran(&stage, &server);
}

#[tokio::test]
async fn an_id_that_comes_again_after_a_restart_is_another_call_too() {
    let [first, second, third] = commands().map(|arguments| asks(&arguments));
    let server = answering([first, Answer::Hang, second, third, chat::text("done")]).await;
    let plan = || Plan { provider: provider(&server), ..Plan::default() };
    let (plan_before, folder) = (plan(), Arc::new(TempDir::new().unwrap()));
    let store = plan_before.store.clone();
    let stage = plan_before.start_in(folder.clone()).await;
    let submitted = stage.submit("ws", &Value::Null, &json!({ "script": null }));
    let run = submitted.run;
    server.asked(2).await;
    stage.supervisor.drain(Duration::ZERO).await;
    submitted.done.await.unwrap().end.unwrap_err();
    let stage = Plan { store, ..plan() }.start_in(folder).await;
    let submitted = stage.supervisor.resume(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "done");
    assert_all_ran(&stage, &server);
}

#[tokio::test]
async fn an_id_that_messages_does_not_allow_is_written_so_that_it_does() {
    let asks = |arguments: &Value| messages::answer(&[messages::uses(ID, "bash", arguments)], "tool_use");
    let answers = commands().iter().map(asks).collect::<Vec<_>>();
    let answers = answers.into_iter().chain([messages::answer(&[messages::words("done")], "end_turn")]);
    let rules = Rules { protocol: Protocol::Messages, ..Rules::default() };
    let server = strictly(rules, answers).await;
    let stage = Plan { provider: speaks_messages(&server), ..Plan::default() }.start().await;
    let (_, end) = ended(&stage).await;
    assert_eq!((server.refusals(), end.outcome.to_string()), (Vec::new(), "done".to_owned()));
    assert_eq!((end.calls, &*stage.text("ws", "ran")), (3, "1\n2\n2\n"));
    let last = server.requests().last().unwrap().clone();
    for pair in last["messages"].as_array().unwrap()[1..].chunks(2) {
        assert_eq!(pair[0]["content"][0]["id"], pair[1]["content"][0]["tool_use_id"]);
    }
}
