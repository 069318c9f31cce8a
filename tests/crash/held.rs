//! A daemon that dies while a person speaks to its runs: whoever asks again, asks for nothing twice.

use std::time::{Duration, Instant};

use herder::daemon::client::ClientError;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    points::times,
    process::{Daemon, House, PATIENCE, route, says, task},
    record::Record,
    work::armed,
};

/// Kinds of facts that come of what a person says.
pub(crate) const KINDS: &[&str] = &[
    "input_queued",
    "input_claimed",
    "limits_set",
    "paused",
    "resumed",
    "parked",
    "unparked",
    "cancel_requested",
];
/// Points that only a daemon reaches.
pub(crate) const POINTS: &[&str] = &["submission.recorded"];

/// Tools whose calls end once what they are named after was answered, so that no run ends before. They only read: after a
/// death they are called again.
const GATES: [&str; 2] = ["paused", "resumed"];

#[test]
fn a_daemon_that_dies_under_what_a_person_asks_for_does_it_once() {
    let undisturbed = drive(None).0;
    let kinds = KINDS.iter().flat_map(|kind| [format!("{kind}.before"), format!("{kind}.after")]);
    for point in kinds.chain(POINTS.iter().map(|&point| point.to_owned())) {
        let mut deaths = Vec::new();
        for time in times() {
            let (said, died) = drive(Some((&point, time)));
            assert_eq!(said, undisturbed, "{point} {time}");
            if !died {
                break;
            }
            deaths.push(time);
        }
        assert!(!deaths.is_empty(), "{point} is never reached");
        println!("{point}: {deaths:?}");
    }
}

/// Whatever is said in the runs, by task, in no order: when a pause finds a run is a matter of time.
type SaidInAll = Vec<(String, Vec<String>)>;

/// Has a run held, spoken to and let go, and another one cancelled; tells whether the daemon died over it.
fn drive(killed_at: Option<(&str, usize)>) -> (SaidInAll, bool) {
    let house = House::new();
    house.configure(&format!("[defaults]\npolicy = \"trusted\"\n{}", GATES.map(gate).concat()));
    let died = Runtime::new().unwrap().block_on(async {
        let mut person = Person::new(&house, killed_at).await;
        let [pausing, resuming] = GATES.map(|name| json!({"calls": [{"name": name, "arguments": {}}]}));
        let talks = json!([pausing, resuming, {"text": "ready"}, {"text": "that is all"}]);
        let talks = person.submits(&task(&house, "talks", talks)).await;
        person.posts(&format!("{talks}/pause"), &json!({}), None).await;
        open(&house, "paused");
        person.until(&talks, "paused").await;
        person.posts(&format!("{talks}/steer"), &json!({"text": "quickly"}), Some("steer")).await;
        person.posts(&format!("{talks}/follow-up"), &json!({"text": "and then?"}), Some("follow")).await;
        person.patches(&talks, &json!({"max_turns": 40})).await;
        person.posts(&format!("{talks}/resume"), &json!({}), None).await;
        open(&house, "resumed");
        person.until(&talks, "ended").await;
        let hangs = person.submits(&says(&house, "hangs", 600_000)).await;
        person.posts(&format!("{hangs}/cancel"), &json!({}), None).await;
        person.until(&hangs, "ended").await;
        person.daemon.stop().await;
        person.died
    });
    house.assert_nothing_runs();
    let record = Record::of_log(&house, "state/herder");
    let said = record.transcripts.into_iter().map(|(task, said)| {
        let mut said: Vec<String> = said.iter().map(|said| format!("{said:?}")).collect();
        said.sort();
        (task, said)
    });
    (said.collect(), died)
}

fn gate(name: &str) -> String {
    format!(
        "[command_tools.{name}]\ndescription = \"d\"\nread_only = true\nschema = {{ type = \"object\" }}\n\
         command = [\"sh\", \"-c\", \"until [ -e {name} ]; do sleep 0.02; done\"]\n"
    )
}

fn open(house: &House, gate: &str) {
    std::fs::write(house.path("work").join(gate), "").unwrap();
}

/// Who asks again when the daemon has died.
struct Person<'a> {
    house: &'a House,
    daemon: Daemon,
    died: bool,
}

impl<'a> Person<'a> {
    async fn new(house: &'a House, killed_at: Option<(&str, usize)>) -> Self {
        let mut command = house.command(&["serve", "--durability", "process"]);
        if let Some((point, time)) = killed_at {
            command.env("FAILPOINTS", armed(point, time));
        }
        let mut daemon = house.launched(command);
        daemon.is_ready().await;
        Self { house, daemon, died: false }
    }

    async fn submits(&mut self, task: &Value) -> String {
        let answer = self.posts("v1/runs", task, task["id"].as_str()).await;
        format!("v1/runs/{}", answer["id"].as_str().unwrap())
    }

    async fn posts(&mut self, path: &str, body: &Value, key: Option<&str>) -> Value {
        loop {
            let (route, body) = (route(path), body.to_string());
            let answer = self.daemon.client.submit(&route, "application/json", body, key).await;
            if let Some(answer) = self.hears(answer).await {
                return answer;
            }
        }
    }

    async fn patches(&mut self, path: &str, body: &Value) -> Value {
        loop {
            let answer = self.daemon.client.patch(&route(path), body).await;
            if let Some(answer) = self.hears(answer).await {
                return answer;
            }
        }
    }

    async fn until(&mut self, run: &str, state: &str) {
        let since = Instant::now();
        loop {
            let answer = self.daemon.client.get(&route(run)).await;
            if self.hears::<Value>(answer).await.is_some_and(|run| run["state"] == state) {
                return;
            }
            assert!(
                since.elapsed() < PATIENCE,
                "it is never {state}; the daemon said: {}",
                self.daemon.said()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The answer; none, if there is another daemon to be asked by now.
    async fn hears<T>(&mut self, answer: Result<T, ClientError>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                assert_eq!(error.code(), None, "{error}");
                assert!(!self.died, "it dies once: {error}");
                assert_eq!(self.daemon.ended().await, None, "{}", self.daemon.said());
                self.house.assert_nothing_runs();
                self.died = true;
                self.daemon = self.house.start(&[]).await;
                None
            }
        }
    }
}
