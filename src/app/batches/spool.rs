//! Inputs on disk: each arrives in a file of its own, is checked there, and takes its place once it is taken on.
//!
//! A file's name holds its batch and its content's digest, so the row of a batch always names the input that it was
//! written with, whenever the machine stops. A file that no batch names is nobody's.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs::{DirBuilder, File, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
};

use futures_util::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::domain::id::BatchId;

/// Bytes that are gathered before they are written: small pieces do not cost a write each.
const PIECE: usize = 256 << 10;

const ARRIVING: &str = ".arriving-";

/// Why an input is not on disk.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("the input broke off")]
    BrokeOff(#[source] io::Error),
    #[error("{}: the input cannot be kept", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// An input that has arrived. It goes with this value unless it is kept.
pub(super) struct Spooled {
    file: NamedTempFile,
    pub(super) digest: String,
}

struct Arriving {
    file: NamedTempFile,
    digest: Sha256,
    piece: Vec<u8>,
}

pub(super) fn make(folder: &Path) -> Result<(), SpoolError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|source| SpoolError::Disk { path: folder.to_owned(), source })
}

pub(super) fn path(folder: &Path, batch: BatchId, digest: &str) -> PathBuf {
    folder.join(format!("{batch}.{digest}.jsonl"))
}

impl Spooled {
    /// Writes an input to disk as it comes, and no faster than the disk takes it.
    pub(super) async fn take_in<C: AsRef<[u8]>>(
        folder: &Path,
        input: impl Stream<Item = io::Result<C>> + Send,
    ) -> Result<Self, SpoolError> {
        let disk = |source| SpoolError::Disk { path: folder.to_owned(), source };
        let mut named = tempfile::Builder::new();
        named.prefix(ARRIVING).permissions(Permissions::from_mode(0o600));
        let file = named.tempfile_in(folder).map_err(disk)?;
        let mut arriving = Arriving { file, digest: Sha256::new(), piece: Vec::new() };
        let mut input = std::pin::pin!(input);
        while let Some(chunk) = input.next().await {
            arriving.piece.extend_from_slice(chunk.map_err(SpoolError::BrokeOff)?.as_ref());
            if arriving.piece.len() >= PIECE {
                arriving = blocking(move || arriving.write()).await.map_err(disk)?;
            }
        }
        let Arriving { file, digest, .. } = blocking(move || arriving.write()).await.map_err(disk)?;
        Ok(Self { file, digest: hex(digest) })
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Has it stay, as the input of this batch; returns once that is on disk.
    pub(super) async fn keep(self, folder: PathBuf, batch: BatchId) -> Result<(), SpoolError> {
        let path = path(&folder, batch, &self.digest);
        let to = path.clone();
        let kept = blocking(move || {
            self.file.as_file().sync_all()?;
            self.file.persist(&to)?;
            File::open(folder)?.sync_all()
        });
        kept.await.map_err(|source| SpoolError::Disk { path, source })
    }
}

impl Arriving {
    fn write(mut self) -> io::Result<Self> {
        self.file.write_all(&self.piece)?;
        self.digest.update(&self.piece);
        self.piece.clear();
        Ok(self)
    }
}

/// Removes what no batch names: inputs that were under way when herder stopped, and those that others replaced. Of the
/// batches that are `unread` everything stays.
pub(super) fn sweep(folder: &Path, named: &BTreeSet<OsString>, unread: &BTreeSet<String>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        let text = name.to_string_lossy();
        let is_input = text.starts_with(ARRIVING) || text.ends_with(".jsonl");
        let batch = text.split('.').next().unwrap_or_default();
        if is_input && !named.contains(&name) && !unread.contains(batch) {
            std::fs::remove_file(folder.join(&name))?;
        }
    }
    Ok(())
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

pub(super) fn hex(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
