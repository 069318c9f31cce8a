//! Reads arithmetic. Bash evaluates what the variables in it hold, commands in subscripts included: where it names any,
//! what it runs is not known.

use super::{Read, names, reader::Reader, unread, word::Quoting};

impl Reader<'_, '_> {
    /// Reads up to what closes it, which is left.
    pub(super) fn arithmetic(&mut self, close: u8, place: &str) -> Read<()> {
        self.out.enter()?;
        let start = self.at;
        let mut open: Vec<u8> = Vec::new();
        let mut names_something = false;
        loop {
            let Some(byte) = self.peek() else { return unread(format!("{place} does not end")) };
            if open.is_empty() && byte == close {
                break;
            }
            match byte {
                b'(' => open.push(b')'),
                b'[' => open.push(b']'),
                b')' | b']' => match open.pop() {
                    Some(opened) if opened == byte => {}
                    Some(_) | None => {
                        return unread(format!("{place} has a {:?} too many", char::from(byte)));
                    }
                },
                b'\'' | b'"' | b'\\' | b'{' | b'}' => {
                    return unread(format!("{place} has a {:?} in it", char::from(byte)));
                }
                b'$' => {
                    let special = self.text.get(self.at + 1..).unwrap_or_default();
                    names_something |=
                        !special.starts_with(['#', '?', '$', '!']) && !special.starts_with("((");
                    self.dollar(Quoting::Double, &mut None)?;
                    continue;
                }
                b'`' => {
                    names_something = true;
                    self.backquoted(Quoting::Double, &mut None)?;
                    continue;
                }
                b'0'..=b'9' => {
                    let rest = self.text.get(self.at..).unwrap_or_default();
                    self.at += rest
                        .bytes()
                        .take_while(|byte| byte.is_ascii_alphanumeric() || b"#@_".contains(byte))
                        .count();
                    continue;
                }
                byte if byte.is_ascii_alphabetic() || byte == b'_' => names_something = true,
                b';' | b'\n' if place.starts_with('$') => {
                    return unread(format!("{place} has a {:?} in it", char::from(byte)));
                }
                byte if !byte.is_ascii() => return unread(format!("{place} has letters in it")),
                _other => {}
            }
            self.at += 1;
        }
        if names_something {
            let text = self.since(start);
            self.out.hidden(text.trim(), &self.within, names::EVALUATES)?;
        }
        self.out.leave();
        Ok(())
    }
}
