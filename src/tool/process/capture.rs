//! Holds a command's output within bounds while it arrives.
//!
//! In memory there is never more than the limit of what is shown. What goes beyond it is written to a file of its
//! own, whole, up to a cap; beyond that it is counted. Synchronous: the caller keeps the disk off its async threads
//! ([`Capture::touches_disk`]). Does not know where the bytes come from.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, unlinkat},
    io::Errno,
};

use crate::tool::output::{HeadTail, Limits, Omitted};

/// How much of an output is kept, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    pub shown: Limits,
    /// The file for output that is not shown whole. Made when there is such output, replacing what was there. No link is
    /// followed on the way: the path is a real one.
    pub spill: Option<PathBuf>,
    pub spill_bytes: u64,
}

impl Default for CaptureLimits {
    fn default() -> Self {
        Self { shown: Limits::default(), spill: None, spill_bytes: 64 * 1024 * 1024 }
    }
}

/// What is shown of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// With a notice in the place of what is missing.
    pub text: String,
    pub bytes: u64,
    pub lines: u64,
    pub omitted: Option<Omitted>,
    pub is_binary: bool,
    /// Where the whole output lies, if the text is not all of it.
    pub spill: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Capture {
    limits: CaptureLimits,
    ends: HeadTail,
    spill: Spill,
}

#[derive(Debug)]
enum Spill {
    Unused,
    Open { file: File, written: u64 },
    Failed(io::Error),
}

impl Capture {
    pub(super) fn new(limits: CaptureLimits) -> Self {
        Self { ends: HeadTail::new(limits.shown), limits, spill: Spill::Unused }
    }

    /// Whether pushing that many bytes writes to the spill file.
    pub(super) fn touches_disk(&self, length: usize) -> bool {
        match &self.spill {
            Spill::Unused => self.limits.spill.is_some() && self.outgrows_memory(length),
            Spill::Open { written, .. } => *written < self.limits.spill_bytes,
            Spill::Failed(_) => false,
        }
    }

    pub(super) fn push(&mut self, chunk: &[u8]) {
        if self.outgrows_memory(chunk.len()) {
            self.open_spill();
            self.write_spill(chunk);
        }
        self.ends.push(chunk);
    }

    /// Takes out what came. Writes to the disk if what is in memory is not shown whole.
    pub(super) fn finish(&mut self) -> Captured {
        let (bytes, lines, is_binary) = (self.ends.bytes(), self.ends.lines(), self.ends.is_binary());
        let held = self.ends.held();
        let ends = std::mem::replace(&mut self.ends, HeadTail::new(self.limits.shown)).finish();
        let is_whole = !is_binary && ends.omitted.is_none() && ends.shortened == 0;
        if !is_whole && matches!(self.spill, Spill::Unused) {
            self.create_spill_with(&held);
        }
        let place = self.place(bytes);
        let text = match (is_binary, ends.omitted) {
            (true, _) => format!("[binary output, {bytes} bytes, not shown{place}]"),
            (false, Some(omitted)) => ends.join(&format!("[{omitted}{place}]")),
            (false, None) if ends.shortened > 0 => {
                ends.join(&format!("[lines shortened: {}{place}]", ends.shortened))
            }
            (false, None) => ends.front,
        };
        let omitted = if is_binary { Some(Omitted { lines, bytes }) } else { ends.omitted };
        let spill = match self.spill {
            Spill::Open { .. } => self.limits.spill.clone(),
            Spill::Unused | Spill::Failed(_) => None,
        };
        Captured { text, bytes, lines, omitted, is_binary, spill }
    }

    fn outgrows_memory(&self, length: usize) -> bool {
        self.ends.bytes() + length as u64 > self.limits.shown.bytes as u64
    }

    fn open_spill(&mut self) {
        if matches!(self.spill, Spill::Unused) {
            // All there was so far, because it has not outgrown memory before.
            let held = self.ends.held();
            self.create_spill_with(&held);
        }
    }

    fn create_spill_with(&mut self, held: &[u8]) {
        let Some(path) = &self.limits.spill else { return };
        self.spill = match create_private(path) {
            Ok(file) => Spill::Open { file, written: 0 },
            Err(error) => Spill::Failed(error),
        };
        self.write_spill(held);
    }

    fn write_spill(&mut self, chunk: &[u8]) {
        let Spill::Open { file, written } = &mut self.spill else { return };
        let room = self.limits.spill_bytes.saturating_sub(*written);
        let fitting = &chunk[..chunk.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        match file.write_all(fitting) {
            Ok(()) => *written += fitting.len() as u64,
            Err(error) => self.spill = Spill::Failed(error),
        }
    }

    /// Says where `bytes` of output lie, as the end of a notice.
    fn place(&self, bytes: u64) -> String {
        match (&self.spill, &self.limits.spill) {
            (Spill::Open { written, .. }, Some(path)) if *written < bytes => {
                format!("; the first {written} bytes of the output are in {}", path.display())
            }
            (Spill::Open { .. }, Some(path)) => format!("; the whole output is in {}", path.display()),
            (Spill::Failed(error), _) => format!("; the whole output could not be saved: {error}"),
            (Spill::Unused, _) | (Spill::Open { .. }, None) => String::new(),
        }
    }
}

/// Creates a file that only its owner can read, even if one that others can read was there.
fn create_private(path: &Path) -> io::Result<File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let folder = real_folder(parent)?;
    match unlinkat(&folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Opens a folder to which no link leads, and makes what is missing on the way. Commands may be able to put links there.
fn real_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => {}
        opened => return Ok(opened?),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let parent = real_folder(parent)?;
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?)
}

#[cfg(test)]
mod tests;
