//! What a streamed answer of 400 deltas costs: CPU time of the thread that reads it, and what it allocates.
//!
//! Once decoding alone, its bytes cut as a network would; once with the provider, over a loopback socket from a server
//! that has a thread of its own. The bytes that are allocated are printed before the times, since they do not vary.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a bench may panic, and prints what it counts")]

use std::{
    hint::black_box,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use alloc_tracker::{Allocator, Session};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures_util::StreamExt as _;
use herder::{
    domain::{message::Message, outcome::Stop},
    model::{
        Delta, ModelProvider, Request,
        anthropic::{self, Anthropic},
        decode::Answer,
        http,
        openai::{self, OpenAi},
        responses::{self, Responses},
    },
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::runtime;
use tokio_util::sync::CancellationToken;

/// As the `herder` program has it, and counting.
#[global_allocator]
static ALLOCATOR: Allocator<mimalloc::MiMalloc> = Allocator::new(mimalloc::MiMalloc);

criterion_group!(benches, decoding, asking);
criterion_main!(benches);

const DELTAS: u64 = 400;

/// Bytes that come with one read of a socket.
const CHUNK: usize = 1_400;

/// One protocol: a body, and who reads it.
struct Protocol {
    name: &'static str,
    body: Arc<str>,
    decode: fn() -> Answer,
    provider: fn(base_url: &str) -> Arc<dyn ModelProvider>,
}

fn protocols() -> [Protocol; 6] {
    let openai: fn(&str) -> Arc<dyn ModelProvider> = |base_url| {
        let settings = openai::Settings { base_url: base_url.to_owned(), ..Default::default() };
        Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap())
    };
    let anthropic: fn(&str) -> Arc<dyn ModelProvider> = |base_url| {
        let settings = anthropic::Settings { base_url: base_url.to_owned(), ..Default::default() };
        Arc::new(Anthropic::new(http::client().unwrap(), settings).unwrap())
    };
    let responses: fn(&str) -> Arc<dyn ModelProvider> = |base_url| {
        let settings = responses::Settings { base_url: base_url.to_owned(), ..Default::default() };
        Arc::new(Responses::new(http::client().unwrap(), settings).unwrap())
    };
    [
        Protocol {
            name: "openai text",
            body: openai_body(|at| json!({"content": format!(" word{at}")}), "stop"),
            decode: Answer::openai,
            provider: openai,
        },
        Protocol {
            name: "openai call",
            body: openai_body(|at| json!({"tool_calls": [openai_piece(at)]}), "tool_calls"),
            decode: Answer::openai,
            provider: openai,
        },
        Protocol {
            name: "anthropic text",
            body: anthropic_body(
                &json!({"type": "text", "text": ""}),
                "end_turn",
                |at| json!({"type": "text_delta", "text": format!(" word{at}")}),
            ),
            decode: Answer::anthropic,
            provider: anthropic,
        },
        Protocol {
            name: "anthropic call",
            body: anthropic_body(
                &json!({"type": "tool_use", "id": "toolu_0123456789", "name": "write", "input": {}}),
                "tool_use",
                |at| json!({"type": "input_json_delta", "partial_json": piece(at)}),
            ),
            decode: Answer::anthropic,
            provider: anthropic,
        },
        Protocol {
            name: "responses text",
            body: responses_body(
                "output_text",
                "text",
                |at| format!(" word{at}"),
                |whole| {
                    let content =
                        json!([{"type": "output_text", "annotations": [], "logprobs": [], "text": whole}]);
                    json!({"id": "msg_0123456789", "type": "message", "role": "assistant", "content": content})
                },
            ),
            decode: Answer::responses,
            provider: responses,
        },
        Protocol {
            name: "responses call",
            body: responses_body("function_call_arguments", "arguments", piece, |whole| {
                json!({
                    "id": "fc_0123456789", "type": "function_call", "call_id": "call_0123456789", "name": "write",
                    "arguments": whole,
                })
            }),
            decode: Answer::responses,
            provider: responses,
        },
    ]
}

fn openai_body(delta: impl Fn(u64) -> Value, finish: &str) -> Arc<str> {
    let event = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish});
        let event = json!({
            "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012", "object": "chat.completion.chunk", "created": 1_767_225_600,
            "model": "fake-1-2026-01-01", "service_tier": "default", "system_fingerprint": "fp_0123456789",
            "choices": [choice], "obfuscation": "aB3dE5gH",
        });
        format!("data: {event}\n\n")
    };
    let mut body = event(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null);
    body.extend((0..DELTAS).map(|at| event(delta(at), Value::Null)));
    body.push_str(&event(json!({}), finish.into()));
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": DELTAS}});
    body.push_str(&format!("data: {usage}\n\ndata: [DONE]\n\n"));
    body.into()
}

fn openai_piece(at: u64) -> Value {
    let function = json!({"arguments": piece(at)});
    match at {
        0 => json!({
            "index": 0, "id": "call_0123456789", "type": "function",
            "function": {"name": "write", "arguments": function["arguments"]},
        }),
        _ => json!({"index": 0, "function": function}),
    }
}

/// A piece of a call's arguments, which are an object when all are there.
fn piece(at: u64) -> String {
    match at {
        0 => "{\"path\":\"a.txt\",\"content\":\"".to_owned(),
        at if at == DELTAS - 1 => "\"}".to_owned(),
        at => format!(" \\\"word{at}\\\"\\n"),
    }
}

fn anthropic_body(block: &Value, reason: &str, delta: impl Fn(u64) -> Value) -> Arc<str> {
    let usage = json!({"input_tokens": 900, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1});
    let message = json!({
        "id": "msg_0123456789", "type": "message", "role": "assistant", "model": "fake-1", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage,
    });
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "ping"}),
    ];
    events
        .extend((0..DELTAS).map(|at| json!({"type": "content_block_delta", "index": 0, "delta": delta(at)})));
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": DELTAS}}),
        json!({"type": "message_stop"}),
    ]);
    framed(&events)
}

fn responses_body(
    kind: &str,
    field: &str,
    piece: impl Fn(u64) -> String,
    item: impl Fn(&str) -> Value,
) -> Arc<str> {
    let whole: String = (0..DELTAS).map(&piece).collect();
    let (begun, done) = (item(""), item(&whole));
    let mut events = vec![
        json!({"type": "response.created", "response": {"id": "resp_0123456789", "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
    ];
    events.extend((0..DELTAS).map(|at| {
        json!({
            "type": format!("response.{kind}.delta"), "item_id": begun["id"], "output_index": 0, "content_index": 0,
            "delta": piece(at), "logprobs": [], "obfuscation": "aB3dE5gH",
        })
    }));
    let usage = json!({"input_tokens": 900, "output_tokens": DELTAS, "total_tokens": 900 + DELTAS});
    events.extend([
        json!({"type": format!("response.{kind}.done"), "item_id": begun["id"], "output_index": 0, "content_index": 0, field: whole}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": done}),
        json!({"type": "response.completed", "response": {"id": "resp_0123456789", "status": "completed", "output": [done], "usage": usage}}),
    ]);
    for (number, event) in (0_u64..).zip(&mut events) {
        event["sequence_number"] = number.into();
    }
    framed(&events)
}

fn framed(events: &[Value]) -> Arc<str> {
    let framed =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()));
    framed.collect::<String>().into()
}

fn decoding(c: &mut Criterion) {
    for protocol in protocols() {
        let mut group = c.benchmark_group(format!("decode {}", protocol.name));
        group.throughput(Throughput::Elements(DELTAS));
        for (cut, size) in [("in network chunks", CHUNK), ("in one chunk", protocol.body.len())] {
            let once = || decode(&protocol, size);
            tell(&format!("decode {} {cut}", protocol.name), protocol.body.len(), once);
            group.bench_function(cut, |b| b.iter_custom(|times| cpu(times, once)));
        }
        group.finish();
    }
}

fn decode(protocol: &Protocol, size: usize) {
    let mut answer = (protocol.decode)();
    let mut stop = None;
    for chunk in black_box(&protocol.body).as_bytes().chunks(size) {
        answer.take(chunk).unwrap();
        while let Some(delta) = answer.delta() {
            stop = stop_of(&black_box(delta));
        }
    }
    assert!(stop.is_some());
}

fn asking(c: &mut Criterion) {
    for protocol in protocols() {
        let mut group = c.benchmark_group(format!("ask {}", protocol.name));
        group.throughput(Throughput::Elements(DELTAS));
        for (sent, by_event) in [("sent at once", false), ("sent event by event", true)] {
            // A client belongs to one runtime, and the runtime to this thread, whose time is taken.
            let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let provider = runtime.block_on(async { (protocol.provider)(&serve(&protocol.body, by_event)) });
            // A task beside the connection's: the runtime's own future would have it look for IO at every change of hands.
            let once = || runtime.block_on(runtime.spawn(ask(Arc::clone(&provider)))).unwrap();
            once();
            tell(&format!("ask {} {sent}", protocol.name), protocol.body.len(), once);
            group.bench_function(sent, |b| b.iter_custom(|times| cpu(times, once)));
        }
        group.finish();
    }
}

async fn ask(provider: Arc<dyn ModelProvider>) {
    let request = Request::new("fake-1".into(), vec![Message::User("go".into())]);
    let mut answer = provider.stream(request, CancellationToken::new());
    let mut stop = None;
    while let Some(delta) = answer.next().await {
        stop = stop_of(&black_box(delta.unwrap()));
    }
    assert!(stop.is_some());
}

fn stop_of(delta: &Delta) -> Option<Stop> {
    if let Delta::Stop(stop) = delta { Some(*stop) } else { None }
}

/// Serves `body` to every request, each event a chunk of HTTP; ends with the process.
fn serve(body: &str, by_event: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_owned();
    let events = body.split_inclusive("\n\n").map(|event| format!("{:x}\r\n{event}\r\n", event.len()));
    let mut writes: Vec<String> = [head].into_iter().chain(events).chain(["0\r\n\r\n".to_owned()]).collect();
    if !by_event {
        writes = vec![writes.concat()];
    }
    thread::spawn(move || {
        for connection in listener.incoming() {
            let connection = connection.unwrap();
            let writes = writes.clone();
            thread::spawn(move || answer(&connection, &writes));
        }
    });
    format!("http://{address}/v1")
}

fn answer(mut connection: &TcpStream, writes: &[String]) -> Option<()> {
    connection.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(connection);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        reader.read_exact(&mut vec![0; length]).ok()?;
        for bytes in writes {
            connection.write_all(bytes.as_bytes()).ok()?;
        }
    }
}

/// CPU time that this thread spends on so many rounds.
fn cpu(times: u64, mut once: impl FnMut()) -> Duration {
    let now = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let before = now();
    for _ in 0..times {
        once();
    }
    now() - before
}

/// Prints what this thread allocates in one round.
fn tell(what: &str, body: usize, once: impl FnOnce()) {
    let session = Session::new().no_stdout().no_file();
    let operation = session.operation(what);
    let span = operation.measure_thread().iterations(1);
    once();
    drop(span);
    let report = session.to_report();
    for (_, counted) in report.operations() {
        let (bytes, count) = (counted.total_bytes_allocated(), counted.total_allocations_count());
        println!(
            "{what}: {bytes} bytes in {count} allocations for {body} bytes; a delta: {} bytes in {:.2}",
            bytes / DELTAS,
            count as f64 / DELTAS as f64,
        );
    }
}
