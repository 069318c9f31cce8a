//! Scripts, and what the model makes of them; time stands still unless the model waits.

use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::domain::task::Params;

fn request(script: &Value, reply: usize) -> Request {
    Request {
        model: "scripted".into(),
        messages: vec![Message::User("12345678".into())],
        tools: Arc::new([]),
        params: Params::default(),
        script: Some(serde_json::from_value(script.clone()).unwrap()),
        reply,
    }
}

async fn hear(script: &Value, reply: usize) -> Vec<Result<Delta, ModelError>> {
    Scripted::default().stream(request(script, reply), CancellationToken::new()).collect().await
}

async fn deltas(script: &Value, reply: usize) -> Vec<Delta> {
    hear(script, reply).await.into_iter().map(Result::unwrap).collect()
}

async fn failure(script: &Value) -> (FaultClass, Option<Duration>) {
    let heard = hear(script, 0).await;
    let error = heard.into_iter().last().unwrap().unwrap_err();
    (error.class, error.retry_after)
}

fn spent(input: u64, output: u64, estimated: bool) -> Delta {
    Delta::Usage(Usage { input, output, estimated, ..Usage::default() })
}

#[tokio::test]
async fn a_reply_is_told_in_its_pieces_and_stops_by_what_it_holds() {
    let script = json!([
        {"text": "héllo", "reasoning": "hm", "chunks": 3, "usage": {"input": 7, "output": 3}},
        {"calls": [{"id": "a", "name": "read", "arguments": {"path": "x"}}, {"name": "list", "arguments": "\"raw"}]},
        {"text": "x", "stop": "length"},
    ]);
    let text = |text: &str| Delta::Text(text.to_owned());
    let expected = vec![
        Delta::Reasoning("hm".to_owned()),
        text("hé"),
        text("ll"),
        text("o"),
        spent(7, 3, false),
        Delta::Stop(Stop::EndTurn),
    ];
    assert_eq!(deltas(&script, 0).await, expected);

    let call = |id: Option<&str>, name: &str, arguments: &str| {
        Delta::Call(ProposedCall {
            id: id.map(Into::into),
            name: name.into(),
            arguments: arguments.to_owned(),
        })
    };
    let expected = vec![
        call(Some("a"), "read", r#"{"path":"x"}"#),
        call(None, "list", "\"raw"),
        spent(2, 7, true),
        Delta::Stop(Stop::ToolCalls),
    ];
    assert_eq!(deltas(&script, 1).await, expected);
    assert_eq!(deltas(&script, 2).await.last(), Some(&Delta::Stop(Stop::Length)));
}

#[tokio::test]
async fn more_pieces_than_characters_are_as_many_as_there_are_characters() {
    for (text, pieces) in [("ab", 2), ("那", 1), ("", 0)] {
        let script = json!([{"text": text, "chunks": 1_000_000}]);
        let told = deltas(&script, 0).await;
        assert_eq!(told.iter().filter(|delta| matches!(delta, Delta::Text(_))).count(), pieces, "{text}");
    }
}

#[tokio::test]
async fn a_script_that_is_over_ends_the_run_or_refuses() {
    let text = Delta::Text(END_OF_SCRIPT.to_owned());
    assert_eq!(deltas(&json!([]), 3).await, [text, spent(0, 0, false), Delta::Stop(Stop::EndTurn)]);

    let strict = Scripted::new(AtTheEnd::Refuse);
    let heard: Vec<_> =
        strict.stream(request(&json!([{"text": "x"}]), 1), CancellationToken::new()).collect().await;
    let expected = ModelError::new(FaultClass::Invalid, "reply 2 was asked for, the script has 1");
    assert_eq!(heard, [Err(expected)]);
}

#[tokio::test]
async fn scripted_failures_are_those_of_a_server() {
    let table = [
        (json!({"status": 429, "retry_after_s": 2}), FaultClass::RateLimit, Some(Duration::from_secs(2))),
        (
            json!({"status": 429, "body": "{\"error\":{\"code\":\"insufficient_quota\"}}"}),
            FaultClass::Quota,
            None,
        ),
        (json!({"status": 529}), FaultClass::Overloaded, None),
        (json!({"status": 500}), FaultClass::Transient, None),
        (json!({"status": 401}), FaultClass::Auth, None),
        (json!({"status": 400, "body": "maximum context length"}), FaultClass::ContextOverflow, None),
        (json!("drop"), FaultClass::Transient, None),
    ];
    for (fault, class, retry_after) in table {
        assert_eq!(failure(&json!([{"fault": fault}])).await, (class, retry_after), "{fault}");
    }
    let heard = hear(&json!([{"text": "par", "fault": "drop"}]), 0).await;
    assert_eq!((heard.len(), heard[0].as_ref().unwrap()), (2, &Delta::Text("par".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_takes_its_time_and_is_cancelled_at_once() {
    let script = json!([{"text": "x", "delay_ms": 60_000}]);
    let start = Instant::now();
    assert_eq!(deltas(&script, 0).await.len(), 3);
    assert_eq!(start.elapsed(), Duration::from_secs(60));

    let cancel = CancellationToken::new();
    let mut stream = Scripted::default().stream(request(&script, 0), cancel.clone());
    let start = Instant::now();
    let (first, ()) = tokio::join!(stream.next(), async {
        sleep(Duration::from_millis(5)).await;
        cancel.cancel();
    });
    assert_eq!(first, Some(Err(ModelError::cancelled())));
    assert_eq!((start.elapsed(), stream.next().await), (Duration::from_millis(5), None));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_reply_says_nothing_more_until_it_is_cancelled() {
    let cancel = CancellationToken::new();
    let script = json!([{"text": "par", "fault": "stall"}]);
    let mut stream = Scripted::default().stream(request(&script, 0), cancel.clone());
    assert_eq!(stream.next().await, Some(Ok(Delta::Text("par".to_owned()))));
    assert!(tokio::time::timeout(Duration::from_secs(86_400), stream.next()).await.is_err());
    cancel.cancel();
    assert_eq!(stream.next().await, Some(Err(ModelError::cancelled())));
}

#[tokio::test]
async fn a_cancelled_request_tells_nothing() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut stream = Scripted::default().stream(request(&json!([{"text": "x"}]), 0), cancel);
    assert_eq!(stream.next().await, Some(Err(ModelError::cancelled())));
    assert_eq!(stream.next().await, None);
}
