//! Searches files for a pattern.
//!
//! Honours `.gitignore` from the root down, also outside a git repository. What cannot be read is counted, never
//! taken for "no match"; special files are skipped. Every file is opened below the root, so that a folder swapped
//! for a link while the search runs leads nowhere. Bounded in results, in memory and by `stop`.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use ignore::{DirEntry, WalkBuilder};
use rustix::{fs::OFlags, io::Errno};

use super::{
    PathError, Resolved, Root, RootKind,
    open::{FileKind, NotOpened, following, open_regular},
    sensitive::{Sensitive, is_sensitive},
    temp::is_temporary,
};
use crate::tool::output::Limits;

mod found;
mod ignored;

use found::Found;
pub use found::MAX_MATCHES;
use ignored::Ignored;

/// Lines around a match that may be asked for.
const MAX_CONTEXT: usize = 20;
/// The longest line that is searched.
const MAX_LINE_BYTES: usize = 8 << 20;

/// What to search for.
#[derive(Clone, Debug)]
pub struct Query {
    /// A regular expression for one line, or plain text if `literal`.
    pub pattern: String,
    pub literal: bool,
    pub ignore_case: bool,
    /// Only files whose path, or name if it has no slash, matches; `!` in front turns it round.
    pub glob: Option<String>,
    /// Lines to show before and after a match.
    pub context: usize,
    pub sensitive: Sensitive,
    /// Of what is shown but for the notices.
    pub limits: Limits,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matches {
    /// For the model, with its notices.
    pub text: String,
    /// Matching lines shown.
    pub count: usize,
    /// Files and folders that could not be searched.
    pub unreadable: usize,
}

/// Why there was no search.
#[derive(Debug, thiserror::Error)]
pub enum GrepError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("the pattern {pattern:?} is not a valid regular expression")]
    Pattern { pattern: String, source: grep_regex::Error },
    #[error("the glob {glob:?} is not valid")]
    Glob { glob: String, source: globset::Error },
    #[error("the search was stopped before its end")]
    Stopped,
}

/// Searches the file or tree at `target` until `stop` says so.
///
/// # Errors
/// Names a pattern or glob that is not valid, and a path that cannot be searched.
pub fn grep(target: &Resolved, query: &Query, stop: &dyn Fn() -> bool) -> Result<Matches, GrepError> {
    let mut search = Search {
        target,
        matcher: matcher(query)?,
        glob: query.glob.as_deref().map(Glob::new).transpose()?,
        sensitive: query.sensitive,
        searcher: SearcherBuilder::new()
            .line_number(true)
            .line_terminator(LineTerminator::crlf())
            .before_context(query.context.min(MAX_CONTEXT))
            .after_context(query.context.min(MAX_CONTEXT))
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build(),
        found: Found::new(query.limits),
        stop,
    };
    match target.open_file() {
        Ok(_) if search.must_skip(target.relative()) => search.found.sensitive += 1,
        Ok(opened) => search.file(target.shown(), opened.file),
        Err(PathError::NotAFile { kind: FileKind::Folder, .. }) => {
            // An ignored folder that is named is searched all the same.
            if !search.tree(Path::new(&*target.root.real))? {
                search.tree(Path::new(&**target.key()))?;
            }
        }
        Err(error) => return Err(error.into()),
    }
    if stop() { Err(GrepError::Stopped) } else { Ok(search.found.finish()) }
}

fn matcher(query: &Query) -> Result<RegexMatcher, GrepError> {
    RegexMatcherBuilder::new()
        .case_insensitive(query.ignore_case)
        .fixed_strings(query.literal)
        .multi_line(true)
        .crlf(true)
        .build(&query.pattern)
        .map_err(|source| GrepError::Pattern { pattern: query.pattern.clone(), source })
}

/// A glob on relative paths.
struct Glob {
    matcher: GlobMatcher,
    wanted: bool,
}

impl Glob {
    fn new(glob: &str) -> Result<Self, GrepError> {
        let (pattern, wanted) = match glob.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (glob, true),
        };
        let pattern = match pattern.strip_prefix('/') {
            Some(from_root) => from_root.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        let built = GlobBuilder::new(&pattern).literal_separator(true).build();
        let built = built.map_err(|source| GrepError::Glob { glob: glob.to_owned(), source })?;
        Ok(Self { matcher: built.compile_matcher(), wanted })
    }

    /// Whether a file is wanted by its path below the root or below the folder that is searched.
    fn admits(&self, below_root: &Path, below_target: &Path) -> bool {
        (self.matcher.is_match(below_root) || self.matcher.is_match(below_target)) == self.wanted
    }
}

struct Search<'a> {
    target: &'a Resolved,
    matcher: RegexMatcher,
    glob: Option<Glob>,
    sensitive: Sensitive,
    searcher: Searcher,
    found: Found,
    stop: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// Walks from `start`, which is or holds the target, and says whether it came to the target.
    fn tree(&mut self, start: &Path) -> Result<bool, GrepError> {
        let target = PathBuf::from(&**self.target.key());
        let within = target.clone();
        let root = self.target.root.clone();
        let ignored = Mutex::new(Ignored::new(self.target.root.clone()));
        let walk = WalkBuilder::new(start)
            .standard_filters(false)
            .follow_links(false)
            .sort_by_file_name(OsStr::cmp)
            .filter_entry(move |entry| {
                let path = entry.path();
                let ours = path.starts_with(&within) || within.starts_with(path);
                ours && entry.file_name() != ".git"
                    && !root.hides(path)
                    && !is_temporary(entry.file_name().as_bytes())
                    && !(entry.depth() > 0
                        && ignored.lock().unwrap_or_else(PoisonError::into_inner).covers(entry))
            })
            .build();
        let mut arrived = false;
        for entry in walk {
            if (self.stop)() {
                return Err(GrepError::Stopped);
            }
            match entry {
                Ok(entry) => {
                    arrived |= entry.path() == target;
                    self.entry(&entry);
                }
                Err(error) => {
                    self.found.unreadable(path_of(&error).map_or_else(String::new, |path| self.shown(path)))
                }
            }
            if self.found.is_full() {
                return Ok(true);
            }
        }
        Ok(arrived)
    }

    fn entry(&mut self, entry: &DirEntry) {
        let path = entry.path();
        let Some(kind) = entry.file_type() else { return };
        if kind.is_symlink() {
            // What a link leads to is searched where it lies, if it lies here. Whether there is anything outside is not told.
            if let Ok(below_root) = path.strip_prefix(&*self.target.root.real)
                && leads_nowhere(&self.target.root, below_root)
            {
                self.found.unreadable(self.shown(path));
            }
            return;
        }
        let (Ok(below_root), Ok(below_target)) =
            (path.strip_prefix(&*self.target.root.real), path.strip_prefix(&**self.target.key()))
        else {
            return;
        };
        if !kind.is_file() || self.glob.as_ref().is_some_and(|glob| !glob.admits(below_root, below_target)) {
            return;
        }
        if self.must_skip(&below_root.to_string_lossy()) {
            self.found.sensitive += 1;
            return;
        }
        match open_regular(&self.target.root, below_root) {
            Ok(opened) => self.file(&self.shown(path), opened.file),
            Err(NotOpened::Kind(_)) => {}
            // The name is perhaps that of a file outside, where a folder was swapped for a link.
            Err(NotOpened::Failed(
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN,
            )) => {
                self.found.moved += 1;
            }
            Err(NotOpened::Failed(_)) => self.found.unreadable(self.shown(path)),
        }
    }

    fn must_skip(&self, relative: &str) -> bool {
        self.sensitive == Sensitive::Skip && is_sensitive(relative)
    }

    fn file(&mut self, shown: &str, file: File) {
        let mut sink = self.found.sink(shown, &self.matcher);
        let input = Stoppable { file, stop: self.stop };
        let searched: Result<(), io::Error> = self.searcher.search_reader(&self.matcher, input, &mut sink);
        if searched.is_err() {
            self.found.unreadable(shown.to_owned());
        }
    }

    /// A path as the model may see it.
    fn shown(&self, path: &Path) -> String {
        let below = match self.target.root.kind {
            RootKind::Workspace => path.strip_prefix(&*self.target.root.real).unwrap_or(path),
            RootKind::ReadOnly => path,
        };
        super::text::name(below.as_os_str().as_bytes()).into_owned()
    }
}

/// A file that ends in an error once the search is to stop, however large it is.
struct Stoppable<'a> {
    file: File,
    stop: &'a dyn Fn() -> bool,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stop)() { Err(io::Error::other("stopped")) } else { self.file.read(buffer) }
    }
}

/// Whether a link that stays below the root leads to nothing.
fn leads_nowhere(root: &Root, link: &Path) -> bool {
    matches!(following(&root.folder, link, OFlags::PATH), Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

fn path_of(error: &ignore::Error) -> Option<&Path> {
    match error {
        ignore::Error::WithPath { path, .. } => Some(path),
        ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => path_of(err),
        ignore::Error::Partial(_)
        | ignore::Error::Loop { .. }
        | ignore::Error::Io(_)
        | ignore::Error::Glob { .. }
        | ignore::Error::UnrecognizedFileType(_)
        | ignore::Error::InvalidDefinition => None,
    }
}
