//! The lock of a state folder: one process at a time has it, and anybody may ask which.
//!
//! It is a lock of the open file (`F_OFD_SETLK`), not of the process: it ends with the file, whoever else opened and closed
//! it meanwhile, and the kernel tells whether it is held without its being taken. `flock` has no such question, to try it is
//! to be in the way of whoever starts just then, and `/proc/locks` leaves locks out while others come and go.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl},
};

/// How long a lock is waited for that nobody has who lives: a process that was killed may have been starting another, which
/// has its open files until it becomes that other program. Nor is a name written in the moment in which the lock is taken.
const PATIENCE: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_millis(10);

/// Who holds a state folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(Option<u32>);

impl Holder {
    /// The process id, if it is known.
    pub const fn pid(self) -> Option<u32> {
        self.0
    }

    /// The one that the lock's file names, if it lives.
    fn named_in(lock: &File) -> Self {
        let mut text = [0; 16];
        // Without it the message is less helpful, no more.
        let count = lock.read_at(&mut text, 0).unwrap_or_default();
        let pid = std::str::from_utf8(&text[..count]).ok().and_then(|text| text.trim().parse().ok());
        Self(pid.filter(|pid| lives(*pid)))
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// Takes the lock, which is held until the file is closed, or tells who has it. Follows no link.
pub(super) fn acquire(path: &Path) -> io::Result<Result<File, Holder>> {
    let since = Instant::now();
    acquire_while(path, || {
        thread::sleep(REST);
        since.elapsed() < PATIENCE
    })
}

/// Tries again while `waits` says so, as long as it is not known who has the lock.
fn acquire_while(path: &Path, mut waits: impl FnMut() -> bool) -> io::Result<Result<File, Holder>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    loop {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
            Ok(_) => break,
            Err(Errno::EAGAIN | Errno::EACCES) => {
                let holder = Holder::named_in(&file);
                if holder.pid().is_some() || !waits() {
                    return Ok(Err(holder));
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    file.set_len(0)?;
    file.write_all_at(format!("{}\n", std::process::id()).as_bytes(), 0)?;
    Ok(Ok(file))
}

/// Who has the lock, if anybody does. Takes nothing, so it is in nobody's way.
pub(super) fn holder(path: &Path) -> io::Result<Option<Holder>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    // Tells of whatever would not let this one be placed.
    let mut lock = whole_file(libc::F_RDLCK);
    fcntl(&file, FcntlArg::F_OFD_GETLK(&mut lock))?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then(|| Holder::named_in(&file)))
}

/// Whether there is such a process, and more of it than what its parent has yet to hear.
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Its name, which may hold anything, is in parentheses.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// `kind` is `F_RDLCK` or `F_WRLCK`.
fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn temp() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn acquired(path: &Path) -> File {
        acquire(path).unwrap().unwrap()
    }

    #[test]
    fn who_has_the_lock_is_told_without_taking_it() {
        let dir = temp();
        let path = dir.path().join("lock");
        assert_eq!(holder(&path).unwrap(), None);
        let held = acquired(&path);
        assert_eq!(holder(&path).unwrap().and_then(Holder::pid), Some(std::process::id()));
        assert_eq!(acquire(&path).unwrap().unwrap_err().pid(), Some(std::process::id()));
        drop(held);
        assert_eq!(holder(&path).unwrap(), None);
        drop(acquired(&path));
    }

    #[test]
    fn a_lock_is_seen_while_others_come_and_go() {
        let dir = temp();
        let path = dir.path().join("lock");
        let _held = acquired(&path);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for other in 0..4 {
                let (dir, is_over) = (dir.path(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        let many = (0..200).map(|lock| acquired(&dir.join(format!("{other}-{lock}"))));
                        drop(many.collect::<Vec<_>>());
                    }
                });
            }
            let unseen = (0..2_000).filter(|_| !matches!(holder(&path), Ok(Some(_)))).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(unseen, 0);
        });
    }

    #[test]
    fn what_a_dead_process_left_locked_is_waited_for() {
        let dir = temp();
        let path = dir.path().join("lock");
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        let is_waited_for = |pid: u32| {
            let mut held = Some(acquired(&path));
            fs::write(&path, format!("{pid}\n")).unwrap();
            let refused = acquire_while(&path, || false).unwrap().unwrap_err();
            assert_eq!(refused.to_string(), "another process");
            let _taken = acquire_while(&path, || held.take().is_some()).unwrap().unwrap();
            assert_eq!(holder(&path).unwrap().and_then(Holder::pid), Some(std::process::id()));
        };
        while lives(dead.id()) {
            thread::yield_now();
        }
        is_waited_for(dead.id());
        dead.wait().unwrap();
        is_waited_for(dead.id());
    }

    #[test]
    fn a_file_that_is_opened_and_closed_beside_it_does_not_end_the_lock() {
        let dir = temp();
        let path = dir.path().join("lock");
        let _held = acquired(&path);
        drop(File::open(&path).unwrap());
        assert!(holder(&path).unwrap().is_some());
    }
}
