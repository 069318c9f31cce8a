//! Reads a word: what it is once its quotes are gone, as far as that is known before it runs.

use super::{Read, Word, reader::Reader, unread};

/// What a word is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    /// Behind `=~`: parentheses and bars are part of it.
    Regex,
    /// Behind `<<`.
    Delimiter,
}

/// What surrounds a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quoting {
    Nothing,
    Double,
    HereDocument,
}

/// A word as far as it is known; nothing, once it is not.
pub(super) type Value = Option<String>;

impl Reader<'_, '_> {
    /// Reads the word here.
    pub(super) fn word(&mut self, style: Style) -> Read<Word> {
        let start = self.at;
        let mut value = Some(String::new());
        let (mut has_brace, mut parentheses) = (false, 0_usize);
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' => break,
                b'(' if style == Style::Regex => {
                    parentheses += 1;
                    self.literal(&mut value);
                }
                b')' if style == Style::Regex && parentheses > 0 => {
                    parentheses -= 1;
                    self.literal(&mut value);
                }
                b'|' if style == Style::Regex && parentheses > 0 => self.literal(&mut value),
                b'<' | b'>' if self.starts("<(") || self.starts(">(") => {
                    self.process_substitution(byte)?;
                    value = None;
                }
                b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\\' if self.starts("\\\n") => {
                    let behind = self.text.as_bytes().get(self.at + 2);
                    if self.at == start || !behind.is_none_or(|byte| b" \t\n".contains(byte)) {
                        return unread("lines are joined within a word");
                    }
                    break;
                }
                b'\\' => {
                    self.at += 1;
                    if self.peek().is_none() {
                        return unread("it ends with a backslash");
                    }
                    self.literal(&mut value);
                }
                b'\'' => self.single_quoted(&mut value)?,
                b'"' => self.double_quoted(&mut value)?,
                b'$' => self.dollar(Quoting::Nothing, &mut value)?,
                b'`' => self.backquoted(Quoting::Nothing, &mut value)?,
                b'*' | b'?' | b'[' => {
                    self.at += 1;
                    value = None;
                }
                b'~' if self.at == start => {
                    self.at += 1;
                    value = None;
                }
                _other => {
                    has_brace |= byte == b'{';
                    self.literal(&mut value);
                }
            }
        }
        let text = self.since(start);
        if text.is_empty() {
            return self.unexpected("a word");
        }
        if parentheses > 0 {
            return self.unexpected("\")\"");
        }
        // Bash keeps a number in what it names, and evaluates where in a list that is.
        if text.starts_with('{')
            && text.ends_with('}')
            && text.contains('[')
            && matches!(self.peek(), Some(b'<' | b'>'))
        {
            return unread(format!("{text} before a redirection"));
        }
        let value = match value {
            None if text == "[" => Some(text.to_owned()),
            value => value.filter(|_| !(has_brace && (text.contains(',') || text.contains("..")))),
        };
        Ok(Word { text: text.to_owned(), value })
    }

    /// Takes a character as it is.
    fn literal(&mut self, value: &mut Value) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if let Some(c) = rest.chars().next() {
            self.at += c.len_utf8();
            if let Some(value) = value {
                value.push(c);
            }
        }
    }

    fn single_quoted(&mut self, value: &mut Value) -> Read<()> {
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let Some(length) = rest.find('\'') else { return unread("a single quote does not end") };
        if let Some(value) = value {
            value.push_str(rest.get(..length).unwrap_or_default());
        }
        self.at += length + 2;
        Ok(())
    }

    /// Reads from one double quote to the other.
    pub(super) fn double_quoted(&mut self, value: &mut Value) -> Read<()> {
        self.at += 1;
        self.out.enter()?;
        while !self.take("\"") {
            if self.peek().is_none() {
                return unread("a double quote does not end");
            }
            self.expand(Quoting::Double, value)?;
        }
        self.out.leave();
        Ok(())
    }

    /// Reads one thing of a text in which only `$`, backquotes and backslashes mean something.
    pub(super) fn expand(&mut self, quoting: Quoting, value: &mut Value) -> Read<()> {
        match self.peek() {
            Some(b'\\') => {
                let escaped = self.text.as_bytes().get(self.at + 1).copied();
                let escapes = match escaped {
                    Some(b'\n') => {
                        self.at += 2;
                        return Ok(());
                    }
                    Some(b'"') => quoting == Quoting::Double,
                    Some(byte) => matches!(byte, b'$' | b'`' | b'\\'),
                    None => false,
                };
                if escapes {
                    self.at += 1;
                }
                self.literal(value);
                Ok(())
            }
            Some(b'$') => self.dollar(quoting, value),
            Some(b'`') => self.backquoted(quoting, value),
            Some(_) | None => {
                self.literal(value);
                Ok(())
            }
        }
    }

    /// Reads `$'...'` behind its `$`.
    pub(super) fn escaped(&mut self, value: &mut Value) -> Read<()> {
        self.at += 1;
        loop {
            match self.peek() {
                None => return unread("a quote that begins with $' does not end"),
                Some(b'\'') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.escape() {
                        Some(c) => {
                            if let Some(value) = value {
                                value.push(c);
                            }
                        }
                        None => *value = None,
                    }
                }
                Some(_) => self.literal(value),
            }
        }
    }

    /// Reads an escape behind its backslash; nothing, for one that makes no plain character.
    fn escape(&mut self) -> Option<char> {
        let byte = self.peek()?;
        let digits = |reader: &Self, from: usize, most: usize, radix: u32| {
            let rest = reader.text.get(from..).unwrap_or_default();
            rest.chars().take(most).take_while(|c| c.is_digit(radix)).count()
        };
        let (skip, most, radix) = match byte {
            b'0'..=b'7' => (0, 3, 8),
            b'x' => (1, 2, 16),
            b'u' => (1, 4, 16),
            b'U' => (1, 8, 16),
            _other => {
                let plain = match byte {
                    b'n' => Some('\n'),
                    b't' => Some('\t'),
                    b'r' => Some('\r'),
                    b'\\' | b'\'' | b'"' | b'?' => Some(char::from(byte)),
                    _other => None,
                };
                self.literal(&mut None);
                return plain;
            }
        };
        let start = self.at + skip;
        let length = digits(self, start, most, radix);
        let code =
            self.text.get(start..start + length).and_then(|code| u32::from_str_radix(code, radix).ok());
        self.at = start + length;
        let c = code.and_then(char::from_u32)?;
        // Bytes beyond ASCII are parts of characters here, and the first one would end the word.
        (c != '\0' && (c.is_ascii() || matches!(byte, b'u' | b'U'))).then_some(c)
    }
}
