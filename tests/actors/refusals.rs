//! What a server says instead of an answer, over whole runs: whether it is asked again, when, and what is of record.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use herder::{
    clock::{Clock as _, SystemClock},
    domain::event::{Event, ModelRetry},
};
use serde_json::{Value, json};

use crate::{
    http::{answering, stage, strictly},
    stage::Plan,
    streams::{body, ended, event, speaks_messages},
    support::{
        chat::{self, chunk},
        messages,
        server::{Answer, Protocol, Rules, Server},
    },
};

fn status(status: u16, headers: &[(&'static str, &str)], body: &str) -> Answer {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Answer::Status { status, headers, body: body.to_owned() }
}

/// The first failure that was followed by another request, and how long was waited for that one.
async fn first_retry(stage: &crate::stage::Stage, run: herder::domain::id::RunId) -> (ModelRetry, Duration) {
    let log = stage.log(run).await.into_iter();
    let mut retries = log.filter_map(|one| {
        let Event::ModelRetry(retry) = one.fact.event else { return None };
        let wait = retry.not_before.since(one.fact.at);
        Some((retry, wait))
    });
    retries.next().expect("nothing was asked again")
}

/// The wait of record after a refusal with these headers, which the next request keeps to.
async fn waited(
    status_code: u16,
    headers: impl Fn() -> Vec<(&'static str, String)> + Send + Sync + 'static,
) -> Duration {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let times = asked.clone();
    let server = Server::start(move |_| {
        let mut times = times.lock().unwrap();
        times.push(SystemClock.now());
        if times.len() > 1 {
            return chat::text("well");
        }
        Answer::Status { status: status_code, headers: headers(), body: "{}".to_owned() }
    })
    .await;
    let stage = stage(&server).await;
    let (run, end) = ended(&stage).await;
    assert_eq!((end.outcome.to_string(), end.turns), ("done".to_owned(), 1));
    let (retry, wait) = first_retry(&stage, run).await;
    let asked = asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    assert!(asked[1] >= retry.not_before, "asked at {:?}, before {:?}", asked[1], retry.not_before);
    wait
}

#[tokio::test]
async fn the_wait_that_a_server_asks_for_is_of_record_and_kept() {
    let table: [(&[(&str, &str)], u64); 4] = [
        (&[("retry-after", "1")], 1_000),
        (&[("retry-after", "0.2")], 200),
        (&[("retry-after-ms", "40")], 40),
        (&[("retry-after", "60"), ("retry-after-ms", "40")], 40),
    ];
    for (headers, wait) in table {
        for status in [429, 503] {
            let sent = move || headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            assert_eq!(waited(status, sent).await, Duration::from_millis(wait), "{status} {headers:?}");
        }
    }
}

#[tokio::test]
async fn the_wait_may_be_asked_for_as_a_date() {
    // Without a fraction of a second, as a date is sent.
    let seconds = jiff::Timestamp::now().as_second() + 50;
    let date = jiff::Timestamp::from_second(seconds).unwrap();
    let sent = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&date).unwrap();
    let server = answering([status(429, &[("retry-after", &sent)], "{}")]).await;
    let stage = stage(&server).await;
    let submitted = stage.submit("ws", &Value::Null, &json!({ "script": null }));
    let run = submitted.run;
    stage.until(run, "model_retry", 1).await;
    stage.supervisor.cancel(run).await.unwrap();
    assert_eq!(stage.outcome(submitted).await, "cancelled");
    let (retry, wait) = first_retry(&stage, run).await;
    assert!(wait <= Duration::from_secs(50), "{wait:?}");
    assert!(retry.not_before.as_micros() >= date.as_microsecond(), "{:?} is before {date}", retry.not_before);
}

#[tokio::test]
async fn a_wait_that_is_none_is_made_up_for_and_never_nothing() {
    for nonsense in ["Wed, 21 Oct 2015 07:28:00 GMT", "soon", "-5", "0", "NaN", "inf", "1e400", ""] {
        let wait = waited(429, move || vec![("retry-after", nonsense.to_owned())]).await;
        // The first wait is drawn from half a second.
        assert!(
            (Duration::from_millis(10)..=Duration::from_millis(500)).contains(&wait),
            "{nonsense}: {wait:?}"
        );
    }
}

#[tokio::test]
async fn a_failure_that_may_pass_is_asked_about_again_in_whatever_form_it_comes() {
    let html = [("content-type", "text/html")];
    let streamed =
        |error: serde_json::Value| Answer::Stream(vec![chunk(&json!({ "content": "par" }), None), error]);
    let away = "worker went away";
    let table = [
        (status(502, &html, "<html>bad gateway</html>"), "transient", "HTTP 502: <html>bad gateway</html>"),
        (status(500, &[], r#"{"unknown":{"shape":1}}"#), "transient", "shape"),
        (status(503, &[], r#"{"error":"overloaded"}"#), "overloaded", "HTTP 503: overloaded"),
        (status(200, &html, "<html>sign in</html>"), "transient", "text/html"),
        (streamed(json!({ "choices": [], "error": { "code": 502, "message": away } })), "transient", away),
        (streamed(json!({ "choices": [], "error": { "code": 503, "message": away } })), "overloaded", away),
        (
            streamed(json!({ "choices": [], "error": { "code": "server_error", "message": away } })),
            "transient",
            away,
        ),
        (
            streamed(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "error",
                "error": { "code": 502, "message": away } }] })),
            "transient",
            away,
        ),
    ];
    for (answer, class, words) in table {
        let server = answering([answer.clone(), chat::text("well")]).await;
        let stage = stage(&server).await;
        let (run, end) = ended(&stage).await;
        assert_eq!(end.outcome.to_string(), "done", "{answer:?}");
        let (retry, _) = first_retry(&stage, run).await;
        assert_eq!(retry.class.as_str(), class, "{answer:?}");
        assert!(retry.error.contains(words), "{} lacks {words}", retry.error);
        // What came before the failure is no part of the conversation.
        assert_eq!(stage.transcript(run).await, ["user: task", "model: well"], "{answer:?}");
        assert_eq!(server.bodies()[0], server.bodies()[1]);
    }
}

#[tokio::test]
async fn an_error_event_of_messages_is_asked_about_again_by_its_class() {
    let begun = json!({ "type": "message_start", "message": { "id": "m1", "role": "assistant", "content": [],
        "usage": { "input_tokens": 5, "output_tokens": 0 } } });
    let error = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } });
    let words = messages::events(&[messages::words("par")], "end_turn");
    let late = [&words[..4], std::slice::from_ref(&error)].concat();
    for events in [vec![begun, error.clone()], late] {
        let rules = Rules { protocol: Protocol::Messages, ..Rules::default() };
        let well = messages::answer(&[messages::words("well")], "end_turn");
        let server = strictly(rules, [Answer::Stream(events), well]).await;
        let stage = Plan { provider: speaks_messages(&server), ..Plan::default() }.start().await;
        let (run, end) = ended(&stage).await;
        assert_eq!(end.outcome.to_string(), "done");
        let (retry, _) = first_retry(&stage, run).await;
        assert_eq!(retry.class.as_str(), "overloaded");
        assert_eq!(stage.transcript(run).await, ["user: task", "model: well"]);
    }
}

#[tokio::test]
async fn what_will_never_be_accepted_is_asked_once_and_told_in_the_server_s_words() {
    let bad =
        json!({ "error": { "message": "invalid request", "type": "invalid_request_error", "code": 400 } });
    let in_stream = format!("event: error\n{}", event(&bad));
    let quota = r#"{"error":{"type":"insufficient_quota","code":"insufficient_quota",
        "message":"You exceeded your current quota"}}"#;
    let table = [
        (status(400, &[], &bad.to_string()), "invalid", "invalid request"),
        (Answer::Raw(vec![body(in_stream)]), "invalid", "invalid request"),
        (status(422, &[], r#"{"detail":"x"}"#), "invalid", "HTTP 422: \"x\""),
        (
            status(404, &[("content-type", "text/html")], "<h1>not here</h1>"),
            "invalid",
            "HTTP 404: <h1>not here</h1>",
        ),
        (status(429, &[("retry-after", "1")], quota), "quota", "You exceeded your current quota"),
        (status(402, &[], "pay"), "quota", "HTTP 402: pay"),
        (status(401, &[], "who?"), "auth", "HTTP 401: who?"),
    ];
    for (answer, class, words) in table {
        let server = answering([answer.clone()]).await;
        let plan = Plan { provider: crate::http::provider(&server), ..Plan::default() };
        let stage = plan.settings(|settings| settings.outlast_accounts = false).start().await;
        let (run, end) = ended(&stage).await;
        assert_eq!(end.outcome.to_string(), format!("provider_error: {class}"), "{answer:?}");
        assert!(
            end.error.as_deref().is_some_and(|error| error.contains(words)),
            "{:?} lacks {words}",
            end.error
        );
        assert_eq!(
            (server.requests().len(), stage.transcript(run).await),
            (1, vec!["user: task".to_owned()])
        );
    }
}
