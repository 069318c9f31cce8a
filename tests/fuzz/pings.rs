//! What servers send to keep a connection open changes nothing.

use super::{codec::CODECS, corpus};

/// Lines that may stand anywhere.
const COMMENTS: &[&str] = &[":\n", ": ping\n", ": [DONE]\r\n", "retry: 5\n", ":data: {}\n", "unknown\n"];

/// Events without data, which may stand between any two.
const EMPTY: &[&str] = &["\n", ": ping\n\n", "event: ping\r\n\r\n", "id: 7\n\n"];

#[test]
fn comments_between_any_two_lines_change_nothing() {
    for codec in CODECS {
        for entry in corpus::of(codec.name) {
            let whole = codec.hear([&*entry.bytes]);
            for comment in COMMENTS {
                let heard = codec.hear(between(&lines(&entry.bytes), comment));
                assert_eq!(heard, whole, "{}, {} with {comment:?}", codec.name, entry.name);
            }
        }
    }
}

#[test]
fn events_without_data_and_pings_between_any_two_events_change_nothing() {
    for codec in CODECS {
        for entry in corpus::of(codec.name) {
            let whole = codec.hear([&*entry.bytes]);
            for ping in EMPTY.iter().chain(codec.pings) {
                let heard = codec.hear(between(&events(&entry.bytes), ping));
                assert_eq!(heard, whole, "{}, {} with {ping:?}", codec.name, entry.name);
            }
        }
    }
}

/// Pieces, with `more` after each but the last.
fn between<'a>(pieces: &[&'a [u8]], more: &'a str) -> Vec<&'a [u8]> {
    let mut chunks: Vec<&[u8]> = pieces.iter().flat_map(|piece| [*piece, more.as_bytes()]).collect();
    chunks.pop();
    chunks
}

/// The lines of a stream, each with its end.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let ends = |at: &usize| match bytes[*at] {
        b'\n' => true,
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    let mut lines = Vec::new();
    let mut start = 0;
    for end in (0..bytes.len()).filter(ends) {
        lines.push(&bytes[start..=end]);
        start = end + 1;
    }
    lines.push(&bytes[start..]);
    lines
}

/// The events of a stream, each with the blank line that ends it.
fn events(bytes: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    let (mut start, mut at) = (0, 0);
    for line in lines(bytes) {
        at += line.len();
        if matches!(line, b"\n" | b"\r" | b"\r\n") {
            events.push(&bytes[start..at]);
            start = at;
        }
    }
    events.push(&bytes[start..]);
    events
}
