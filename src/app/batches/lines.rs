//! The tasks of an input on disk. Of each only what a plan needs is in memory; its line is read again when it is started,
//! so a batch costs its number of tasks, not their text.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};

use super::spool::hex;
use crate::{
    actor::Services,
    app::{
        batch::Tasks,
        herder::AddModel,
        input::{InputError, Rules, Source, Span, known_tool, read_each, read_line},
    },
    config::{Config, Defaults},
    domain::task::TaskSpec,
};

/// What lines are completed with and checked by.
pub(super) struct Book {
    config: Arc<Config>,
    services: Arc<Services>,
    add_model: AddModel,
    defaults: Defaults,
}

/// The tasks of an input on disk.
pub(super) struct Lines {
    file: File,
    book: Book,
    lines: Vec<Line>,
}

struct Line {
    id: Arc<str>,
    hash: Box<str>,
    priority: i32,
    number: usize,
    span: Span,
}

/// Why an input on disk is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("{}: cannot be read", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: is not the input that was submitted; submit it again under the same key", path.display())]
    Damaged { path: PathBuf },
    #[error(transparent)]
    Input(#[from] InputError),
}

impl Book {
    /// `labels` go before those of the configuration.
    pub(super) fn new(
        config: Arc<Config>,
        services: Arc<Services>,
        add_model: AddModel,
        labels: BTreeMap<String, String>,
    ) -> Self {
        let mut defaults = config.defaults.clone();
        defaults.labels.extend(labels);
        Self { config, services, add_model, defaults }
    }

    fn lend<T>(&self, work: impl FnOnce(Rules<'_>) -> T) -> T {
        let model = |name: &str| {
            self.config.check_model(name)?;
            (self.add_model)(&self.config, name).map_err(|error| format!("{:#}", anyhow::Error::new(error)))
        };
        let tool = |name: &str| known_tool(&self.services.toolbox, name);
        work(Rules { defaults: &self.defaults, model: &model, tool: &tool })
    }
}

impl Lines {
    /// Reads and checks an input, which must be the one of this digest.
    pub(super) fn read(path: &Path, digest: &str, book: Book) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mut lines = Vec::new();
        let mut input = Digesting { file: &file, digest: Sha256::new() };
        let read = book.lend(|rules| {
            read_each(BufReader::new(&mut input), &Source::Submission, rules, |task, span| {
                lines.push(Line {
                    id: task.id,
                    hash: task.hash.into(),
                    priority: task.spec.priority,
                    number: task.line,
                    span,
                });
            })
        });
        // What is not as it was submitted is told as that, and not by the mistakes that it now has.
        if !matches!(read, Err(InputError::Read { .. })) && hex(input.digest) != digest {
            return Err(ReadError::Damaged { path: path.to_owned() });
        }
        read?;
        Ok(Self { file, book, lines })
    }
}

impl Tasks for Lines {
    fn count(&self) -> usize {
        self.lines.len()
    }

    fn id(&self, place: usize) -> Option<&Arc<str>> {
        self.lines.get(place).map(|line| &line.id)
    }

    fn hash(&self, place: usize) -> Option<&str> {
        self.lines.get(place).map(|line| &*line.hash)
    }

    fn priority(&self, place: usize) -> i32 {
        self.lines.get(place).map_or(0, |line| line.priority)
    }

    fn spec(&self, place: usize) -> Option<TaskSpec> {
        let line = self.lines.get(place)?;
        let mut bytes = vec![0; line.span.bytes];
        let read = self.file.read_exact_at(&mut bytes, line.span.at);
        let task = read.map_err(|error| error.to_string()).and_then(|()| {
            let task = self.book.lend(|rules| read_line(line.number, &bytes, &Source::Submission, rules));
            task.map_err(|error| error.to_string())
        });
        match task {
            Ok(task) => Some(task.spec),
            Err(error) => {
                tracing::warn!(task.id = &*line.id, error, "line cannot be had any more");
                None
            }
        }
    }
}

struct Digesting<'a> {
    file: &'a File,
    digest: Sha256,
}

impl Read for Digesting<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}
