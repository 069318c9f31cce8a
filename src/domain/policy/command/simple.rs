//! Reads a simple command: assignments, words, redirections.

use super::{Read, SHOWN, Word, names, reader::Reader, through::Command, unread, word::Style};

/// Longer ones first.
const OPERATORS: [&str; 12] = ["<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">|", ">&", ">", "&>>", "&>"];

/// What is no file, whoever writes to it.
const NO_FILES: [&str; 4] = ["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"];

impl Reader<'_, '_> {
    pub(super) fn simple(&mut self) -> Read<()> {
        let start = self.at;
        let mut command = Command::default();
        if self.reserved() == "!" {
            return self.unexpected("a command");
        }
        loop {
            self.blank();
            if self.redirection(&mut command)? {
                continue;
            }
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')') => break,
                Some(b'<' | b'>') if !self.starts("<(") && !self.starts(">(") => break,
                Some(_) if command.words.is_empty() => {
                    if !self.assignment(&mut command)? {
                        let word = self.word(Style::Plain)?;
                        command.words.push(word);
                    }
                }
                Some(_) if self.takes_arrays(&command) => {
                    let argument = self.at;
                    let mut ignored = Command::default();
                    if self.assignment(&mut ignored)? {
                        let text = self.since(argument).to_owned();
                        let is_plain =
                            !text.contains(['$', '`', '"', '\'', '\\', '*', '?', '[', '~', '{', '(']);
                        command.words.push(Word { value: is_plain.then(|| text.clone()), text });
                        command.sets.extend(ignored.sets);
                    } else {
                        let word = self.word(Style::Plain)?;
                        command.words.push(word);
                    }
                }
                Some(_) => {
                    let word = self.word(Style::Plain)?;
                    command.words.push(word);
                }
            }
        }
        command.text = self.since(start).trim_end().to_owned();
        if command.text.is_empty() {
            return self.unexpected("a command");
        }
        self.emit(command)
    }

    fn takes_arrays(&self, command: &Command) -> bool {
        let name = command.words.first().and_then(|word| word.value.as_deref());
        name.is_some_and(|name| names::DECLARING.contains(&name))
    }

    /// Reads `name=value`, if that stands here.
    fn assignment(&mut self, command: &mut Command) -> Read<bool> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = names::name_length(rest);
        let behind = rest.get(length..).unwrap_or_default();
        if length == 0 || !(behind.starts_with('=') || behind.starts_with("+=") || behind.starts_with('[')) {
            return Ok(false);
        }
        let name = rest.get(..length).unwrap_or_default().to_owned();
        if !behind.starts_with('=') {
            self.bash_only("an assignment to a part")?;
        }
        self.at += length;
        if self.take("[") {
            self.out.has_lists = true;
            self.arithmetic(b']', "a subscript")?;
            if !self.take("]") || !(self.starts("=") || self.starts("+=")) {
                return self.unexpected("\"=\"");
            }
        }
        self.take("+");
        self.at += 1;
        if self.take("(") {
            self.bash_only("a list")?;
            self.out.has_lists = true;
            self.array()?;
        } else if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')'))
            && !self.starts("\\\n")
            && (self.starts("<(") || self.starts(">(") || !matches!(self.peek(), Some(b'<' | b'>')))
        {
            self.word(Style::Plain)?;
        }
        command.sets.push(name);
        Ok(true)
    }

    fn array(&mut self) -> Read<()> {
        self.out.enter()?;
        loop {
            self.blanks_and_newlines()?;
            if self.take(")") {
                self.out.leave();
                return Ok(());
            }
            let word = self.word(Style::Plain)?;
            if word.text.starts_with('[') {
                self.out.hidden(&word.text, &self.within, names::EVALUATES)?;
            }
        }
    }

    /// Reads the redirections behind a compound command that began at `start`.
    pub(super) fn redirections_of(&mut self, start: usize) -> Read<()> {
        let mut command = Command::default();
        loop {
            self.blank();
            if !self.redirection(&mut command)? {
                break;
            }
        }
        if command.reaches.is_empty() && command.sets.is_empty() {
            return Ok(());
        }
        command.text = self.since(start).trim_end().to_owned();
        self.emit(command)
    }

    /// Reads a redirection, if one stands here.
    fn redirection(&mut self, command: &mut Command) -> Read<bool> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let variable = rest.strip_prefix('{').and_then(|rest| {
            let length = names::name_length(rest);
            (length > 0 && rest.get(length..)?.starts_with('}')).then_some(length + 2)
        });
        let before = variable.unwrap_or(digits);
        let behind = rest.get(before..).unwrap_or_default();
        let is_one = behind.starts_with(['<', '>']) || before == 0 && behind.starts_with("&>");
        if !is_one {
            return Ok(false);
        }
        if behind.starts_with("<(") || behind.starts_with(">(") {
            return if before == 0 { Ok(false) } else { unread("a number before a process substitution") };
        }
        if behind.starts_with("&>") {
            self.bash_only("&>")?;
        }
        self.at += before;
        let Some(operator) = OPERATORS.iter().copied().find(|operator| self.take(operator)) else {
            return self.unexpected("a redirection");
        };
        match operator {
            "<<" | "<<-" => return self.announce(operator == "<<-").map(|()| true),
            _other => self.blank(),
        }
        let target = self.word(Style::Plain)?;
        command.reaches.extend(reached(operator, &target));
        if variable.is_some() {
            command.sets.extend(rest.get(1..before - 1).map(str::to_owned));
        }
        Ok(true)
    }
}

fn short(text: &str) -> &str {
    text.char_indices().nth(SHOWN).and_then(|(end, _)| text.get(..end)).unwrap_or(text)
}

/// What a redirection does beyond the command, if anything.
fn reached(operator: &str, target: &Word) -> Option<String> {
    let value = target.value.as_deref();
    let is_number = |value: &str| {
        let digits = value.strip_suffix('-').unwrap_or(value);
        !value.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    match operator {
        "<<<" => None,
        "<&" | ">&" if value.is_some_and(is_number) => None,
        "<" | "<&" => match value {
            Some(path) if path.starts_with("/dev/tcp") || path.starts_with("/dev/udp") => {
                Some(format!("connects to {}", short(&target.text)))
            }
            Some(_) => None,
            None if target.text.starts_with("<(") => None,
            None => Some(format!("reads {}, which is known only when it runs", short(&target.text))),
        },
        _writes => match value {
            Some(path) if NO_FILES.contains(&path) => None,
            None if target.text.starts_with(">(") => None,
            Some(_) | None => Some(format!("writes to {}", short(&target.text))),
        },
    }
}
