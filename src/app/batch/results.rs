//! The results of a batch: one JSON line for each task whose latest attempt has ended.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::BatchError;

/// Where result lines go.
pub(super) struct Results {
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
    pub(super) fn to_stdout() -> Self {
        Self { to: To::Stdout, early: None, next: 0, order: Arc::default() }
    }

    /// To a file that is made anew from `lines`, which are already of record, and put in its place as a whole.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn to_file(path: &Path, lines: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, BatchError> {
        let failed = |source| BatchError::Out { out: path.display().to_string(), source };
        // A link stays one, and what it leads to is replaced.
        let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
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
    pub(super) fn in_order(self, places: Arc<[usize]>) -> Self {
        Self { early: Some(BTreeMap::new()), order: places, ..self }
    }

    /// Writes the line of the task at `place`, as soon as its turn has come.
    ///
    /// # Errors
    /// The file cannot be written. A standard output that nobody reads any more is no error: the journal has it all.
    pub(super) fn write(&mut self, place: usize, line: Vec<u8>) -> Result<(), BatchError> {
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
    pub(super) fn finish(mut self) -> Result<(), BatchError> {
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
