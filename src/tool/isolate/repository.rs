//! A repository that worktrees are made from.
//!
//! What changes the git folder that all of them share is done by one at a time within this process; another process
//! meets git's own locks. The repository's own work tree and index are only looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, OpenOptions},
    io::Write as _,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tokio::sync::Mutex as AsyncMutex;

use super::{
    IsolateError, blocking,
    git::{Call, Git, Said, is_at_odds, is_object},
    locked,
};
use crate::{domain::id::RunId, tool::scratch};

/// What is known of repositories, by the folders that tasks name. It does not change while herder runs.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    known: Mutex<BTreeMap<PathBuf, Repository>>,
    /// By the real path of the shared git folder.
    locks: Mutex<BTreeMap<PathBuf, Arc<AsyncMutex<()>>>>,
    /// Shared git folders whose repositories were looked at for changes that are not committed.
    looked_at: Mutex<BTreeSet<PathBuf>>,
}

/// A repository, as seen from a folder in it.
#[derive(Clone, Debug)]
pub(super) struct Repository {
    /// Its own work tree.
    pub(super) top: PathBuf,
    /// The git folder that its worktrees share.
    pub(super) common: PathBuf,
    /// Where in the work tree the folder lies.
    pub(super) below: PathBuf,
    lock: Arc<AsyncMutex<()>>,
}

impl Repositories {
    /// The repository that a folder lies in.
    pub(super) async fn of(&self, git: &Git, folder: &Path) -> Result<Repository, IsolateError> {
        if let Some(known) = locked(&self.known).get(folder).cloned() {
            return Ok(known);
        }
        let (top, common, below) = look_up(git, folder).await?;
        let repository = self.at(top, common, below);
        locked(&self.known).insert(folder.to_owned(), repository.clone());
        Ok(repository)
    }

    /// Says once of a repository that what is not committed is in no worktree, if there is such.
    pub(super) async fn tell_if_dirty(&self, git: &Git, repository: &Repository) {
        if locked(&self.looked_at).insert(repository.common.clone()) {
            repository.tell_if_dirty(git).await;
        }
    }

    /// A repository that was looked up before, perhaps by an earlier process.
    pub(super) fn at(&self, top: PathBuf, common: PathBuf, below: PathBuf) -> Repository {
        let lock = locked(&self.locks).entry(common.clone()).or_default().clone();
        Repository { top, common, below, lock }
    }
}

async fn look_up(git: &Git, folder: &Path) -> Result<(PathBuf, PathBuf, PathBuf), IsolateError> {
    let path = || folder.to_owned();
    let asked = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--is-bare-repository"];
    let call = Call::new(asked).arg("--is-inside-work-tree").arg("--show-toplevel");
    let Said { ok, text } = git.ask(folder, call).await?;
    let mut lines = text.lines().skip_while(|line| !line.starts_with('/'));
    let (common, bare, inside, top) = (lines.next(), lines.next(), lines.next(), lines.next());
    match (common, bare, inside, top) {
        (Some(common), Some("false"), Some("true"), Some(top)) if ok => {
            let real = |path: &str| {
                Path::new(path).canonicalize().map_err(IsolateError::io("open", PathBuf::from(path)))
            };
            let (common, top) = (real(common)?, real(top)?);
            let below = folder.strip_prefix(&top).map_err(|_| IsolateError::NoWorkTree { path: path() })?;
            Ok((top.clone(), common, below.to_owned()))
        }
        (Some(_), Some(_), Some(_), _) => Err(IsolateError::NoWorkTree { path: path() }),
        _ if text.contains("not a git repository") => Err(IsolateError::NotARepository { path: path() }),
        _ => Err(IsolateError::Git { verb: "rev-parse".to_owned(), said: text.trim().to_owned() }),
    }
}

impl Repository {
    /// The commit that worktrees start from now.
    pub(super) async fn resolve(&self, git: &Git, base: Option<&str>) -> Result<String, IsolateError> {
        let name = base.unwrap_or("HEAD");
        let below = self.below.to_string_lossy();
        let mut asked = format!("{name}^{{commit}}\n{name}:.gitmodules\n");
        if !below.is_empty() {
            asked.push_str(&format!("{name}:{below}\n"));
        }
        let call = Call::new(["cat-file", "--batch-check"]).stdin(asked.into_bytes());
        let text = git.run(&self.top, call).await?;
        let mut found = text.lines().filter_map(|line| {
            let (object, rest) = line.split_once(' ')?;
            if is_object(object) {
                Some(Some((object, rest)))
            } else {
                line.ends_with(" missing").then_some(None)
            }
        });
        let path = || self.top.clone();
        let commit = match (found.next().flatten(), base) {
            (Some((object, _)), _) => object.to_owned(),
            (None, None) => return Err(IsolateError::NoCommit { path: path() }),
            (None, Some(base)) => return Err(IsolateError::NoBase { path: path(), base: base.to_owned() }),
        };
        if found.next().flatten().is_some() {
            return Err(IsolateError::Submodules { path: path() });
        }
        let is_there = |found: Option<(&str, &str)>| found.is_some_and(|(_, rest)| rest.starts_with("tree "));
        if !below.is_empty() && !is_there(found.next().flatten()) {
            return Err(IsolateError::NotInBase { path: self.top.join(&self.below) });
        }
        Ok(commit)
    }

    /// Adds a worktree on a new branch. Only what is shared is locked meanwhile; files are checked out after that.
    pub(super) async fn add(
        &self,
        git: &Git,
        root: &Path,
        branch: &str,
        base: &str,
    ) -> Result<(), IsolateError> {
        let add = ["worktree", "add", "--quiet", "--no-checkout", "--no-track", "-b", branch];
        {
            let _alone = self.lock.lock().await;
            git.run(&self.top, Call::new(add).arg(root).arg(base)).await?;
        }
        git.run(root, Call::new(["reset", "--hard", "--quiet"])).await.map(drop)
    }

    /// What git keeps of a run's worktree.
    pub(super) fn admin(&self, run: RunId) -> PathBuf {
        self.common.join("worktrees").join(run.to_string())
    }

    /// Has a worktree be one of this repository, as it was made. A command in it may have put something else in the place
    /// of the files that say so, and git runs what the configuration says that they lead to.
    pub(super) async fn seal(&self, run: RunId, root: &Path) -> Result<(), IsolateError> {
        let (admin, link) = (self.admin(run), root.join(".git"));
        blocking(move || {
            let is_folder = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
            if link.parent().is_some_and(is_folder) {
                put_back(&link, &[b"gitdir: ", admin.as_os_str().as_bytes(), b"\n"].concat())?;
            }
            if !is_folder(&admin) {
                return remove_all(&admin);
            }
            put_back(&admin.join("commondir"), b"../..\n")?;
            put_back(&admin.join("gitdir"), &[link.as_os_str().as_bytes(), b"\n"].concat())?;
            remove_all(&admin.join("config.worktree"))
        })
        .await
    }

    /// Removes a worktree, whatever is in it or left of it, also where git does not know it any more. Others that are
    /// missing, perhaps for a while only, are not pruned.
    pub(super) async fn remove(&self, run: RunId, root: &Path) -> Result<(), IsolateError> {
        let (tree, admin) = (root.to_owned(), self.admin(run));
        blocking(move || remove_all(&tree)).await?;
        let _alone = self.lock.lock().await;
        blocking(move || {
            remove_all(&admin)?;
            // It goes with the last of them, as git has it.
            let _ = admin.parent().map(fs::remove_dir);
            Ok(())
        })
        .await
    }

    /// The commit that a branch has, and its tree.
    pub(super) async fn tip(
        &self,
        git: &Git,
        branch: &str,
    ) -> Result<Option<(String, String)>, IsolateError> {
        let reference = reference(branch);
        let asked = format!("{reference}^{{commit}}\n{reference}^{{tree}}\n");
        let call = Call::new(["cat-file", "--batch-check"]).stdin(asked.into_bytes());
        let text = git.run(&self.common, call).await?;
        let mut objects =
            text.lines().filter_map(|line| line.split(' ').next().filter(|word| is_object(word)));
        Ok(objects.next().map(str::to_owned).zip(objects.next().map(str::to_owned)))
    }

    /// Has a branch end in this tree, by a commit of herder's unless it does, and returns its commit.
    pub(super) async fn commit(
        &self,
        git: &Git,
        branch: &str,
        base: &str,
        tree: &str,
        message: String,
    ) -> Result<String, IsolateError> {
        let (parent, old) = match self.tip(git, branch).await? {
            Some((tip, has)) if has == tree => return Ok(tip),
            Some((tip, _)) => (tip.clone(), tip),
            None => (base.to_owned(), String::new()),
        };
        let mut commit =
            Call::new(["commit-tree", tree, "-p", parent.as_str(), "-F", "-"]).stdin(message.into_bytes());
        for who in ["AUTHOR", "COMMITTER"] {
            commit = commit
                .env(&format!("GIT_{who}_NAME"), "herder")
                .env(&format!("GIT_{who}_EMAIL"), "herder@localhost");
        }
        let commit = git.object(&self.common, commit).await?;
        let _alone = self.lock.lock().await;
        let update = Call::new(["update-ref"]).arg(reference(branch)).arg(&commit).arg(old);
        git.run(&self.common, update).await?;
        Ok(commit)
    }

    /// Deletes a branch: whatever it has, or only if it has this commit.
    pub(super) async fn delete(
        &self,
        git: &Git,
        branch: &str,
        only_at: Option<&str>,
    ) -> Result<(), IsolateError> {
        let _alone = self.lock.lock().await;
        let delete = Call::new(["update-ref", "-d"]).arg(reference(branch));
        let delete = only_at.into_iter().fold(delete, Call::arg);
        match git.run(&self.common, delete).await {
            // It is not there, or has more.
            Err(IsolateError::Git { said, .. }) if is_at_odds(&said) => Ok(()),
            said => said.map(drop),
        }
    }

    async fn tell_if_dirty(&self, git: &Git) {
        let status = Call::new(["status", "--porcelain", "--untracked-files=no"]);
        if let Ok(Said { ok: true, text }) = git.ask(&self.top, status).await
            && !text.trim().is_empty()
        {
            let repository = self.top.display();
            tracing::warn!(%repository, "changes that are not committed are not in the worktrees of runs");
        }
    }
}

fn reference(branch: &str) -> String {
    format!("refs/heads/{branch}")
}

/// Has a file be there with these bytes, whatever is in its place.
fn put_back(path: &Path, bytes: &[u8]) -> Result<(), IsolateError> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    if is_file && fs::read(path).is_ok_and(|found| found == bytes) {
        return Ok(());
    }
    remove_all(path)?;
    let put = || OpenOptions::new().write(true).create_new(true).open(path)?.write_all(bytes);
    put().map_err(IsolateError::io("write", path))
}

/// Removes what is there: a file, a link, or a folder and all that is in it.
pub(super) fn remove_all(folder: &Path) -> Result<(), IsolateError> {
    let is_folder = fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir());
    match if is_folder { scratch::remove_all(folder) } else { fs::remove_file(folder) } {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(IsolateError::io("remove", folder)(error))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
