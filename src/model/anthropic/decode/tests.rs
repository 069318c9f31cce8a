//! Answers, event by event.

use serde_json::{Value, json};

use super::*;
use crate::{domain::usage::Usage, model::exchange::Reading};

fn decode(bytes: &[u8]) -> (Vec<Delta>, Result<Flow, ModelError>) {
    let mut reading = Reading::new(Answer::default());
    let flow = match reading.take(bytes) {
        Ok(Flow::More) => reading.end(),
        flow => flow,
    };
    (reading.out.into(), flow)
}

fn body(events: &[Value]) -> String {
    let event = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    events.iter().map(event).collect()
}

fn start(index: i64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: i64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn piece(index: i64, json: &str) -> Value {
    delta(index, json!({"type": "input_json_delta", "partial_json": json}))
}

fn stop(index: i64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn tool(id: &str) -> Value {
    json!({"type": "tool_use", "id": id, "name": "read", "input": {}})
}

fn finish(reason: &str) -> [Value; 2] {
    [json!({"type": "message_delta", "delta": {"stop_reason": reason}}), json!({"type": "message_stop"})]
}

/// The calls of an answer that ended well: id and arguments.
fn calls(mut events: Vec<Value>) -> Vec<(String, String)> {
    events.extend(finish("tool_use"));
    let (out, end) = decode(body(&events).as_bytes());
    assert_eq!(end, Ok(Flow::Done), "{events:?}");
    let call = |delta| {
        let Delta::Call(call) = delta else { return None };
        Some((call.id.as_deref().unwrap_or_default().to_owned(), call.arguments))
    };
    out.into_iter().filter_map(call).collect()
}

fn call(id: &str, arguments: &str) -> (String, String) {
    (id.to_owned(), arguments.to_owned())
}

#[test]
fn pieces_of_blocks_become_the_calls_that_were_meant() {
    let whole = json!({"type": "tool_use", "id": "a", "name": "read", "input": {"path": "1"}});
    let unnumbered = |mut event: Value| {
        event.as_object_mut().unwrap().remove("index");
        event
    };
    let table = [
        ("no delta", vec![start(0, tool("a")), stop(0)], vec![call("a", "")]),
        ("an empty delta", vec![start(0, tool("a")), piece(0, ""), stop(0)], vec![call("a", "")]),
        (
            "several",
            vec![start(0, tool("a")), piece(0, ""), piece(0, "{\"pa"), piece(0, "th\":1}"), stop(0)],
            vec![call("a", "{\"path\":1}")],
        ),
        ("given at the start", vec![start(0, whole.clone()), stop(0)], vec![call("a", r#"{"path":"1"}"#)]),
        (
            "given at the start and again",
            vec![start(0, whole), piece(0, "{\"path\":"), piece(0, "1}"), stop(0)],
            vec![call("a", "{\"path\":1}")],
        ),
        (
            "interleaved",
            vec![
                start(0, tool("a")),
                start(1, tool("b")),
                piece(1, "{\"b\":"),
                piece(0, "{\"a\":"),
                piece(1, "1}"),
                piece(0, "1}"),
            ],
            vec![call("a", "{\"a\":1}"), call("b", "{\"b\":1}")],
        ),
        (
            "one index for all",
            vec![start(0, tool("a")), piece(0, "{}"), stop(0), start(0, tool("b")), piece(0, "{ }"), stop(0)],
            vec![call("a", "{}"), call("b", "{ }")],
        ),
        (
            "one index for all, none stopped",
            vec![start(0, tool("a")), piece(0, "{}"), start(0, tool("b")), piece(0, "{ }")],
            vec![call("a", "{}"), call("b", "{ }")],
        ),
        (
            "a start told twice",
            vec![start(0, tool("a")), start(0, tool("a")), piece(0, "{}"), stop(0), stop(0)],
            vec![call("a", "{}")],
        ),
        (
            "no index",
            [start(0, tool("a")), piece(0, "{}"), stop(0), start(0, tool("b")), piece(0, "{ }"), stop(0)]
                .map(unnumbered)
                .to_vec(),
            vec![call("a", "{}"), call("b", "{ }")],
        ),
        (
            "for blocks that never began or are over",
            vec![piece(7, "{"), stop(7), start(i64::MAX, tool("a")), stop(i64::MAX), piece(i64::MAX, "{")],
            vec![call("a", "")],
        ),
        (
            "beside a server's own tools and what nobody knows",
            vec![
                start(0, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
                piece(0, "{\"query\":\"x\"}"),
                stop(0),
                start(
                    1,
                    json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"text": 7}]}),
                ),
                stop(1),
                start(2, json!({"type": "new", "text": {"deep": []}})),
                json!({"type": "content_block_start", "index": 3}),
                delta(2, json!({"type": "new_delta", "new": 1})),
                json!({"type": "content_block_delta", "index": 2}),
                json!({"type": "new_event", "index": 2}),
                start(4, tool("a")),
            ],
            vec![call("a", "")],
        ),
        (
            "half a surrogate",
            vec![start(0, tool("a")), piece(0, r#"{"c":"\ud83d"#), piece(0, r#"\ude00\ud83d"}"#), stop(0)],
            vec![call("a", r#"{"c":"\ud83d\ude00\ufffd"}"#)],
        ),
    ];
    for (what, events, expected) in table {
        assert_eq!(calls(events), expected, "{what}");
    }
}

#[test]
fn thoughts_are_told_as_they_come_and_kept_with_their_signature() {
    let redacted = json!({"type": "redacted_thinking", "data": "x", "extra": [1]});
    let mut events = vec![
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "h"})),
        delta(0, json!({"type": "thinking_delta", "thinking": "m"})),
        delta(0, json!({"type": "signature_delta", "signature": "sig"})),
        stop(0),
        start(1, redacted.clone()),
        stop(1),
        start(2, json!({"type": "thinking", "thinking": "unsigned"})),
        stop(2),
        start(3, json!({"type": "text", "text": ""})),
        delta(3, json!({"type": "text_delta", "text": "hi"})),
        stop(3),
    ];
    events.extend(finish("end_turn"));
    let keep = |json: &str| Delta::Keep(serde_json::from_str(json).unwrap());
    let expected = vec![
        Delta::Reasoning("h".to_owned()),
        Delta::Reasoning("m".to_owned()),
        Delta::Progress,
        keep(r#"{"type":"thinking","thinking":"hm","signature":"sig"}"#),
        keep(&redacted.to_string()),
        Delta::Reasoning("unsigned".to_owned()),
        Delta::Text("hi".to_owned()),
        Delta::Stop(Stop::EndTurn),
    ];
    assert_eq!(decode(body(&events).as_bytes()), (expected, Ok(Flow::Done)));
}

#[test]
fn stop_reasons_are_told_apart_and_calls_count_whatever_they_say() {
    let table = [
        ("end_turn", Stop::EndTurn, Stop::ToolCalls),
        ("stop_sequence", Stop::EndTurn, Stop::ToolCalls),
        ("tool_use", Stop::EndTurn, Stop::ToolCalls),
        ("new_reason", Stop::EndTurn, Stop::ToolCalls),
        ("max_tokens", Stop::Length, Stop::Length),
        ("model_context_window_exceeded", Stop::Length, Stop::Length),
        ("pause_turn", Stop::Length, Stop::Length),
        ("refusal", Stop::Refusal, Stop::Refusal),
    ];
    for (reason, with_text, with_call) in table {
        let text = start(0, json!({"type": "text", "text": "x"}));
        for (block, stop) in [(text, with_text), (start(0, tool("a")), with_call)] {
            let events: Vec<_> = [block].into_iter().chain(finish(reason)).collect();
            let (out, _) = decode(body(&events).as_bytes());
            assert_eq!(out.last(), Some(&Delta::Stop(stop)), "{reason}");
        }
    }
}

#[test]
fn tokens_are_counted_once_with_those_of_the_cache() {
    let counts = json!({"input_tokens": 5, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 7, "output_tokens": 1});
    let mut events = vec![json!({"type": "message_start", "message": {"content": [], "usage": counts}})];
    events.extend(finish("end_turn"));
    events[1]["usage"] = json!({"input_tokens": 0, "output_tokens": 9, "server_tool_use": {}});
    let usage = Usage { input: 42, output: 9, cached: 30, cache_written: 7, ..Usage::default() };
    let (out, _) = decode(body(&events).as_bytes());
    assert_eq!(out, [Delta::Usage(usage), Delta::Stop(Stop::EndTurn)]);

    let (out, end) = decode(body(&events[..1]).as_bytes());
    assert_eq!((out, end.is_err()), (vec![Delta::Usage(Usage { output: 1, ..usage })], true));
}

#[test]
fn an_answer_needs_its_last_event_or_a_stop_reason_and_not_both() {
    let text = start(0, json!({"type": "text", "text": "all"}));
    let torn = [start(0, tool("a")), piece(0, "{\"path\":\"fi")];
    let [reason, last] = finish("end_turn");
    let ends = |events: &[Value]| decode(body(events).as_bytes()).1.is_ok();
    assert!(ends(&[text.clone(), reason.clone()]));
    assert!(ends(&[text.clone(), last.clone()]));
    assert!(!ends(std::slice::from_ref(&text)));
    assert!(!ends(&[text, stop(0)]));
    assert!(!ends(&torn));
    assert!(!ends(&[&torn[..], &[last]].concat()));
    assert!(!ends(&[start(0, json!({"type": "tool_use", "id": "a"})), reason]));
    assert!(!ends(&[]));
}

#[test]
fn pings_and_empty_deltas_are_no_progress_and_work_on_a_call_is() {
    let told = |events: &[Value]| {
        let mut reading = Reading::new(Answer::default());
        assert_eq!(reading.take(body(events).as_bytes()), Ok(Flow::More));
        Vec::from(reading.out)
    };
    let silent = [
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 1}}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": ""})),
        piece(0, ""),
        stop(0),
    ];
    assert_eq!(told(&silent), []);
    assert_eq!(told(&[start(0, tool("a")), piece(0, "{"), piece(0, "1")]), [Delta::Progress]);
}

/// A text, a call, and all that belongs to them.
fn sample() -> String {
    let mut events = vec![
        json!({"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 5}}}),
        start(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "那 😀"})),
        stop(0),
        start(1, tool("a")),
        piece(1, "{\"c\":"),
        piece(1, "1}"),
        stop(1),
    ];
    events.extend(finish("tool_use"));
    body(&events)
}

#[test]
fn an_answer_cut_anywhere_gives_its_calls_whole_or_none() {
    let sample = sample();
    let call = ProposedCall { id: Some("a".into()), name: "read".into(), arguments: r#"{"c":1}"#.to_owned() };
    let last = [Delta::Call(call), Delta::Stop(Stop::ToolCalls)];
    let finished = sample.find("\n\nevent: message_stop").unwrap();
    for cut in 0..=sample.len() {
        let (out, end) = decode(&sample.as_bytes()[..cut]);
        let told = out.ends_with(&last);
        assert_eq!((told, end.is_ok()), (cut >= finished, cut >= finished), "cut at {cut}");
    }
}

#[test]
fn an_event_without_a_type_goes_by_its_name() {
    let text = r#"{"content_block":{"type":"text","text":"bye \ud83e"}}"#;
    let stream = format!("event: content_block_start\ndata: {text}\n\nevent: message_stop\ndata: {{}}\n\n");
    let expected = vec![Delta::Text("bye \u{FFFD}".to_owned()), Delta::Stop(Stop::EndTurn)];
    assert_eq!(decode(stream.as_bytes()), (expected, Ok(Flow::Done)));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_bytes_whatever_do_harm(noise in proptest::collection::vec(0_u8..=255, 0..64), at in 0..800_usize) {
        let mut bytes = sample().into_bytes();
        let at = at.min(bytes.len());
        bytes.splice(at..at, noise);
        let (out, end) = decode(&bytes);
        let stops = out.iter().filter(|delta| matches!(delta, Delta::Stop(_))).count();
        proptest::prop_assert_eq!(stops, usize::from(end.is_ok()));
    }

    #[test]
    fn events_in_any_order_give_one_end_at_most(order in proptest::collection::vec(0..10_usize, 0..30)) {
        let sample = sample();
        let events: Vec<&str> = sample.split_inclusive("\n\n").collect();
        let shuffled: String = order.iter().map(|at| events[*at]).collect();
        let (out, end) = decode(shuffled.as_bytes());
        let stops = out.iter().filter(|delta| matches!(delta, Delta::Stop(_))).count();
        proptest::prop_assert_eq!(stops, usize::from(end.is_ok()));
    }
}
