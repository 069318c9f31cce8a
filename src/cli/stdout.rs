//! Writes data to stdout, a line at a time. A reader that has gone away is no fault: the writer is told to stop.

use std::{
    io::{self, BufWriter, IsTerminal, Stdout, Write},
    ops::ControlFlow,
};

use serde::Serialize;

/// Where a command's data goes.
#[derive(Debug)]
pub struct Output<W: Write = BufWriter<Stdout>> {
    out: W,
    flushes: bool,
}

impl Output {
    /// Stdout; each line is seen at once on a terminal, and when [`Self::flush`] is called elsewhere.
    pub fn stdout() -> Self {
        let stdout = io::stdout();
        let flushes = stdout.is_terminal();
        Self { out: BufWriter::new(stdout), flushes }
    }
}

impl<W: Write> Output<W> {
    /// Writes a line. [`ControlFlow::Break`]: nobody reads any more, so there is no sense in going on.
    ///
    /// # Errors
    /// Any failure but a closed pipe.
    pub fn line(&mut self, text: &str) -> io::Result<ControlFlow<()>> {
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.write_all(b"\n"));
        let written = if self.flushes { written.and_then(|()| self.out.flush()) } else { written };
        open(written)
    }

    /// Writes a text as it is, and makes it seen at once.
    ///
    /// # Errors
    /// Any failure but a closed pipe.
    pub fn text(&mut self, text: &str) -> io::Result<ControlFlow<()>> {
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are, and makes them seen at once.
    ///
    /// # Errors
    /// Any failure but a closed pipe.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<ControlFlow<()>> {
        open(self.out.write_all(bytes).and_then(|()| self.out.flush()))
    }

    /// Writes a value as one line of JSON.
    ///
    /// # Errors
    /// A value that has no JSON form, or any failure to write but a closed pipe.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<ControlFlow<()>> {
        self.line(&serde_json::to_string(value)?)
    }

    /// Makes everything written so far seen.
    ///
    /// # Errors
    /// Any failure but a closed pipe.
    pub fn flush(&mut self) -> io::Result<ControlFlow<()>> {
        open(self.out.flush())
    }
}

fn open(written: io::Result<()>) -> io::Result<ControlFlow<()>> {
    match written {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails in one way, always.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_reader_that_has_gone_away_ends_the_output_quietly() {
        let mut out = Output { out: Failing(io::ErrorKind::BrokenPipe), flushes: false };
        assert!(out.line("x").expect("no fault").is_break());
        assert!(out.flush().expect("no fault").is_break());
    }

    #[test]
    fn a_full_disk_is_a_fault() {
        let mut out = Output { out: Failing(io::ErrorKind::StorageFull), flushes: false };
        assert_eq!(out.line("x").expect_err("a fault").kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_value_is_one_line_of_json() {
        let mut out = Output { out: Vec::new(), flushes: false };
        assert!(out.json(&serde_json::json!({"a": "b\nc"})).expect("written").is_continue());
        assert_eq!(out.out, b"{\"a\":\"b\\nc\"}\n");
    }
}
