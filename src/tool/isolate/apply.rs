//! Applies patches of runs to a tree: all of them, in their order, or none.

use std::path::{Path, PathBuf};

use super::{
    IsolateError, WORK,
    git::{Call, Git, Said},
    locks::lock_in,
};
use crate::{domain::id::RunId, tool::process::ProcessRunner};

/// A patch, and what it is called.
#[derive(Clone, Debug)]
pub struct Patch {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// What the paths in a patch are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// The top of the repository that the folder is in.
    Repository,
    /// The folder.
    Folder,
}

/// How patches are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Only tells whether they would.
    Check,
    /// If all of them fit.
    Plainly,
    /// Merged where they do not fit, with marks where that is in conflict.
    ThreeWay,
}

/// Why patches were not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("{name} does not apply to {}, and nothing was changed: {said}", to.display())]
    DoesNotFit { name: String, to: PathBuf, said: String },
    /// Only by three-way merge.
    #[error("applied to {}, with conflicts to be resolved: {said}", to.display())]
    Conflicts { to: PathBuf, said: String },
    #[error(transparent)]
    Git(#[from] IsolateError),
}

/// What patches change, file by file.
///
/// # Errors
/// Git does not take them.
pub async fn stat(runner: ProcessRunner, patch: Vec<u8>) -> Result<String, IsolateError> {
    let call = Call::new(["apply", "--stat", "-"]).stdin(patch);
    // Elsewhere than in any repository, which would have paths be relative to it.
    Git::new(runner).run(Path::new("/"), call).await
}

/// Applies patches to the tree that `to` is in.
///
/// # Errors
/// The first that does not fit.
pub async fn apply(
    runner: ProcessRunner,
    to: &Path,
    relative: Relative,
    patches: &[Patch],
    how: How,
) -> Result<(), ApplyError> {
    let git = Git::new(runner);
    let Target { cwd, directory, repository } = target(&git, to, relative).await?;
    let call = |count: usize, flags: &[&str]| {
        let call = flags.iter().fold(Call::new(["apply", "--whitespace=nowarn"]), Call::arg);
        let call = directory.iter().fold(call, Call::arg);
        let call = match repository {
            Repository::Heeded => call,
            Repository::Shunned => call.env("GIT_DIR", "/dev/null"),
        };
        let bytes = patches.iter().take(count).flat_map(|patch| patch.bytes.iter().copied()).collect();
        call.arg("-").stdin(bytes)
    };
    let flags: &[&str] = match how {
        How::Check => &["--check"],
        How::Plainly => &[],
        How::ThreeWay => &["--3way"],
    };
    let Said { ok, text } = git.ask(&cwd, call(patches.len(), flags)).await?;
    if ok {
        return Ok(());
    }
    if let Some(lock) = lock_in(&text) {
        return Err(IsolateError::Locked { lock }.into());
    }
    let said = |text: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix("error: "));
        let lines: Vec<&str> = lines.collect();
        if lines.is_empty() { text.trim().to_owned() } else { lines.join("; ") }
    };
    if how == How::ThreeWay && text.contains("with conflicts") {
        let marked: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("U ")).collect();
        return Err(ApplyError::Conflicts { to: cwd, said: marked.join(", ") });
    }
    // Which of them it was is looked for only now.
    let check: &[&str] = if how == How::ThreeWay { &["--check", "--3way"] } else { &["--check"] };
    for (count, patch) in (1..).zip(patches) {
        let Said { ok, text } = git.ask(&cwd, call(count, check)).await?;
        if !ok {
            return Err(ApplyError::DoesNotFit { name: patch.name.clone(), to: cwd, said: said(&text) });
        }
    }
    let name = patches.last().map(|patch| patch.name.clone()).unwrap_or_default();
    Err(ApplyError::DoesNotFit { name, to: cwd, said: said(&text) })
}

struct Target {
    cwd: PathBuf,
    directory: Option<String>,
    repository: Repository,
}

/// Whether git does as the repository that it is in is configured.
#[derive(Clone, Copy, Debug)]
enum Repository {
    Heeded,
    /// A copy that a run worked in: its configuration, and so what git runs there, may be the run's.
    Shunned,
}

/// Whether a folder is in the copy that some run worked in. A worktree's repository is the user's own.
fn is_in_a_copy(folder: &Path) -> bool {
    let is_runs = |folder: &Path| {
        let name = folder.file_name().and_then(|name| name.to_str());
        let around = folder.parent().and_then(Path::file_name);
        name.is_some_and(|name| name.parse::<RunId>().is_ok()) && around.is_some_and(|name| name == WORK)
    };
    folder.ancestors().any(|folder| is_runs(folder) && !folder.join(".git").is_file())
}

/// Git takes paths as relative to the top of a repository, wherever in it it is started.
async fn target(git: &Git, to: &Path, relative: Relative) -> Result<Target, IsolateError> {
    let real = to.canonicalize().map_err(IsolateError::io("open", to))?;
    if is_in_a_copy(&real) {
        return Ok(Target { cwd: real, directory: None, repository: Repository::Shunned });
    }
    let repository = Repository::Heeded;
    let Said { ok, text } = git.ask(&real, Call::new(["rev-parse", "--show-toplevel"])).await?;
    let top = text.lines().rev().find(|line| line.starts_with('/')).map(PathBuf::from).filter(|_| ok);
    Ok(match (top, relative) {
        (None, _) => Target { cwd: real, directory: None, repository },
        (Some(cwd), Relative::Repository) => Target { cwd, directory: None, repository },
        (Some(cwd), Relative::Folder) => {
            let below = real.strip_prefix(&cwd).unwrap_or(Path::new("")).to_string_lossy().into_owned();
            let directory = (!below.is_empty()).then(|| format!("--directory={below}"));
            Target { cwd, directory, repository }
        }
    })
}
