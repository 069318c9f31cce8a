//! The files of a workspace against what it started as, by way of git and an index of herder's own.
//!
//! The index, and of a copy the whole git folder, lie outside the workspace: what a run does to git in there changes
//! nothing here. What git ignores is no change.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{
    IsolateError, blocking,
    git::{Call, Git, Said},
    meta,
};

pub(super) struct View<'a> {
    pub(super) git: &'a Git,
    /// Where objects go.
    pub(super) git_dir: PathBuf,
    pub(super) tree: PathBuf,
    pub(super) index: PathBuf,
}

impl View<'_> {
    fn call(&self, args: &[&str]) -> Call {
        Call::new(args)
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.tree)
            .env("GIT_INDEX_FILE", &self.index)
    }

    /// Takes all files into the index as they are now, but for some by name, and returns their tree. What cannot be
    /// taken in, such as a repository without a commit, is left out, with a word.
    pub(super) async fn take_in(&self, but: &[String]) -> Result<String, IsolateError> {
        let mut add = self.call(&["add", "--all", "--ignore-errors"]);
        if !but.is_empty() {
            let but = but.iter().map(|path| format!(":(exclude,literal,top){path}\0"));
            let paths: String = std::iter::once(".\0".to_owned()).chain(but).collect();
            add = add.arg("--pathspec-from-file=-").arg("--pathspec-file-nul").stdin(paths.into_bytes());
        }
        let Said { ok, text } = self.git.ask(&self.tree, add).await?;
        if !ok {
            let said = text.trim();
            if said.contains("fatal: ") {
                return Err(IsolateError::Git { verb: "add".to_owned(), said: said.to_owned() });
            }
            tracing::warn!(workspace = %self.tree.display(), said, "some files could not be compared");
        }
        self.git.object(&self.tree, self.call(&["write-tree"])).await
    }

    /// Writes what was taken in as a patch against `base`. There is none if nothing is different. Returns how many files are.
    pub(super) async fn patch(&self, base: &str, to: &Path) -> Result<u64, IsolateError> {
        let fresh = to.with_extension("patch.new");
        let mut output = std::ffi::OsString::from("--output=");
        output.push(&fresh);
        let form = ["diff", "--cached", "--binary", "--full-index", "--find-renames", "--unified=3"];
        let plain = ["--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"];
        let call = plain.iter().fold(self.call(&form), Call::arg).arg(output).arg(base);
        self.git.run(&self.tree, call).await?;
        let count = self.call(&["diff", "--cached", "--shortstat", "--find-renames", base]);
        let text = self.git.run(&self.tree, count).await?;
        let line = text.lines().find(|line| line.contains(" changed")).unwrap_or_default();
        let files = line.split_whitespace().next().and_then(|count| count.parse().ok()).unwrap_or_default();
        let to = to.to_owned();
        blocking(move || {
            let put = || {
                let file = File::open(&fresh)?;
                if file.metadata()?.len() > 0 {
                    return meta::publish(&file, &fresh, &to);
                }
                fs::remove_file(&fresh)?;
                // One of an earlier try, which there is no reason for any more.
                fs::remove_file(&to).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })
            };
            put().map_err(IsolateError::io("write", &to))
        })
        .await?;
        Ok(files)
    }
}
