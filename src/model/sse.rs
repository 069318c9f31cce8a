//! Cuts a body of server-sent events into events, however the network cut the body.
//!
//! Works on bytes, so a character may lie across any two chunks. Comments and events without data are not
//! dispatched, and one event's size is bounded. Knows nothing of what the events hold.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

/// Bytes that one event may have: more than any tool's arguments, less than what would hurt the process.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// One event, as long as it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event<'a> {
    /// Its `event` field; empty if there was none.
    pub(crate) name: &'a str,
    /// Its own `id` field; empty if it has none.
    pub(crate) id: &'a str,
    /// Its `data` lines, joined; never empty.
    pub(crate) data: &'a str,
}

/// Whether the reader wants more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    Done,
}

/// An event is larger than anything a model says.
#[derive(Debug, thiserror::Error)]
#[error("an event of the stream is longer than {MAX_EVENT} bytes")]
pub(crate) struct TooLong;

/// The decoder between two chunks.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    data: Vec<u8>,
    name: String,
    id: String,
    /// The `id` field that came last, whether its event had data or not.
    last_id: String,
    /// The last chunk ended in CR: an LF that follows belongs to it.
    after_cr: bool,
    /// The first line, which may begin with a byte order mark, is through.
    begun: bool,
}

impl Decoder {
    /// Where the stream is to be resumed after what has come so far; empty if it has not said.
    pub(crate) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// Takes a chunk and hands each event that it completes to `on`, until `on` is done or fails.
    pub(crate) fn feed<E: From<TooLong>>(
        &mut self,
        mut bytes: &[u8],
        mut on: impl FnMut(Event<'_>) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        if self.after_cr && !bytes.is_empty() {
            self.after_cr = false;
            bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
        }
        while let Some(end) = memchr2(b'\n', b'\r', bytes) {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            let cr = bytes[end] == b'\r';
            self.after_cr = cr && rest.is_empty();
            bytes = if cr { rest.strip_prefix(b"\n").unwrap_or(rest) } else { rest };
            let ended = if self.line.is_empty() {
                self.take(line)?
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let ended = self.take(&whole)?;
                whole.clear();
                self.line = whole;
                ended
            };
            if ended && self.dispatch(&mut on)? == Flow::Done {
                return Ok(Flow::Done);
            }
        }
        if self.line.len() + self.data.len() + bytes.len() > MAX_EVENT {
            return Err(TooLong.into());
        }
        self.line.extend_from_slice(bytes);
        Ok(Flow::More)
    }

    /// The body is over: dispatches an event that lacks only its blank line, as some servers end.
    pub(crate) fn end<E: From<TooLong>>(
        &mut self,
        mut on: impl FnMut(Event<'_>) -> Result<Flow, E>,
    ) -> Result<Flow, E> {
        let line = std::mem::take(&mut self.line);
        self.take(&line)?;
        self.dispatch(&mut on)
    }

    /// Takes one line without its end; true if it is the blank one that ends an event.
    fn take(&mut self, mut line: &[u8]) -> Result<bool, TooLong> {
        if self.data.len() + line.len() > MAX_EVENT {
            return Err(TooLong);
        }
        if !self.begun {
            self.begun = true;
            line = line.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return Ok(true);
        }
        let colon = memchr(b':', line).unwrap_or(line.len());
        let (field, value) = (&line[..colon], line.get(colon + 1..).unwrap_or_default());
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if !self.data.is_empty() {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
            }
            b"event" => {
                self.name.clear();
                self.name.push_str(&String::from_utf8_lossy(value));
            }
            b"id" => {
                self.id.clear();
                self.id.push_str(&String::from_utf8_lossy(value));
                self.last_id.clone_from(&self.id);
            }
            // Comments have an empty field; `retry` matters to browsers.
            _ => {}
        }
        Ok(false)
    }

    fn dispatch<E>(&mut self, on: &mut impl FnMut(Event<'_>) -> Result<Flow, E>) -> Result<Flow, E> {
        let flow = if self.data.is_empty() {
            Ok(Flow::More)
        } else {
            // The strict reading is the fast one.
            let data = str::from_utf8(&self.data)
                .map_or_else(|_| String::from_utf8_lossy(&self.data), Cow::Borrowed);
            on(Event { name: &self.name, id: &self.id, data: &data })
        };
        self.data.clear();
        self.name.clear();
        self.id.clear();
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Long;

    impl From<TooLong> for Long {
        fn from(_: TooLong) -> Self {
            Self
        }
    }

    fn events(chunks: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let mut seen = Vec::new();
        let mut on = |event: Event<'_>| {
            seen.push((event.name.to_owned(), event.data.to_owned()));
            Ok::<_, Long>(Flow::More)
        };
        for chunk in chunks {
            decoder.feed(chunk, &mut on).unwrap();
        }
        decoder.end(&mut on).unwrap();
        seen
    }

    fn datas(body: &str) -> Vec<String> {
        events(&[body.as_bytes()]).into_iter().map(|(_, data)| data).collect()
    }

    #[test]
    fn a_body_gives_the_same_events_wherever_it_is_cut() {
        let body = "\u{FEFF}: hello\r\ndata: 那😀\r\n\r\nevent: x\ndata:1\ndata: 2\n\n\rdata: last\r\r";
        let whole = events(&[body.as_bytes()]);
        let expected = [("", "那😀"), ("x", "1\n2"), ("", "last")];
        assert_eq!(whole, expected.map(|(name, data)| (name.to_owned(), data.to_owned())));
        for cut in 0..=body.len() {
            let (head, tail) = body.as_bytes().split_at(cut);
            assert_eq!(events(&[head, tail]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), whole);
    }

    #[test]
    fn comments_and_events_without_data_are_not_dispatched() {
        let body =
            "id: 1\ndata: a\n\n: ping\n\n:\n\nid: 2\nevent: message\n\ndata:\n\n: [DONE]\n\ndata: b\n\n";
        assert_eq!(datas(body), ["a", "b"]);
    }

    #[test]
    fn an_event_that_lacks_only_its_blank_line_counts_at_the_end() {
        assert_eq!(datas("data: a\n\ndata: b"), ["a", "b"]);
        assert_eq!(datas("data: a\n\ndata: b\n"), ["a", "b"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(events(&[b"data: a\xFFb\n\n"])[0].1, "a\u{FFFD}b");
    }

    #[test]
    fn reading_stops_when_the_reader_is_done() {
        let mut seen = 0;
        let flow = Decoder::default().feed::<Long>(b"data: 1\n\ndata: 2\n\n", |_| {
            seen += 1;
            Ok(Flow::Done)
        });
        assert_eq!((flow.unwrap(), seen), (Flow::Done, 1));
    }

    #[test]
    fn an_event_has_the_same_bound_however_it_is_cut() {
        for field in ["data: ", "event: ", ": "] {
            for (length, fits) in [(MAX_EVENT, true), (MAX_EVENT + 1, false)] {
                let line = format!("{field}{}\n", "x".repeat(length - field.len()));
                let refused = |chunks: &[&[u8]]| {
                    let mut decoder = Decoder::default();
                    chunks.iter().any(|chunk| decoder.feed(chunk, |_| Ok::<_, Long>(Flow::More)).is_err())
                };
                let (head, tail) = line.as_bytes().split_at(line.len() - 2);
                assert_eq!(
                    (refused(&[line.as_bytes()]), refused(&[head, tail])),
                    (!fits, !fits),
                    "{field}{length}"
                );
            }
        }
    }

    #[test]
    fn an_endless_line_and_an_endless_event_are_refused() {
        let piece = vec![b'x'; 1 << 20];
        for prefix in [&b""[..], b"\ndata: "] {
            let mut decoder = Decoder::default();
            let refused = (0..32).any(|_| {
                decoder.feed(prefix, |_| Ok::<_, Long>(Flow::More)).is_err()
                    || decoder.feed(&piece, |_| Ok::<_, Long>(Flow::More)).is_err()
            });
            assert!(refused);
        }
    }
}
