//! Answers as servers really send them, and what they mean.

use herder::domain::{json::RawJson, outcome::Stop, usage::Usage};
use serde_json::{Value, json};

use crate::{
    ask::{Said, answer, ask, ask_events, ask_raw, call, completed, event, item, message, reasoning, stream},
    support::server::{Answer, Step},
};

fn calls(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    let owned = |(id, name, arguments): &(&str, &str, &str)| {
        ((*id).to_owned(), (*name).to_owned(), (*arguments).to_owned())
    };
    calls.iter().map(owned).collect()
}

fn raw(value: &Value) -> RawJson {
    serde_json::from_str(&value.to_string()).unwrap()
}

const USAGE: Usage =
    Usage { input: 21, output: 9, cached: 4, cache_written: 0, cost: None, estimated: false };

/// The events of an answer that thinks, speaks and asks for two calls whose pieces lie between each other.
fn everything() -> Vec<Value> {
    let whole = [
        reasoning(0, "Two files.", "s3cret"),
        message(1, "Let me look."),
        call(2, "c_a", "read", r#"{"path":"1"}"#),
        call(3, "c_b", "read", r#"{"path":"2"}"#),
    ];
    vec![
        json!({"type": "response.created", "response": {"status": "in_progress", "output": [], "usage": null}}),
        json!({"type": "response.in_progress", "response": {"status": "in_progress"}}),
        item(
            "added",
            0,
            &json!({"type": "reasoning", "id": "i_0", "summary": [], "encrypted_content": "s3"}),
        ),
        event(
            "reasoning_summary_part.added",
            0,
            json!({"summary_index": 0, "part": {"type": "summary_text", "text": ""}}),
        ),
        event("reasoning_summary_text.delta", 0, json!({"summary_index": 0, "delta": "Two "})),
        event("reasoning_summary_text.delta", 0, json!({"summary_index": 0, "delta": "files."})),
        event("reasoning_summary_text.done", 0, json!({"summary_index": 0, "text": "Two files."})),
        item("done", 0, &whole[0]),
        item("added", 1, &json!({"type": "message", "id": "i_1", "role": "assistant", "content": []})),
        event(
            "content_part.added",
            1,
            json!({"content_index": 0, "part": {"type": "output_text", "text": ""}}),
        ),
        event("output_text.delta", 1, json!({"content_index": 0, "delta": "Let me "})),
        event("output_text.delta", 1, json!({"content_index": 0, "delta": "look."})),
        event("output_text.done", 1, json!({"content_index": 0, "text": "Let me look."})),
        event(
            "content_part.done",
            1,
            json!({"content_index": 0, "part": {"type": "output_text", "text": "Let me look."}}),
        ),
        item("done", 1, &whole[1]),
        item("added", 2, &call(2, "c_a", "read", "")),
        item("added", 3, &call(3, "c_b", "read", "")),
        event("function_call_arguments.delta", 2, json!({"delta": "{\"path\":"})),
        event("function_call_arguments.delta", 3, json!({"delta": "{\"path\":"})),
        event("function_call_arguments.delta", 2, json!({"delta": "\"1\"}"})),
        event("function_call_arguments.delta", 3, json!({"delta": "\"2\"}"})),
        event("function_call_arguments.done", 2, json!({"arguments": r#"{"path":"1"}"#})),
        item("done", 2, &whole[2]),
        item("done", 3, &whole[3]),
        completed(&whole),
    ]
}

fn expected() -> Said {
    Said {
        text: "Let me look.".to_owned(),
        reasoning: "Two files.".to_owned(),
        calls: calls(&[("c_a", "read", r#"{"path":"1"}"#), ("c_b", "read", r#"{"path":"2"}"#)]),
        kept: vec![raw(&reasoning(0, "Two files.", "s3cret"))],
        usage: vec![USAGE],
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    }
}

/// Streams what is left of the events, and expects the same answer as from all of them.
async fn as_well(what: &str, change: impl Fn(&mut Vec<Value>)) {
    let mut events = everything();
    change(&mut events);
    assert_eq!(ask_events(&events).await, expected(), "{what}");
}

fn is(event: &Value, parts: &[&str]) -> bool {
    parts.iter().any(|part| event["type"].as_str().unwrap().contains(part))
}

#[tokio::test]
async fn what_comes_in_pieces_as_a_whole_or_both_is_told_once() {
    as_well("all of it", |_| {}).await;
    as_well("no deltas", |events| events.retain(|event| !is(event, &["delta"]))).await;
    as_well("no ends of parts", |events| {
        events.retain(|event| !is(event, &["text.done", "part.", "arguments.done"]))
    })
    .await;
    as_well("only whole items", |events| events.retain(|event| is(event, &["item.done", "completed"]))).await;
    as_well("only the whole answer", |events| events.retain(|event| is(event, &["completed"]))).await;
    as_well("no output at the end", |events| {
        events.last_mut().unwrap()["response"]["output"].take();
    })
    .await;
    as_well("no beginnings of items", |events| events.retain(|event| !is(event, &["item.added"]))).await;
    let whole = everything().pop().unwrap()["response"].take();
    assert_eq!(ask(Answer::Json(whole)).await, expected());
}

#[tokio::test]
async fn items_are_told_apart_by_whatever_the_server_says_of_them() {
    let without = |field: &'static str| {
        move |events: &mut Vec<Value>| {
            events.iter_mut().for_each(|event| {
                event.as_object_mut().unwrap().remove(field);
            });
        }
    };
    as_well("no index", without("output_index")).await;
    as_well("no item id", without("item_id")).await;
    as_well("one index for all", |events| {
        for event in events.iter_mut().filter(|event| event.get("output_index").is_some()) {
            event["output_index"] = 0.into();
        }
    })
    .await;
    as_well("an id that changes from event to event", |events| {
        for (at, event) in events.iter_mut().enumerate() {
            for holder in ["/item_id", "/item/id"] {
                if let Some(id) = event.pointer_mut(holder).filter(|id| *id != "i_0") {
                    *id = format!("x_{at}").into();
                }
            }
        }
    })
    .await;
    as_well("events that nobody knows", |events| {
        events.insert(0, json!({"type": "keepalive", "sequence_number": 7}));
        events.insert(3, json!({"type": "response.unheard_of", "delta": {"any": "thing"}}));
    })
    .await;
    let nameless: String = everything()
        .iter_mut()
        .map(|event| {
            let kind = event.as_object_mut().unwrap().remove("type").unwrap();
            format!("event: {}\ndata: {event}\n\n", kind.as_str().unwrap())
        })
        .collect();
    assert_eq!(ask_raw(&nameless).await, expected());
}

#[tokio::test]
async fn comments_pings_and_the_cuts_of_the_network_change_nothing() {
    let body = stream(&everything())
        .replace("event: response.output_item.done", ": ping\n\nevent: response.output_item.done");
    assert_eq!(ask_raw(&format!(": begun\n\n:\n\nid: 1\ndata:\n\n{body}data: [DONE]\n\n")).await, expected());
    let said = stream(&[
        event("output_text.delta", 0, json!({"content_index": 0, "delta": "那😀é"})),
        completed(&[message(0, "那😀é")]),
    ]);
    let bytes = said.bytes().map(|byte| Step::Bytes(vec![byte])).collect();
    assert_eq!(ask(Answer::Raw(bytes)).await.text, "那😀é");
    // Torn after its last event, an answer is whole.
    let torn = Answer::Raw(vec![Step::Bytes(said.into_bytes()), Step::Drop]);
    assert_eq!(ask(torn).await.stop, Some(Stop::EndTurn));
}

#[tokio::test]
async fn calls_count_whatever_else_the_answer_holds() {
    let said = ask(answer(&[call(0, "c_a", "list", "{}"), message(1, "Done.")])).await;
    assert_eq!((said.stop, said.text.as_str()), (Some(Stop::ToolCalls), "Done."));
    let same = [call(0, "dup_1", "read", r#"{"path":"a"}"#), call(1, "dup_1", "read", r#"{"path":"b"}"#)];
    let expected = calls(&[("dup_1", "read", r#"{"path":"a"}"#), ("dup_1", "read", r#"{"path":"b"}"#)]);
    assert_eq!(ask(answer(&same)).await.calls, expected);
    assert_eq!(ask_events(&[completed(&same)]).await.calls, expected);
    let indexes = (0..59).chain([4_000_000_000]);
    let mut many: Vec<Value> =
        indexes.map(|index| item("done", index, &call(index, &format!("c_{index}"), "read", "{}"))).collect();
    many.push(completed(&[]));
    assert_eq!(ask_events(&many).await.calls.len(), 60);
}

#[tokio::test]
async fn arguments_go_on_as_they_came() {
    for arguments in ["", "\"a.txt\"", "null", "[]", "{\"path\":\"a\u{b}b\"}", "{\"command\": \"cat <<EOF"] {
        let said = ask(answer(&[call(0, "c_a", "read", arguments)])).await;
        assert_eq!(said.calls, calls(&[("c_a", "read", arguments)]));
    }
    let mut object = call(0, "c_a", "bash", "");
    object["arguments"] = json!({"command": "ok"});
    assert_eq!(ask(answer(&[object])).await.calls, calls(&[("c_a", "bash", r#"{"command":"ok"}"#)]));
}

#[tokio::test]
async fn surrogate_halves_are_joined_or_replaced() {
    let delta = |text: &str| event("function_call_arguments.delta", 0, json!({"delta": text}));
    let events = [
        item("added", 0, &call(0, "c_a", "w", "")),
        delta(r#"{"c":"\ud83d"#),
        delta(r#"\ude00"}"#),
        completed(&[]),
    ];
    assert_eq!(ask_events(&events).await.calls, calls(&[("c_a", "w", r#"{"c":"\ud83d\ude00"}"#)]));
    let lone = ask(answer(&[call(0, "c_a", "w", r#"{"c":"\ud83d"}"#)])).await;
    assert_eq!(lone.calls, calls(&[("c_a", "w", r#"{"c":"\ufffd"}"#)]));
    let body = concat!(
        r#"data: {"type":"response.output_text.delta","delta":"bye \ud83e"}"#,
        "\n\n",
        r#"data: {"type":"response.completed"}"#,
        "\n\n"
    );
    assert_eq!(ask_raw(body).await.text, "bye \u{FFFD}");
}

#[tokio::test]
async fn reasoning_is_kept_apart_with_its_place_among_the_calls_and_only_if_it_can_go_back() {
    let (first, second) = (reasoning(1, "One.", "s1"), reasoning(3, "Two.", "s2"));
    let items = [
        message(0, "Hm."),
        first.clone(),
        call(2, "c_a", "ls", "{}"),
        second.clone(),
        call(4, "c_b", "ls", "{}"),
    ];
    let said = ask(answer(&items)).await;
    assert_eq!(said.reasoning, "One.\n\nTwo.");
    let kept =
        [raw(&json!({"type": "message"})), raw(&first), raw(&json!({"type": "function_call"})), raw(&second)];
    assert_eq!(said.kept, kept);

    let open = ask(answer(&[reasoning(0, "One.", ""), call(1, "c_a", "ls", "{}")])).await;
    assert_eq!((open.reasoning.as_str(), open.kept), ("One.", Vec::new()));
    let last = ask(answer(&[first, message(1, "Done.")])).await;
    assert_eq!((last.text.as_str(), last.kept), ("Done.", Vec::new()));
    let aloud = ask_events(&[
        event("reasoning_text.delta", 0, json!({"content_index": 0, "delta": "hm"})),
        event("output_text.delta", 1, json!({"content_index": 0, "delta": "x"})),
        completed(&[]),
    ])
    .await;
    assert_eq!((aloud.reasoning.as_str(), aloud.text.as_str()), ("hm", "x"));
}

#[tokio::test]
async fn messages_are_paragraphs_and_the_parts_of_one_are_not() {
    assert_eq!(ask(answer(&[message(0, "One."), message(1, "Two.")])).await.text, "One.\n\nTwo.");
    let mut parts = message(0, "One");
    parts["content"].as_array_mut().unwrap().push(json!({"type": "output_text", "text": " two."}));
    assert_eq!(ask(answer(&[parts])).await.text, "One two.");
}
