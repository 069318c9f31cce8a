//! What was asked of one daemon holds in the next: pauses, keys, new attempts, ends. And what can change while runs are at
//! work, does.

use std::fs;

use herder::daemon::{client::ClientError, wire::Code};
use serde_json::{Value, json};

use crate::{
    gate,
    process::{House, assert_sound, says, takes_turns},
};

#[tokio::test]
async fn what_is_paused_is_paused_in_the_next_daemon_until_it_is_resumed() {
    let house = House::new();
    house.configure("[models.other]\nprovider = \"scripted\"\nmodel = \"other\"\n");
    let first = house.start(&[]).await;
    first.post("v1/pause", json!({})).await;
    let alone = first.submit(&says(&house, "alone", 0)).await;
    let free = first.submit(&says(&house, "free", 0)).await;
    let mut task = says(&house, "of-the-model", 0);
    task["model"] = "other".into();
    let of_model = first.submit(&task).await;
    let batch = first.batch(&[says(&house, "b1", 0), says(&house, "b2", 0)], &[("name", "b")]).await;
    assert_eq!(first.post(&format!("v1/runs/{alone}/pause"), json!({})).await["changed"], true);
    assert_eq!(first.post(&format!("v1/runs/{alone}/pause"), json!({})).await["changed"], false);
    assert_eq!(first.post("v1/batches/b/pause", json!({"mode": "soft"})).await["changed"], true);
    assert_eq!(first.post("v1/models/other/pause", json!({})).await["changed"], true);
    first.kill();

    let second = house.start(&[]).await;
    let mut paused: Vec<String> =
        second.status().await.paused.iter().map(|gate| format!("{:?} {:?}", gate.kind, gate.mode)).collect();
    paused.sort();
    assert_eq!(paused, ["All Hold", "Batch Soft", "Model Hold"]);
    second.until("v1/status", |status| status["load"]["held"].as_u64() >= Some(3)).await;
    assert_eq!(second.status().await.load.live, 0);
    assert_eq!(second.post("v1/resume", json!({})).await["changed"], true);
    assert_eq!(second.post("v1/resume", json!({})).await["changed"], false);
    second.until_run_ends(&free).await;
    // Those that something else holds have not moved, and are in no slot.
    second.until("v1/status", |status| status["load"]["live"] == 0).await;
    for run in [&alone, &of_model] {
        assert_eq!(second.get(&format!("v1/runs/{run}")).await["turns"], 0);
    }
    assert_eq!(second.get("v1/batches/b").await["state"], "paused");
    second.kill();

    let third = house.start(&[]).await;
    assert_eq!(third.get(&format!("v1/runs/{alone}")).await["state"], "paused");
    assert_eq!(third.post(&format!("v1/runs/{alone}/resume"), json!({})).await["changed"], true);
    assert_eq!(third.post("v1/batches/b/resume", json!({})).await["changed"], true);
    assert_eq!(third.post("v1/models/other/resume", json!({})).await["changed"], true);
    for run in [&alone, &of_model] {
        assert_eq!(third.until_run_ends(run).await["outcome"], "done");
    }
    assert_eq!(third.until_batch_ends(&batch).await["ended"], json!({"done": 2}));
    assert!(third.status().await.paused.is_empty());
    third.stop().await;
    assert_sound(&house.events());
}

#[tokio::test]
async fn a_run_that_is_paused_under_way_is_held_between_turns_through_a_kill() {
    let house = House::new();
    let args = ["--policy", "trusted"];
    let first = house.start(&args).await;
    let mut task = takes_turns(&house, "one", 30, 0);
    task["script"][1] = gate::turn(&house);
    let run = first.submit(&task).await;
    first.until(&format!("v1/runs/{run}"), |run| run["turns"] == 2).await;
    first.post(&format!("v1/runs/{run}/pause"), json!({})).await;
    gate::open(&house);
    let held = first.until(&format!("v1/runs/{run}"), |run| run["state"] == "paused").await;
    first.kill();
    let second = house.start(&args).await;
    let again = second.until(&format!("v1/runs/{run}"), |run| run["state"] == "paused").await;
    assert_eq!(again["turns"], held["turns"]);
    second.post(&format!("v1/runs/{run}/resume"), json!({})).await;
    assert_eq!(second.until_run_ends(&run).await["turns"], 30);
    second.stop().await;
    assert_sound(&house.events());
}

#[tokio::test]
async fn a_key_stands_for_one_submission_in_every_daemon() {
    let house = House::new();
    let (task, other) = (says(&house, "one", 0), says(&house, "two", 0));
    let tasks = [says(&house, "a", 0), says(&house, "b", 0)];
    let first = house.start(&[]).await;
    let run = first.submit_with(&task, Some("k")).await.unwrap();
    let batch = first.batch_with(&tasks, &[], Some("k")).await.unwrap();
    assert_eq!((&run["changed"], &batch["changed"]), (&json!(true), &json!(true)));
    first.kill();
    let second = house.start(&[]).await;
    for _ in 0..2 {
        let again = second.submit_with(&task, Some("k")).await.unwrap();
        assert_eq!(again, json!({"id": run["id"], "changed": false, "tasks": 1}));
        let again = second.batch_with(&tasks, &[], Some("k")).await.unwrap();
        assert_eq!(again, json!({"id": batch["id"], "changed": false, "tasks": 2}));
    }
    let reused = second.submit_with(&other, Some("k")).await;
    assert_eq!(reused.as_ref().map_err(ClientError::code), Err(Some(Code::KeyReused)));
    second.until_batch_ends(batch["id"].as_str().unwrap()).await;
    second.until_run_ends(run["id"].as_str().unwrap()).await;
    assert_eq!(second.status().await.runs.total, 3);
    second.stop().await;
}

#[tokio::test]
async fn asking_twice_for_another_attempt_or_an_end_is_asking_once() {
    let house = House::new();
    let first = house.start(&[]).await;
    let run = first.submit(&says(&house, "one", 600_000)).await;
    let cancel = format!("v1/runs/{run}/cancel");
    assert_eq!(first.post(&cancel, json!({})).await["changed"], true);
    assert_eq!(first.post(&cancel, json!({})).await["changed"], false);
    assert_eq!(first.until_run_ends(&run).await["outcome"], "cancelled");
    assert_eq!(first.post(&cancel, json!({})).await["changed"], false);
    let requeue = format!("v1/runs/{run}/requeue");
    let next = first.post(&requeue, json!({})).await;
    assert_eq!(next["changed"], true);
    first.kill();
    let second = house.start(&[]).await;
    assert_eq!(second.post(&requeue, json!({})).await, json!({"id": next["id"], "changed": false}));
    assert_eq!(second.post(&cancel, json!({})).await["changed"], false);
    let next = next["id"].as_str().unwrap();
    let view = second.get(&format!("v1/runs/{next}")).await;
    assert_eq!((&view["attempt"], &view["predecessor"]), (&json!(2), &json!(run)));
    second.refuses(&format!("v1/runs/{next}/requeue"), json!({}), Code::NotEnded).await;
    second.post(&format!("v1/runs/{next}/cancel"), json!({})).await;
    second.until_run_ends(next).await;
    assert_eq!(second.status().await.runs.total, 2);
    second.stop().await;
}

#[tokio::test]
async fn a_batch_is_cancelled_once_and_stays_so() {
    let house = House::new();
    let tasks: Vec<Value> = (0..5).map(|n| says(&house, &format!("t{n}"), 600_000)).collect();
    let first = house.start(&[]).await;
    let batch = first.batch(&tasks, &[("concurrency", "2")]).await;
    first.until(&format!("v1/batches/{batch}"), |batch| batch["running"] == 2).await;
    let cancel = format!("v1/batches/{batch}/cancel");
    assert_eq!(first.post(&cancel, json!({})).await["changed"], true);
    first.kill();
    let second = house.start(&[]).await;
    assert_eq!(second.post(&cancel, json!({})).await["changed"], false);
    let path = format!("v1/batches/{batch}");
    let view = second.until(&path, |batch| batch["open"] == 0).await;
    assert_eq!((&view["state"], &view["ended"]), (&json!("cancelled"), &json!({"cancelled": 2})));
    second.until("v1/status", |status| status["runs"]["open"] == 0).await;
    second.stop().await;
    assert_sound(&house.events());
}

#[tokio::test]
async fn how_many_run_at_once_and_how_long_is_changed_while_they_run() {
    let house = House::new();
    let daemon = house.start(&["--policy", "trusted", "--jobs", "1"]).await;
    let tasks: Vec<Value> = (0..4).map(|n| gate::task_behind(&house, &format!("t{n}"), 40)).collect();
    let batch = daemon.batch(&tasks, &[("concurrency", "2")]).await;
    let path = format!("v1/batches/{batch}");
    daemon.until(&path, |batch| batch["running"] == 1 && batch["open"] == 2).await;
    assert_eq!(daemon.patch("v1/config", json!({"max_live_runs": 3})).await["changed"], true);
    assert_eq!(daemon.patch("v1/config", json!({"max_live_runs": 3})).await["changed"], false);
    daemon.until(&path, |batch| batch["running"] == 2).await;
    assert_eq!(daemon.patch(&path, json!({"concurrency": 4})).await["changed"], true);
    assert_eq!(daemon.patch(&path, json!({"concurrency": 4})).await["changed"], false);
    daemon.until(&path, |batch| batch["running"] == 3 && batch["open"] == 4).await;
    let list = daemon.get(&format!("v1/runs?batch={batch}")).await;
    for run in list["runs"].as_array().unwrap() {
        let path = format!("v1/runs/{}", run["id"].as_str().unwrap());
        assert_eq!(daemon.patch(&path, json!({"max_turns": 1})).await["changed"], true);
        assert_eq!(daemon.patch(&path, json!({"max_turns": 1})).await["changed"], false);
    }
    gate::open(&house);
    assert_eq!(daemon.until_batch_ends(&batch).await["ended"], json!({"budget": 4}));
    daemon.stop().await;
}

#[tokio::test]
async fn a_configuration_is_read_again_and_one_that_is_broken_changes_nothing() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let mut task = says(&house, "one", 0);
    task["model"] = "local".into();
    let refused = daemon.submit_with(&task, None).await;
    assert_eq!(refused.as_ref().map_err(ClientError::code), Err(Some(Code::InvalidInput)));
    let model = "[models.local]\nprovider = \"scripted\"\nmodel = \"m\"\n";
    house.configure(&format!("[supervisor]\nmax_live_runs = 7\n[tools]\nmax_parallel = 3\n{model}"));
    let report = daemon.post("v1/reload", json!({})).await;
    let has = |list: &Value, key: &str| list.as_array().unwrap().iter().any(|one| one == key);
    assert!(has(&report["applied"], "supervisor.max_live_runs"), "{report}");
    assert!(has(&report["at_next_start"], "tools.max_parallel"), "{report}");
    assert_eq!(daemon.status().await.max_live_runs, 7);
    daemon.submit(&task).await;
    for broken in ["[supervisor]\nmax_live_runs = 0\n", "[supervisor\n", "[models.local]\nprovider = \"x\"\n"]
    {
        house.configure(broken);
        daemon.refuses("v1/reload", json!({}), Code::InvalidInput).await;
        assert_eq!(daemon.status().await.max_live_runs, 7);
    }
    let run = daemon.submit(&task).await;
    assert_eq!(daemon.until_run_ends(&run).await["outcome"], "done");
    daemon.stop().await;
}

#[tokio::test]
async fn what_asks_a_model_that_is_gone_waits_and_goes_on_once_it_is_back() {
    let house = House::new();
    let model = "[models.local]\nprovider = \"scripted\"\nmodel = \"m\"\n";
    house.configure(model);
    let asking = |id: &str| {
        let mut task = gate::task_behind(&house, id, 0);
        task["model"] = "local".into();
        task
    };
    let args = ["--policy", "trusted"];
    let first = house.start(&args).await;
    let run = first.submit(&asking("one")).await;
    let unwanted = first.submit(&asking("two")).await;
    let batch = first.batch(&[asking("a"), asking("b")], &[("concurrency", "1")]).await;
    first.until(&format!("v1/batches/{batch}"), |batch| batch["running"] == 1).await;
    first.kill();
    gate::open(&house);
    house.configure("");
    let second = house.start(&args).await;
    let path = format!("v1/batches/{batch}");
    let broken = second.until(&path, |batch| batch["state"] == "broken").await;
    assert!(broken["error"].as_str().unwrap().contains("local"), "{broken}");
    // Whatever else is asked of it, it is not lost.
    second.refuses(&format!("v1/runs/{run}/pause"), json!({}), Code::Busy).await;
    second.refuses(&format!("v1/runs/{run}/steer"), json!({"text": "hello"}), Code::Busy).await;
    assert_ne!(second.get(&format!("v1/runs/{run}")).await["state"], "ended");
    assert_eq!(second.post(&format!("v1/runs/{unwanted}/cancel"), json!({})).await["changed"], true);
    assert_eq!(second.until_run_ends(&unwanted).await["outcome"], "cancelled");
    house.configure(model);
    second.post("v1/reload", json!({})).await;
    assert_eq!(second.until_run_ends(&run).await["outcome"], "done");
    assert_eq!(second.until_batch_ends(&batch).await["ended"], json!({"done": 2}));
    assert_eq!(second.get(&path).await["error"], Value::Null);
    second.stop().await;
    assert_sound(&house.events());
}

#[tokio::test]
async fn a_damaged_input_breaks_its_batch_and_no_other() {
    let house = House::new();
    let first = house.start(&[]).await;
    first.post("v1/pause", json!({})).await;
    let hurt = first.batch(&[says(&house, "a", 0)], &[]).await;
    let whole = first.batch(&[says(&house, "b", 0)], &[]).await;
    first.kill();
    for entry in fs::read_dir(house.state().join("batches")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains(&hurt) {
            fs::write(path, "{}\n").unwrap();
        }
    }
    let second = house.start(&[]).await;
    second.until(&format!("v1/batches/{hurt}"), |batch| batch["state"] == "broken").await;
    second.post("v1/resume", json!({})).await;
    second.until_batch_ends(&whole).await;
    second.stop().await;
}
