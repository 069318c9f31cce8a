//! Models that think aloud, whose servers want their thoughts back or refuse whoever sends them.

use std::sync::Arc;

use herder::{
    domain::event::Event,
    model::{
        http,
        openai::{OpenAi, Profile, SendReasoning, Settings},
    },
};
use serde_json::json;

use crate::{
    stage::Plan,
    streams::ended,
    support::{
        chat::{self, chunk},
        server::{Answer, Rules, Server},
    },
};

/// A server that thinks in this field before it calls a tool, and wants the thought back or nothing of it.
async fn server(field: &'static str, wanted: bool) -> Server {
    let rules = Rules { reasoning: wanted, ..Rules::default() };
    Server::strict(rules, move |request| {
        let assistant = &request["messages"][1];
        if assistant.is_null() {
            let call = json!({ "index": 0, "id": "c_a", "function": { "name": "list", "arguments": "{}" } });
            return Answer::Stream(vec![
                chunk(&json!({ field: "need " }), None),
                chunk(&json!({ field: "list" }), None),
                chunk(&json!({ "tool_calls": [call] }), None),
                chunk(&json!({}), Some("tool_calls")),
            ]);
        }
        if wanted && assistant[field] != "need list" {
            let body =
                r#"{"error":{"message":"The reasoning_content in the thinking mode must be passed back"}}"#;
            return Answer::Status { status: 400, headers: Vec::new(), body: body.to_owned() };
        }
        chat::text("done")
    })
    .await
}

#[tokio::test]
async fn what_a_model_thinks_goes_back_where_its_server_wants_it_and_nowhere_else() {
    let (as_content, as_reasoning) = (SendReasoning::AsReasoningContent, SendReasoning::AsReasoning);
    let table = [
        ("reasoning_content", as_content, true, "done"),
        ("reasoning", as_reasoning, true, "done"),
        ("reasoning_content", SendReasoning::Never, false, "done"),
        ("reasoning", SendReasoning::Never, false, "done"),
        ("reasoning_content", as_content, false, "provider_error: invalid"),
        ("reasoning_content", SendReasoning::Never, true, "provider_error: invalid"),
    ];
    for (field, reasoning, wanted, outcome) in table {
        let server = server(field, wanted).await;
        let profile = Profile { reasoning, ..Profile::default() };
        let settings = Settings { base_url: server.base_url(), profile, ..Settings::default() };
        let provider = Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap());
        let stage = Plan { provider, ..Plan::default() }.start().await;
        let (run, end) = ended(&stage).await;
        assert_eq!(end.outcome.to_string(), outcome, "{field} {reasoning:?} {wanted}");
        let log = stage.log(run).await;
        let Some(Event::Message(first)) =
            log.iter().map(|one| &one.fact.event).find(|event| event.kind() == "message")
        else {
            panic!("no answer")
        };
        assert_eq!((first.reasoning.as_deref(), &*first.text), (Some("need list"), ""));
        assert!(!end.text.contains("need"), "{}", end.text);
    }
}
