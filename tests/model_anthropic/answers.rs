//! Answers as servers really send them, and what they mean.

use herder::domain::{
    outcome::{FaultClass, Stop},
    usage::Usage,
};
use serde_json::{Value, json};

use crate::{
    ask::{ask, ask_raw, reply},
    support::{
        hear::Said,
        messages::{answer, events, framed, redacted, thinks, uses, words},
        server::{Answer, Step},
    },
};

fn calls(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let call = |(id, name, arguments): &(&str, &str, &str)| {
        ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned())
    };
    calls.iter().map(call).collect()
}

fn bytes(text: &str) -> Step {
    Step::Bytes(text.as_bytes().to_vec())
}

#[tokio::test]
async fn an_answer_is_all_that_its_blocks_say() {
    let blocks = [thinks("hm"), redacted(), words("Let me look."), uses("t1", "read", &json!({"path": "a"}))];
    let said = ask(answer(&blocks, "tool_use")).await;
    let kept: Vec<Value> = said.kept.iter().map(|block| serde_json::from_str(block.get()).unwrap()).collect();
    assert_eq!(kept, [thinks("hm"), redacted()]);
    let expected = Said {
        text: "Let me look.".to_owned(),
        reasoning: "hm".to_owned(),
        calls: calls(&[("t1", "read", r#"{"path":"a"}"#)]),
        usage: vec![Usage { input: 10, output: 5, ..Usage::default() }],
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    };
    assert_eq!(Said { kept: Vec::new(), ..said }, expected);
}

#[tokio::test]
async fn a_call_without_arguments_is_one_and_pieces_with_pings_between_are_joined() {
    let piece = |index: i64, json: &str| json!({"type": "content_block_delta", "index": index, "delta": {"type": "input_json_delta", "partial_json": json}});
    let start = |index: i64, id: &str, name: &str| json!({"type": "content_block_start", "index": index, "content_block": uses(id, name, &json!({}))});
    let stop = |index: i64| json!({"type": "content_block_stop", "index": index});
    let blocks = [
        start(0, "t1", "list"),
        piece(0, ""),
        stop(0),
        start(1, "t2", "read"),
        piece(1, ""),
        piece(1, "{\"pa"),
        piece(1, "th\":\""),
        piece(1, "a.txt\"}"),
        stop(1),
        start(2, "t3", "list"),
        stop(2),
    ];
    let mut stream = events(&[], "tool_use");
    let end = stream.split_off(2);
    stream.extend(blocks.into_iter().flat_map(|event| [event, json!({"type": "ping"})]));
    stream.extend(end);
    let said = ask(Answer::Stream(stream)).await;
    let expected = calls(&[("t1", "list", ""), ("t2", "read", r#"{"path":"a.txt"}"#), ("t3", "list", "")]);
    assert_eq!((&said.calls, said.stop), (&expected, Some(Stop::ToolCalls)));
    let reply = reply(&said);
    assert_eq!((reply.calls[0].arguments.as_str(), reply.calls.len()), ("{}", 3));
}

#[tokio::test]
async fn arguments_of_an_answer_that_ended_well_go_on_as_they_came() {
    for arguments in ["\"a.txt\"", "null", "[]", "{\"path\":\"a\u{b}b\"}", "{\"command\": \"cat <<EOF"] {
        let mut stream = events(&[uses("t1", "open_window", &json!({}))], "tool_use");
        let deltas = stream.iter_mut().filter(|event| event["type"] == "content_block_delta");
        for (delta, json) in deltas.zip([arguments, "", ""]) {
            delta["delta"]["partial_json"] = json.into();
        }
        assert_eq!(ask(Answer::Stream(stream)).await.calls, calls(&[("t1", "open_window", arguments)]));
    }
}

#[tokio::test]
async fn sixty_calls_come_through_in_their_order() {
    let ids: Vec<String> = (0..60).map(|number| format!("t{number}")).collect();
    let blocks: Vec<_> = ids.iter().map(|id| uses(id, "read", &json!({"path": id}))).collect();
    let said = ask(answer(&blocks, "tool_use")).await;
    assert_eq!(said.calls.into_iter().map(|(id, _, _)| id).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn an_answer_cut_before_its_end_is_a_failure_and_never_a_call() {
    let whole = events(&[words("par"), uses("t1", "write", &json!({"content": "first half"}))], "tool_use");
    for kept in 0..whole.len() - 2 {
        let torn = framed(&whole[..kept]);
        for answer in [vec![bytes(&torn)], vec![bytes(&torn), Step::Drop]] {
            let said = ask(Answer::Raw(answer)).await;
            assert_eq!(
                (said.class(), said.calls, said.stop),
                (Some(FaultClass::Transient), Vec::new(), None)
            );
        }
    }
    let without_last = framed(&whole[..whole.len() - 1]);
    assert_eq!(ask_raw(&without_last).await.stop, Some(Stop::ToolCalls));
    let dropped = Answer::Raw(vec![bytes(&without_last), Step::Drop]);
    assert_eq!(ask(dropped).await.stop, Some(Stop::ToolCalls));
}

#[tokio::test]
async fn an_answer_cut_at_its_limit_says_so() {
    let said = ask(answer(&[words("x"), uses("t1", "write", &json!({}))], "max_tokens")).await;
    assert_eq!((said.stop, said.calls.len()), (Some(Stop::Length), 1));
    assert_eq!(ask(answer(&[words("x")], "refusal")).await.stop, Some(Stop::Refusal));
}

#[tokio::test]
async fn text_is_whole_wherever_the_network_cuts_it() {
    let body = framed(&events(&[words("那😀é")], "end_turn"));
    let text = body.find('那').unwrap();
    for cut in text - 1..text + 12 {
        let (head, tail) = body.as_bytes().split_at(cut);
        let said = ask(Answer::Raw(vec![Step::Bytes(head.to_vec()), Step::Bytes(tail.to_vec())])).await;
        assert_eq!((said.text.as_str(), said.stop), ("那😀é", Some(Stop::EndTurn)), "cut at {cut}");
    }
}

#[tokio::test]
async fn an_answer_in_one_piece_is_an_answer() {
    let content = [thinks("hm"), words("hi"), uses("t1", "list", &json!({"path": "."}))];
    let usage = json!({"input_tokens": 3, "cache_read_input_tokens": 2, "output_tokens": 4});
    let said = ask(Answer::Json(json!({
        "id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": "tool_use", "usage": usage,
    })))
    .await;
    assert_eq!(serde_json::from_str::<Value>(said.kept[0].get()).unwrap(), thinks("hm"));
    let expected = Said {
        text: "hi".to_owned(),
        reasoning: "hm".to_owned(),
        calls: calls(&[("t1", "list", r#"{"path":"."}"#)]),
        usage: vec![Usage { input: 5, output: 4, cached: 2, ..Usage::default() }],
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    };
    assert_eq!(Said { kept: Vec::new(), ..said }, expected);
}
