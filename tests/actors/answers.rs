//! Answers that must have a form, over the whole way from the model's words to the run's result.

use serde_json::{Value, json};

use crate::stage::{Plan, Stage, calls, says};

fn formal(format: &Value) -> Value {
    json!({ "response_format": format })
}

fn schema() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"files": {"type": "array", "items": {"type": "string"}}},
        "required": ["files"],
    });
    formal(&json!({"type": "json_schema", "json_schema": {"schema": schema}}))
}

async fn stage() -> Stage {
    Plan::default().start().await
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_mended_with_what_is_wrong_and_the_result_is_bare_json() {
    let stage = stage().await;
    let script = json!([
        calls(&[("a", "list", json!({}))]),
        says("Here you are: a.txt"),
        says(r#"{"files": [1]}"#),
        says("```json\n{\"files\": [\"a.txt\"]}\n```"),
    ]);
    let submitted = stage.submit("ws", &script, &schema());
    let run = submitted.run;
    let end = stage.end(submitted).await;
    assert_eq!(
        (end.outcome.to_string(), &*end.text, end.turns),
        ("done".to_owned(), r#"{"files": ["a.txt"]}"#, 4)
    );
    let corrections: Vec<_> =
        stage.transcript(run).await.into_iter().skip(1).filter(|said| said.starts_with("user: ")).collect();
    assert_eq!(corrections.len(), 2);
    assert!(
        corrections[0].contains("it is no JSON: expected value at line 1 column 1"),
        "{}",
        corrections[0]
    );
    assert!(corrections[1].contains("/files/0: 1 is not of type \"string\""), "{}", corrections[1]);
}

#[tokio::test]
async fn a_model_that_never_fits_is_blocked() {
    let stage = stage().await;
    let script = json!([says("no"), says("never"), says("not at all"), says("{}")]);
    let end = stage.end(stage.submit("ws", &script, &formal(&json!({"type": "json_object"})))).await;
    assert_eq!(
        (end.outcome.to_string(), &*end.text, end.turns),
        ("blocked: format".to_owned(), "not at all", 3)
    );
    assert_eq!(end.error.as_deref(), Some("it is no JSON: expected ident at line 1 column 2"));
}

#[tokio::test]
async fn words_beside_calls_need_no_form() {
    let stage = stage().await;
    let looks = json!({"text": "Let me look.", "calls": [{"id": "a", "name": "list", "arguments": {}}]});
    let script = json!([looks, says("{}")]);
    let end = stage.end(stage.submit("ws", &script, &formal(&json!({"type": "json_object"})))).await;
    assert_eq!((end.outcome.to_string(), &*end.text, end.turns), ("done".to_owned(), "{}", 2));
}

#[tokio::test]
async fn a_schema_that_is_none_ends_a_run_that_got_past_its_input() {
    let format = json!({"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}});
    let stage = stage().await;
    let end = stage.end(stage.submit("ws", &json!([says("{}")]), &formal(&format))).await;
    assert_eq!(end.outcome.to_string(), "failed: setup");
    assert!(end.error.unwrap().starts_with("response_format: not a JSON Schema"));
}
