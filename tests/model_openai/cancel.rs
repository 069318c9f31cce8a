//! A request ends when it is told to, wherever it is, and its connection with it: none of these servers ends by itself.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::BoxStream};
use herder::{
    domain::outcome::FaultClass,
    model::{Delta, ModelError, ModelProvider as _, openai::Settings},
};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{events, hear, provider, request},
    support::{
        chat::{self, chunk},
        server::{Answer, DEADLINE, Server, Step},
    },
};

fn begun() -> Step {
    Step::Bytes(events(&[chunk(&json!({"content": "par"}), None)]).into_bytes())
}

/// Reads as far as the first words.
async fn begins(stream: &mut BoxStream<'static, Result<Delta, ModelError>>) {
    assert!(matches!(stream.next().await, Some(Ok(Delta::Sent(_)))));
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("par".to_owned()))));
}

#[tokio::test]
async fn before_the_headers() {
    let server = Server::start(|_| Answer::Hang).await;
    let cancel = CancellationToken::new();
    let stream = provider(&server, Settings::default()).stream(request("go"), cancel.clone());
    let heard = tokio::spawn(hear(stream));
    server.asked(1).await;
    cancel.cancel();
    assert_eq!(heard.await.unwrap().class(), Some(FaultClass::Cancelled));
    server.closed().await;
}

#[tokio::test]
async fn after_the_headers() {
    let server = Server::start(|_| Answer::Raw(vec![Step::Hang])).await;
    let cancel = CancellationToken::new();
    let stream = provider(&server, Settings::default()).stream(request("go"), cancel.clone());
    let heard = tokio::spawn(hear(stream));
    server.asked(1).await;
    cancel.cancel();
    let said = heard.await.unwrap();
    assert_eq!((said.class(), said.text.as_str()), (Some(FaultClass::Cancelled), ""));
    server.closed().await;
}

#[tokio::test]
async fn midway_hung_or_pinged() {
    let silent = vec![begun(), Step::Hang];
    let mut pinged = vec![begun()];
    for _ in 0..1000 {
        let empty = events(&[chunk(&json!({"content": ""}), None)]);
        pinged.extend([
            Step::Wait(Duration::from_millis(5)),
            Step::Bytes(b": ping\n\n".to_vec()),
            Step::Bytes(empty.into_bytes()),
        ]);
    }
    pinged.push(Step::Hang);
    for (steps, chunks) in [(silent, 1), (pinged, 20)] {
        let server = Server::start(move |_| Answer::Raw(steps.clone())).await;
        let cancel = CancellationToken::new();
        let mut stream = provider(&server, Settings::default()).stream(request("go"), cancel.clone());
        begins(&mut stream).await;
        let rest = tokio::spawn(stream.collect::<Vec<_>>());
        server.sent(chunks).await;
        cancel.cancel();
        // Neither pings nor empty deltas were told as anything.
        assert_eq!(timeout(DEADLINE, rest).await.unwrap().unwrap(), [Err(ModelError::cancelled())]);
        server.closed().await;
    }
}

#[tokio::test]
async fn before_it_is_sent() {
    let server = Server::start(|_| chat::text("hello")).await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let said = hear(provider(&server, Settings::default()).stream(request("go"), cancel)).await;
    assert_eq!((said.class(), server.requests().len()), (Some(FaultClass::Cancelled), 0));
}

#[tokio::test]
async fn by_dropping_the_stream() {
    let server = Server::start(|_| Answer::Raw(vec![begun(), Step::Hang])).await;
    let mut stream = provider(&server, Settings::default()).stream(request("go"), CancellationToken::new());
    begins(&mut stream).await;
    assert_eq!(server.open(), 1);
    drop(stream);
    server.closed().await;
}

#[tokio::test]
async fn a_server_that_hangs_after_its_answer_holds_nothing_up() {
    let whole = format!("{}data: [DONE]\n\n", events(&[chunk(&json!({"content": "all"}), Some("stop"))]));
    let server =
        Server::start(move |_| Answer::Raw(vec![Step::Bytes(whole.clone().into_bytes()), Step::Hang])).await;
    let said =
        hear(provider(&server, Settings::default()).stream(request("go"), CancellationToken::new())).await;
    assert_eq!(said.text, "all");
    server.closed().await;
}

#[tokio::test]
async fn not_at_all_a_connection_is_used_again() {
    let server = Server::start(|_| chat::text("hello")).await;
    let provider = provider(&server, Settings::default());
    for _ in 0..20 {
        assert_eq!(hear(provider.stream(request("go"), CancellationToken::new())).await.text, "hello");
        assert_eq!(server.open(), 1);
    }
    assert_eq!(server.accepted(), 1);
}
