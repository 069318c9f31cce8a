//! The codecs under test, and what is true of whatever one makes of a stream.

use herder::model::{Delta, ModelError, decode::Answer};

/// Bytes of text that one byte of a stream may become: one that is no UTF-8 is replaced by a character of three.
const GROWTH: usize = 3;

/// Deltas that come with the end alone.
const LAST_DELTAS: usize = 2;

/// Bytes that a failure's message may have.
const MAX_MESSAGE: usize = 8 * 1024;

/// One protocol.
pub(crate) struct Codec {
    /// Its name, and its corpus's.
    pub(crate) name: &'static str,
    pub(crate) open: fn() -> Answer,
    /// What an answer can't be whole without, any one of these; none: nothing says that it is whole.
    pub(crate) ends: &'static [&'static str],
    /// Events that mean nothing.
    pub(crate) pings: &'static [&'static str],
}

/// All protocols.
pub(crate) const CODECS: &[Codec] = &[
    Codec { name: "sse", open: Answer::events, ends: &[], pings: &[] },
    Codec {
        name: "openai",
        open: Answer::openai,
        ends: &["[DONE]", "\"finish_reason\":\""],
        pings: &["data: {}\n\n", "data: {\"choices\":[]}\n\n", "data: {\"choices\":null}\n\n"],
    },
    Codec {
        name: "anthropic",
        open: Answer::anthropic,
        ends: &["[DONE]", "message_stop", "\"stop_reason\":\""],
        pings: &[
            "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            "data: {}\n\n",
            "event: novel\ndata: {\"index\":0}\n\n",
        ],
    },
    Codec {
        name: "responses",
        open: Answer::responses,
        ends: &["response.completed", "response.incomplete", "response.done"],
        pings: &[
            "event: keepalive\ndata: {\"type\":\"keepalive\",\"sequence_number\":3}\n\n",
            "data: {}\n\n",
            "data: {\"type\":\"response.in_progress\",\"response\":{\"status\":\"in_progress\"}}\n\n",
        ],
    },
];

/// What became of a stream.
#[derive(Debug, PartialEq)]
pub(crate) struct Heard {
    pub(crate) deltas: Vec<Delta>,
    pub(crate) end: Result<(), ModelError>,
}

impl Heard {
    pub(crate) fn stops(&self) -> usize {
        self.deltas.iter().filter(|delta| matches!(delta, Delta::Stop(_))).count()
    }
}

impl Codec {
    /// Reads a stream that comes in these chunks.
    pub(crate) fn hear<'a>(&self, chunks: impl IntoIterator<Item = &'a [u8]>) -> Heard {
        let mut answer = (self.open)();
        let taken = chunks.into_iter().try_for_each(|chunk| answer.take(chunk));
        let end = taken.and_then(|()| answer.end());
        Heard { deltas: std::iter::from_fn(|| answer.delta()).collect(), end }
    }

    /// Reads a stream that comes at once, and checks what is true of every stream.
    pub(crate) fn check(&self, bytes: &[u8]) -> Heard {
        let heard = self.hear([bytes]);
        let whole = !self.ends.is_empty() && heard.end.is_ok();
        assert_eq!(heard.stops(), usize::from(whole), "one stop, if the answer is whole: {heard:?}");
        let last = heard.deltas.last();
        assert!(!whole || matches!(last, Some(Delta::Stop(_))), "the stop is the last: {heard:?}");
        // What is kept of a thought is beside what was told of it.
        let (kept, said): (Vec<_>, Vec<_>) =
            heard.deltas.iter().partition(|delta| matches!(delta, Delta::Keep(_)));
        for what in [kept, said] {
            let said: usize = what.into_iter().map(size).sum();
            assert!(said <= GROWTH * bytes.len(), "{said} bytes of {}", bytes.len());
        }
        assert!(heard.deltas.len() <= bytes.len() + LAST_DELTAS, "{} deltas", heard.deltas.len());
        let message = heard.end.as_ref().map_or_else(|error| error.message.len(), |()| 0);
        assert!(message <= MAX_MESSAGE, "a message of {message} bytes");
        heard
    }
}

fn size(delta: &Delta) -> usize {
    match delta {
        Delta::Text(text) | Delta::Reasoning(text) => text.len(),
        Delta::Call(call) => {
            call.id.as_deref().unwrap_or_default().len() + call.name.len() + call.arguments.len()
        }
        Delta::Keep(block) => block.get().len(),
        Delta::Sent(digest) => digest.len(),
        Delta::RateLimits(_) | Delta::Progress | Delta::Usage(_) | Delta::Stop(_) => 0,
    }
}
