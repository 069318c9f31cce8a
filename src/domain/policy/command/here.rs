//! Reads the bodies of here-documents.

use super::{
    Read,
    reader::Reader,
    unread,
    word::{Quoting, Style},
};

/// A here-document that is announced.
#[derive(Debug)]
pub(super) struct HereDocument {
    /// The line that ends it.
    pub(super) end: String,
    /// Whether its end was quoted, so that nothing in it is expanded.
    pub(super) is_quoted: bool,
    /// Whether tabs that begin a line are dropped.
    pub(super) drops_tabs: bool,
}

impl Reader<'_, '_> {
    /// Reads what stands behind `<<` or `<<-`.
    pub(super) fn announce(&mut self, drops_tabs: bool) -> Read<()> {
        self.blank();
        let word = self.word(Style::Delimiter)?;
        let is_quoted = word.text.contains(['\'', '"', '\\']);
        match word.value {
            Some(end) if !end.contains('\n') => {
                self.pending.push(HereDocument { end, is_quoted, drops_tabs });
                Ok(())
            }
            Some(_) | None => unread(format!("the here-document {} has an odd end", word.text)),
        }
    }

    /// Reads a body, from the start of its first line to behind the line that ends it.
    pub(super) fn here_document(&mut self, here: &HereDocument) -> Read<()> {
        let mut body = String::new();
        loop {
            if self.at >= self.text.len() {
                return unread(format!("the here-document {:?} does not end", here.end));
            }
            let start = self.at;
            let line = self.here_line(here);
            let written = self.since(start);
            if written.strip_suffix('\n').unwrap_or(written).contains('\n') {
                self.bash_only("joined lines in a here-document")?;
            }
            if line == here.end {
                break;
            }
            // Within `$(...)`, bash ends a body at such a line.
            if line.starts_with(&here.end) && line.contains(')') {
                return unread(format!("{line:?} may end the here-document {:?}", here.end));
            }
            body.push_str(&line);
            body.push('\n');
        }
        if here.is_quoted {
            return Ok(());
        }
        let is_sh = self.is_sh;
        // It is expanded where its redirection is, which stands before what its line defines.
        let functions = std::mem::take(&mut self.out.functions);
        self.out.enter()?;
        let mut reader = Reader::new(&body, &self.within, self.out);
        reader.surely = false;
        reader.is_sh = is_sh;
        while reader.at < body.len() {
            reader.expand(Quoting::HereDocument, &mut None)?;
        }
        self.out.leave();
        self.out.functions = functions;
        Ok(())
    }

    /// A line without its end; where things are expanded, joined with the next if a backslash says so.
    fn here_line(&mut self, here: &HereDocument) -> String {
        let mut whole = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let line = rest.split('\n').next().unwrap_or_default();
            self.at = (self.at + line.len() + 1).min(self.text.len());
            let first = whole.is_empty();
            let line = if here.drops_tabs && first { line.trim_start_matches('\t') } else { line };
            let slashes = line.bytes().rev().take_while(|byte| *byte == b'\\').count();
            if here.is_quoted || slashes % 2 == 0 || self.at >= self.text.len() {
                whole.push_str(line);
                return whole;
            }
            whole.push_str(line.strip_suffix('\\').unwrap_or(line));
        }
    }
}
