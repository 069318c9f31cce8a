//! A daemon that is killed with many runs under way, and the next one: everything ends, nothing is done twice, and who
//! follows sees each event once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use herder::daemon::client::{Client, Follower, Route};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    gate,
    process::{Daemon, House, PATIENCE, assert_sound, lines, says, task, until},
};

const SINGLE: usize = 200;
const OF_A_BATCH: usize = 150;
/// With the one that holds others up.
const ALL: usize = SINGLE + 2 * OF_A_BATCH + 1;

/// Every tenth run leaves a witness by a command and then thinks, every tenth only thinks. The others work where the command
/// behind the gate does, so each of them thinks or waits until that one has ended; some of them write a file.
fn work(house: &House, id: &str, place: usize) -> Value {
    let says = |delay_ms: usize| json!({"text": "ready", "delay_ms": delay_ms});
    let thinks = says(9_000 + place % 7 * 500);
    let first = match place % 10 {
        0 => {
            let command = format!("echo x >> witness-{id}; sleep 0.3");
            let witness = json!({"calls": [{"name": "bash", "arguments": {"command": command}}]});
            return task(house, id, json!([witness, thinks]));
        }
        1 => return task(house, id, json!([thinks])),
        5 => json!({"name": "write", "arguments": {"path": format!("file-{id}"), "content": id}}),
        _ => json!({"name": "list", "arguments": {}}),
    };
    let first = json!({"calls": [first], "delay_ms": place % 4 * 600});
    behind_the_gate(house, task(house, id, json!([first, says(place % 7 * 500)])))
}

fn behind_the_gate(house: &House, mut task: Value) -> Value {
    task["workspace"] = house.path("held").to_str().into();
    task
}

/// Reads to the end of a stream, or until so many runs have ended.
async fn follow(mut follower: Follower, ends: usize) -> Vec<(u64, Value)> {
    let (mut events, mut ended) = (Vec::new(), 0);
    while ended < ends
        && let Some(event) = follower.next().await.unwrap()
    {
        ended += usize::from(event.name == "run_end");
        events.push((event.id.unwrap(), serde_json::from_str(&event.data).unwrap()));
    }
    events
}

fn follower(client: &Client, path: &[&str]) -> Follower {
    client.follow(Route::to(path.iter().copied()), None).waiting(PATIENCE)
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_runs_survive_a_kill_and_nothing_is_done_or_told_twice() {
    let house = House::new();
    fs::create_dir(house.path("held")).unwrap();
    let args = ["--jobs", "600", "--policy", "trusted"];
    let first = house.start(&args).await;
    let everything = tokio::spawn(follow(follower(&first.client, &["v1", "events"]), ALL));
    let gate = first.submit(&behind_the_gate(&house, gate::task_behind(&house, "gate", 0))).await;
    first.until(&format!("v1/runs/{gate}"), |run| run["open_calls"][0]["waits"] == false).await;
    let batches = submit_batches(&house, &first).await;
    let mut singles = Vec::new();
    for place in 0..SINGLE {
        singles.push(first.submit(&work(&house, &format!("single-{place}"), place)).await);
    }
    let some: JoinSet<_> = singles
        .iter()
        .step_by(20)
        .map(|run| follow(follower(&first.client, &["v1", "runs", run, "events"]), usize::MAX))
        .collect();
    until("some commands have begun", || witnesses(&house).len() >= 15).await;
    let open = first.status().await.runs.open;
    first.kill();
    gate::open(&house);
    let mut second = house.launch(&args);
    let ready = second.is_ready().await;
    println!("killed with {open} runs open; ready {} ms after the start", ready.as_millis());
    assert!(open > 400, "only {open} were under way");

    for run in singles.iter().chain([&gate]) {
        assert_eq!(second.until_run_ends(run).await["outcome"], "done");
    }
    for batch in &batches {
        let view = second.until_batch_ends(batch).await;
        assert_eq!(view["ended"], json!({"done": OF_A_BATCH}));
        let results = second.results(batch).await;
        let ids: BTreeSet<&str> = results.iter().map(|result| result["id"].as_str().unwrap()).collect();
        assert_eq!((results.len(), ids.len()), (OF_A_BATCH, OF_A_BATCH));
    }
    let heard = everything.await.unwrap();
    let of_runs = some.join_all().await;
    second.stop().await;
    house.assert_nothing_runs();

    let log = house.events();
    assert_sound(&log);
    assert_eq!(log.iter().filter(|event| event["kind"] == "run_end").count(), ALL);
    let witnesses = witnesses(&house);
    // A command that died between making its file and writing to it is in doubt.
    let unknown = |event: &&Value| {
        event["kind"] == "result"
            && event["run"] != gate.as_str()
            && event["data"]["output"].as_str().unwrap().starts_with("outcome unknown")
    };
    let (in_doubt, missing) =
        (log.iter().filter(unknown).count(), witnesses.values().filter(|count| **count == 0).count());
    assert!(missing <= in_doubt && witnesses.values().all(|count| *count <= 1), "{witnesses:?}");
    for place in (5..OF_A_BATCH).step_by(10) {
        let text = fs::read_to_string(house.path(&format!("held/file-b1-{place}"))).unwrap();
        assert_eq!(text, format!("b1-{place}"));
    }
    let places = |events: &[(u64, Value)]| events.iter().map(|(id, _)| *id).collect::<Vec<_>>();
    assert_eq!(places(&heard), (1..=log.len() as u64).collect::<Vec<_>>());
    assert!(heard.iter().zip(&log).all(|((_, heard), logged)| heard == logged));
    for heard in of_runs {
        let run = heard[0].1["run"].clone();
        let logged: Vec<Value> = log.iter().filter(|event| event["run"] == run).cloned().collect();
        assert_eq!(places(&heard), (1..=logged.len() as u64).collect::<Vec<_>>());
        assert_eq!(heard.into_iter().map(|(_, event)| event).collect::<Vec<_>>(), logged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_left_its_model_still_has_the_rest_of_its_fallbacks_in_the_next_daemon() {
    let house = House::new();
    let table = |name: &str, more: &str| format!("[models.{name}]\nprovider = \"scripted\"\n{more}\n");
    let tables = [table("a", "fallbacks = [\"b\", \"c\"]"), table("b", ""), table("c", "")];
    house.configure(&tables.concat());
    let refused = json!({"fault": {"status": 401}});
    let slowly = json!({"fault": {"status": 401}, "delay_ms": 3_000});
    let mut task = task(&house, "one", json!([refused, slowly, {"text": "ready"}]));
    task["model"] = json!("a");
    let first = house.start(&[]).await;
    let run = first.submit(&task).await;
    let switches = || house.events().iter().filter(|event| event["kind"] == "model_switched").count();
    until("the second model is asked", || switches() >= 1).await;
    first.kill();
    let second = house.start(&[]).await;
    assert_eq!(second.until_run_ends(&run).await["outcome"], "done");
    assert_eq!(switches(), 2);
    second.stop().await;
}

async fn submit_batches(house: &House, daemon: &Daemon) -> Vec<String> {
    let mut batches = Vec::new();
    for name in ["b1", "b2"] {
        let tasks: Vec<Value> =
            (0..OF_A_BATCH).map(|place| work(house, &format!("{name}-{place}"), place)).collect();
        batches.push(daemon.batch(&tasks, &[("name", name)]).await);
    }
    batches
}

/// How often each command was at work.
fn witnesses(house: &House) -> BTreeMap<String, usize> {
    let entries = fs::read_dir(house.path("work")).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("witness-"))
        .map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            (entry.file_name().into_string().unwrap(), text.lines().count())
        })
        .collect()
}

#[tokio::test]
async fn a_client_that_leaves_and_comes_back_has_the_rest_once() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let run = daemon.submit(&crate::process::takes_turns(&house, "one", 4, 100)).await;
    let path = ["v1", "runs", &run, "events"];
    let mut first = follower(&daemon.client, &path);
    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(first.next().await.unwrap().unwrap());
    }
    drop(first);
    let route = Route::to(path);
    let mut again = daemon.client.follow(route, seen.last().unwrap().id);
    while let Some(event) = again.next().await.unwrap() {
        seen.push(event);
    }
    assert_eq!(daemon.get(&format!("v1/runs/{run}")).await["outcome"], "done");
    let seen: Vec<Value> = seen.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    assert_eq!(seen, house.events());
    daemon.stop().await;
}

#[tokio::test]
async fn who_waits_for_a_daemon_that_was_killed_gives_up_after_its_window() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let run = daemon.submit(&says(&house, "one", 600_000)).await;
    let window = std::time::Duration::from_secs(1);
    let mut follower = daemon.client.follow(Route::to(["v1", "runs", &run, "events"]), None).waiting(window);
    follower.next().await.unwrap().unwrap();
    daemon.kill();
    let rest = async {
        while follower.next().await?.is_some() {}
        Ok::<_, herder::daemon::client::ClientError>(())
    };
    let error = tokio::time::timeout(PATIENCE, rest).await.expect("it gives up").unwrap_err();
    assert!(error.to_string().contains("no daemon answers"), "{error}");
}

/// The command has a window of its own, which is longer.
#[tokio::test]
async fn a_command_that_waits_for_a_daemon_that_was_killed_fails() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let run = daemon.submit(&says(&house, "one", 600_000)).await;
    let mut waiting = house.command(&["wait", &run]).spawn().unwrap();
    daemon.until("v1/status", |status| status["followers"] == 1).await;
    daemon.kill();
    let mut ended = None;
    until("the command gives up", || {
        ended = waiting.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert_eq!(ended.unwrap().code(), Some(5));
}

#[tokio::test]
async fn a_run_goes_on_though_its_client_is_killed() {
    let house = House::new();
    let daemon = house.start(&["--policy", "trusted"]).await;
    let body = gate::task_behind(&house, "one", 0);
    fs::write(house.path("work/script.json"), body["script"].to_string()).unwrap();
    let args = ["submit", "do it", "--script", "script.json", "--follow"];
    let mut client = house.command(&args).spawn().unwrap();
    daemon.until("v1/status", |status| status["followers"] == 1).await;
    client.kill().unwrap();
    client.wait().unwrap();
    gate::open(&house);
    let list = daemon.until("v1/runs", |list| list["runs"][0]["state"] == "ended").await;
    assert_eq!(list["runs"][0]["outcome"], "done");
    daemon.stop().await;
}

#[tokio::test]
async fn results_that_are_followed_break_off_with_the_daemon_and_are_whole_in_the_next() {
    let house = House::new();
    let mut tasks: Vec<Value> = (0..5).map(|n| says(&house, &format!("t{n}"), n * 200)).collect();
    // Has no result before the next daemon.
    tasks.push(gate::task_behind(&house, "t5", 0));
    let args = ["--policy", "trusted"];
    let first = house.start(&args).await;
    let batch = first.batch(&tasks, &[]).await;
    let path = Route::to(["v1", "batches", &batch, "results"]).with("follow", true);
    let mut followed = first.client.lines(&path).await.unwrap();
    followed.next().await.unwrap().unwrap();
    first.kill();
    let rest = async {
        while followed.next().await?.is_some() {}
        Ok::<_, herder::daemon::client::ClientError>(())
    };
    assert!(tokio::time::timeout(PATIENCE, rest).await.expect("it ends").is_err());
    gate::open(&house);
    let second = house.start(&args).await;
    let mut followed = second.client.lines(&path).await.unwrap();
    let mut text = String::new();
    while let Some(line) = followed.next().await.unwrap() {
        text += &format!("{}\n", String::from_utf8_lossy(line));
    }
    let mut ids: Vec<String> = lines(&text).iter().map(|line| line["id"].to_string()).collect();
    ids.sort();
    assert_eq!(ids, (0..6).map(|n| format!("\"t{n}\"")).collect::<Vec<_>>());
    second.stop().await;
}
