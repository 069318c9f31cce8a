//! Reads what has commands inside: groups, subshells, loops, conditions, functions, tests.

use super::{
    Read, Word, names,
    reader::{End, Least, Reader},
    word::Style,
};

const NUMERIC: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// What begins a compound command.
const OPENING: [&str; 9] = ["{", "if", "while", "until", "for", "select", "case", "[[", "function"];

impl Reader<'_, '_> {
    /// Reads a compound command, if one stands here.
    pub(super) fn compound(&mut self) -> Read<bool> {
        if self.take("((") {
            self.bash_only("((")?;
            self.arithmetic(b')', "((...))")?;
            if !self.take("))") {
                return self.unexpected("\"))\"");
            }
            return Ok(true);
        }
        if self.take("(") {
            self.perhaps(End::Paren, Least::One)?;
            self.at += 1;
            return Ok(true);
        }
        let word = self.reserved();
        if ["select", "function", "[[", "coproc"].contains(&word) {
            self.bash_only(word)?;
        }
        match word {
            "{" | "if" | "while" | "until" | "for" | "select" | "case" | "function" | "[[" | "coproc" => {
                self.at += word.len();
            }
            // These end or divide something that did not begin here.
            "}" | "then" | "elif" | "else" | "fi" | "do" | "done" | "esac" => {
                return self.unexpected("a command");
            }
            _other => return Ok(false),
        }
        match word {
            "{" => drop(self.body(&["}"])?),
            "if" => self.condition()?,
            "while" | "until" => {
                self.body(&["do"])?;
                self.body(&["done"])?;
            }
            "for" | "select" => self.each()?,
            "case" => self.case()?,
            "function" => {
                self.blank();
                let name = self.reserved();
                self.at += name.len();
                self.blank();
                if self.take("(") {
                    self.blank();
                    if !self.take(")") {
                        return self.unexpected("\")\"");
                    }
                }
                self.function(name)?;
            }
            "[[" => self.test()?,
            _coproc => self.coprocess()?,
        }
        Ok(true)
    }

    /// Reads commands up to one of these words, and the word.
    fn body(&mut self, words: &'static [&'static str]) -> Read<&'static str> {
        self.perhaps(End::Words(words), Least::One)?;
        let found = words.iter().find(|word| **word == self.reserved()).copied().unwrap_or_default();
        self.at += found.len();
        Ok(found)
    }

    fn condition(&mut self) -> Read<()> {
        loop {
            self.body(&["then"])?;
            match self.body(&["fi", "elif", "else"])? {
                "elif" => {}
                "else" => return self.body(&["fi"]).map(drop),
                _fi => return Ok(()),
            }
        }
    }

    fn each(&mut self) -> Read<()> {
        self.blank();
        if self.take("((") {
            self.arithmetic(b')', "for ((...))")?;
            if !self.take("))") {
                return self.unexpected("\"))\"");
            }
            self.blank();
            self.take(";");
        } else {
            let start = self.at;
            let name = self.reserved();
            if !names::is_name(name) {
                return self.unexpected("a variable's name");
            }
            self.at += name.len();
            if names::alters(name) {
                let text = self.since(start);
                self.out.hidden(text, &self.within, names::why_it_alters(name))?;
            }
            self.blanks_and_newlines()?;
            if self.take_reserved("in") {
                self.blank();
                while let Some(byte) = self.peek() {
                    if byte == b';' || byte == b'\n' {
                        break;
                    }
                    self.word(Style::Plain)?;
                    self.blank();
                }
            }
            self.take(";");
        }
        self.want_reserved("do")?;
        self.body(&["done"]).map(drop)
    }

    fn case(&mut self) -> Read<()> {
        self.blank();
        self.word(Style::Plain)?;
        self.want_reserved("in")?;
        loop {
            self.blanks_and_newlines()?;
            if self.take_reserved("esac") {
                return Ok(());
            }
            self.take("(");
            loop {
                self.blank();
                self.word(Style::Plain)?;
                self.blank();
                if !self.take("|") {
                    break;
                }
            }
            if !self.take(")") {
                return self.unexpected("\")\"");
            }
            self.perhaps(End::Case, Least::Nothing)?;
            let _ends = self.take(";;&") || self.take(";;") || self.take(";&");
        }
    }

    /// Reads `[[ ... ]]` behind its first word. Where it compares numbers, bash evaluates what variables hold.
    fn test(&mut self) -> Read<()> {
        let start = self.at;
        let mut words: Vec<Word> = Vec::new();
        loop {
            self.blanks_and_newlines()?;
            if words.len() > 1 && words.last().is_some_and(|word| word.is("=~") && word.text == "=~") {
                words.push(self.word(Style::Regex)?);
                continue;
            }
            if self.take_reserved("]]") {
                break;
            }
            match self.peek() {
                Some(b'(' | b')') => self.at += 1,
                Some(b'<' | b'>') if !self.starts("<(") && !self.starts(">(") => self.at += 1,
                Some(b'&' | b'|') => {
                    if !self.take("&&") && !self.take("||") {
                        return self.unexpected("\"]]\"");
                    }
                }
                _other => words.push(self.word(Style::Plain)?),
            }
        }
        let plain = |word: Option<&Word>| {
            word.and_then(|word| word.value.as_deref()).is_some_and(|value| value.parse::<i64>().is_ok())
        };
        for (place, word) in words.iter().enumerate() {
            let evaluates = if NUMERIC.iter().any(|numeric| word.is(numeric)) {
                !plain(place.checked_sub(1).and_then(|before| words.get(before)))
                    || !plain(words.get(place + 1))
            } else {
                let name = words.get(place + 1).and_then(|name| name.value.as_deref());
                (word.is("-v") || word.is("-R")) && !name.is_some_and(names::is_name)
            };
            if evaluates {
                let text = format!("[[{}", self.since(start));
                return self.out.hidden(&text, &self.within, names::EVALUATES);
            }
        }
        Ok(())
    }

    fn coprocess(&mut self) -> Read<()> {
        let before = std::mem::replace(&mut self.surely, false);
        self.blank();
        let begin = self.at;
        let name = self.reserved();
        self.at += name.len();
        self.blank();
        let opens = OPENING.contains(&self.reserved()) || self.starts("(");
        if !opens || name.is_empty() || OPENING.contains(&name) {
            self.at = begin;
        } else if names::is_name(name) {
            self.out.has_lists = true;
            if names::alters(name) {
                self.out.hidden(name, &self.within, names::why_it_alters(name))?;
            }
        } else {
            return self.unexpected("a command");
        }
        let start = self.at;
        self.out.enter()?;
        if self.compound()? {
            self.redirections_of(start)?;
        } else {
            self.simple()?;
        }
        self.out.leave();
        self.surely = before;
        Ok(())
    }

    /// The name in `name ()`, which is passed if it stands here.
    pub(super) fn function_name(&mut self) -> Option<String> {
        let name = self.reserved();
        let rest = self.text.get(self.at + name.len()..)?;
        let behind = rest.trim_start_matches([' ', '\t']).strip_prefix('(')?;
        let behind = behind.trim_start_matches([' ', '\t']).strip_prefix(')')?;
        if name.is_empty() || name.contains('=') {
            return None;
        }
        self.at = self.text.len() - behind.len();
        Some(name.to_owned())
    }

    /// Reads the body of a function.
    pub(super) fn function(&mut self, name: &str) -> Read<()> {
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:+@".contains(&byte))
            || name.is_empty()
        {
            return self.unexpected("a function's name");
        }
        if names::means_more(name) {
            self.out.hidden(name, &self.within, format!("it gives {name} another meaning"))?;
        }
        self.blanks_and_newlines()?;
        let start = self.at;
        let before = std::mem::replace(&mut self.within, format!("function {name}"));
        let sure = std::mem::replace(&mut self.surely, false);
        // It is called when other functions may be defined.
        let functions = std::mem::take(&mut self.out.functions);
        if self.reserved() == "function" || self.reserved() == "coproc" || !self.compound()? {
            return self.unexpected("a function's body");
        }
        self.redirections_of(start)?;
        (self.within, self.surely, self.out.functions) = (before, sure, functions);
        if !names::means_more(name) {
            self.defined = Some(name.to_owned());
        }
        Ok(())
    }
}
