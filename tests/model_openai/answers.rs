//! Answers as servers really send them, and what they mean.

use herder::domain::{
    outcome::{FaultClass, Stop},
    usage::Usage,
};
use serde_json::{Value, json};

use crate::{
    ask::{Said, ask, ask_raw, events},
    support::{
        chat::{chunk, usage},
        server::{Answer, Step},
    },
};

fn piece(piece: Value) -> Value {
    chunk(&json!({"tool_calls": [piece]}), None)
}

fn calls(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    calls
        .iter()
        .map(|(id, name, arguments)| ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned()))
        .collect()
}

/// Streams events that end with the finish reason, and expects the calls.
async fn gives(what: &str, mut stream: Vec<Value>, finish: Option<&str>, expected: &[(&str, &str, &str)]) {
    stream.push(chunk(&json!({}), finish));
    let said = ask(Answer::Stream(stream)).await;
    let expected = Said { calls: calls(expected), stop: Some(Stop::ToolCalls), ..Said::default() };
    assert_eq!(Said { text: String::new(), ..said }, expected, "{what}");
}

#[tokio::test]
async fn calls_are_put_together_whatever_the_server_leaves_out_or_repeats() {
    let done = Some("tool_calls");
    let two = [("c_a", "read", r#"{"path":"1"}"#), ("c_b", "read", r#"{"path":"2"}"#)];
    let whole = |id: &str, path: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": format!(r#"{{"path":"{path}"}}"#)}});
    gives("no index", vec![piece(whole("c_a", "1")), piece(whole("c_b", "2"))], done, &two).await;
    let one_delta = chunk(&json!({"tool_calls": [whole("c_a", "1"), whole("c_b", "2")]}), None);
    gives("no index, one delta", vec![one_delta], done, &two).await;
    gives(
        "no index, in pieces",
        vec![
            piece(json!({"id": "c_a", "function": {"name": "bash", "arguments": ""}})),
            piece(json!({"function": {"arguments": "{\"command\":"}})),
            piece(json!({"function": {"arguments": "\"echo hi\"}"}})),
        ],
        done,
        &[("c_a", "bash", r#"{"command":"echo hi"}"#)],
    )
    .await;
    gives(
        "empty id and name",
        vec![
            piece(json!({"index": 0, "id": "c_a", "function": {"name": "grep", "arguments": "{"}})),
            piece(json!({"index": 0, "id": "", "function": {"name": "", "arguments": "\"pattern\":\"x\"}"}})),
            piece(json!({"index": 0, "id": null, "function": {"name": null, "arguments": null}})),
        ],
        done,
        &[("c_a", "grep", r#"{"pattern":"x"}"#)],
    )
    .await;
    gives(
        "interleaved",
        vec![
            piece(json!({"index": 0, "id": "c_a", "function": {"name": "read", "arguments": "{\"path\":"}})),
            piece(json!({"index": 1, "id": "c_b", "function": {"name": "read", "arguments": "{\"path\":"}})),
            piece(json!({"index": 0, "function": {"arguments": "\"1\"}"}})),
            piece(json!({"index": 1, "function": {"arguments": "\"2\"}"}})),
        ],
        done,
        &two,
    )
    .await;
    gives(
        "arguments as an object",
        vec![piece(
            json!({"index": 0, "id": "c_a", "function": {"name": "bash", "arguments": {"command": "ok"}}}),
        )],
        done,
        &[("c_a", "bash", r#"{"command":"ok"}"#)],
    )
    .await;
    gives(
        "a call of the old kind",
        vec![
            chunk(&json!({"function_call": {"name": "list", "arguments": "{"}}), None),
            chunk(&json!({"function_call": {"arguments": "}"}}), None),
        ],
        Some("function_call"),
        &[("", "list", "{}")],
    )
    .await;
}

#[tokio::test]
async fn calls_count_whatever_the_finish_reason_says() {
    for finish in [Some("stop"), Some("other"), Some("function_call"), Some(""), None] {
        let text = chunk(&json!({"content": "Let me look."}), None);
        let call = piece(json!({"index": 0, "id": "c_a", "function": {"name": "list", "arguments": "{}"}}));
        gives("by presence", vec![text, call], finish, &[("c_a", "list", "{}")]).await;
    }
}

#[tokio::test]
async fn calls_of_one_id_are_as_many_as_came() {
    let whole = |path: &str| json!({"id": "dup_1", "type": "function", "function": {"name": "read", "arguments": format!(r#"{{"path":"{path}"}}"#)}});
    let at = |index: u64, path: &str| {
        let mut call = whole(path);
        call["index"] = index.into();
        call
    };
    let two = [("dup_1", "read", r#"{"path":"a"}"#), ("dup_1", "read", r#"{"path":"b"}"#)];
    let one_delta = chunk(&json!({"tool_calls": [at(0, "a"), at(1, "b")]}), None);
    gives("one delta", vec![one_delta], Some("tool_calls"), &two).await;
    gives("two deltas", vec![piece(at(0, "a")), piece(at(1, "b"))], Some("tool_calls"), &two).await;
    gives("no index", vec![piece(whole("a")), piece(whole("b"))], Some("tool_calls"), &two).await;
}

#[tokio::test]
async fn sixty_calls_and_a_monstrous_index_come_through() {
    let call = |index: u64| json!({"index": index, "id": format!("c_{index}"), "function": {"name": "read", "arguments": "{}"}});
    let indexes: Vec<u64> = (0..59).chain([4_000_000_000]).collect();
    let mut stream: Vec<Value> = indexes.iter().map(|index| piece(call(*index))).collect();
    stream.push(chunk(&json!({}), Some("tool_calls")));
    let said = ask(Answer::Stream(stream)).await;
    let ids: Vec<String> = said.calls.into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(ids, indexes.iter().map(|index| format!("c_{index}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn arguments_of_an_answer_that_ended_well_go_on_as_they_came() {
    for arguments in ["", "\"a.txt\"", "null", "[]", "{\"path\":\"a\u{b}b\"}", "{\"command\": \"cat <<EOF"] {
        let call = json!({"index": 0, "id": "c_a", "function": {"name": "read", "arguments": arguments}});
        gives("as they came", vec![piece(call)], Some("tool_calls"), &[("c_a", "read", arguments)]).await;
    }
}

#[tokio::test]
async fn surrogate_halves_are_joined_or_replaced() {
    let call = |arguments: &str| {
        piece(json!({"index": 0, "id": "c_a", "function": {"name": "w", "arguments": arguments}}))
    };
    let (high, low) = (call(r#"{"c":"\ud83d"#), call(r#"\ude00"}"#));
    gives("joined", vec![high, low], Some("stop"), &[("c_a", "w", r#"{"c":"\ud83d\ude00"}"#)]).await;
    let lone = call(r#"{"c":"\ud83d"}"#);
    gives("alone in the arguments", vec![lone], Some("stop"), &[("c_a", "w", r#"{"c":"\ufffd"}"#)]).await;

    let text = r#"data: {"choices":[{"delta":{"content":"bye \ud83e"},"finish_reason":"stop"}]}"#;
    assert_eq!(ask_raw(&format!("{text}\n\n")).await.text, "bye \u{FFFD}");
    let split = concat!(
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"w","arguments":"\"\ud83d"}}]}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\""}}]},"finish_reason":"stop"}]}"#,
        "\n\n"
    );
    assert_eq!(ask_raw(split).await.calls, calls(&[("a", "w", "\"\u{FFFD}\u{FFFD}\"")]));
}

#[tokio::test]
async fn chunks_without_choices_are_no_trouble_and_usage_counts_once() {
    let spent =
        json!({"prompt_tokens": 21, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}});
    let said = ask(Answer::Stream(vec![
        json!({"id": "cmpl-1", "choices": [], "prompt_filter_results": []}),
        json!({"id": "cmpl-1", "usage": null}),
        chunk(&json!({"role": "assistant", "content": null, "tool_calls": null}), None),
        chunk(&json!({"content": "hello"}), None),
        json!({"id": "cmpl-1", "choices": null}),
        json!({"choices": [{"index": 1, "delta": {"content": "another answer"}}]}),
        json!({"choices": [{"index": 0, "delta": null, "finish_reason": "stop"}]}),
        usage(21, 9),
        json!({"usage": spent}),
    ]))
    .await;
    let usage = Usage { input: 21, output: 9, cached: 4, ..Usage::default() };
    let expected =
        Said { text: "hello".to_owned(), usage: vec![usage], stop: Some(Stop::EndTurn), ..Said::default() };
    assert_eq!(said, expected);
}

#[tokio::test]
async fn comments_pings_and_empty_events_are_skipped() {
    let said = ask_raw(concat!(
        ": PROCESSING\n\n:\n\nid: 1\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"o\"}}]}\n\n",
        ": ping\n\nid: 2\nevent: message\n\ndata:\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"k\"},\"finish_reason\":null}]}\r\n\r\n",
        ": cost=0.0001\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        ": [DONE]\n\ndata: [DONE]\n\n"
    ))
    .await;
    assert_eq!((said.text.as_str(), said.stop), ("ok", Some(Stop::EndTurn)));
}

#[tokio::test]
async fn text_is_whole_wherever_the_network_cuts_it() {
    let body = format!("{}data: [DONE]\n\n", events(&[chunk(&json!({"content": "那😀é"}), Some("stop"))]));
    let text = body.find('那').unwrap();
    for cut in text - 1..text + 12 {
        let (head, tail) = body.as_bytes().split_at(cut);
        let said = ask(Answer::Raw(vec![Step::Bytes(head.to_vec()), Step::Bytes(tail.to_vec())])).await;
        assert_eq!((said.text.as_str(), said.stop), ("那😀é", Some(Stop::EndTurn)), "cut at {cut}");
    }
    let bytes = body.bytes().map(|byte| Step::Bytes(vec![byte])).collect();
    assert_eq!(ask(Answer::Raw(bytes)).await.text, "那😀é");
}

#[tokio::test]
async fn an_answer_needs_a_finish_reason_or_done_and_not_both() {
    let text = chunk(&json!({"content": "all"}), None);
    let finished = events(&[chunk(&json!({"content": "all"}), Some("stop"))]);
    assert_eq!(ask_raw(&finished).await.stop, Some(Stop::EndTurn));
    assert_eq!(ask_raw(finished.trim_end()).await.stop, Some(Stop::EndTurn));
    assert_eq!(ask(Answer::Stream(vec![text.clone()])).await.stop, Some(Stop::EndTurn));
    let torn = Answer::Raw(vec![Step::Bytes(finished.into_bytes()), Step::Drop]);
    assert_eq!(ask(torn).await.stop, Some(Stop::EndTurn));
    assert_eq!(ask_raw(&events(&[text])).await.class(), Some(FaultClass::Transient));
}

#[tokio::test]
async fn a_call_cut_short_is_a_failure_and_never_a_call() {
    let torn = events(&[piece(
        json!({"index": 0, "id": "c_a", "function": {"name": "write", "arguments": "{\"content\":\"first ha"}}),
    )]);
    let dropped = Answer::Raw(vec![Step::Bytes(torn.clone().into_bytes()), Step::Drop]);
    for said in [ask_raw(&torn).await, ask(dropped).await, ask_raw(&format!("{torn}data: [DONE]\n\n")).await]
    {
        assert_eq!((said.class(), said.calls, said.stop), (Some(FaultClass::Transient), Vec::new(), None));
    }
}

#[tokio::test]
async fn finish_reasons_without_calls_are_told_apart() {
    let table = [
        ("stop", Stop::EndTurn),
        ("eos", Stop::EndTurn),
        ("tool_calls", Stop::EndTurn),
        ("length", Stop::Length),
        ("content_filter", Stop::Refusal),
    ];
    for (reason, stop) in table {
        let said = ask(Answer::Stream(vec![chunk(&json!({"content": "x"}), Some(reason))])).await;
        assert_eq!((said.stop, said.text.as_str()), (Some(stop), "x"), "{reason}");
    }
    let refusal = ask(Answer::Stream(vec![chunk(&json!({"refusal": "I can't."}), Some("stop"))])).await;
    assert_eq!((refusal.stop, refusal.text.as_str()), (Some(Stop::Refusal), "I can't."));
    let call = json!({"index": 0, "id": "c_a", "function": {"name": "write", "arguments": "{\"con"}});
    let cut = ask(Answer::Stream(vec![piece(call), chunk(&json!({}), Some("length"))])).await;
    assert_eq!((cut.stop, cut.calls), (Some(Stop::Length), calls(&[("c_a", "write", "{\"con")])));
}

#[tokio::test]
async fn reasoning_is_kept_apart_under_either_name() {
    for name in ["reasoning_content", "reasoning"] {
        let said = ask(Answer::Stream(vec![
            chunk(&json!({name: "hm"}), None),
            chunk(&json!({"content": "x"}), Some("stop")),
        ]));
        let said = said.await;
        assert_eq!((said.reasoning.as_str(), said.text.as_str()), ("hm", "x"));
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer() {
    let call = json!({"id": "c_a", "type": "function", "function": {"name": "list", "arguments": "{}"}});
    let message =
        json!({"role": "assistant", "content": [{"type": "text", "text": "hi"}], "tool_calls": [call]});
    let said = ask(Answer::Json(json!({
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4},
    })))
    .await;
    let expected = Said {
        text: "hi".to_owned(),
        calls: calls(&[("c_a", "list", "{}")]),
        usage: vec![Usage { input: 3, output: 4, ..Usage::default() }],
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    };
    assert_eq!(said, expected);
}
