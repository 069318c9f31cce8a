//! An event of the log as a sentence: what a person is told who has asked for no log.
//!
//! It says what happened and to what, and neither when nor within what. Does not know which events there are.

use std::fmt::{self, Debug};

use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext,
        format::{FormatEvent, FormatFields, Writer},
    },
    registry::LookupSpan,
};

/// Writes events so.
pub(super) struct Sentences;

impl<S, N> FormatEvent<S, N> for Sentences
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        writeln!(writer, "herder: {}", said.sentence())
    }
}

/// What an event says.
#[derive(Default)]
struct Said {
    message: String,
    error: Option<String>,
    more: Vec<String>,
}

impl Said {
    fn sentence(&self) -> String {
        let error = self.error.iter().map(|error| format!(": {error}"));
        let more = (!self.more.is_empty()).then(|| format!(" ({})", self.more.join(", ")));
        [self.message.clone()].into_iter().chain(error).chain(more).collect()
    }
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "message" => self.message = text,
            "error" => self.error = Some(text),
            // Where in its program another library said it.
            name if name.starts_with("log.") => {}
            name => self.more.push(format!("{} {text}", name.trim_end_matches(".id"))),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_told_as_a_sentence_without_time_level_and_spans() {
        let told = Lines::default();
        let writer = told.clone();
        let layer = tracing_subscriber::fmt::layer()
            .event_format(Sentences)
            .with_ansi(false)
            .with_writer(move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let _span = tracing::warn_span!("closing", path = "/w").entered();
            tracing::warn!(run.id = %7, "run had ended without its row saying so");
            tracing::error!(error = %"no room", "the log's disk is full");
        });
        let told = String::from_utf8(told.0.lock().unwrap().clone()).unwrap();
        assert_eq!(
            told,
            "herder: run had ended without its row saying so (run 7)\nherder: the log's disk is full: no room\n"
        );
    }
}
