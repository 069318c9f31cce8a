//! Runs that go on from others that have ended.

use herder::daemon::{
    client::{ClientError, Route},
    wire::Code,
};
use serde_json::{Value, json};

use crate::process::{House, assert_sound, says};

fn route(run: &str) -> Route {
    Route::to(["v1", "runs", run, "continue"])
}

#[tokio::test]
async fn a_run_goes_on_from_one_that_ended_with_all_that_was_said_and_its_limits_anew() {
    let house = House::new();
    let daemon = house.start(&["--policy", "trusted"]).await;
    let mut task = says(&house, "first", 0);
    let call = json!({"id": "c1", "name": "list", "arguments": {}});
    task["script"] = json!([
        {"calls": [call]}, {"calls": [call]}, {"calls": [call]}, {"calls": [call]}, {"text": "All said."}
    ]);
    task["limits"] = json!({"max_turns": 2});
    let first = daemon.submit(&task).await;
    assert_eq!(daemon.until_run_ends(&first).await["detail"], "turns");
    let next: Value = daemon.client.post(&route(&first), &json!({"text": "Go on."})).await.unwrap();
    let second = next["id"].as_str().unwrap().to_owned();
    assert_eq!(daemon.until_run_ends(&second).await["detail"], "turns", "it has two turns of its own");
    let body = json!({"text": "And once more.", "max_turns": 3});
    let next: Value = daemon.client.post(&route(&second), &body).await.unwrap();
    let third = next["id"].as_str().unwrap().to_owned();
    let ended = daemon.until_run_ends(&third).await;
    assert_eq!((&ended["outcome"], &ended["parent"]), (&json!("done"), &json!(second)));
    let shown = daemon.get(&format!("v1/runs/{third}?messages=true")).await;
    let messages = shown["messages"].as_array().unwrap();
    let said: Vec<_> =
        messages.iter().filter(|one| one["role"] == "user").map(|one| &one["content"]).collect();
    assert_eq!(said, [&task["task"], &json!("Go on."), &json!("And once more.")]);
    let mut ids: Vec<_> = messages.iter().filter_map(|one| one["tool_calls"][0]["id"].as_str()).collect();
    assert_eq!(ids.len(), 4);
    ids.dedup();
    assert_eq!(ids.len(), 4, "each call has an id of its own in the whole conversation: {ids:?}");
    daemon.stop().await;
    assert_sound(&house.events());
}

#[tokio::test]
async fn it_is_refused_where_it_makes_no_sense_and_taken_on_once_for_each_key() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let open = daemon.submit(&says(&house, "open", 600_000)).await;
    daemon.refuses(&format!("v1/runs/{open}/continue"), json!({"text": "Go on."}), Code::NotEnded).await;
    daemon.refuses("v1/runs/nobody/continue", json!({"text": "Go on."}), Code::UnknownRun).await;
    let ended = daemon.submit(&says(&house, "ended", 0)).await;
    daemon.until_run_ends(&ended).await;
    let path = format!("v1/runs/{ended}/continue");
    for (body, code) in [
        (json!({"text": "  "}), Code::InvalidInput),
        (json!({"text": "x", "max_turns": 0}), Code::InvalidInput),
        (json!({"text": "x", "script": "no list"}), Code::InvalidInput),
        (json!({"text": "x", "model": "nobody:nothing"}), Code::InvalidInput),
    ] {
        daemon.refuses(&path, body, code).await;
    }
    let body = json!({"text": "Go on.", "script": [{"text": "Gone on."}]});
    let say = |key: &'static str, body: Value| {
        let (client, route) = (&daemon.client, route(&ended));
        async move { client.post_once::<Value>(&route, &body, key).await }
    };
    let (first, again) = (say("k", body.clone()).await.unwrap(), say("k", body).await.unwrap());
    assert_eq!((&first["changed"], &again["changed"]), (&json!(true), &json!(false)));
    assert_eq!(first["id"], again["id"]);
    let other = say("k", json!({"text": "Something else."})).await;
    assert_eq!(other.as_ref().map_err(ClientError::code), Err(Some(Code::KeyReused)));
    assert_eq!(daemon.until_run_ends(first["id"].as_str().unwrap()).await["text"], "Gone on.");
    daemon.kill();
}

#[tokio::test]
async fn the_command_stays_with_the_new_run_if_asked_to() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let ended = daemon.submit(&says(&house, "ended", 0)).await;
    daemon.until_run_ends(&ended).await;
    let script = house.path("more.json");
    std::fs::write(&script, r#"[{"text": "The rest."}]"#).unwrap();
    let command = ["continue", &ended, "Go on.", "--max-turns", "+3", "--follow", "--script"];
    let said = house.herder(&[&command[..], &[script.to_str().unwrap()]].concat()).expect(0);
    assert!(said.out.contains("The rest."), "{}", said.out);
    for (turns, why) in
        [("0", "--max-turns: \"0\" is no number of turns"), ("many", "want one, as 20 or +20")]
    {
        let refused = house.herder(&["continue", &ended, "Go on.", "--max-turns", turns]).expect(2);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
    daemon.stop().await;
}
