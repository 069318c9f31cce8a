//! The results of a batch: one JSON line for each task whose latest attempt has ended.
//!
//! The standard output has a thread of its own, because whoever reads it may pause for as long as they like. The batch
//! waits for them too, but not once it is to stop at once: what they have not read by then is only in the journal.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

use super::{BatchError, Stopper};
use crate::crash::{self, Point};
use crate::domain::time::Pauses;

/// Lines that wait for whoever reads the standard output.
const UNREAD_LINES: usize = 64;

/// Between two tries while there is no room for a line: at first, and at most.
const PAUSES: Pauses = Pauses::between(Duration::from_millis(100), Duration::from_secs(5));

/// Where result lines go.
#[derive(Debug)]
pub struct Results {
    to: To,
    /// With `keep_order`: lines that wait for those before them, by the task's place.
    early: Option<BTreeMap<usize, Vec<u8>>>,
    next: usize,
    /// The places of the tasks, in the order in which their lines are written.
    order: Arc<[usize]>,
    stopper: Stopper,
}

#[derive(Debug)]
enum To {
    Stdout {
        lines: mpsc::Sender<Vec<u8>>,
        /// Told when all is written, or no more can be.
        written: oneshot::Receiver<io::Result<()>>,
    },
    /// Nobody reads the standard output any more; the journal has it all.
    Nowhere,
    File {
        path: PathBuf,
        file: File,
        /// How far it is written in whole lines.
        len: u64,
    },
}

impl Results {
    /// To the standard output, until `stopper` says to stop at once.
    ///
    /// # Errors
    /// There can be no thread for it.
    pub fn to_stdout(stopper: Stopper) -> Result<Self, BatchError> {
        let (lines, told) = mpsc::channel(UNREAD_LINES);
        let (tell, written) = oneshot::channel();
        let write = move || {
            // Closed if nobody waits for it any more.
            let _ = tell.send(write_to_stdout(told));
        };
        std::thread::Builder::new().name("results".to_owned()).spawn(write).map_err(stdout_failed)?;
        Ok(Self::to(To::Stdout { lines, written }, stopper))
    }

    fn to(to: To, stopper: Stopper) -> Self {
        Self { to, early: None, next: 0, order: Arc::default(), stopper }
    }

    /// To a file that is made anew from `lines`, which are already of record, and put in its place as a whole. What stands in
    /// its place is replaced, whatever it is, and nothing else is written to.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn to_file(path: &Path, lines: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, BatchError> {
        let failed = |source| BatchError::Out { out: path.display().to_string(), source };
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        let fresh = PathBuf::from(name);
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        // A link that is put there meanwhile is not followed.
        let mut file = File::create_new(&fresh).map_err(failed)?;
        let mut writer = io::BufWriter::new(&mut file);
        for line in lines {
            writer.write_all(&line).map_err(failed)?;
        }
        writer.flush().map_err(failed)?;
        drop(writer);
        let len = file.metadata().map_err(failed)?.len();
        crash::point(Point::BeforeResults);
        std::fs::rename(&fresh, path).map_err(failed)?;
        crash::point(Point::AfterResults);
        Ok(Self::to(To::File { path: path.to_owned(), file, len }, Stopper::default()))
    }

    /// Waits for room, where there is none, no longer than until `stopper` says to stop.
    #[must_use]
    pub fn until(self, stopper: Stopper) -> Self {
        Self { stopper, ..self }
    }

    /// Keeps the order of `places` from now on: a line waits for those before it.
    #[must_use]
    pub fn in_order(self, places: Arc<[usize]>) -> Self {
        Self { early: Some(BTreeMap::new()), order: places, ..self }
    }

    /// Writes the line of the task at `place`, as soon as its turn has come.
    ///
    /// # Errors
    /// The file cannot be written. A standard output that nobody reads any more is no error: the journal has it all.
    pub async fn write(&mut self, place: usize, line: Vec<u8>) -> Result<(), BatchError> {
        let Some(early) = &mut self.early else { return self.to.write(line, &self.stopper).await };
        early.insert(place, line);
        while let Some(line) = self.order.get(self.next).and_then(|place| early.remove(place)) {
            self.to.write(line, &self.stopper).await?;
            self.next += 1;
        }
        Ok(())
    }

    /// Writes what still waits for lines that will not come now, and what came for a task again after its line was
    /// written, and returns when all is written.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn finish(mut self) -> Result<(), BatchError> {
        for place in self.order.iter() {
            if let Some(line) = self.early.as_mut().and_then(|early| early.remove(place)) {
                self.to.write(line, &self.stopper).await?;
            }
        }
        self.to.close(&self.stopper).await
    }
}

impl To {
    async fn write(&mut self, line: Vec<u8>, stopper: &Stopper) -> Result<(), BatchError> {
        match self {
            Self::Nowhere => Ok(()),
            Self::File { path, file, len } => append(file, len, &line, path, stopper)
                .await
                .map_err(|source| BatchError::Out { out: path.display().to_string(), source }),
            Self::Stdout { lines, .. } => {
                let sent = tokio::select! {
                    sent = lines.send(line) => sent.is_ok(),
                    () = stopper.stopped_now() => false,
                };
                if sent { Ok(()) } else { std::mem::replace(self, Self::Nowhere).close(stopper).await }
            }
        }
    }

    async fn close(self, stopper: &Stopper) -> Result<(), BatchError> {
        let Self::Stdout { lines, written } = self else { return Ok(()) };
        drop(lines);
        tokio::select! {
            // The thread says so before it ends, unless it panics, which tells of itself.
            written = written => written.unwrap_or(Ok(())).map_err(stdout_failed),
            () = stopper.stopped_now() => Ok(()),
        }
    }
}

/// Appends a line, whole; while the disk is full, again and again, until the batch is to stop: the journal has it, and the
/// same command writes it.
async fn append(
    file: &mut File,
    len: &mut u64,
    line: &[u8],
    path: &Path,
    stopper: &Stopper,
) -> io::Result<()> {
    let mut pauses = PAUSES;
    loop {
        let Err(error) = file.seek(SeekFrom::Start(*len)).and_then(|_| write_line(file, line)) else {
            *len += line.len() as u64;
            return Ok(());
        };
        // Whoever reads it finds no half of a line.
        if file.metadata()?.len() > *len {
            file.set_len(*len)?;
        }
        if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return Err(error);
        }
        if pauses == PAUSES {
            tracing::error!(%error, out = %path.display(), "results wait until there is room");
        }
        tokio::select! {
            () = tokio::time::sleep(pauses.take()) => {}
            () = stopper.drained() => return Err(error),
        }
    }
}

fn write_line(file: &mut File, line: &[u8]) -> io::Result<()> {
    crash::point(Point::BeforeLine);
    crash::point_after(Point::HalfOfLine, || {
        let _ = file.write_all(&line[..line.len() / 2]);
    });
    file.write_all(line)?;
    crash::point(Point::AfterLine);
    Ok(())
}

/// Writes lines until no more come or nobody reads any more.
fn write_to_stdout(mut lines: mpsc::Receiver<Vec<u8>>) -> io::Result<()> {
    while let Some(line) = lines.blocking_recv() {
        let mut stdout = io::stdout().lock();
        match stdout.write_all(&line).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    Ok(())
}

fn stdout_failed(source: io::Error) -> BatchError {
    BatchError::Out { out: "stdout".to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_line_waits_for_room_until_the_batch_is_to_stop() {
        let (file, stopper) =
            (File::options().write(true).open("/dev/full").expect("opened"), Stopper::default());
        let to = To::File { path: "/dev/full".into(), file, len: 0 };
        let mut results = Results::to(to, stopper.clone());
        let mut write = std::pin::pin!(results.write(0, b"{}\n".to_vec()));
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, &mut write).await.is_err());
        stopper.stop();
        assert!(matches!(write.await, Err(BatchError::Out { .. })));
    }

    #[test]
    fn a_link_that_lies_where_the_results_are_made_leads_nowhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("precious"), "kept").expect("written");
        for name in ["out", "out.new"] {
            std::os::unix::fs::symlink(at("precious"), at(name)).expect("linked");
        }
        drop(Results::to_file(&at("out"), [b"{}\n".to_vec()]).expect("made"));
        let read = |name| std::fs::read_to_string(at(name)).expect("text");
        assert_eq!((read("precious").as_str(), read("out").as_str()), ("kept", "{}\n"));
    }

    #[tokio::test]
    async fn what_was_left_of_half_a_line_is_gone_once_the_results_are_made_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("out.jsonl");
        std::fs::write(&out, b"{\"id\":\"a\"}\n{\"id\":\"caf\xc3").expect("written");
        let mut results = Results::to_file(&out, [b"{\"id\":\"a\"}\n".to_vec()]).expect("made");
        results.write(1, b"{\"id\":\"b\"}\n".to_vec()).await.expect("written");
        let text = std::fs::read_to_string(&out).expect("text");
        assert_eq!(text, "{\"id\":\"a\"}\n{\"id\":\"b\"}\n");
    }
}
