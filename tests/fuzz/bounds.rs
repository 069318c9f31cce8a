//! No stream costs more memory than a cap, nor more than in proportion to its length.

use alloc_tracker::Session;

use super::codec::{CODECS, Codec};

/// Bytes that one event may have.
const MAX_EVENT: usize = 16 * 1024 * 1024;

/// What reading allocates.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// In all.
    bytes: u64,
    /// At the worst moment.
    peak: f64,
}

fn cost(work: impl FnOnce()) -> Cost {
    let session = Session::new().no_stdout().no_file();
    let operation = session.operation("reading");
    let span = operation.measure_thread().iterations(1);
    work();
    drop(span);
    let report = session.to_report();
    let (_, counted) = report.operations().next().unwrap();
    Cost { bytes: counted.total_bytes_allocated(), peak: counted.peak_outstanding_bytes().unwrap() }
}

#[test]
fn an_event_without_end_is_refused_at_the_cap() {
    let line = "x".repeat(1 << 20);
    let lines = format!("data: {}\n", "x".repeat(8_000)).repeat(1 << 7);
    for codec in CODECS {
        for (start, piece) in
            [("", &line), ("data: ", &line), (": ", &line), ("event: ", &line), ("", &lines)]
        {
            let mut answer = (codec.open)();
            let mut taken = 0;
            let mut refusal = None;
            let cost = cost(|| {
                answer.take(start.as_bytes()).unwrap();
                while refusal.is_none() && taken < 8 * MAX_EVENT {
                    taken += piece.len();
                    refusal = answer.take(piece.as_bytes()).err();
                }
            });
            let message = refusal.map(|error| error.message).unwrap_or_default();
            assert_eq!(message, "an event of the stream is longer than 16777216 bytes", "{}", codec.name);
            assert!(cost.peak <= 4.0 * MAX_EVENT as f64, "{}, {start:?}: {cost:?}", codec.name);
        }
    }
}

/// A stream of so many pieces.
type Stream = fn(usize) -> String;

const STREAMS: &[(&str, Stream)] = &[
    ("comments", |n| ": ping\n".repeat(n)),
    ("empty events", |n| "event: a\nid: 1\n\n".repeat(n)),
    ("lines of one event", |n| "data: [\n".repeat(n)),
    ("one line", |n| format!("data: {}", "x".repeat(n))),
    ("line ends", |n| "\r\n\r".repeat(n)),
    ("texts", |n| "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".repeat(n)),
    ("choices", |n| {
        format!("data: {{\"choices\":[{}{{}}]}}\n\n", "{\"delta\":{\"content\":\"a\"}},".repeat(n))
    }),
    ("lone surrogates", |n| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "\\ud83d".repeat(n))
    }),
    ("nesting", |n| format!("data: {}\n\n", "[".repeat(n))),
    ("a wrong type", |n| format!("data: {{\"choices\":\"{}\"}}\n\n", "wrong ".repeat(n))),
    ("calls", |n| {
        (0..n).rev().map(|at| calls(&format!(r#""index":{at},"id":"c{at}","#), "{}")).collect::<String>()
    }),
    ("calls without an index", |n| {
        (0..n).map(|at| calls(&format!(r#""id":"c{at}","#), "{}")).collect::<String>()
    }),
    ("calls without anything", |n| calls("", "{}").repeat(n)),
    ("pieces of one call", |n| calls(r#""index":4000000000,"#, "a").repeat(n)),
    ("surrogates of a call", |n| calls("", "\\\\ud83d").repeat(n) + "data: [DONE]\n\n"),
    ("blocks", |n| {
        (0..n)
            .map(|at| block(at, "{\"type\":\"text\",\"text\":\"a\"}") + &block(at, SEALED))
            .collect::<String>()
    }),
    ("blocks that are calls", |n| {
        let call = |at| format!("{{\"type\":\"tool_use\",\"id\":\"c{at}\",\"name\":\"x\",\"input\":{{}}}}");
        (0..n).rev().map(|at| block(at, &call(at))).collect::<String>() + &block(n, SEALED)
    }),
    ("pieces of a thought", |n| {
        let thinks = |field: &str| {
            format!("data: {{\"type\":\"content_block_delta\",\"delta\":{{\"{field}\":\"a\"}}}}\n\n")
        };
        block(0, "{\"type\":\"thinking\"}") + &thinks("thinking").repeat(n) + &thinks("signature").repeat(n)
    }),
    ("pieces of one block's arguments", |n| {
        let piece = "data: {\"type\":\"content_block_delta\",\"delta\":{\"partial_json\":\"\\\\ud83d\"}}\n\n";
        block(0, "{\"type\":\"tool_use\"}") + &piece.repeat(n)
    }),
    ("items", |n| (0..n).rev().map(|at| item("added", at) + &item("done", at)).collect::<String>()),
    ("items under one index", |n| (0..n).map(|_| item("done", 0)).collect::<String>()),
    ("an end of many items", |n| {
        let item = "{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"x\",\"arguments\":\"{}\"},";
        format!(
            "data: {{\"type\":\"response.completed\",\"response\":{{\"output\":[{}{{}}]}}}}\n\n",
            item.repeat(n)
        )
    }),
    ("parts of one item", |n| {
        let part = |at| {
            format!(
                "data: {{\"type\":\"response.output_text.done\",\"content_index\":{at},\"text\":\"a\"}}\n\n"
            )
        };
        (0..n).map(part).collect::<String>()
    }),
];

const SEALED: &str = "{\"type\":\"redacted_thinking\",\"data\":\"a\"}";

fn block(index: usize, block: &str) -> String {
    format!("data: {{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{block}}}\n\n")
}

fn item(stage: &str, at: usize) -> String {
    format!(
        "data: {{\"type\":\"response.output_item.{stage}\",\"output_index\":{at},\"item\":{{\"id\":\"i{at}\",\
         \"type\":\"reasoning\",\"encrypted_content\":\"a\",\"summary\":[{{\"text\":\"a\"}}]}}}}\n\n"
    )
}

fn calls(start: &str, arguments: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{{start}\"function\":\
         {{\"name\":\"x\",\"arguments\":\"{arguments}\"}}}}]}}}}]}}\n\n"
    )
}

#[test]
fn four_times_the_stream_costs_four_times_the_memory() {
    for codec in CODECS {
        for (what, stream) in STREAMS {
            for size in [7, usize::MAX] {
                let (once, fourfold) =
                    (reading(codec, &stream(500), size), reading(codec, &stream(2_000), size));
                let fair = |cost: f64| 6.0 * cost + 4_096.0;
                assert!(fourfold.bytes as f64 <= fair(once.bytes as f64), "{what}: {once:?}, {fourfold:?}");
                assert!(fourfold.peak <= fair(once.peak), "{what}: {once:?}, {fourfold:?}");
            }
        }
    }
}

fn reading(codec: &Codec, stream: &str, size: usize) -> Cost {
    codec.check(stream.as_bytes());
    cost(|| drop(codec.hear(stream.as_bytes().chunks(size))))
}
