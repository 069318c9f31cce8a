//! The server as a client sees it: lines of JSON-RPC in, lines out, with a daemon behind it.

use std::time::Duration;

use rmcp::{handler::server::router::tool::ToolRoute, model::Tool};
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
    },
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{finish, server::Server};
use crate::{
    cli::fake::asked::{Fake, unknown},
    daemon::{
        client::Client,
        wire::{ApiError, Code},
    },
};

/// No test waits longer than this.
const LONG: Duration = Duration::from_secs(30);

/// A client that knows no more than the protocol.
struct Peer {
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    to: WriteHalf<DuplexStream>,
    asked: u64,
    end: CancellationToken,
    serving: JoinHandle<anyhow::Result<()>>,
}

impl Peer {
    async fn of(server: Server) -> Self {
        let (ours, theirs) = duplex(1 << 20);
        let (from, to) = split(theirs);
        let end = CancellationToken::new();
        let ct = end.clone();
        let serving = tokio::spawn(async move {
            finish(rmcp::service::serve_server_with_ct(server, (from, to), ct).await).await
        });
        let (from, to) = split(ours);
        let mut peer = Self { lines: BufReader::new(from).lines(), to, asked: 0, end, serving };
        let hello = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}
        });
        let told = peer.ask("initialize", hello).await;
        assert_eq!(told["result"]["serverInfo"]["name"], "herder");
        peer.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        peer
    }

    async fn before(fake: &Fake) -> Self {
        Self::of(Server::new(fake.client())).await
    }

    async fn tell(&mut self, message: Value) {
        self.to.write_all(format!("{message}\n").as_bytes()).await.expect("heard");
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.tell(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
        let answer = timeout(LONG, async {
            loop {
                let line = self.lines.next_line().await.expect("a line").expect("an answer");
                let answer: Value = serde_json::from_str(&line).expect("JSON");
                if answer["id"] == id {
                    return answer;
                }
            }
        });
        answer.await.expect("an answer in time")
    }

    /// Calls a tool: what it says, and whether that is an error.
    async fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments})).await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"));
        (text.to_owned(), result["isError"] == true)
    }

    async fn json(&mut self, tool: &str, arguments: Value) -> Value {
        let (text, failed) = self.call(tool, arguments).await;
        assert!(!failed, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn run(id: &str, outcome: Option<&str>, text: &str) -> String {
    json!({
        "id": id, "batch": null, "task_id": "t1", "attempt": 1, "predecessor": null, "about": "Do it", "model": "openai:m",
        "labels": {}, "priority": 0, "state": if outcome.is_some() { "ended" } else { "running" },
        "phase": outcome.unwrap_or("acting: edit waits for its lock or permit"), "outcome": outcome, "detail": null,
        "error": null, "turns": 2, "calls": 1,
        "open_calls": [{"call": "c1", "tool": "edit", "waits": outcome.is_none(), "access": []}],
        "usage": {"input": 10, "output": 5, "cached": 0, "estimated": false}, "cost_usd": 0.5,
        "submitted_at": "2026-01-02T03:00:00Z", "started_at": null, "ended_at": null, "duration_ms": null, "said": "Well",
        "task": "Do it", "workspace": "/w", "max_turns": 50, "events": 5, "text": outcome.map(|_| text)
    })
    .to_string()
}

fn list() -> String {
    let run: Value = serde_json::from_str(&run("r1", None, "")).expect("JSON");
    json!({"runs": [run], "next": "r0", "counts": {"total": 7, "open": 1, "ended": {"done": 6}}}).to_string()
}

fn events() -> String {
    let event = |seq: u64| {
        let data = json!({"v": 1, "pos": seq, "run": "r1", "seq": seq, "at": "2026-01-02T03:04:05Z", "turn": 1,
                          "kind": "turn_end", "data": {"calls": seq}});
        format!("id: {seq}\nevent: turn_end\ndata: {data}\n\n")
    };
    (1..=5).map(event).collect()
}

/// A daemon with a run that works, one that is done, and one that is done once its events were followed.
fn usual(asked: &str, before: usize) -> Result<String, ApiError> {
    match asked.split(' ').nth(1).unwrap_or_default() {
        _ if asked.starts_with("POST /v1/runs {") => {
            Ok(r#"{"id": "done", "changed": true, "tasks": 1}"#.to_owned())
        }
        _ if asked.contains("/requeue") => Ok(r#"{"id": "r2", "changed": true}"#.to_owned()),
        _ if asked.starts_with("POST") => Ok(r#"{"changed": true, "seq": 9}"#.to_owned()),
        "/v1/runs/r1" => Ok(run("r1", None, "")),
        "/v1/runs/done" => Ok(run("done", Some("done"), "It is done.")),
        "/v1/runs/soon" => Ok(run("soon", (before >= 1).then_some("done"), "At last.")),
        "/v1/runs/soon/events" => Ok("event: end\ndata: {\"code\": \"ended\"}\n\n".to_owned()),
        "/v1/runs/long" => Ok(run("long", Some("done"), &"é".repeat(40_000))),
        "/v1/runs/r1/events" => Ok(events()),
        path if path.starts_with("/v1/runs?") => Ok(list()),
        _ => unknown(asked),
    }
}

#[tokio::test]
async fn the_tools_are_listed_with_their_schemas() {
    let fake = Fake::start(usual);
    let mut peer = Peer::before(&fake).await;
    let listed = peer.ask("tools/list", json!({})).await;
    let tools = listed["result"]["tools"].as_array().expect("a list").iter().map(described);
    insta::assert_snapshot!(tools.collect::<Vec<_>>().join("\n\n"));
}

/// A tool, a line for each of its parameters and for what else its schema says.
fn described(tool: &Value) -> String {
    let mut lines =
        vec![tool["name"].to_string(), tool["description"].to_string(), tool["annotations"].to_string()];
    for (key, value) in tool["inputSchema"].as_object().expect("a schema") {
        match (key.as_str(), value.as_object()) {
            ("properties", Some(properties)) => {
                lines.extend(properties.iter().map(|(name, schema)| format!("  {name}: {schema}")));
            }
            _ => lines.push(format!("{key}: {value}")),
        }
    }
    lines.join("\n")
}

#[tokio::test]
async fn each_tool_asks_the_daemon_for_what_it_is_named_after() {
    for (tool, arguments, expected) in [
        (
            "herder_submit",
            json!({"task": "Do it", "workspace": "/w", "model": "m", "labels": {"a": "b"}, "key": "k1"}),
            r#"POST /v1/runs {"task":"Do it","workspace":"/w","model":"m","labels":{"a":"b"}} key k1"#,
        ),
        (
            "herder_list",
            json!({"state": ["running", "queued"], "labels": {"a": "b"}, "limit": 5}),
            "GET /v1/runs?limit=5&state=running%2Cqueued&label=a%3Db",
        ),
        ("herder_status", json!({"run": "r1"}), "GET /v1/runs/r1"),
        ("herder_result", json!({"run": "done"}), "GET /v1/runs/done"),
        ("herder_wait", json!({"runs": ["done"]}), "GET /v1/runs/done"),
        (
            "herder_steer",
            json!({"run": "r1", "text": "faster"}),
            r#"POST /v1/runs/r1/steer {"text":"faster"} key "#,
        ),
        (
            "herder_follow_up",
            json!({"run": "r1", "text": "b"}),
            r#"POST /v1/runs/r1/follow-up {"text":"b"} key "#,
        ),
        ("herder_cancel", json!({"run": "r1"}), "POST /v1/runs/r1/cancel {}"),
        ("herder_cancel", json!({"batch": "b/1"}), "POST /v1/batches/b%2F1/cancel {}"),
        ("herder_pause", json!({"model": "m"}), "POST /v1/models/m/pause {}"),
        ("herder_pause", json!({"all": true}), "POST /v1/pause {}"),
        ("herder_resume", json!({"all": true}), "POST /v1/resume {}"),
        ("herder_requeue", json!({"run": "done"}), "POST /v1/runs/done/requeue {}"),
    ] {
        let fake = Fake::start(usual);
        let (text, failed) = Peer::before(&fake).await.call(tool, arguments).await;
        assert!(!failed, "{tool}: {text}");
        let asked = fake.asked();
        assert_eq!(asked.len(), 1, "{asked:?}");
        // What is said to a run has a key of its own each time.
        let asked = if expected.ends_with(" key ") { &asked[0][..expected.len()] } else { &asked[0] };
        assert_eq!(sorted(asked), sorted(expected), "{tool}");
    }
}

/// The same for every order of keys.
fn sorted(text: &str) -> Vec<char> {
    let mut chars: Vec<char> = text.chars().collect();
    chars.sort_unstable();
    chars
}

#[tokio::test]
async fn a_refusal_is_an_answer_that_says_why() {
    let fake = Fake::start(|asked, before| match asked {
        "POST /v1/runs/done/cancel {}" => Err(ApiError::new(Code::Ended, "run done has ended")),
        _ => usual(asked, before),
    });
    let mut peer = Peer::before(&fake).await;
    let told = |text: &str| (text.to_owned(), true);
    assert_eq!(peer.call("herder_cancel", json!({"run": "done"})).await, told("run done has ended"));
    let twice = json!({"run": "a", "batch": "b"});
    assert_eq!(peer.call("herder_cancel", twice).await, told("want exactly one thing to be named"));
    assert_eq!(peer.call("herder_result", json!({"run": ".."})).await, told("\"..\" names nothing"));
    assert!(peer.call("herder_steer", json!({"run": "a"})).await.1);
}

#[tokio::test]
async fn without_a_daemon_it_says_how_to_start_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let client = Client::at_socket(&folder.path().join("none")).expect("a client");
    let (text, failed) = Peer::of(Server::new(client)).await.call("herder_status", json!({})).await;
    assert!(failed && text.contains("`herder serve --detach` starts one"), "{text}");
}

#[tokio::test]
async fn a_result_has_its_text_and_a_long_one_is_cut_with_a_note() {
    let fake = Fake::start(usual);
    let mut peer = Peer::before(&fake).await;
    let done = peer.json("herder_result", json!({"run": "done"})).await;
    assert_eq!(
        (&done["outcome"], &done["text"], done.get("note")),
        (&json!("done"), &json!("It is done."), None)
    );
    let long = peer.json("herder_result", json!({"run": "long"})).await;
    assert_eq!(long["text"].as_str().map(str::len), Some(50 * 1024));
    assert!(
        long["note"].as_str().is_some_and(|note| note.contains("28800 of its bytes")),
        "{}",
        long["note"]
    );
    let open = peer.json("herder_result", json!({"run": "r1"})).await;
    assert_eq!(open["note"], "it has not ended; herder_wait waits for it");
    assert_eq!(open["calls_waiting"], json!(["edit"]));
}

#[tokio::test]
async fn waiting_ends_with_the_run_or_with_its_time() {
    let fake = Fake::start(usual);
    let mut peer = Peer::before(&fake).await;
    let soon = peer.json("herder_wait", json!({"runs": ["soon"]})).await;
    assert_eq!((&soon["runs"][0]["text"], &soon["not_ended"]), (&json!("At last."), &json!(0)));
    let both = json!({"runs": ["done", "r1"], "timeout_s": 0});
    let late = peer.json("herder_wait", both).await;
    assert_eq!(late["note"], "1 not ended yet; call herder_wait again");
    assert_eq!((&late["runs"][0]["outcome"], &late["runs"][1]["state"]), (&json!("done"), &json!("running")));
    let any = peer.json("herder_wait", json!({"runs": ["done", "r1"], "any": true})).await;
    assert_eq!((any.get("note"), &any["not_ended"]), (None, &json!(1)));
    let submitted =
        peer.json("herder_submit", json!({"task": "Do it", "workspace": "/w", "wait_s": 5})).await;
    assert_eq!(submitted["runs"][0]["text"], "It is done.");
}

#[tokio::test]
async fn a_run_that_is_waited_for_is_looked_at_before_and_after_and_not_between() {
    let fake = Fake::start(usual);
    Peer::before(&fake).await.json("herder_wait", json!({"runs": ["soon"]})).await;
    let expected = ["GET /v1/runs/soon", "GET /v1/runs/soon/events after 5", "GET /v1/runs/soon"];
    assert_eq!(fake.asked(), expected);
}

#[tokio::test]
async fn events_are_lines_and_no_more_than_asked_for() {
    let fake = Fake::start(usual);
    let mut peer = Peer::before(&fake).await;
    let newest = peer.call("herder_events", json!({"run": "r1", "limit": 2})).await;
    let line = |seq: u64| format!("{seq} 03:04:05 turn 1 turn_end {seq} calls");
    assert_eq!(newest, (format!("{}\n{}", line(4), line(5)), false));
    let page = peer.call("herder_events", json!({"run": "r1", "after": 1, "limit": 2})).await;
    assert_eq!(page.0, format!("{}\n{}\n2 more; ask again with after 3", line(2), line(3)));
    let none = peer.call("herder_events", json!({"run": "r1", "after": 5})).await;
    assert_eq!(none.0, "no events after 5; the last one is 5");
}

#[tokio::test]
async fn a_page_of_runs_says_how_many_there_are() {
    let fake = Fake::start(usual);
    let page = Peer::before(&fake).await.json("herder_list", json!({})).await;
    assert_eq!((&page["matching"], &page["not_ended"], &page["next"]), (&json!(7), &json!(1), &json!("r0")));
    assert_eq!(page["runs"][0]["run"], "r1");
}

#[tokio::test]
async fn a_tool_that_panics_is_answered_and_the_next_one_works() {
    let fake = Fake::start(usual);
    let mut server = Server::new(fake.client());
    let tool = Tool::new("broken", "panics", serde_json::Map::new());
    server.router.add_route(ToolRoute::new_dyn(tool, |_| Box::pin(async { panic!("on purpose") })));
    let mut peer = Peer::of(server).await;
    let (text, failed) = peer.call("broken", json!({})).await;
    assert!(failed && text.starts_with("broken failed in a way"), "{text}");
    assert_eq!(peer.json("herder_status", json!({"run": "r1"})).await["run"], "r1");
}

#[tokio::test]
async fn it_ends_when_its_client_leaves_or_it_is_told_to() {
    let fake = Fake::start(usual);
    let Peer { lines, to, serving, .. } = Peer::before(&fake).await;
    drop((lines, to));
    timeout(LONG, serving).await.expect("in time").expect("no panic").expect("no error");
    let peer = Peer::before(&fake).await;
    peer.end.cancel();
    timeout(LONG, peer.serving).await.expect("in time").expect("no panic").expect("no error");
}
