//! Reads lists and pipelines, and tells what each command begins with.

use super::{MAX_LENGTH, Out, Read, here::HereDocument, unread};

/// Reads a text as bash would.
pub(super) struct Reader<'t, 'o> {
    pub(super) text: &'t str,
    pub(super) at: usize,
    /// Here-documents whose bodies begin after the next newline.
    pub(super) pending: Vec<HereDocument>,
    /// What the commands stand in.
    pub(super) within: String,
    /// Whether what is read now runs for sure, in this shell: a function defined here is one from here on.
    pub(super) surely: bool,
    /// Whether a shell reads it that may be less than bash.
    pub(super) is_sh: bool,
    /// The function that the command just read defines.
    pub(super) defined: Option<String>,
    pub(super) out: &'o mut Out,
}

/// What ends a list.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The text.
    Text,
    /// `)`
    Paren,
    /// One of these words.
    Words(&'static [&'static str]),
    /// `;;` and its like, or `esac`.
    Case,
}

/// Whether a list may be empty.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Least {
    Nothing,
    One,
}

impl<'t, 'o> Reader<'t, 'o> {
    pub(super) fn new(text: &'t str, within: &str, out: &'o mut Out) -> Self {
        Self {
            text,
            at: 0,
            pending: Vec::new(),
            within: within.to_owned(),
            surely: within.is_empty(),
            is_sh: false,
            defined: None,
            out,
        }
    }

    /// Reads all of the text.
    pub(super) fn script(&mut self) -> Read<()> {
        if self.text.len() > MAX_LENGTH {
            return unread(format!("longer than {MAX_LENGTH} bytes"));
        }
        if let Some(odd) = self.text.chars().find(|c| c.is_ascii_control() && !"\t\n\r".contains(*c)) {
            return unread(format!("the control character {odd:?}"));
        }
        self.list(End::Text, Least::Nothing)?;
        match self.pending.first() {
            Some(here) => unread(format!("the here-document {:?} does not end", here.end)),
            None => Ok(()),
        }
    }

    /// Refuses what bash alone reads as it does.
    pub(super) fn bash_only(&self, what: &str) -> Read<()> {
        if self.is_sh { unread(format!("{what}, which not every sh knows")) } else { Ok(()) }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    pub(super) fn starts(&self, with: &str) -> bool {
        self.text.as_bytes().get(self.at..).is_some_and(|rest| rest.starts_with(with.as_bytes()))
    }

    pub(super) fn take(&mut self, wanted: &str) -> bool {
        let there = self.starts(wanted);
        if there {
            self.at += wanted.len();
        }
        there
    }

    pub(super) fn since(&self, start: usize) -> &'t str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    /// What stands here instead of what was wanted.
    pub(super) fn unexpected<T>(&self, wanted: &str) -> Read<T> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        match rest.chars().next() {
            None => unread(format!("it ends where {wanted} is wanted")),
            Some('\n') => unread(format!("a line ends where {wanted} is wanted")),
            Some(found) => unread(format!("{found:?} where {wanted} is wanted")),
        }
    }

    /// Passes spaces, joined lines, and a comment.
    pub(super) fn blank(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.starts("\\\n") && self.joins_apart() => self.at += 2,
                _other => break,
            }
        }
        if self.peek() == Some(b'#') {
            let rest = self.text.get(self.at..).unwrap_or_default();
            self.at += rest.find('\n').unwrap_or(rest.len());
        }
    }

    /// Whether the joined lines meet between two words. Where they might meet within one, or within an operator, nothing
    /// is passed, and [`Self::word`] refuses it.
    fn joins_apart(&self) -> bool {
        let bytes = self.text.as_bytes();
        let is_blank = |at: usize| bytes.get(at).is_none_or(|byte| matches!(byte, b' ' | b'\t' | b'\n'));
        self.at.checked_sub(1).is_none_or(is_blank) || is_blank(self.at + 2)
    }

    /// Passes a newline, and the here-documents that begin behind it.
    pub(super) fn newline(&mut self) -> Read<bool> {
        if !self.take("\n") {
            return Ok(false);
        }
        for here in std::mem::take(&mut self.pending) {
            self.here_document(&here)?;
        }
        Ok(true)
    }

    /// Says whether there were any newlines.
    pub(super) fn blanks_and_newlines(&mut self) -> Read<bool> {
        let mut any = false;
        self.blank();
        while self.newline()? {
            any = true;
            self.blank();
        }
        Ok(any)
    }

    /// The unquoted word here, if it could be a reserved one.
    pub(super) fn reserved(&self) -> &'t str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|c| " \t\n;&|()<>".contains(c)).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        // A line that is joined to the next ends a word like a blank.
        word.strip_suffix('\\')
            .filter(|_| rest.get(end..).is_some_and(|rest| rest.starts_with('\n')))
            .unwrap_or(word)
    }

    pub(super) fn take_reserved(&mut self, word: &str) -> bool {
        let there = self.reserved() == word;
        if there {
            self.at += word.len();
        }
        there
    }

    pub(super) fn want_reserved(&mut self, word: &'static str) -> Read<()> {
        self.blanks_and_newlines()?;
        if self.take_reserved(word) { Ok(()) } else { self.unexpected(word) }
    }

    fn at_end(&self, end: End) -> bool {
        match end {
            End::Text => self.at >= self.text.len(),
            End::Paren => self.peek() == Some(b')'),
            End::Words(words) => words.contains(&self.reserved()),
            End::Case => self.starts(";;") || self.starts(";&") || self.reserved() == "esac",
        }
    }

    /// Reads commands up to what ends them, which is left.
    pub(super) fn list(&mut self, end: End, least: Least) -> Read<()> {
        self.out.enter()?;
        let mut count = 0;
        loop {
            let is_first = self.blanks_and_newlines()? || count == 0;
            if self.at_end(end) {
                break;
            }
            self.defined = None;
            let alone = self.and_or()?;
            count += 1;
            let defined = self.defined.take();
            self.blank();
            let goes_on = match self.peek() {
                Some(b'&') if !self.starts("&&") => {
                    self.at += 1;
                    continue;
                }
                Some(b';') if !self.starts(";;") && !self.starts(";&") => {
                    self.at += 1;
                    true
                }
                Some(b'\n') => true,
                _other => false,
            };
            // An error may end a line early, and what is defined behind it with it.
            if let Some(name) = defined.filter(|_| is_first && alone && self.surely && !self.out.unsets) {
                self.out.functions.insert(name);
            }
            if !goes_on && !self.at_end(end) {
                return self.unexpected(match end {
                    End::Text => "another command, or the end,",
                    End::Paren => "\")\"",
                    End::Words(words) => words.first().copied().unwrap_or("the end"),
                    End::Case => "\";;\"",
                });
            }
        }
        if count == 0 && least == Least::One {
            return self.unexpected("a command");
        }
        self.out.leave();
        Ok(())
    }

    /// Reads commands that may not run at all, or not in this shell.
    pub(super) fn perhaps(&mut self, end: End, least: Least) -> Read<()> {
        let before = std::mem::replace(&mut self.surely, false);
        self.list(end, least)?;
        self.surely = before;
        Ok(())
    }

    /// Reads commands within something that is worth a word.
    pub(super) fn inside(&mut self, place: &str, end: End, least: Least) -> Read<()> {
        let before = std::mem::replace(&mut self.within, place.to_owned());
        self.perhaps(end, least)?;
        self.within = before;
        Ok(())
    }

    /// Reads another text, which is no part of this one, as commands.
    pub(super) fn apart(&mut self, text: &str, place: &str) -> Read<()> {
        let is_sh = self.is_sh;
        self.out.enter()?;
        let mut reader = Reader::new(text, place, self.out);
        reader.surely = false;
        reader.is_sh = is_sh;
        reader.script()?;
        self.out.leave();
        Ok(())
    }

    /// Says whether it is one command and nothing else.
    fn and_or(&mut self) -> Read<bool> {
        let mut alone = self.pipeline()?;
        loop {
            self.blank();
            if !self.take("&&") && !self.take("||") {
                return Ok(alone);
            }
            alone = false;
            self.blanks_and_newlines()?;
            self.pipeline()?;
        }
    }

    fn pipeline(&mut self) -> Read<bool> {
        let mut alone = true;
        loop {
            if self.take_reserved("!") {
                alone = false;
            } else if self.is_timed() {
                self.at += "time".len();
                self.blank();
                self.take_reserved("-p");
                self.blank();
                self.take_reserved("--");
                self.blank();
                if self.starts("-") {
                    return unread("an option of time that is not known");
                }
            } else {
                break;
            }
            self.blank();
        }
        self.command()?;
        loop {
            self.blank();
            if self.starts("||") || !(self.take("|&") || self.take("|")) {
                return Ok(alone);
            }
            alone = false;
            self.blanks_and_newlines()?;
            self.command()?;
        }
    }

    /// Whether the reserved word `time` stands here, and not the program.
    fn is_timed(&self) -> bool {
        !self.is_sh && self.reserved() == "time"
    }

    fn command(&mut self) -> Read<()> {
        self.out.enter()?;
        let start = self.at;
        if self.compound()? {
            self.redirections_of(start)?;
        } else if let Some(name) = self.function_name() {
            self.function(&name)?;
        } else {
            self.simple()?;
        }
        self.out.leave();
        Ok(())
    }
}
