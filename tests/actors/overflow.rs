//! Conversations that are longer than their model's window.

use std::collections::HashSet;

use herder::domain::event::Event;
use serde_json::{Value, json};

use crate::{
    http::stage,
    support::{
        chat,
        server::{Answer, Server},
    },
};

/// The ways in which servers say that a request is too long.
const TOO_LONG: [(u16, &str); 4] = [
    (
        400,
        r#"{"error": {"message": "Prompt has 9120 tokens, but the configured context size is 8192 tokens",
            "code": "context_length_exceeded", "n_prompt_tokens": 9120, "n_ctx": 8192}}"#,
    ),
    (
        400,
        r#"{"error": {"message": "This model's maximum context length is 8192 tokens. However, your messages resulted in
            9120 tokens.", "type": "invalid_request_error"}}"#,
    ),
    (400, "request (9120 tokens) exceeds the available context size (8192 tokens)"),
    (413, "Request Entity Too Large"),
];

fn too_long((status, body): (u16, &str)) -> Answer {
    Answer::Status { status, headers: Vec::new(), body: body.to_owned() }
}

#[tokio::test]
async fn a_server_that_takes_nothing_is_never_asked_twice_for_the_same_and_not_for_long() {
    for answer in TOO_LONG {
        let server = Server::start(move |_| too_long(answer)).await;
        let stage = stage(&server).await;
        let end = stage.end(stage.submit("ws", &Value::Null, &json!({ "script": null }))).await;
        assert_eq!(end.outcome.to_string(), "provider_error: context_overflow", "{answer:?}");
        let rooms: Vec<_> = server.requests().iter().map(|request| request["max_tokens"].as_u64()).collect();
        assert_eq!(rooms, [Some(8_192), Some(2_048), Some(1_024)]);
    }
}

#[tokio::test]
async fn a_conversation_that_grew_too_long_is_shortened_and_goes_on() {
    const WINDOW: usize = 20_000;
    for answer in TOO_LONG {
        let server = Server::start(move |request| {
            if request["messages"].to_string().len() > WINDOW {
                return too_long(answer);
            }
            let said = request["messages"].as_array().unwrap().iter();
            let last = said.filter(|message| message["role"] == "assistant").count();
            let shown = request["messages"].to_string();
            if shown.contains("f9.txt") {
                return chat::text("read them all");
            }
            let next = (0..10).rev().find(|n| shown.contains(&format!("f{n}.txt"))).map_or(0, |n| n + 1);
            let id = format!("c{next}_{last}");
            chat::calls(&[(id, "read".to_owned(), json!({ "path": format!("f{next}.txt") }))])
        })
        .await;
        let stage = stage(&server).await;
        for n in 0..10 {
            stage.write("ws", &format!("f{n}.txt"), &"word \n".repeat(700));
        }
        let submitted = stage.submit("ws", &Value::Null, &json!({ "script": null }));
        let run = submitted.run;
        let end = stage.end(submitted).await;
        assert_eq!((end.outcome.to_string(), &*end.text), ("done".to_owned(), "read them all"));

        let bodies: Vec<_> = server.requests().iter().map(|request| request.to_string()).collect();
        assert_eq!(bodies.iter().collect::<HashSet<_>>().len(), bodies.len(), "the same was sent twice");
        assert_eq!(server.refusals(), Vec::<String>::new());
        let log = stage.log(run).await;
        let overflows = log.iter().filter_map(|one| {
            let Event::ModelRetry(retry) = &one.fact.event else { return None };
            Some((retry.class.as_str(), retry.shown_at_most.is_some()))
        });
        let overflows: Vec<_> = overflows.collect();
        assert!(!overflows.is_empty() && overflows.iter().all(|one| *one == ("context_overflow", true)));
    }
}
