//! Log lines on stderr, for people or as JSON, which never land in the middle of a progress bar.
//!
//! Whoever draws bars hands in the [`MultiProgress`] that draws them: a line makes it step aside. What is logged is
//! told by directives; the variable `HERDER_LOG` goes before those of the configuration.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use indicatif::MultiProgress;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

use super::sentence::Sentences;

/// The variable with directives.
pub const VARIABLE: &str = "HERDER_LOG";

/// The directives of the built-in layer: whoever has them has asked for no log.
pub const UNASKED: &str = "warn";

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, in colour on a terminal.
    Text { color: bool },
    /// Sentences among those that a command says itself.
    Sentences,
    /// For programs.
    Json,
}

/// Why nothing is logged.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "{directives:?} says nothing about what to log; want a level (warn), or parts with levels (warn,herder::store=debug)"
    )]
    Directives {
        directives: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    #[error("a log is being written already")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Starts the log of this process.
///
/// # Errors
/// Directives that cannot be read, or a second start.
pub fn start(directives: &str, format: Format, screen: MultiProgress) -> Result<(), LogError> {
    let filter = EnvFilter::builder()
        .parse(directives)
        .map_err(|source| LogError::Directives { directives: directives.to_owned(), source })?;
    let registry = tracing_subscriber::registry().with(filter);
    let screen = Screen(screen);
    match format {
        Format::Text { color } => {
            let lines =
                tracing_subscriber::fmt::layer().with_writer(screen).with_ansi(color).with_target(false);
            registry.with(lines).try_init()
        }
        Format::Sentences => {
            let lines = tracing_subscriber::fmt::layer().event_format(Sentences).with_writer(screen);
            registry.with(lines).try_init()
        }
        Format::Json => {
            let lines = tracing_subscriber::fmt::layer().json().flatten_event(true).with_writer(screen);
            registry.with(lines).try_init()
        }
    }
    .map_err(LogError::Twice)
}

/// Stderr, shared with whatever is drawn there.
struct Screen(MultiProgress);

impl<'a> MakeWriter<'a> for Screen {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.0)
    }
}

struct Line<'a>(&'a MultiProgress);

impl Write for Line<'_> {
    /// What comes is one event, whole.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().lock().write_all(&on_one_line(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// An event on one line, though what others said, as a server or a command, is among its fields.
fn on_one_line(event: &[u8]) -> Cow<'_, [u8]> {
    let is_break = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let (text, end) = event.split_at(event.len() - usize::from(event.ends_with(b"\n")));
    if !text.iter().any(is_break) {
        return event.into();
    }
    let text = text.iter().map(|byte| if is_break(byte) { b' ' } else { *byte });
    text.chain(end.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_its_fields_hold() {
        assert_eq!(on_one_line(b"WARN a error=x\r\n  y\n\n"), &b"WARN a error=x    y \n"[..]);
        for plain in [&b"WARN a\n"[..], b"WARN a", b""] {
            assert_eq!(on_one_line(plain), plain);
        }
    }

    #[test]
    fn directives_that_cannot_be_read_are_refused_with_what_would_be_right() {
        let error = start("herder=loud", Format::Json, MultiProgress::new()).expect_err("refused");
        assert!(error.to_string().starts_with("\"herder=loud\" says nothing"), "{error}");
    }
}
