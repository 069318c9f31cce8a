//! Makes parts of a command: of its own words, and of what it has others run.

use super::{
    Part, Read, Sight, Word, names, programs,
    reader::Reader,
    unread,
    wrapper::{self, How, Inner, Runs},
};

/// A command whose words are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    pub(super) text: String,
    pub(super) words: Vec<Word>,
    /// Variables that are set for it, or by it.
    pub(super) sets: Vec<String>,
    pub(super) reaches: Vec<String>,
    /// Whether a program starts it, so that it is no function.
    pub(super) is_outside: bool,
}

/// Redirections and assignments that a command may have: each is handed to all that it runs.
const MAX_CARRIED: usize = 50;
/// Bytes that the name of one may have.
const MAX_NAME: usize = 200;

/// Folders of programs that are what their names say.
const STANDARD: [&str; 3] = ["/bin/", "/usr/bin/", "/usr/local/bin/"];

/// The name of a program, if it is called by that or from a standard folder.
pub(in crate::domain::policy) fn standard_name(program: &str) -> Option<&str> {
    let name = STANDARD.iter().find_map(|folder| program.strip_prefix(folder)).unwrap_or(program);
    (!name.contains('/')).then_some(name)
}

/// The name of a program, whatever folder it is in.
pub(in crate::domain::policy) fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl Reader<'_, '_> {
    /// Adds the parts of a command.
    pub(super) fn emit(&mut self, mut command: Command) -> Read<()> {
        if command.sets.len() + command.reaches.len() > MAX_CARRIED
            || command.sets.iter().any(|name| name.len() > MAX_NAME)
        {
            return unread("too many redirections and assignments, or too long ones");
        }
        let altering =
            command.sets.iter().find(|name| names::alters(name)).map(|name| names::why_it_alters(name));
        let Some(name) = command.words.first() else {
            command.sets.retain(|name| !names::stays_in_the_shell(name));
            let sight = altering.map_or(Sight::Clear, Sight::Hidden);
            let says_something = !command.sets.is_empty() || !command.reaches.is_empty();
            return if says_something { self.add(command, sight) } else { Ok(()) };
        };
        command.sets.retain(|name| !names::is_harmless(name));
        let is_bare = !command.is_outside && name.value.as_ref() == Some(&name.text);
        let Some(program) = name.value.clone() else {
            let is_pattern = name.text.contains(['*', '?', '[', '~', ',']) && !name.text.contains(['$', '`']);
            let why =
                if is_pattern { "a pattern names what runs" } else { "what runs is known only when it runs" };
            return self.add(command, Sight::Hidden(why.to_owned()));
        };
        if is_no_program(&program) {
            let why = format!("{program} is no program, so that it may be read in another way");
            return self.add(command, Sight::Hidden(why));
        }
        let is_function = !command.is_outside && self.out.functions.contains(&program);
        // What is set for a function is set for all that it runs.
        if is_function && command.sets.is_empty() {
            command.words.clear();
            return if command.reaches.is_empty() { Ok(()) } else { self.add(command, Sight::Clear) };
        }
        if program == "local" || program == "readonly" {
            command.sets.retain(|name| !names::stays_in_the_shell(name));
        }
        if program == "unset" {
            self.out.unsets = true;
        }
        let name = base_name(&program);
        let makes_lists = match name {
            "read" | "mapfile" | "readarray" => true,
            name if names::DECLARING.contains(&name) => command
                .words
                .iter()
                .skip(1)
                .any(|word| !word.text.starts_with(|c: char| c.is_ascii_alphabetic())),
            _other => false,
        };
        self.out.has_lists |= makes_lists;
        let arguments = command.words.get(1..).unwrap_or_default();
        let how = How { is_bare, is_sh: self.is_sh, has_lists: self.out.has_lists };
        let runs = wrapper::look(name, arguments, how);
        let sight = match altering.or_else(|| programs::runs_more(name, arguments)) {
            Some(why) => Sight::Opaque(why),
            None => Sight::Clear,
        };
        match runs {
            Runs::Itself => self.add(command, sight),
            Runs::Unknown(why) => self.add(command, Sight::Hidden(why)),
            Runs::More(why) => self.add(command, Sight::Opaque(why)),
            Runs::Also(inner) => {
                let rest = command.clone();
                self.add(command, sight)?;
                self.within(rest, name, inner)
            }
            Runs::Only(inner) => {
                let outer = Command { sets: Vec::new(), reaches: Vec::new(), ..command.clone() };
                let is_standard = standard_name(&program).is_some();
                self.add(outer, if is_standard { Sight::Through } else { sight })?;
                self.within(command, name, inner)
            }
        }
    }

    /// Adds what `outer` runs.
    fn within(&mut self, outer: Command, name: &str, inner: Vec<Inner>) -> Read<()> {
        let Command { text: whole, sets, reaches, .. } = outer;
        let place = if name == "find" { "find -exec".to_owned() } else { name.to_owned() };
        for inner in inner {
            match inner {
                Inner::Words { words, sets: more } => {
                    let before = std::mem::replace(&mut self.within, place.clone());
                    self.out.enter()?;
                    let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
                    self.emit(Command {
                        text: texts.join(" "),
                        words,
                        sets: sets.iter().cloned().chain(more).collect(),
                        reaches: reaches.clone(),
                        is_outside: true,
                    })?;
                    self.out.leave();
                    self.within = before;
                }
                Inner::Here(text) => {
                    self.standing_alone(&whole, &sets, &reaches)?;
                    self.elsewhere(&text, &place, self.is_sh)?;
                }
                Inner::Shell { text, is_sh } => {
                    self.standing_alone(&whole, &sets, &reaches)?;
                    let place = if name == "watch" { place.clone() } else { format!("{place} -c") };
                    self.elsewhere(&text, &place, is_sh)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a text that runs when or where other functions may be defined.
    fn elsewhere(&mut self, text: &str, place: &str, is_sh: bool) -> Read<()> {
        let functions = std::mem::take(&mut self.out.functions);
        let before = std::mem::replace(&mut self.is_sh, is_sh);
        self.apart(text, place)?;
        (self.out.functions, self.is_sh) = (functions, before);
        Ok(())
    }

    /// What is set and written to for a whole text of commands, by the command that `whole` is.
    fn standing_alone(&mut self, whole: &str, sets: &[String], reaches: &[String]) -> Read<()> {
        let altering = sets.iter().find(|name| names::alters(name)).map(|name| names::why_it_alters(name));
        if sets.is_empty() && reaches.is_empty() {
            return Ok(());
        }
        let (text, sets, reaches) = (whole.to_owned(), sets.to_vec(), reaches.to_vec());
        let command = Command { text, sets, reaches, ..Command::default() };
        self.add(command, altering.map_or(Sight::Clear, Sight::Hidden))
    }

    fn add(&mut self, command: Command, sight: Sight) -> Read<()> {
        let Command { text, words, sets, reaches, is_outside: _ } = command;
        self.out.part(Part { text, within: self.within.clone(), words, sight, sets, reaches })
    }
}

/// Whether a name is one that a shell reads otherwise wherever it takes it for the beginning of a command.
fn is_no_program(name: &str) -> bool {
    const RESERVED: [&str; 21] = [
        "!", "{", "}", "[[", "]]", "if", "then", "elif", "else", "fi", "case", "esac", "for", "select",
        "while", "until", "do", "done", "in", "function", "coproc",
    ];
    name.contains('=') || RESERVED.contains(&name)
}
