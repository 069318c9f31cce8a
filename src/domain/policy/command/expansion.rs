//! Reads what bash expands: parameters, and the commands in substitutions.

use super::{
    Read, names,
    reader::{End, Least, Reader},
    unread,
    word::{Quoting, Value},
};

impl Reader<'_, '_> {
    /// Reads what begins with a `$`.
    pub(super) fn dollar(&mut self, quoting: Quoting, value: &mut Value) -> Read<()> {
        self.at += 1;
        if self.starts("\\\n") {
            return unread("lines are joined behind a $");
        }
        if quoting == Quoting::Nothing && self.starts("'") {
            self.bash_only("a quote behind a $")?;
        }
        match self.peek() {
            Some(b'\'') if quoting == Quoting::Nothing => return self.escaped(value),
            // What it says in another language may hold commands.
            Some(b'"') if quoting == Quoting::Nothing => return unread("a translated text"),
            Some(b'(') if self.take("((") => {
                self.arithmetic(b')', "$((...))")?;
                if !self.take("))") {
                    return self.unexpected("\"))\"");
                }
            }
            Some(b'(') => {
                self.at += 1;
                self.substitution("$(...)")?;
            }
            Some(b'{') => {
                self.at += 1;
                self.parameter(quoting)?;
            }
            Some(b'[') => return unread("$[...] is not read"),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let rest = self.text.get(self.at..).unwrap_or_default();
                self.at += names::name_length(rest);
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?-$!".contains(&byte) => self.at += 1,
            Some(_) | None => {
                if let Some(value) = value {
                    value.push('$');
                }
                return Ok(());
            }
        }
        *value = None;
        Ok(())
    }

    /// Reads commands up to a `)`, and that. Here-documents that begin in it end in it.
    fn substitution(&mut self, place: &str) -> Read<()> {
        let start = self.at;
        let outer = std::mem::take(&mut self.pending);
        self.inside(place, End::Paren, Least::Nothing)?;
        if !self.pending.is_empty() || !outer.is_empty() && self.since(start).contains('\n') {
            return unread(format!("a here-document and {place} are entangled"));
        }
        self.pending = outer;
        self.at += 1;
        Ok(())
    }

    /// Reads `<(...)` or `>(...)`.
    pub(super) fn process_substitution(&mut self, byte: u8) -> Read<()> {
        self.at += 2;
        self.substitution(if byte == b'<' { "<(...)" } else { ">(...)" })
    }

    /// Reads what stands between backquotes, where a backslash escapes before it is read as a line.
    pub(super) fn backquoted(&mut self, quoting: Quoting, value: &mut Value) -> Read<()> {
        let mut inner = String::new();
        self.at += 1;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let mut chars = rest.chars();
            let taken = match chars.next() {
                None => return unread("a backquote does not end"),
                Some('`') => break,
                Some('\\') => match chars.next() {
                    Some('"') if quoting != Quoting::Nothing => {
                        return unread("an escaped quote between backquotes in quotes");
                    }
                    Some(c @ ('$' | '`' | '\\')) => {
                        inner.push(c);
                        2
                    }
                    Some(_) | None => {
                        inner.push('\\');
                        1
                    }
                },
                Some(c) => {
                    inner.push(c);
                    c.len_utf8()
                }
            };
            self.at += taken;
        }
        self.at += 1;
        *value = None;
        self.apart(&inner, "`...`")
    }

    /// Reads `${...}` behind its brace.
    fn parameter(&mut self, quoting: Quoting) -> Read<()> {
        self.out.enter()?;
        let start = self.at;
        let is_length = self.starts("#") && !self.starts("#}") && self.take("#");
        let is_indirect = !is_length && self.take("!");
        let rest = self.text.get(self.at..).unwrap_or_default();
        let name = rest.get(..names::name_length(rest)).unwrap_or_default();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        self.at += match (name.len(), digits) {
            (0, 0) if rest.starts_with(['@', '*', '#', '?', '-', '$', '!']) => 1,
            (0, 0) => return self.unexpected("a parameter"),
            (length, digits) => length.max(digits),
        };
        let mut is_list = self.starts("@}") || self.starts("*}");
        if self.take("[") {
            is_list = self.take("@]") || self.take("*]");
            if !is_list {
                self.arithmetic(b']', "a subscript")?;
                if !self.take("]") {
                    return self.unexpected("\"]\"");
                }
            }
        }
        // Only where nothing follows a list are its places meant, and not what its values name.
        if is_indirect && !(is_list && (self.starts("}") || self.starts("@}") || self.starts("*}"))) {
            self.decided_later(start)?;
        }
        match self.peek() {
            Some(b'@') if self.starts("@P}") || self.starts("@A}") => self.decided_later(start)?,
            Some(b':') => {
                self.at += 1;
                match self.peek() {
                    Some(b'-' | b'+' | b'?') => {}
                    Some(b'=') => self.assigned(name)?,
                    Some(_) | None => {
                        self.arithmetic(b'}', "${...:...}")?;
                    }
                }
            }
            Some(b'=') => self.assigned(name)?,
            Some(b'}' | b'-' | b'+' | b'?' | b'#' | b'%' | b'/' | b'^' | b',' | b'@' | b'*') => {}
            Some(_) | None => return self.unexpected("\"}\""),
        }
        while !self.take("}") {
            match self.peek() {
                None => return unread("a ${ does not end"),
                Some(b'\'') if quoting != Quoting::Nothing => return unread("a quote in a quoted ${...}"),
                Some(b'"') if quoting == Quoting::HereDocument => {
                    return unread("a quote in a quoted ${...}");
                }
                Some(b'"') => self.double_quoted(&mut None)?,
                Some(b'\'') => {
                    let behind = self.text.get(self.at + 1..).unwrap_or_default();
                    let Some(length) = behind.find('\'') else {
                        return unread("a single quote does not end");
                    };
                    self.at += length + 2;
                }
                Some(b'<' | b'>') if self.starts("<(") || self.starts(">(") => {
                    return unread("a process substitution in ${...}");
                }
                Some(b'\\') => {
                    let escaped = self.text.get(self.at + 1..).and_then(|rest| rest.chars().next());
                    self.at += 1 + escaped.map_or(0, char::len_utf8);
                }
                Some(_) => self.expand(quoting, &mut None)?,
            }
        }
        self.out.leave();
        Ok(())
    }

    fn assigned(&mut self, name: &str) -> Read<()> {
        if names::alters(name) {
            let text = format!("${{{name}=...}}");
            self.out.hidden(&text, &self.within, names::why_it_alters(name))?;
        }
        Ok(())
    }

    fn decided_later(&mut self, start: usize) -> Read<()> {
        let text = format!("${{{}...}}", self.since(start));
        self.out.hidden(&text, &self.within, names::EVALUATES)
    }
}
