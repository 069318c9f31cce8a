//! A request ends when it is told to, wherever it is, and pings say nothing: none of these servers ends by itself.

use std::time::Duration;

use futures_util::StreamExt as _;
use herder::{
    domain::outcome::FaultClass,
    model::{Delta, ModelError, ModelProvider as _, anthropic::Settings},
};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    ask::{ask_of, provider, request, serve},
    support::{
        hear::hear,
        messages::{answer, events, framed, words},
        server::{Answer, DEADLINE, Step},
    },
};

fn begun() -> Step {
    Step::Bytes(framed(&events(&[words("par")], "end_turn")[..4]).into_bytes())
}

#[tokio::test]
async fn before_the_headers() {
    let server = serve(|_| Answer::Hang).await;
    let cancel = CancellationToken::new();
    let heard =
        tokio::spawn(hear(provider(&server, Settings::default()).stream(request("go"), cancel.clone())));
    server.asked(1).await;
    cancel.cancel();
    assert_eq!(heard.await.unwrap().class(), Some(FaultClass::Cancelled));
    server.closed().await;
}

#[tokio::test]
async fn midway_with_nothing_but_pings_and_empty_deltas() {
    let delta = |delta| json!({"type": "content_block_delta", "index": 0, "delta": delta});
    let silence = framed(&[
        json!({"type": "ping"}),
        delta(json!({"type": "text_delta", "text": ""})),
        delta(json!({"type": "input_json_delta", "partial_json": ""})),
    ]);
    let mut steps = vec![begun()];
    for _ in 0..1000 {
        steps.extend([Step::Wait(Duration::from_millis(5)), Step::Bytes(silence.clone().into_bytes())]);
    }
    steps.push(Step::Hang);
    let server = serve(move |_| Answer::Raw(steps.clone())).await;
    let cancel = CancellationToken::new();
    let mut stream = provider(&server, Settings::default()).stream(request("go"), cancel.clone());
    loop {
        let delta = timeout(DEADLINE, stream.next()).await.unwrap().unwrap().unwrap();
        if delta == Delta::Text("par".to_owned()) {
            break;
        }
    }
    let rest = tokio::spawn(stream.collect::<Vec<_>>());
    server.sent(20).await;
    cancel.cancel();
    assert_eq!(timeout(DEADLINE, rest).await.unwrap().unwrap(), [Err(ModelError::cancelled())]);
    server.closed().await;
}

#[tokio::test]
async fn not_at_all_where_the_server_hangs_after_its_last_event() {
    let whole = framed(&events(&[words("all")], "end_turn"));
    let server = serve(move |_| Answer::Raw(vec![Step::Bytes(whole.clone().into_bytes()), Step::Hang])).await;
    assert_eq!(ask_of(&server, Settings::default()).await.text, "all");
    server.closed().await;
}

#[tokio::test]
async fn not_at_all_a_connection_is_used_again() {
    let server = serve(|_| answer(&[words("hello")], "end_turn")).await;
    let provider = provider(&server, Settings::default());
    for _ in 0..20 {
        assert_eq!(hear(provider.stream(request("go"), CancellationToken::new())).await.text, "hello");
    }
    assert_eq!(server.accepted(), 1);
}
