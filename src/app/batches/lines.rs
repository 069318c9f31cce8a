//! The tasks of an input on disk. Of each only what a plan needs is in memory; its line is read again when it is started,
//! so a batch costs its number of tasks, not their text.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{self, BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use sha2::{Digest, Sha256};

use super::spool::hex;
use crate::{
    actor::Services,
    app::{
        batch::{LineLost, Tasks, Wanted},
        herder::AddModel,
        input::{
            InputError, InputTask, ParsedLine, Reread, Rules, Source, Span, known_tool, parse_each,
            read_each, read_line,
        },
        models::check_price,
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
    owner: Option<Arc<str>>,
    /// Its costs are limited, whatever its lines say.
    is_limited: bool,
}

/// The tasks of an input on disk.
pub(super) struct Lines(Arc<Input>);

struct Input {
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
        let is_limited = config.limits_costs();
        Self { config, services, add_model, defaults, owner: None, is_limited }
    }

    /// Of tasks that this user has submitted.
    #[must_use]
    pub(super) fn of(self, owner: Option<Arc<str>>) -> Self {
        Self { owner, ..self }
    }

    /// Of tasks whose costs are limited together.
    #[must_use]
    pub(super) fn limited(self, is_limited: bool) -> Self {
        Self { is_limited: self.is_limited || is_limited, ..self }
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
        Self::open(path, digest, book, |input, book, lines| {
            let (mut told, mut checked, mut apart) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
            book.lend(|rules| {
                read_each(input, &Source::Submission, rules, |task, span| {
                    let InputTask { line: number, id, hash, spec } = task;
                    if spec.isolate.is_none() && apart.insert(spec.workspace.clone()) {
                        let checked = book.services.workspaces.check_apart(Path::new(&*spec.workspace));
                        told.extend(checked.err().map(|what| format!("line {number}: workspace: {what}")));
                    }
                    let is_limited = book.is_limited || spec.limits.max_cost_usd.is_some();
                    if is_limited && checked.insert(spec.model.clone()) {
                        let what = check_price(&book.services.models, &spec.model);
                        told.extend(what.err().map(|what| format!("line {number}: model: {what}")));
                    }
                    lines.push(Line { id, hash: hash.into(), priority: spec.priority, number, span });
                })
            })?;
            if told.is_empty() { Ok(()) } else { Err(InputError::Mistakes { told, more: 0 }) }
        })
    }

    /// Reads an input that was checked before. What its lines name may be gone: those that have ended need it no more.
    pub(super) fn index(path: &Path, digest: &str, book: Book) -> Result<Self, ReadError> {
        Self::open(path, digest, book, |input, book, lines| {
            parse_each(input, &Source::Submission, |line, span| {
                let ParsedLine { number, hash, task } = line;
                let priority = task.priority.unwrap_or(book.defaults.priority);
                lines.push(Line { id: task.id, hash: hash.into(), priority, number, span });
            })
        })
    }

    /// Checks whether what the tasks of an input cost is known, and nothing else.
    pub(super) fn check_prices(path: &Path, digest: &str, book: Book) -> Result<Self, ReadError> {
        Self::open(path, digest, book, |input, book, _| {
            let (mut told, mut checked) = (Vec::new(), BTreeSet::new());
            parse_each(input, &Source::Submission, |line, _| {
                let ParsedLine { number, task, .. } = line;
                let Some(model) = task.model.or_else(|| book.defaults.model.clone()) else { return };
                // A task without its model does not start.
                if checked.insert(model.clone()) && (book.add_model)(&book.config, &model).is_ok() {
                    let what = check_price(&book.services.models, &model);
                    told.extend(what.err().map(|what| format!("line {number}: model: {what}")));
                }
            })?;
            if told.is_empty() { Ok(()) } else { Err(InputError::Mistakes { told, more: 0 }) }
        })
    }

    fn open(
        path: &Path,
        digest: &str,
        book: Book,
        read: impl FnOnce(BufReader<&mut Digesting<'_>>, &Book, &mut Vec<Line>) -> Result<(), InputError>,
    ) -> Result<Self, ReadError> {
        let failed = |source| ReadError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let mut lines = Vec::new();
        let mut input = Digesting { file: &file, digest: Sha256::new() };
        let read = read(BufReader::new(&mut input), &book, &mut lines);
        // What is not as it was submitted is told as that, and not by the mistakes that it now has.
        if !matches!(read, Err(InputError::Read { .. })) && hex(input.digest) != digest {
            return Err(ReadError::Damaged { path: path.to_owned() });
        }
        read?;
        Ok(Self(Arc::new(Input { file, book, lines })))
    }
}

impl Tasks for Lines {
    fn count(&self) -> usize {
        self.0.lines.len()
    }

    fn id(&self, place: usize) -> Option<&Arc<str>> {
        self.0.lines.get(place).map(|line| &line.id)
    }

    fn hash(&self, place: usize) -> Option<&str> {
        self.0.lines.get(place).map(|line| &*line.hash)
    }

    fn priority(&self, place: usize) -> i32 {
        self.0.lines.get(place).map_or(0, |line| line.priority)
    }

    fn spec(&self, place: usize) -> BoxFuture<'_, Result<Wanted, LineLost>> {
        let input = self.0.clone();
        let read = tokio::task::spawn_blocking(move || input.wanted(place));
        async move {
            let read = read.await.unwrap_or_else(|error| Err(error.to_string()));
            read.map_err(|why| LineLost { task: self.id(place).cloned().unwrap_or_default(), why })
        }
        .boxed()
    }
}

impl Input {
    /// What a line asks, or why it cannot be read.
    fn wanted(&self, place: usize) -> Result<Wanted, String> {
        let line = self.lines.get(place).ok_or("there is no such line")?;
        let mut bytes = vec![0; line.span.bytes];
        self.file.read_exact_at(&mut bytes, line.span.at).map_err(|error| error.to_string())?;
        let read = self.book.lend(|rules| read_line(line.number, &bytes, &Source::Submission, rules));
        let owned = |spec| TaskSpec { owner: self.book.owner.clone(), ..spec };
        let (hash, wanted) = match read.map_err(|error| error.to_string())? {
            Reread::Whole(task) => (task.hash, Wanted::Whole(owned(task.spec))),
            Reread::Incomplete(task, why) => {
                // A model comes back with the configuration: its tasks wait rather than fail.
                self.book.lend(|rules| (rules.model)(&task.spec.model))?;
                (task.hash, Wanted::Incomplete(owned(task.spec), why))
            }
        };
        if *hash == *line.hash { Ok(wanted) } else { Err("it has changed".to_owned()) }
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
