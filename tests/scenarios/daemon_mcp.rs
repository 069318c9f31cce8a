//! `herder mcp` as another program has it: lines of JSON-RPC on stdin and stdout, and a real daemon behind them.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, submit},
    support::Place,
};

struct Server {
    child: Child,
    ask: ChildStdin,
    told: BufReader<ChildStdout>,
    asked: u64,
}

impl Server {
    fn start(place: &Place) -> Self {
        let mut child = place.command(&["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (ask, told) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut server = Self { child, ask, told, asked: 0 };
        let client = json!({"name": "test", "version": "1"});
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
        assert_eq!(server.request("initialize", hello)["serverInfo"]["name"], "herder");
        server.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        server
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.ask, "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let mut line = String::new();
            assert_ne!(self.told.read_line(&mut line).unwrap(), 0, "it has ended");
            let mut answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == id {
                return answer["result"].take();
            }
        }
    }

    /// What a tool answers, and whether that is an error.
    fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        (answer["content"][0]["text"].as_str().unwrap().to_owned(), answer["isError"] == true)
    }

    #[track_caller]
    fn done(&mut self, tool: &str, arguments: Value) -> Value {
        let (text, is_error) = self.call(tool, arguments);
        assert!(!is_error, "{text}");
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    fn end(mut self) {
        drop(self.ask);
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn another_agent_submits_waits_steers_and_cancels() {
    let place = Place::new();
    let _daemon = Daemon::start(&place);
    let mut server = Server::start(&place);
    let tools = server.request("tools/list", json!({}));
    assert!(tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "herder_submit"));

    // A scripted model without a script has nothing to say.
    let task = json!({"task": "x", "workspace": place.path("work"), "model": "scripted:none", "wait_s": 30});
    let submitted = server.done("herder_submit", task);
    assert_eq!((&submitted["not_ended"], &submitted["runs"][0]["outcome"]), (&json!(0), &json!("done")));

    submit(&place, "slow", &json!([{"text": "x", "delay_ms": 600_000}]), &[]);
    server.done("herder_steer", json!({"run": "slow", "text": "Be brief"}));
    let waited = server.done("herder_wait", json!({"runs": ["slow"], "timeout_s": 1}));
    assert!(waited.to_string().contains("running"), "{waited}");
    server.done("herder_cancel", json!({"run": "slow"}));
    server.done("herder_wait", json!({"runs": ["slow"], "timeout_s": 30}));
    assert_eq!(server.done("herder_result", json!({"run": "slow"}))["outcome"], "cancelled");

    let (text, is_error) = server.call("herder_result", json!({"run": "none"}));
    assert!(is_error && text.contains("no run or task is called"), "{text}");
    server.end();
}
