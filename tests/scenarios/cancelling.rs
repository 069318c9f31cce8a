//! A run of the daemon that is cancelled once, whatever it is at: it ends, at once and for good.

use std::{
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    daemon::{Daemon, has, shown, submit},
    model::{
        chat,
        server::{Answer, Server, Step},
    },
    support::{Place, call, until},
};

/// Less than what any of these runs would wait for by itself.
const SOON: Duration = Duration::from_secs(25);

/// A port where connections are neither taken nor refused, and what keeps it so.
fn full_port() -> (u16, TcpListener, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As many may wait as the system likes, which is few now.
    rustix::net::listen(&listener, 0).unwrap();
    let waiting =
        std::iter::from_fn(|| TcpStream::connect_timeout(&address, Duration::from_millis(300)).ok());
    let waiting = waiting.take(300).collect();
    (address.port(), listener, waiting)
}

/// A model for each way to wait, all of them at the server, but for one.
fn place(server: &Server, connecting: u16) -> Place {
    let place = Place::new();
    let table = |name: &str, base_url: &str| {
        format!("[models.{name}]\nprovider = \"openai\"\nmodel = \"{name}\"\nbase_url = \"{base_url}\"\n")
    };
    let of_server = ["silent", "halfway", "busy"].map(|name| table(name, &server.base_url()));
    let connecting = table("connecting", &format!("http://127.0.0.1:{connecting}/v1"));
    let tool = "[command_tools.deaf]\ndescription = \"d\"\nschema = { type = \"object\" }\n\
                command = [\"sh\", \"-c\", \"trap '' TERM; echo up > up-deaf; while :; do sleep 0.05; done\"]\n";
    place.write("c.toml", format!("{}{connecting}{tool}", of_server.concat()));
    place
}

async fn server() -> Server {
    let word = format!("data: {}\n\n", chat::chunk(&json!({"content": "well"}), None));
    Server::start(move |request| match request["model"].as_str().unwrap() {
        "halfway" => Answer::Raw(vec![Step::Bytes(word.clone().into_bytes()), Step::Hang]),
        "busy" => {
            let headers = vec![("retry-after", "30".to_owned())];
            Answer::Status { status: 503, headers, body: "{}".to_owned() }
        }
        _ => Answer::Hang,
    })
    .await
}

fn ask(place: &Place, model: &str) {
    place.herder(&["submit", "Do it", "--id", model, "--model", model, "-w", "work"]).expect(0);
}

/// Cancels once, and has it end.
#[track_caller]
fn ends_by_one_cancel(place: &Place, id: &str) {
    let since = Instant::now();
    assert_eq!(place.herder(&["cancel", id]).expect(0).out, "cancelled 1\n", "{id}");
    place.herder(&["wait", id]).expect(1);
    assert!(since.elapsed() < SOON, "{id}: {:?}", since.elapsed());
    assert_eq!(shown(place, id)["outcome"], "cancelled", "{id}");
    let events = place.herder(&["events", id, "--json"]).expect(0).json();
    let ends: Vec<usize> = (0..events.len()).filter(|at| events[*at]["kind"] == "run_end").collect();
    assert_eq!(ends, [events.len() - 1], "{id}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cancel_ends_a_run_that_waits_for_its_model_in_any_way() {
    let (port, _listener, _waiting) = full_port();
    let server = server().await;
    let place = place(&server, port);
    let _daemon = Daemon::start_with(&place, &["--config", "c.toml"]);
    let requests = |model: &str| server.requests().iter().filter(|request| request["model"] == model).count();

    ask(&place, "connecting");
    until("it has begun", || has(&place, "connecting", "turn_start"));
    ends_by_one_cancel(&place, "connecting");

    ask(&place, "silent");
    until("it waits for the answer", || requests("silent") == 1);
    ends_by_one_cancel(&place, "silent");

    ask(&place, "halfway");
    server.sent(1).await;
    ends_by_one_cancel(&place, "halfway");
    server.closed().await;

    ask(&place, "busy");
    until("it waits to ask again", || has(&place, "busy", "model_retry"));
    ends_by_one_cancel(&place, "busy");

    assert_eq!([requests("silent"), requests("halfway"), requests("busy")], [1; 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_cancel_ends_a_run_whose_tool_does_not_answer_and_the_next_call_of_it_is_served() {
    let server = server().await;
    let place = place(&server, 9);
    let _daemon = Daemon::start_with(&place, &["--config", "c.toml"]);
    let mark = place.mark();
    let deaf = format!("trap '' TERM; export MARK={mark}; echo up > up-bash; while :; do sleep 0.05; done");
    let calls = [("bash", json!({"command": deaf})), ("deaf", json!({}))];
    for (tool, arguments) in calls {
        let script = |arguments: Value| json!([call(tool, arguments), {"text": "ready"}]);
        submit(&place, tool, &script(arguments), &[]);
        until("the command runs", || place.read(&format!("work/up-{tool}")) == "up\n");
        ends_by_one_cancel(&place, tool);
        // Nothing of it holds the workspace any more.
        let next = format!("after-{tool}");
        let touch = call("bash", json!({"command": "echo free"}));
        submit(&place, &next, &json!([touch, {"text": "ready"}]), &[]);
        place.herder(&["wait", &next]).expect(0);
    }
    place.assert_nothing_marked_runs();
}
