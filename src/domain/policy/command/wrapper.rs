//! Programs and builtins that run what their arguments say, and what that is.

use super::{
    Word, builtins, names,
    options::{CHANGERS, WRAPPERS},
};

/// What a command runs.
pub(super) enum Runs {
    /// What its name says.
    Itself,
    /// That, and these.
    Also(Vec<Inner>),
    /// These, and nothing of its own.
    Only(Vec<Inner>),
    /// What its name says, and more.
    More(String),
    /// Nobody knows, and why.
    Unknown(String),
}

/// Something that is run.
pub(super) enum Inner {
    /// A command and its arguments, by a program.
    Words { words: Vec<Word>, sets: Vec<String> },
    /// A text, by this shell.
    Here(String),
    /// A text, by another shell.
    Shell { text: String, is_sh: bool },
}

/// How a command is called.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// By this shell, under a name without quotes.
    pub(super) is_bare: bool,
    /// By a shell that may be less than bash.
    pub(super) is_sh: bool,
    /// Where the line makes lists.
    pub(super) has_lists: bool,
}

/// Says what a program runs when it is called with these.
pub(super) fn look(name: &str, arguments: &[Word], how: How) -> Runs {
    match name {
        "sh" | "bash" | "dash" | "ash" | "rbash" => shell(name, arguments),
        "zsh" | "ksh" | "mksh" => Runs::Unknown(format!("{name} reads lines in its own way")),
        "eval" => {
            let words = match arguments {
                [first, rest @ ..] if first.is("--") => rest,
                words => words,
            };
            match joined(words) {
                Some(text) => Runs::Only(vec![Inner::Here(text)]),
                None => Runs::Unknown("eval runs what is known only when it runs".to_owned()),
            }
        }
        "trap" => builtins::trap(arguments),
        "jobs" => builtins::jobs(arguments),
        "fc" => Runs::Unknown("it runs earlier lines".to_owned()),
        "source" | "." => Runs::Unknown("it runs what a file says".to_owned()),
        "find" => find(arguments, how),
        "watch" => watch(arguments),
        "busybox" | "toybox" => match arguments {
            [] => Runs::Itself,
            [first, ..] if first.value.as_deref().is_some_and(|value| !value.starts_with('-')) => {
                Runs::Also(vec![Inner::Words { words: arguments.to_vec(), sets: Vec::new() }])
            }
            [..] => Runs::Unknown(format!("an option of {name} that is not known")),
        },
        "alias" | "enable" | "hash" | "bind" | "complete" | "compgen" if !arguments.is_empty() => {
            Runs::Unknown(format!("{name} changes what later words mean"))
        }
        "set" | "shopt" => builtins::settings(name, arguments),
        "let" => Runs::Unknown(names::EVALUATES.to_owned()),
        "command" if arguments.first().is_some_and(|word| word.is("-v") || word.is("-V")) => Runs::Itself,
        _other => match builtins::assigning(name, arguments, how) {
            Some(why) => Runs::Unknown(why),
            None => wrapped(name, arguments),
        },
    }
}

fn wrapped(name: &str, arguments: &[Word]) -> Runs {
    let changer = CHANGERS.iter().find(|wrapper| wrapper.name == name);
    let Some(wrapper) = changer.or_else(|| WRAPPERS.iter().find(|wrapper| wrapper.name == name)) else {
        return Runs::Itself;
    };
    let odd = || Runs::Unknown(format!("an option of {name} that is not known"));
    if name == "env" && arguments.iter().any(|word| word.value.as_deref().is_some_and(is_split)) {
        return split(arguments).map_or_else(odd, |arguments| wrapped(name, &arguments));
    }
    let Some((mut rest, replaced)) = wrapper.past_options(arguments) else { return odd() };
    let mut sets = Vec::new();
    if name == "env" || name == "sudo" {
        while let [first, behind @ ..] = rest
            && let Some((name, _)) = first.value.as_ref().unwrap_or(&first.text).split_once('=')
        {
            // What is not known may be several words.
            if first.value.is_none() || !names::is_name(name) {
                return odd();
            }
            sets.push(name.to_owned());
            rest = behind;
        }
    }
    let Some((operands, rest)) = rest.split_at_checked(wrapper.operands) else { return Runs::Itself };
    if operands.iter().any(|operand| operand.value.is_none()) {
        return odd();
    }
    let mut words = rest.to_vec();
    if name == "xargs" {
        if words.is_empty() {
            words.push(Word::literal("echo"));
        }
        match replaced {
            Some(replaced) => replace(&mut words, &replaced),
            None => words.push(Word::unknown("...")),
        }
    }
    if words.is_empty() {
        return Runs::Itself;
    }
    let inner = vec![Inner::Words { words, sets }];
    if changer.is_some() { Runs::Also(inner) } else { Runs::Only(inner) }
}

/// What stands for something that is filled in later is not known.
fn replace(words: &mut [Word], placeholder: &str) {
    for word in words {
        if word.value.as_ref().is_some_and(|value| value.contains(placeholder)) {
            word.value = None;
        }
    }
}

/// Whether an argument of `env` is a line to split.
fn is_split(value: &str) -> bool {
    value.starts_with("-S") || value.starts_with("--split-string")
}

/// The arguments of `env` with the line split that comes first, if it is plain and the only one.
fn split(arguments: &[Word]) -> Option<Vec<Word>> {
    let (first, mut rest) = arguments.split_first()?;
    let value = first.value.as_deref()?;
    let joined = value.strip_prefix("--split-string=").or_else(|| value.strip_prefix("-S"))?;
    let line = if joined.is_empty() {
        let (next, behind) = rest.split_first()?;
        rest = behind;
        next.value.as_deref()?
    } else {
        joined
    };
    let is_plain = !line.contains(['\'', '"', '\\', '$', '#']);
    let words = line.split_ascii_whitespace().map(Word::literal).chain(rest.iter().cloned());
    let words: Vec<Word> = words.collect();
    let splits_again = words.iter().any(|word| word.value.as_deref().is_some_and(is_split));
    (is_plain && !splits_again).then_some(words)
}

/// Words with blanks between, if all are known.
fn joined(words: &[Word]) -> Option<String> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.value.as_deref()).collect();
    words.map(|words| words.join(" "))
}

fn shell(name: &str, arguments: &[Word]) -> Runs {
    let unknown = |what: &str| Runs::Unknown(format!("{name} runs {what}"));
    let mut words = arguments.iter();
    let mut is_text = false;
    while let Some(word) = words.next() {
        let Some(value) = word.value.as_deref() else { return unknown("what is known only when it runs") };
        let Some(letters) = value.strip_prefix(['-', '+']) else {
            return if is_text {
                Runs::Only(vec![Inner::Shell { text: value.to_owned(), is_sh: !name.ends_with("bash") }])
            } else {
                Runs::More(format!("{name} runs what a file says"))
            };
        };
        let takes_value = letters.ends_with('o');
        let switches = letters.strip_suffix('o').unwrap_or(letters);
        let plain = !letters.is_empty() && switches.chars().all(|letter| "ceuxlfvn".contains(letter));
        if !(plain || ["-norc", "-noprofile", "-login"].contains(&letters)) {
            return Runs::Unknown(format!("an option of {name} that is not known"));
        }
        is_text |= plain && letters.contains('c');
        let settings = ["pipefail", "errexit", "nounset", "xtrace"];
        if plain
            && takes_value
            && !words.next().is_some_and(|word| settings.iter().any(|known| word.is(known)))
        {
            return Runs::Unknown(format!("an option of {name} that is not known"));
        }
    }
    unknown("what it reads")
}

fn find(arguments: &[Word], how: How) -> Runs {
    const RUNNING: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
    let starts_expression =
        |word: &Word| word.value.as_deref().is_some_and(|value| value.starts_with(['-', '(', '!']));
    let starts = arguments.iter().position(starts_expression).unwrap_or(arguments.len());
    let is_start = |place: usize, word: &Word| how.is_bare && place < starts && is_path(word);
    if arguments.iter().enumerate().any(|(place, word)| word.value.is_none() && !is_start(place, word)) {
        return Runs::Unknown("find may run what is known only when it runs".to_owned());
    }
    let mut inner = Vec::new();
    let mut rest = arguments;
    let is_running = |word: &Word| RUNNING.iter().any(|running| word.is(running));
    while let Some(place) = rest.iter().position(is_running) {
        let takes_more = rest.get(place).is_some_and(|word| word.is("-exec") || word.is("-execdir"));
        let behind = rest.get(place + 1..).unwrap_or_default();
        let ends = |place: usize| {
            let is_plus = |word: &Word| {
                takes_more
                    && word.is("+")
                    && place > 0
                    && behind.get(place - 1).is_some_and(|word| word.is("{}"))
            };
            behind.get(place).is_some_and(|word| word.is(";") || is_plus(word))
        };
        let Some(end) = (0..behind.len()).find(|place| ends(*place)) else {
            return Runs::Unknown("the command of find does not end".to_owned());
        };
        let mut words = behind.get(..end).unwrap_or_default().to_vec();
        // One of the two may be the argument of another option, and what begins a command is the other.
        if words.iter().any(is_running) {
            return Runs::Unknown("find may run what stands behind another option".to_owned());
        }
        replace(&mut words, "{}");
        inner.push(Inner::Words { words, sets: Vec::new() });
        rest = behind.get(end..).unwrap_or_default();
    }
    if inner.is_empty() { Runs::Itself } else { Runs::Also(inner) }
}

/// Whether a word that is not known can only be paths: it begins with a part of one.
fn is_path(word: &Word) -> bool {
    let begins = ["/", "./", "../", "~/"].iter().any(|begin| word.text.starts_with(begin));
    begins && !word.text.contains(['$', '`'])
}

fn watch(arguments: &[Word]) -> Runs {
    const LETTERS: &str = "dtbegc";
    let mut rest = arguments;
    while let [first, behind @ ..] = rest
        && let Some(letters) = first.value.as_deref().and_then(|value| value.strip_prefix('-'))
    {
        let Some(valued) = letters.trim_start_matches(|letter| LETTERS.contains(letter)).strip_prefix('n')
        else {
            if letters.is_empty() || !letters.chars().all(|letter| LETTERS.contains(letter)) {
                return Runs::Unknown("an option of watch that is not known".to_owned());
            }
            rest = behind;
            continue;
        };
        rest = match behind {
            [seconds, behind @ ..] if valued.is_empty() && seconds.value.is_some() => behind,
            behind if !valued.is_empty() => behind,
            _other => return Runs::Unknown("watch runs what is known only when it runs".to_owned()),
        };
    }
    match joined(rest) {
        Some(text) if !rest.is_empty() => Runs::Only(vec![Inner::Shell { text, is_sh: true }]),
        Some(_) => Runs::Itself,
        None => Runs::Unknown("watch runs what is known only when it runs".to_owned()),
    }
}
