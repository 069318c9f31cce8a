//! The files of a workspace against what it started as, by way of git and an index of herder's own.
//!
//! The index, and of a copy the whole git folder, lie outside the workspace: what a run does to git in there changes
//! nothing here. What git ignores is no change.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Read as _},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{
    IsolateError, blocking,
    git::{Call, Git, Said},
    locks::lock_in,
    meta,
};

pub(super) struct View<'a> {
    pub(super) git: &'a Git,
    /// Where objects go.
    pub(super) git_dir: PathBuf,
    pub(super) tree: PathBuf,
    pub(super) index: PathBuf,
}

/// What was taken into an index.
pub(super) struct Taken {
    pub(super) tree: String,
    /// What git said of files that it could not take in.
    pub(super) left: Option<String>,
}

impl View<'_> {
    fn call(&self, args: &[&str]) -> Call {
        Call::new(args)
            .env("GIT_DIR", &self.git_dir)
            .env("GIT_WORK_TREE", &self.tree)
            .env("GIT_INDEX_FILE", &self.index)
    }

    /// Takes all files into the index as they are now, but for some by name. Into repositories below git is not let at all:
    /// it would run what their configuration says.
    pub(super) async fn take_in<'p>(
        &self,
        but: &[String],
        nested: impl Iterator<Item = &'p PathBuf>,
    ) -> Result<Taken, IsolateError> {
        let mut paths = b".\0".to_vec();
        for path in nested {
            paths.extend([b":(exclude,literal)", path.as_os_str().as_bytes(), b"\0"].concat());
        }
        let add = ["add", "--all", "--ignore-errors", "--pathspec-from-file=-", "--pathspec-file-nul"];
        let add = self.call(&add).stdin(paths);
        let Said { ok, text } = self.git.ask(&self.tree, add).await?;
        if !ok {
            let said = text.trim();
            if let Some(lock) = lock_in(said) {
                return Err(IsolateError::Locked { lock });
            }
            if said.contains("fatal: ") {
                return Err(IsolateError::Git { verb: "add".to_owned(), said: said.to_owned() });
            }
        }
        let left = (!ok).then(|| text.trim().to_owned());
        if !but.is_empty() {
            let but: String = but.iter().map(|path| format!("{path}\0")).collect();
            let remove = self.call(&["update-index", "--force-remove", "-z", "--stdin"]);
            self.git.run(&self.tree, remove.stdin(but.into_bytes())).await?;
        }
        let tree = self.git.object(&self.tree, self.call(&["write-tree"])).await?;
        Ok(Taken { tree, left })
    }

    /// Those of these paths that git does not ignore.
    pub(super) async fn not_ignored(&self, paths: Vec<PathBuf>) -> Result<Vec<PathBuf>, IsolateError> {
        if paths.is_empty() {
            return Ok(paths);
        }
        let asked = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\n"].concat()).collect();
        let check = self.call(&["check-ignore", "--stdin"]).stdin(asked);
        // It fails if none is. A name that git has to quote counts as not ignored.
        let Said { text, .. } = self.git.ask(&self.tree, check).await?;
        let ignored: Vec<&str> = text.lines().collect();
        Ok(paths.into_iter().filter(|path| !ignored.contains(&&*path.to_string_lossy())).collect())
    }

    /// Changes the files as a patch says, unless they are so already: a copy is made of a folder that may have it.
    pub(super) async fn take_over(&self, patch: &Path) -> Result<(), IsolateError> {
        let has_it = self.call(&["apply", "--reverse", "--check"]).arg(patch);
        if self.git.ask(&self.tree, has_it).await?.ok {
            return Ok(());
        }
        let apply = self.call(&["apply", "--whitespace=nowarn"]).arg(patch);
        self.git.run(&self.tree, apply).await.map(drop)
    }

    /// Writes what was taken in as a patch against `base`. There is none if nothing is different. Returns how many files are.
    pub(super) async fn patch(&self, base: &str, to: &Path) -> Result<u64, IsolateError> {
        let fresh = to.with_extension("patch.new");
        let mut output = std::ffi::OsString::from("--output=");
        output.push(&fresh);
        // Git would write through a link.
        let place = fresh.clone();
        blocking(move || meta::remove_if_there(&place).map_err(IsolateError::io("remove", place))).await?;
        let form = ["diff", "--cached", "--binary", "--full-index", "--find-renames", "--unified=3"];
        let plain = ["--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"];
        let call = plain.iter().fold(self.call(&form), Call::arg).arg(output).arg(base);
        self.git.run(&self.tree, call).await?;
        let to = to.to_owned();
        blocking(move || {
            let put = || {
                let file = File::open(&fresh)?;
                let files = count(&file)?;
                if files > 0 {
                    meta::publish(&file, &fresh, &to)?;
                    return Ok(files);
                }
                fs::remove_file(&fresh)?;
                // One of an earlier try, which there is no reason for any more.
                meta::remove_if_there(&to)?;
                Ok(0)
            };
            put().map_err(IsolateError::io("write", &to))
        })
        .await
    }
}

/// Files in a patch. No line of a file's content begins as its head does.
fn count(patch: &File) -> io::Result<u64> {
    const HEAD: &[u8] = b"diff --git ";
    let (mut reader, mut line, mut files) = (BufReader::new(patch), Vec::new(), 0);
    loop {
        line.clear();
        if (&mut reader).take(HEAD.len() as u64).read_until(b'\n', &mut line)? == 0 {
            return Ok(files);
        }
        files += u64::from(line == HEAD);
        if line.last() != Some(&b'\n') {
            reader.skip_until(b'\n')?;
        }
    }
}
