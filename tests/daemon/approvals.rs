//! Calls that people decide about, at the daemon: over HTTP and by command, over restarts, once.

use std::fs;

use herder::daemon::{
    client::{ClientError, Route},
    wire::{Answered, ApprovalDetail, ApprovalList, Code},
};
use serde_json::{Value, json};

use crate::process::{Daemon, House, PATIENCE};

const SERVE: [&str; 2] = ["--policy", "careful"];

/// Submits a task whose one command leaves a line in `work/witness` each time that it runs.
fn submit(house: &House, id: &str) {
    let script = json!([
        {"calls": [{"name": "bash", "arguments": {"command": "echo done >> witness"}}]}, {"text": "ready"}
    ]);
    fs::write(house.path("work").join(format!("{id}.json")), script.to_string()).unwrap();
    let script = format!("{id}.json");
    house.herder(&["submit", "Do it", "--id", id, "--script", &script, "-w", ".", "-l", "team=a"]).expect(0);
}

fn witness(house: &House) -> String {
    fs::read_to_string(house.path("work/witness")).unwrap_or_default()
}

async fn open(daemon: &Daemon) -> ApprovalList {
    daemon.client.get(&Route::to(["v1", "approvals"])).await.unwrap()
}

async fn until_asked(daemon: &Daemon, count: usize) {
    let asked = async {
        while open(daemon).await.approvals.len() != count {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.expect("people are asked");
}

async fn answer(daemon: &Daemon, name: &str, body: Value) -> Result<Answered, ClientError> {
    daemon.client.post(&Route::to(["v1", "approvals", name]), &body).await
}

fn refusal(answered: Result<Answered, ClientError>) -> (Code, String) {
    match answered {
        Err(ClientError::Refused(refusal)) => (refusal.code, refusal.message),
        other => panic!("{other:?}"),
    }
}

fn shown(house: &House, run: &str) -> Value {
    house.herder(&["show", run, "--json"]).expect(0).json().remove(0)
}

fn ended(house: &House, run: &str) {
    house.herder(&["wait", run]).expect(0);
}

#[tokio::test]
async fn what_was_asked_before_a_crash_is_answered_after_it_once() {
    let house = House::new();
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    daemon.kill();
    let daemon = house.start(&SERVE).await;
    let listed = open(&daemon).await.approvals;
    assert_eq!((listed[0].task_id.as_deref(), &*listed[0].what), (Some("a"), "echo done >> witness"));
    let detail: ApprovalDetail = daemon.client.get(&Route::to(["v1", "approvals", "a.1"])).await.unwrap();
    assert_eq!(detail.preview.as_deref(), Some("echo done >> witness"));
    assert!(shown(&house, "a")["phase"].as_str().unwrap().contains("waits for approval a.1"));

    let said = answer(&daemon, "a.1", json!({"answer": "approve", "command_id": "k"})).await.unwrap();
    assert!(said.changed && said.seq.is_some(), "{said:?}");
    ended(&house, "a");
    assert_eq!(witness(&house), "done\n");
    let again =
        answer(&daemon, &detail.approval.id, json!({"answer": "approve", "command_id": "k"})).await.unwrap();
    assert!(!again.changed, "{again:?}");
    let (code, told) =
        refusal(answer(&daemon, "a.1", json!({"answer": "approve", "command_id": "k2"})).await);
    assert_eq!(code, Code::Resolved);
    assert!(told.starts_with("it was approved already by ") && told.ends_with("(command k)"), "{told}");
    assert_eq!(open(&daemon).await, ApprovalList::default());
    let audit = house.herder(&["audit", "--verb", "approve", "--json"]).expect(0).json();
    assert_eq!(audit.iter().map(|one| &one["changed"]).collect::<Vec<_>>(), [&json!(true), &json!(false)]);
}

#[tokio::test]
async fn a_run_that_is_answered_is_queued_until_it_has_a_slot() {
    let house = House::new();
    let daemon = house.start(&["--policy", "careful", "-j", "1"]).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    fs::write(house.path("work/slow.json"), r#"[{"text": "x", "delay_ms": 600000}]"#).unwrap();
    house.herder(&["submit", "Do it", "--id", "slow", "--script", "slow.json", "-w", "."]).expect(0);
    let phase = |run: &str| shown(&house, run)["phase"].as_str().unwrap().to_owned();
    let has_the_slot = async {
        while !phase("slow").starts_with("thinking") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, has_the_slot).await.expect("the other run has the slot");
    assert_eq!(
        (shown(&house, "a")["state"].clone(), &*phase("a")),
        (json!("paused"), "waits for approval a.1")
    );
    house.herder(&["approve", "a.1"]).expect(0);
    let told = (shown(&house, "a")["state"].clone(), phase("a"));
    assert_eq!(told, (json!("queued"), "answered: goes on once it has a slot".to_owned()));
    let approvals = shown(&house, "a")["approvals"].clone();
    assert_eq!(
        (&approvals[0]["name"], &approvals[0]["resolution"]["how"]),
        (&json!("a.1"), &json!("approved"))
    );
    house.herder(&["cancel", "slow"]).expect(0);
    ended(&house, "a");
    assert_eq!(witness(&house), "done\n");
}

#[tokio::test]
async fn an_answer_that_is_none_is_told_what_would_be() {
    let house = House::new();
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    for (name, body, code, told) in [
        (
            "a.2",
            json!({"answer": "approve", "command_id": "k"}),
            Code::UnknownApproval,
            "it has approval 1 alone",
        ),
        ("a", json!({"answer": "approve", "command_id": "k"}), Code::UnknownApproval, "want RUN.N"),
        ("b.1", json!({"answer": "approve", "command_id": "k"}), Code::UnknownRun, "`herder ls`"),
        ("a.1", json!({"answer": "perhaps", "command_id": "k"}), Code::BadRequest, "`approve` or `reject`"),
        ("a.1", json!({"answer": "approve"}), Code::BadRequest, "missing field `command_id`"),
        (
            "a.1",
            json!({"answer": "approve", "command_id": ""}),
            Code::BadRequest,
            "command_id: want 1 to 256",
        ),
        (
            "a.1",
            json!({"answer": "approve", "command_id": "k", "reason": "x"}),
            Code::BadRequest,
            "reason: goes with",
        ),
        (
            "a.1",
            json!({"answer": "reject", "command_id": "k", "for_run": "x"}),
            Code::BadRequest,
            "for_run: goes with",
        ),
        (
            "a.1",
            json!({"answer": "approve", "command_id": "k", "for_run": "x; y"}),
            Code::BadRequest,
            "for_run: ",
        ),
    ] {
        let (was, message) = refusal(answer(&daemon, name, body).await);
        assert_eq!(was, code, "{message}");
        assert!(message.contains(told), "{message}");
    }
    assert_eq!(open(&daemon).await.approvals.len(), 1);
}

#[tokio::test]
async fn a_run_that_waits_for_people_is_cancelled_at_once() {
    let house = House::new();
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    house.herder(&["cancel", "a"]).expect(0);
    house.herder(&["wait", "a"]).expect(1);
    assert_eq!(shown(&house, "a")["outcome"], "cancelled");
    assert_eq!(open(&daemon).await, ApprovalList::default());
    let (code, told) = refusal(answer(&daemon, "a.1", json!({"answer": "approve", "command_id": "k"})).await);
    assert_eq!(code, Code::Resolved);
    assert!(told.contains("given up before anybody answered"), "{told}");
    assert_eq!(witness(&house), "");
}

#[tokio::test]
async fn many_are_answered_by_what_they_have_in_common_and_told_of() {
    let house = House::new();
    let told = house.path("told.jsonl");
    house.configure(&format!(
        "[[notify]]\non = [\"approval-wanted\"]\ncommand = [\"sh\", \"-c\", \"cat >> {0}; echo >> {0}\"]\n",
        told.display()
    ));
    let daemon = house.start(&SERVE).await;
    for id in ["a", "b", "c"] {
        submit(&house, id);
    }
    until_asked(&daemon, 3).await;
    let page = |before: Option<&str>| {
        let route = Route::to(["v1", "approvals"])
            .with("limit", 2)
            .with("label", "team=a")
            .with_some("before", before);
        let client = daemon.client.clone();
        async move { client.get::<ApprovalList>(&route).await.unwrap() }
    };
    let last = page(None).await;
    let first = page(last.next.as_deref()).await;
    assert_eq!((last.approvals.len(), first.approvals.len(), first.next), (2, 1, None));
    let none = house.herder(&["approvals", "-l", "team=b"]).expect(0).out;
    assert_eq!(none, "nobody is asked about anything\n");
    assert_eq!(house.herder(&["approvals", "--json"]).expect(0).json().len(), 3);
    house.herder(&["reject", "a.1", "--reason", "no"]).expect(0);
    house.herder(&["approve", "-l", "team=a"]).expect(0);
    for id in ["a", "b", "c"] {
        ended(&house, id);
    }
    assert_eq!(witness(&house), "done\n".repeat(2));
    let all = house.herder(&["approvals", "--all", "--json"]).expect(0).json();
    let mut how: Vec<_> = all.iter().map(|one| one["resolution"]["how"].as_str().unwrap()).collect();
    how.sort_unstable();
    assert_eq!(how, ["approved", "approved", "rejected"]);
    let news = async {
        while fs::read_to_string(&told).unwrap_or_default().lines().count() < 3 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, news).await.expect("it is told");
    let said: Value =
        serde_json::from_str(fs::read_to_string(&told).unwrap().lines().next().unwrap()).unwrap();
    assert_eq!((&said["occasion"], &said["news"]["tool"]), (&json!("approval-wanted"), &json!("bash")));
}

#[tokio::test]
async fn a_daemon_that_is_to_ask_nobody_denies() {
    let house = House::new();
    house.configure("[approvals]\nask = false\n");
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    ended(&house, "a");
    assert_eq!(open(&daemon).await, ApprovalList::default());
    assert_eq!(witness(&house), "");
}

#[tokio::test]
async fn a_folder_that_the_daemon_has_is_answered_by_asking_the_daemon() {
    let house = House::new();
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    let state = house.state();
    let told = house.herder(&["approve", "a.1", "--state", state.to_str().unwrap()]).expect(2).err;
    assert!(told.contains("leave --state out to ask it"), "{told}");
}

#[tokio::test]
async fn answers_that_are_left_for_a_daemon_whose_socket_is_not_known_are_taken_while_it_runs() {
    let house = House::new();
    let daemon = house.start(&SERVE).await;
    submit(&house, "a");
    until_asked(&daemon, 1).await;
    let state = house.state();
    let elsewhere = house.path("no.sock");
    let approve =
        ["approve", "a.1", "--state", state.to_str().unwrap(), "--socket", elsewhere.to_str().unwrap()];
    assert_eq!(house.herder(&approve).expect(0).out, "a.1 approved\n");
    ended(&house, "a");
    assert_eq!(witness(&house), "done\n");
    drop(daemon);
}
