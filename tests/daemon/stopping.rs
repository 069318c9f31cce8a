//! The daemon's end: in order when it is asked for, at once when it is asked for twice, and nothing of it is left.

use std::{fs, process::Stdio};

use herder::daemon::client::{ClientError, Route};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    gate,
    harness::{connect, request, rest},
    process::{Daemon, Ended, House, PATIENCE, assert_sound, runs, says, takes_turns, until},
};

/// With as long for the turns as a test leaves them under way.
const SERVE: [&str; 4] = ["--policy", "trusted", "--drain", "600s"];

/// Lets the turns come to their end once the daemon has heard that it should stop.
async fn open_the_gate_once_it_stops(house: &House, daemon: &Daemon) {
    daemon.until("v1/status", |status| status["phase"] == "stopping").await;
    gate::open(house);
}

/// Asserts that nothing of the daemon is left: no process, no socket, no half of an input.
async fn is_gone(house: &House, mut daemon: Daemon) {
    assert_eq!(daemon.ended().await, Some(0), "{}", daemon.said());
    house.assert_nothing_runs();
    assert!(!house.socket().exists());
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn asked_once_runs_end_their_turn_and_go_on_in_the_next() {
    for way in ["SIGTERM", "SIGINT", "stop"] {
        let house = House::new();
        let first = house.start(&SERVE).await;
        let run = first.submit(&gate::task_behind(&house, "one", 1)).await;
        let batch = first.batch(&[takes_turns(&house, "a", 2, 400), says(&house, "b", 0)], &[]).await;
        first.until(&format!("v1/runs/{run}"), |run| run["turns"] == 1).await;
        let mut command = None;
        match way {
            "SIGTERM" => first.signal(Signal::TERM),
            "SIGINT" => first.signal(Signal::INT),
            _ => command = Some(house.command(&["stop", "--wait"]).stdout(Stdio::piped()).spawn().unwrap()),
        }
        open_the_gate_once_it_stops(&house, &first).await;
        if let Some(command) = command {
            let ended = Ended::of(&command.wait_with_output().unwrap()).expect(0);
            assert!(ended.out.contains("stopped"), "{}", ended.out);
        }
        is_gone(&house, first).await;
        let log = house.events();
        let of_run: Vec<Value> = log.iter().filter(|event| event["run"] == run.as_str()).cloned().collect();
        assert_eq!(kinds(&of_run).last(), Some(&"interrupted"), "{way}: {:?}", kinds(&of_run));
        assert!(kinds(&of_run).contains(&"turn_end"), "the turn came to its end: {:?}", kinds(&of_run));
        let second = house.start(&[]).await;
        assert_eq!(second.until_run_ends(&run).await["outcome"], "done");
        assert_eq!(second.until_batch_ends(&batch).await["ended"], json!({"done": 2}));
        second.stop().await;
        assert_sound(&house.events());
    }
}

#[tokio::test]
async fn asked_twice_it_does_not_wait() {
    for way in ["SIGTERM", "stop"] {
        let house = House::new();
        let first = house.start(&SERVE).await;
        let run = first.submit(&says(&house, "one", 600_000)).await;
        let command = first.submit(&runs(&house, "two", "touch begun; sleep 600 & sleep 600; wait")).await;
        until("the command is at work", || house.path("work/begun").exists()).await;
        match way {
            "SIGTERM" => {
                first.signal(Signal::TERM);
                first.until("v1/status", |status| status["phase"] == "stopping").await;
                first.signal(Signal::TERM);
            }
            _ => drop(house.herder(&["stop", "--now", "--wait"]).expect(0)),
        }
        is_gone(&house, first).await;
        let log = house.events();
        for run in [run, command] {
            let ends = log.iter().filter(|event| event["run"] == run.as_str() && event["kind"] == "run_end");
            assert_eq!(ends.count(), 0, "{way}");
        }
    }
}

#[tokio::test]
async fn while_it_stops_it_takes_nothing_new_and_says_so() {
    let house = House::new();
    let mut daemon = house.start(&SERVE).await;
    daemon.submit(&says(&house, "one", 600_000)).await;
    daemon.until("v1/status", |status| status["load"]["thinking"] == 1).await;
    daemon.post("v1/stop", json!({})).await;
    daemon.until("v1/status", |status| status["phase"] == "stopping").await;
    let task = says(&house, "two", 0);
    let refused = daemon.submit_with(&task, None).await;
    let code = herder::daemon::wire::Code::Unavailable;
    assert_eq!(refused.as_ref().map_err(ClientError::code), Err(Some(code)));
    let refused = daemon.batch_with(&[task], &[], None).await;
    assert_eq!(refused.as_ref().map_err(ClientError::code), Err(Some(code)));
    let answer = crate::harness::ask(&house.socket(), "/readyz").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    daemon.post("v1/stop", json!({"now": true})).await;
    assert_eq!(daemon.ended().await, Some(0));
}

#[tokio::test]
async fn who_follows_is_told_that_it_ends_and_connections_that_say_nothing_do_not_keep_it() {
    let house = House::new();
    let daemon = house.start(&[]).await;
    let run = daemon.submit(&says(&house, "one", 600_000)).await;
    let mut streams = Vec::new();
    for path in ["/v1/events".to_owned(), format!("/v1/runs/{run}/events"), "/v1/events?live=true".to_owned()]
    {
        let mut stream = connect(&house.socket()).await;
        tokio::io::AsyncWriteExt::write_all(&mut stream, request(&path).as_bytes()).await.unwrap();
        streams.push(stream);
    }
    let silent = connect(&house.socket()).await;
    daemon.until("v1/status", |status| status["followers"] == 3).await;
    daemon.post("v1/stop", json!({"now": true})).await;
    for stream in streams {
        let text = rest(stream).await;
        assert!(text.contains("event: submitted"), "{text}");
        assert!(text.contains("event: end\ndata: {\"code\":\"closing\""), "{text}");
    }
    is_gone(&house, daemon).await;
    drop(silent);
}

#[tokio::test]
async fn a_follower_of_the_client_goes_on_in_the_next_daemon() {
    let house = House::new();
    let mut first = house.start(&SERVE).await;
    let run = first.submit(&gate::task_behind(&house, "one", 2)).await;
    let mut follower = first.client.follow(Route::to(["v1", "runs", &run, "events"]), None).waiting(PATIENCE);
    let mut ids = vec![follower.next().await.unwrap().unwrap().id.unwrap()];
    first.until(&format!("v1/runs/{run}"), |run| run["turns"] == 1).await;
    first.post("v1/stop", json!({})).await;
    open_the_gate_once_it_stops(&house, &first).await;
    assert_eq!(first.ended().await, Some(0), "{}", first.said());
    let second = house.start(&[]).await;
    while let Some(event) = follower.next().await.unwrap() {
        ids.push(event.id.unwrap());
    }
    second.stop().await;
    let log = house.events();
    assert_eq!(ids, (1..=log.len() as u64).collect::<Vec<_>>());
    assert!(kinds(&log).contains(&"interrupted"));
}

#[tokio::test]
async fn a_stop_at_the_very_start_is_heeded() {
    let house = House::new();
    let first = house.start(&[]).await;
    let tasks: Vec<Value> = (0..200).map(|n| says(&house, &format!("t{n}"), 1_000)).collect();
    let batch = first.batch(&tasks, &[]).await;
    first.until(&format!("v1/batches/{batch}"), |batch| batch["waiting"] != 200).await;
    first.kill();
    let second = house.launch(&[]);
    until("it has the socket", || connects(&house)).await;
    second.signal(Signal::TERM);
    is_gone(&house, second).await;
    let third = house.start(&[]).await;
    assert_eq!(third.until_batch_ends(&batch).await["ended"], json!({"done": 200}));
    third.stop().await;
    assert_sound(&house.events());
}

/// Somebody listens: no process of an earlier daemon, whose socket was left.
fn connects(house: &House) -> bool {
    std::os::unix::net::UnixStream::connect(house.socket()).is_ok()
}

#[tokio::test]
async fn inputs_that_were_on_their_way_are_gone_after_the_next_start() {
    let house = House::new();
    let first = house.start(&[]).await;
    let mut half = connect(&house.socket()).await;
    let head = "POST /v1/batches HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{\"task\":";
    tokio::io::AsyncWriteExt::write_all(&mut half, head.as_bytes()).await.unwrap();
    let folder = house.state().join("batches");
    until("it arrives", || fs::read_dir(&folder).unwrap().count() == 1).await;
    first.kill();
    let second = house.start(&[]).await;
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    second.stop().await;
}
