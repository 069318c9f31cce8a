//! The results of a batch: one JSON line for each task whose latest attempt has ended.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;

use super::BatchError;
use crate::domain::{event::RunEnd, id::RunId, task::TaskSpec, usage::Usage};

/// One line of the results. The names are a public format.
#[derive(Debug, Serialize)]
pub struct ResultLine<'a> {
    /// The task's id.
    pub id: &'a str,
    /// The run that was its latest attempt.
    pub run: RunId,
    /// Which attempt that was; the first is 1.
    pub attempt: u32,
    /// How it ended.
    pub outcome: &'static str,
    /// More exactly.
    pub detail: Option<&'static str>,
    /// What the model said last.
    pub text: &'a str,
    /// Turns taken.
    pub turns: u32,
    /// Calls answered.
    pub calls: u32,
    /// Tokens.
    pub usage: UsageLine,
    /// What it cost, in US dollars, where the price is known.
    pub cost_usd: Option<f64>,
    /// From submission to start.
    pub queued_ms: u64,
    /// From start to end.
    pub duration_ms: u64,
    /// In which a request or a tool of it was at work.
    pub active_ms: u64,
    /// What went wrong, in words.
    pub error: Option<&'a str>,
    /// The model asked.
    pub model: &'a str,
    /// As the task had them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: &'a BTreeMap<String, String>,
    /// As the task had it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<&'a crate::domain::task::Meta>,
    /// The conversation, as Chat Completions has it, if it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<serde_json::Value>,
}

/// Tokens in a result.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UsageLine {
    /// Sent, cached ones included.
    pub input: u64,
    /// Answered.
    pub output: u64,
    /// The part of `input` that the provider had cached.
    pub cached: u64,
    /// Whether some of it is an estimate.
    pub estimated: bool,
}

impl From<Usage> for UsageLine {
    fn from(usage: Usage) -> Self {
        Self { input: usage.input, output: usage.output, cached: usage.cached, estimated: usage.estimated }
    }
}

impl<'a> ResultLine<'a> {
    /// The line of a task by its latest attempt.
    pub fn of(id: &'a str, run: RunId, attempt: u32, spec: &'a TaskSpec, end: &'a RunEnd) -> Self {
        Self {
            id,
            run,
            attempt,
            outcome: end.outcome.as_str(),
            detail: end.outcome.detail(),
            text: &end.text,
            turns: end.turns,
            calls: end.calls,
            usage: end.usage.into(),
            cost_usd: end.usage.cost.map(crate::domain::usage::NanoUsd::usd),
            queued_ms: end.queued_us / 1_000,
            duration_ms: end.duration_us / 1_000,
            active_ms: end.active_us / 1_000,
            error: end.error.as_deref(),
            model: &spec.model,
            labels: &spec.labels,
            meta: spec.meta.as_ref(),
            messages: None,
        }
    }
}

/// Where result lines go.
pub struct Results {
    to: To,
    /// With `keep_order`: lines that wait for those before them, by the task's place.
    early: Option<BTreeMap<usize, Vec<u8>>>,
    next: usize,
    /// The places of the tasks, in the order in which their lines are written.
    order: Arc<[usize]>,
}

enum To {
    Stdout,
    /// Nobody reads the standard output any more; the journal has it all.
    Nowhere,
    File {
        path: PathBuf,
        file: File,
    },
}

impl Results {
    /// To the standard output.
    pub fn to_stdout() -> Self {
        Self { to: To::Stdout, early: None, next: 0, order: Arc::default() }
    }

    /// To a file that is made anew from `lines`, which are already of record, and put in its place as a whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn to_file(path: &Path, lines: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, BatchError> {
        let failed = |source| BatchError::Out { out: path.display().to_string(), source };
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let fresh = PathBuf::from(name);
        let mut file = File::create(&fresh).map_err(failed)?;
        let mut writer = io::BufWriter::new(&mut file);
        for line in lines {
            writer.write_all(&line).map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        drop(writer);
        std::fs::rename(&fresh, path).map_err(failed)?;
        Ok(Self { to: To::File { path: path.to_owned(), file }, early: None, next: 0, order: Arc::default() })
    }

    /// Keeps the order of `places` from now on: a line waits for those before it.
    #[must_use]
    pub fn in_order(self, places: Arc<[usize]>) -> Self {
        Self { early: Some(BTreeMap::new()), order: places, ..self }
    }

    /// Writes the line of the task at `place`, as soon as its turn has come.
    ///
    /// # Errors
    /// The file cannot be written. A standard output that nobody reads any more is no error: the journal has it all.
    pub fn write(&mut self, place: usize, line: Vec<u8>) -> Result<(), BatchError> {
        let Some(early) = &mut self.early else { return self.to.write(&line) };
        early.insert(place, line);
        while let Some(line) = self.order.get(self.next).and_then(|place| early.remove(place)) {
            self.to.write(&line)?;
            self.next += 1;
        }
        Ok(())
    }

    /// Writes what still waits for lines that will not come now.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn finish(mut self) -> Result<(), BatchError> {
        for place in self.order.iter().skip(self.next) {
            if let Some(line) = self.early.as_mut().and_then(|early| early.remove(place)) {
                self.to.write(&line)?;
            }
        }
        Ok(())
    }
}

impl To {
    fn write(&mut self, line: &[u8]) -> Result<(), BatchError> {
        let (out, written) = match self {
            Self::Nowhere => return Ok(()),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                ("stdout".to_owned(), stdout.write_all(line).and_then(|()| stdout.flush()))
            }
            Self::File { path, file } => (path.display().to_string(), file.write_all(line)),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                *self = Self::Nowhere;
                Ok(())
            }
            written => written.map_err(|source| BatchError::Out { out, source }),
        }
    }
}

/// Encodes a line, its line end included.
pub(super) fn encode(line: &ResultLine<'_>) -> Vec<u8> {
    // Every field has a JSON form; the fallback only keeps this total.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}
