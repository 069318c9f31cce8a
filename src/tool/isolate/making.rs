//! Makes a run's workspace.
//!
//! It is on record before anything is made, so that what is half made when herder dies is found, and made anew.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use tokio_util::sync::CancellationToken;

use super::{
    Folders, IsolateError, Isolation, blocking, branch,
    copy::Copying,
    git::{Call, Git, Said},
    locked, locks,
    meta::{self, MadeBy, Meta, Origin, Stage, change_of, patch_of},
    nested::nested_in,
    view::{Taken, View},
};
use crate::{
    crash::{self, Point},
    domain::{
        id::RunId,
        message::Message,
        task::{Isolate, TaskSpec},
    },
    tool::workspace::hidden::real,
};

/// What a run starts from that goes on from another one.
#[derive(Debug, Default)]
struct Left {
    /// The commit that the run before started from.
    base: Option<String>,
    patch: Option<PathBuf>,
}

impl Isolation {
    pub(super) async fn make(
        &self,
        run: RunId,
        spec: &TaskSpec,
        ended: &CancellationToken,
    ) -> Result<PathBuf, IsolateError> {
        let left = self.left_before(spec).await?;
        let meta = match spec.isolate {
            Isolate::Worktree => self.make_worktree(run, spec, left.base.as_deref()).await?,
            Isolate::None | Isolate::Copy => self.make_copy(run, spec).await?,
        };
        if let Some(patch) = &left.patch {
            self.view(&meta).take_over(patch).await?;
        }
        let meta = Meta { stage: Stage::SettingUp, ..meta };
        meta::write(&self.folders.work, &meta).await?;
        self.set_up(run, spec.task_id.as_deref(), &meta.place(), ended).await?;
        let root = meta.root.clone();
        let nested = blocking(move || Ok(nested_in(&root))).await?;
        let nested =
            nested.into_iter().map(|(path, like)| (path.to_string_lossy().into_owned(), like)).collect();
        let meta = Meta { stage: Stage::Made, nested, ..meta };
        crash::point(Point::AfterWorkspace);
        meta::write(&self.folders.work, &meta).await?;
        meta.site().ok_or(IsolateError::Gone { path: meta.root })
    }

    /// What the run before left, of one that goes on from it: what it says that it did is to be there.
    async fn left_before(&self, spec: &TaskSpec) -> Result<Left, IsolateError> {
        let is_work = |said: &Message| matches!(said, Message::Assistant(_));
        let Some(before) = spec.parent.filter(|_| spec.before.iter().any(is_work)) else {
            return Ok(Left::default());
        };
        let patches = self.folders.patches.clone();
        blocking(move || {
            let change = change_of(&patches, before).filter(|change| change.error.is_none());
            let change = change.ok_or(IsolateError::NothingLeft { before })?;
            let patch = (change.files_changed > 0).then(|| patch_of(&patches, before));
            if patch.as_ref().is_some_and(|patch| !patch.is_file()) {
                return Err(IsolateError::NothingLeft { before });
            }
            Ok(Left { base: change.base, patch })
        })
        .await
    }

    async fn make_worktree(
        &self,
        run: RunId,
        spec: &TaskSpec,
        base: Option<&str>,
    ) -> Result<Meta, IsolateError> {
        let workspace = PathBuf::from(&*spec.workspace);
        let repository = self.repositories.of(&self.git, &workspace).await?;
        let base = repository.resolve(&self.git, base.or(self.options.base.as_deref())).await?;
        self.repositories.tell_if_dirty(&self.git, &repository).await;
        let branch = branch::name(&self.options.branch, run, spec);
        // One that has the run in its name is nobody else's.
        if !branch.contains(&run.to_string()) && repository.tip(&self.git, &branch).await?.is_some() {
            return Err(IsolateError::BranchTaken { branch });
        }
        let root = self.root(run, repository.top.clone()).await?;
        let origin = Origin { top: repository.top.clone(), common: repository.common.clone(), branch };
        let mut meta = Meta {
            made_by: MadeBy::Herder,
            run,
            isolate: Isolate::Worktree,
            workspace,
            root,
            below: repository.below.clone(),
            base,
            origin: Some(origin.clone()),
            brought: Vec::new(),
            nested: BTreeMap::new(),
            stage: Stage::Making,
        };
        meta::write(&self.folders.work, &meta).await?;
        crash::point(Point::BeforeWorkspace);
        repository.add(&self.git, &meta.root, &origin.branch, &meta.base).await?;
        let own = repository.admin(run).join("index");
        let index = self.index(&meta);
        blocking(move || fs::copy(&own, &index).map(drop).map_err(IsolateError::io("copy", own))).await?;
        meta.brought = self.bring(&origin, &meta).await?;
        Ok(meta)
    }

    async fn make_copy(&self, run: RunId, spec: &TaskSpec) -> Result<Meta, IsolateError> {
        let workspace = PathBuf::from(&*spec.workspace);
        check_copy(&self.git, &workspace).await?;
        let root = self.root(run, workspace.clone()).await?;
        let mut meta = Meta {
            made_by: MadeBy::Herder,
            run,
            isolate: Isolate::Copy,
            workspace: workspace.clone(),
            root: root.clone(),
            below: PathBuf::new(),
            base: String::new(),
            origin: None,
            brought: Vec::new(),
            nested: BTreeMap::new(),
            stage: Stage::Making,
        };
        meta::write(&self.folders.work, &meta).await?;
        crash::point(Point::BeforeWorkspace);
        let Folders { work, elsewhere, own, .. } = &self.folders;
        let skip: Vec<PathBuf> = own.iter().chain([work, elsewhere]).filter_map(|path| real(path)).collect();
        let (max, from) = (self.options.max_copy_bytes, workspace.clone());
        blocking(move || Copying { skip: &skip, room: max }.folder(&from, &root, max)).await?;
        let view = self.view(&meta);
        let init = Call::new(["init", "--quiet", "--bare"]).arg(&view.git_dir);
        self.git.run(&meta.root, init).await?;
        self.borrow_objects(&workspace, &view.git_dir).await?;
        let top = meta.root.clone();
        let nested = blocking(move || Ok(nested_in(&top))).await?;
        let Taken { tree, left } = view.take_in(&[], nested.keys()).await?;
        if let Some(said) = left {
            tracing::warn!(workspace = %workspace.display(), said, "some files cannot be compared");
        }
        meta.base = tree;
        Ok(meta)
    }

    /// Of what an earlier process began, its locks go first. Of what this one did there are none to be removed.
    pub(super) async fn unlock(&self, meta: &Meta) -> Result<(), IsolateError> {
        if !locked(&self.inherited).remove(&meta.run) {
            return Ok(());
        }
        let admin = meta.origin.as_ref().map(|origin| self.repository(origin).admin(meta.run));
        locks::remove_own(self.index(meta), admin, meta).await
    }

    /// What the repository has need not be stored again for the comparison.
    async fn borrow_objects(&self, workspace: &Path, git_dir: &Path) -> Result<(), IsolateError> {
        let objects = workspace.join(".git/objects");
        let list = git_dir.join("objects/info/alternates");
        blocking(move || {
            let (true, Some(path)) = (objects.is_dir(), objects.to_str()) else { return Ok(()) };
            fs::write(&list, format!("{path}\n")).map_err(IsolateError::io("write", list))
        })
        .await
    }

    /// Where the run's workspace is to be: not within `origin`, where a build would find the original around it.
    async fn root(&self, run: RunId, origin: PathBuf) -> Result<PathBuf, IsolateError> {
        let (work, elsewhere) = (self.folders.work.clone(), self.folders.elsewhere.clone());
        blocking(move || {
            let made = |path: &Path| {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
                made.and_then(|()| path.canonicalize()).map_err(IsolateError::io("make", path))
            };
            let work = made(&work)?;
            let place = if work.starts_with(&origin) { made(&elsewhere)? } else { work };
            Ok(place.join(run.to_string()))
        })
        .await
    }

    /// How the files of a workspace are compared.
    pub(super) fn view(&self, meta: &Meta) -> View<'_> {
        let git_dir = match &meta.origin {
            Some(origin) => origin.common.clone(),
            None => self.folders.work.join(format!("{}.git", meta.run)),
        };
        View { git: &self.git, git_dir, tree: meta.root.clone(), index: self.index(meta) }
    }

    pub(super) fn index(&self, meta: &Meta) -> PathBuf {
        self.folders.work.join(format!("{}.index", meta.run))
    }

    /// Takes files along that git does not track, and returns their names as git has them.
    async fn bring(&self, origin: &Origin, meta: &Meta) -> Result<Vec<String>, IsolateError> {
        if self.options.copy.is_empty() {
            return Ok(Vec::new());
        }
        let globs = self.options.copy.iter().map(|glob| format!(":(glob){glob}"));
        let call = globs.fold(Call::new(["ls-files", "--others", "--full-name", "--"]), Call::arg);
        let text = self.git.run(&meta.workspace, call).await?;
        let (top, root, max) = (origin.top.clone(), meta.root.clone(), self.options.max_copy_bytes);
        blocking(move || {
            let mut copying = Copying { skip: &[], room: max };
            let mut brought = Vec::new();
            // A name that git has to quote is none that anybody asks for by a glob.
            for name in text.lines().filter(|name| !name.starts_with('"') && !name.ends_with('/')) {
                let (from, to) = (top.join(name), root.join(name));
                if fs::symlink_metadata(&from).is_err() || fs::symlink_metadata(&to).is_ok() {
                    continue;
                }
                make_folders(&root, Path::new(name).parent().unwrap_or(Path::new("")))?;
                copying.file(&from, &to).map_err(IsolateError::io("copy", from))?;
                brought.push(name.to_owned());
            }
            Ok(brought)
        })
        .await
    }
}

/// Makes the folders of a file that is brought along. A link among them could lead out of the worktree.
fn make_folders(root: &Path, below: &Path) -> Result<(), IsolateError> {
    let mut path = root.to_owned();
    for part in below {
        path.push(part);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) | Err(_) => fs::create_dir(&path).map_err(IsolateError::io("make", path.clone()))?,
        }
    }
    Ok(())
}

/// Whether a folder can be copied. Git compares it with its copy later, and so has to be there.
pub(super) async fn check_copy(git: &Git, workspace: &Path) -> Result<(), IsolateError> {
    let path = workspace.to_owned();
    let is_linked = blocking(move || Ok(path.join(".git").is_file())).await?;
    if is_linked {
        return Err(IsolateError::Linked { path: workspace.to_owned() });
    }
    let Said { ok, text } = git.ask(workspace, Call::new(["version"])).await?;
    if ok { Ok(()) } else { Err(IsolateError::Git { verb: "version".to_owned(), said: text }) }
}
