//! Log lines on stderr, for people or as JSON, which never land in the middle of a progress bar.
//!
//! Whoever draws bars hands in the [`MultiProgress`] that draws them: a line makes it step aside. What is logged is
//! told by directives; the variable `HERDER_LOG` goes before those of the configuration.

use std::io::{self, Write};

use indicatif::MultiProgress;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

/// The variable with directives.
pub const VARIABLE: &str = "HERDER_LOG";

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people, in colour on a terminal.
    Text { color: bool },
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
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().lock().write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.suspend(|| io::stderr().lock().write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_that_cannot_be_read_are_refused_with_what_would_be_right() {
        let error = start("herder=loud", Format::Json, MultiProgress::new()).expect_err("refused");
        assert!(error.to_string().starts_with("\"herder=loud\" says nothing"), "{error}");
    }
}
