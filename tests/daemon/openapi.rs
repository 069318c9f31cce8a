//! The API against its description: every route, every refusal, and clients of all manners.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use herder::daemon::wire::{Code, EventView};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::harness::{exchange, named, soon};

/// A daemon with a port, and all that is asked of it.
struct Daemon {
    address: String,
    token: String,
    process: Child,
    folder: TempDir,
}

struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Daemon {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = named(&folder.path().join("s"));
        std::fs::create_dir_all(folder.path().join(".config/herder")).unwrap();
        let config = folder.path().join(".config/herder/config.toml");
        std::fs::write(config, "[daemon]\ntcp_role = \"operator\"\n").unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_herder"))
            .args(["serve", "--listen", "127.0.0.1:0", "--socket"])
            .arg(place.path())
            .arg("--state")
            .arg(folder.path().join("state"))
            .env("HOME", folder.path())
            .env_remove("XDG_CONFIG_HOME")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stderr.take().unwrap()).lines().next();
        let said = said.expect("the daemon says that it is ready").unwrap();
        let address = said.split(" and ").nth(1).and_then(|rest| rest.split(';').next());
        let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
        let token = std::fs::read_to_string(folder.path().join("state/token")).unwrap();
        Self { address, token: token.trim().to_owned(), process, folder }
    }

    async fn send(&self, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let own = |name: &str| headers.iter().any(|(header, _)| *header == name);
        let mut request = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
        if !own("host") {
            request.push_str("host: localhost\r\n");
        }
        if !own("authorization") {
            write!(request, "authorization: Bearer {}\r\n", self.token).unwrap();
        }
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").unwrap();
        }
        if !body.is_empty() {
            write!(request, "content-length: {}\r\n", body.len()).unwrap();
        }
        write!(request, "\r\n{body}").unwrap();
        let text = exchange(TcpStream::connect(&self.address).await.unwrap(), &request).await;
        let (head, body) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {target}: {text:?}"));
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap().parse().unwrap();
        let header =
            |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
        Answer { status, headers: lines.filter_map(header).collect(), body: body.to_owned() }
    }

    async fn description(&self) -> Value {
        let answer = self.send("GET", "/openapi.json", &[], "").await;
        assert_eq!(answer.status, 200);
        answer.json()
    }

    fn task(&self, id: &str, delay_ms: u64) -> String {
        let script = json!([{"text": "Here you are.", "delay_ms": delay_ms}]);
        json!({"id": id, "task": "Say something.", "workspace": self.folder.path(), "script": script})
            .to_string()
    }

    /// A run that has ended, one that goes on, and a batch that does, each with its key.
    async fn seeded() -> Self {
        let daemon = Self::start();
        for (id, delay_ms) in [("ended", 0), ("open", 3_600_000)] {
            let made =
                daemon.send("POST", "/v1/runs", &[("idempotency-key", id)], &daemon.task(id, delay_ms)).await;
            assert_eq!(made.status, 201, "{}", made.body);
        }
        let lines = daemon.task("slow", 3_600_000);
        let made = daemon.send("POST", "/v1/batches?name=slow", &[("idempotency-key", "slow")], &lines).await;
        assert_eq!(made.status, 201, "{}", made.body);
        // Goes on until the run has ended.
        daemon.send("GET", "/v1/runs/ended/events", &[], "").await;
        soon(async {
            while daemon.send("GET", "/v1/runs/open", &[], "").await.json()["turns"] != 1 {
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
        })
        .await;
        daemon
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn operations(description: &Value) -> Vec<(&str, String, &Value)> {
    let paths = description["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().unwrap().iter();
            methods.map(move |(method, operation)| (path.as_str(), method.to_uppercase(), operation))
        })
        .collect()
}

#[tokio::test]
async fn the_routes_are_those_of_the_description() {
    let daemon = Daemon::start();
    let description = daemon.description().await;
    let mut methods: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, method, _) in operations(&description) {
        if method == "GET" {
            methods.entry(path).or_default().insert("HEAD".to_owned());
        }
        methods.entry(path).or_default().insert(method);
    }
    for (path, described) in methods {
        let answer = daemon.send("OPTIONS", path, &[], "").await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (405, Some("method_not_allowed")),
            "{path}"
        );
        let served = answer.headers["allow"].split(',').map(str::to_owned).collect();
        assert_eq!(described, served, "{path}");
    }
    // One that is not described is hung in by other means.
    for file in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/daemon/api")).unwrap() {
        let path = file.unwrap().path();
        assert!(!std::fs::read_to_string(&path).unwrap().contains(".route("), "{}", path.display());
    }
}

#[tokio::test]
async fn the_description_is_whole() {
    let daemon = Daemon::start();
    let description = daemon.description().await;
    let mut listed = String::new();
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(&description) {
        let name = operation["operationId"].as_str().unwrap();
        assert!(names.insert(name), "{name} is there twice");
        assert!(operation["summary"].is_string(), "{name}");
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let about = [parameter, &parameter["schema"]].map(|of| of["description"].is_string());
            assert!(about.contains(&true), "{name}: {parameter}");
        }
        for answer in operation["responses"].as_object().unwrap().values() {
            assert!(answer["description"].is_string() || answer["$ref"].is_string(), "{name}: {answer}");
        }
        let responses: Vec<&str> =
            operation["responses"].as_object().unwrap().keys().map(String::as_str).collect();
        writeln!(listed, "{method} {path} {name}: {}", responses.join(" ")).unwrap();
    }
    insta::assert_snapshot!("routes", listed);
    for reference in references(&description) {
        let place = reference.strip_prefix('#').unwrap();
        assert!(description.pointer(place).is_some(), "{reference} is nowhere");
    }
    let text = description["components"]["responses"].to_string();
    for code in Code::ALL {
        assert!(text.contains(code.as_str()), "{code:?} comes with no answer");
    }
}

fn references(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("$ref").and_then(Value::as_str);
            own.into_iter().chain(fields.values().flat_map(references)).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The operation of the description that a request is for.
fn operation<'a>(description: &'a Value, method: &str, target: &str) -> Option<&'a Value> {
    let path: Vec<&str> = target.split('?').next().unwrap().split('/').collect();
    let fits = |template: &str| {
        let template: Vec<&str> = template.split('/').collect();
        template.len() == path.len()
            && template.iter().zip(&path).all(|(wanted, part)| wanted == part || wanted.starts_with('{'))
    };
    let paths = description["paths"].as_object().unwrap();
    // A path without a name in it goes before one with.
    let item = paths
        .get(&path.join("/"))
        .or_else(|| paths.iter().find(|(path, _)| fits(path)).map(|(_, item)| item));
    item?.get(method.to_lowercase())
}

type Bad<'a> = (u16, Code, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str, &'a str);

#[tokio::test]
async fn a_request_that_is_not_right_is_told_what_would_be() {
    use Code::*;
    let daemon = Daemon::seeded().await;
    let description = daemon.description().await;
    let long = "k".repeat(257);
    let large = format!(r#"{{"text": "{}"}}"#, "x".repeat(2 << 20));
    let other = daemon.task("other", 0);
    let json = &[][..];
    let table: &[Bad<'_>] = &[
        (400, BadRequest, "GET", "/v1/runs?limit=0", json, "", "limit: want 1 to 1000"),
        (400, BadRequest, "GET", "/v1/runs?limit=many", json, "", "limit: "),
        (400, BadRequest, "GET", "/v1/runs?limit=", json, "", "limit: "),
        (400, BadRequest, "GET", "/v1/audit?limit=", json, "", "limit: "),
        (400, BadRequest, "GET", "/v1/approvals?limit=", json, "", "limit: "),
        (400, BadRequest, "GET", "/v1/runs?limits=1", json, "", "expected one of `state`"),
        (400, BadRequest, "GET", "/v1/runs?state=gone", json, "", "want some of queued, running"),
        (400, BadRequest, "GET", "/v1/runs?outcome=fine", json, "", "want one of done, budget"),
        (400, BadRequest, "GET", "/v1/runs?label=team", json, "", "as team=search"),
        (400, BadRequest, "GET", "/v1/runs?since=yesterday", json, "", "as 2026-11-30T12:00:00Z"),
        (400, BadRequest, "GET", "/v1/runs?before=open", json, "", "want a run's id"),
        (404, UnknownBatch, "GET", "/v1/runs?batch=none", json, "", "no batch \"none\""),
        (400, BadRequest, "GET", "/v1/runs/open?messages=perhaps", json, "", "messages: "),
        (404, UnknownRun, "GET", "/v1/runs/none", json, "", "`herder ls` shows"),
        (404, UnknownRun, "GET", "/v1/runs/%00", json, "", "`herder ls` shows"),
        (404, NoPatch, "GET", "/v1/runs/ended/patch", json, "", "no workspace of its own"),
        (409, Ambiguous, "GET", "/v1/runs/0", json, "", "give more of it"),
        (404, UnknownRoute, "GET", "/v1/runs/%ff", json, "", "UTF-8"),
        (404, UnknownRoute, "GET", "/v1/run", json, "", "/openapi.json lists"),
        (404, UnknownRoute, "POST", "/v1/runs/open/stop", json, "", "/openapi.json lists"),
        (405, MethodNotAllowed, "DELETE", "/v1/runs/open", json, "", "the header Allow"),
        (
            401,
            Unauthorized,
            "GET",
            "/v1/runs",
            &[("authorization", "Bearer no")],
            "",
            "Authorization: Bearer TOKEN",
        ),
        (403, Forbidden, "GET", "/v1/runs", &[("host", "evil.example")], "", "loopback"),
        (400, ApiVersion, "GET", "/v1/runs", &[("herder-api", "2")], "", "speaks version 1"),
        (422, InvalidInput, "POST", "/v1/runs", json, "{", "want one JSON object"),
        (422, InvalidInput, "POST", "/v1/runs", json, "[]", "want one JSON object"),
        (422, InvalidInput, "POST", "/v1/runs", json, r#"{"task": 1}"#, "expected a string"),
        (422, InvalidInput, "POST", "/v1/runs", json, r#"{"tsk": "x", "id": "a"}"#, "2 mistakes"),
        (413, TooLarge, "POST", "/v1/runs/open/steer", json, &large, "larger than this route takes"),
        (400, BadRequest, "POST", "/v1/runs", &[("idempotency-key", &long)], &other, "1 to 256"),
        (409, KeyReused, "POST", "/v1/runs", &[("idempotency-key", "ended")], &other, "use another key"),
        (400, BadRequest, "POST", "/v1/runs/open/steer", json, "{", "EOF"),
        (400, BadRequest, "POST", "/v1/runs/open/steer", json, "{}", "missing field `text`"),
        (400, BadRequest, "POST", "/v1/runs/open/steer", json, r#"["x"]"#, "want a JSON object"),
        (400, BadRequest, "POST", "/v1/runs/open/steer", json, r#"{"text": 1}"#, "text: invalid type"),
        (
            400,
            BadRequest,
            "POST",
            "/v1/runs/open/steer",
            json,
            r#"{"text": "x", "now": true}"#,
            "expected `text` or",
        ),
        (422, InvalidInput, "POST", "/v1/runs/open/steer", json, r#"{"text": " "}"#, "empty"),
        (
            409,
            OtherTurn,
            "POST",
            "/v1/runs/open/steer",
            json,
            r#"{"text": "x", "expected_turn": 9}"#,
            "turn 1 now",
        ),
        (409, Ended, "POST", "/v1/runs/ended/steer", json, r#"{"text": "x"}"#, "already ended"),
        (409, NotEnded, "POST", "/v1/runs/open/requeue", json, "", "cancel it first, or wait"),
        (404, UnknownCall, "POST", "/v1/runs/open/calls/c9/cancel", json, "", "no open call"),
        (400, BadRequest, "PATCH", "/v1/runs/open", json, r#"{"max_turns": 0}"#, "want at least 1"),
        (400, BadRequest, "PATCH", "/v1/runs/open", json, r#"{"max_turns": -1}"#, "a whole number from 0"),
        (400, BadRequest, "GET", "/v1/runs/open/events", &[("last-event-id", "x")], "", "a number"),
        (400, BadRequest, "GET", "/v1/events?kinds=party", json, "", "want one of"),
        (400, BadRequest, "GET", "/v1/events?after=-1", json, "", "a number"),
        (422, InvalidInput, "POST", "/v1/batches", json, "", "one JSON object a line"),
        (400, BadRequest, "POST", "/v1/batches?concurrency=0", json, &other, "want at least 1"),
        (400, BadRequest, "POST", "/v1/batches?halt=late", json, &other, "soon,fail=N"),
        (404, UnknownBatch, "GET", "/v1/batches/none/results", json, "", "no batch \"none\""),
        (404, UnknownModel, "POST", "/v1/models/none/pause", json, "", "openai:NAME"),
        (400, BadRequest, "POST", "/v1/pause", json, r#"{"mode": "hard"}"#, "expected `soft` or `hold`"),
        (400, BadRequest, "POST", "/v1/prune", json, "", "missing field `older_than_s`"),
        (400, BadRequest, "POST", "/v1/prune", json, r#"{"older_than_s": -1}"#, "a whole number from 0"),
        (400, BadRequest, "GET", "/v1/stats?by=mood", json, "", "want model, batch"),
        (400, BadRequest, "GET", "/v1/audit?limit=10001", json, "", "want 1 to 10000"),
    ];
    for (status, code, method, target, headers, body, told) in table {
        let request = format!("{method} {target} {}", &body[..body.len().min(80)]);
        let answer = daemon.send(method, target, headers, body).await;
        assert_eq!(answer.status, *status, "{request}: {}", answer.body);
        let error = answer.json();
        assert_eq!(error["code"], code.as_str(), "{request}: {error}");
        assert_eq!(answer.headers["content-type"], "application/json", "{request}");
        assert_eq!(answer.headers["herder-api"], "1", "{request}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(told) && !message.contains('\n'), "{request}: {message}");
        let keys: Vec<_> = error.as_object().unwrap().keys().filter(|key| *key != "mistakes").collect();
        assert_eq!(keys, ["code", "message"], "{request}");
        match operation(&description, method, target) {
            Some(operation) => assert!(operation["responses"].get(status.to_string()).is_some(), "{request}"),
            None => assert!(matches!(code, UnknownRoute | MethodNotAllowed), "{request}"),
        }
    }
}

#[tokio::test]
async fn clients_need_know_little_of_http() {
    let daemon = Daemon::seeded().await;
    let form = ("content-type", "application/x-www-form-urlencoded");
    for (index, headers) in
        [&[][..], &[form], &[("content-type", "text/plain")], &[("accept", "image/png")]].iter().enumerate()
    {
        let made = daemon.send("POST", "/v1/runs", headers, &daemon.task(&format!("c{index}"), 0)).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let shown = daemon.send("GET", &made.headers["location"], headers, "").await;
        assert_eq!(shown.json()["id"], made.json()["id"]);
        let said = daemon
            .send("POST", "/v1/runs/open/steer", headers, r#" {"text": "On.", "expected_turn": 1.0} "#)
            .await;
        assert_eq!((said.status, &said.json()["changed"]), (200, &json!(true)), "{}", said.body);
    }
    for body in ["", "{}", "not looked at"] {
        let paused = daemon.send("POST", "/v1/runs/open/pause", &[form], body).await;
        assert_eq!(paused.status, 200, "{}", paused.body);
    }
    let paused = daemon.send("POST", "/v1/pause", &[], "").await;
    assert_eq!(paused.body, r#"{"changed":true}"#);
    for target in ["/v1/runs", "/v1/runs/ended/events", "/v1/events", "/v1/status", "/openapi.json"] {
        let head = daemon.send("HEAD", target, &[], "").await;
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{target}");
    }
}

#[tokio::test]
async fn an_event_has_the_fields_of_the_description() {
    let daemon = Daemon::seeded().await;
    let events = daemon.send("GET", "/v1/runs/ended/events", &[], "").await;
    let kinds: Vec<&str> = events.body.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!((kinds.first(), kinds.last()), (Some(&"submitted"), Some(&"end")));
    let data: Vec<&str> = events.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (end, of_record) = data.split_last().unwrap();
    assert_eq!(serde_json::from_str::<Value>(end).unwrap()["code"], "ended");
    for (text, seq) in of_record.iter().zip(1..) {
        let event: EventView = serde_json::from_str(text).unwrap();
        assert_eq!(event.seq, seq);
        assert_eq!(serde_json::to_value(&event).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }
}

#[tokio::test]
async fn an_end_without_delay_waits_for_no_turn() {
    let mut daemon = Daemon::seeded().await;
    let done = daemon.send("GET", "/v1/runs?outcome=done", &[], "").await.json();
    assert_eq!(done["counts"]["ended"]["done"], 1, "{done}");
    let patient = daemon.send("PATCH", "/v1/config", &[], r#"{"drain_s": 100000}"#).await;
    assert_eq!(patient.status, 200, "{}", patient.body);
    let told = daemon.send("POST", "/v1/stop", &[], r#"{"now": true}"#).await;
    assert_eq!(told.body, r#"{"changed":true}"#);
    let ended = tokio::task::spawn_blocking(move || daemon.process.wait().unwrap());
    assert!(soon(ended).await.unwrap().success());
}
