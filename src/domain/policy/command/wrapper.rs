//! Programs and builtins that run what their arguments say, and what that is.

use super::{
    Word, names,
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
    Shell(String),
}

/// Says what a program runs when it is called with these.
pub(super) fn look(name: &str, arguments: &[Word]) -> Runs {
    match name {
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "mksh" | "ash" | "rbash" => shell(name, arguments),
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
        "trap" => trap(arguments),
        "source" | "." => Runs::Unknown("it runs what a file says".to_owned()),
        "find" => find(arguments),
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
        "set" | "shopt" => settings(name, arguments),
        "let" => Runs::Unknown(names::EVALUATES.to_owned()),
        "command" if arguments.first().is_some_and(|word| word.is("-v") || word.is("-V")) => Runs::Itself,
        _other => match assigning(name, arguments) {
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
            if !names::is_name(name) {
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

/// The arguments of `env` with the line split that comes first, if it is plain.
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
    is_plain.then(|| line.split_whitespace().map(Word::literal).chain(rest.iter().cloned()).collect())
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
        let Some(letters) = value.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty()) else {
            return if is_text {
                Runs::Only(vec![Inner::Shell(value.to_owned())])
            } else {
                Runs::More(format!("{name} runs what a file says"))
            };
        };
        let takes_value = letters.ends_with('o');
        let plain = letters.trim_end_matches('o').chars().all(|letter| "ceuxlfvn".contains(letter));
        if !(plain || ["-norc", "-noprofile", "-posix", "-login"].contains(&letters)) {
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

fn trap(arguments: &[Word]) -> Runs {
    match arguments {
        [] | [_] => Runs::Itself,
        [first, ..] => match first.value.as_deref() {
            None => Runs::Unknown("trap runs what is known only when it runs".to_owned()),
            Some("--") => Runs::Unknown("an option of trap that is not known".to_owned()),
            Some(value) if value.is_empty() || value.starts_with('-') => Runs::Itself,
            Some(value) => Runs::Only(vec![Inner::Here(value.to_owned())]),
        },
    }
}

fn find(arguments: &[Word]) -> Runs {
    const RUNNING: [&str; 4] = ["-exec", "-execdir", "-ok", "-okdir"];
    if arguments.iter().any(|word| word.value.is_none() && !is_one_path(word)) {
        return Runs::Unknown("find may run what is known only when it runs".to_owned());
    }
    let mut inner = Vec::new();
    let mut rest = arguments;
    while let Some(place) = rest.iter().position(|word| RUNNING.iter().any(|running| word.is(running))) {
        let behind = rest.get(place + 1..).unwrap_or_default();
        let ends = |place: usize| {
            let is_plus = |word: &Word| {
                word.is("+") && place > 0 && behind.get(place - 1).is_some_and(|word| word.is("{}"))
            };
            behind.get(place).is_some_and(|word| word.is(";") || is_plus(word))
        };
        let Some(end) = (0..behind.len()).find(|place| ends(*place)) else {
            return Runs::Unknown("the command of find does not end".to_owned());
        };
        let mut words = behind.get(..end).unwrap_or_default().to_vec();
        replace(&mut words, "{}");
        inner.push(Inner::Words { words, sets: Vec::new() });
        rest = behind.get(end..).unwrap_or_default();
    }
    if inner.is_empty() { Runs::Itself } else { Runs::Also(inner) }
}

/// Whether a word that is not known can only be paths: it begins with a part of one.
fn is_one_path(word: &Word) -> bool {
    word.text.starts_with(['/', '.', '~', '*']) && !word.text.contains(['$', '`'])
}

fn watch(arguments: &[Word]) -> Runs {
    const LETTERS: &str = "dtbegcx";
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
        rest = if valued.is_empty() { behind.get(1..).unwrap_or_default() } else { behind };
    }
    match joined(rest) {
        Some(text) if !rest.is_empty() => Runs::Only(vec![Inner::Shell(text)]),
        Some(_) => Runs::Itself,
        None => Runs::Unknown("watch runs what is known only when it runs".to_owned()),
    }
}

fn settings(name: &str, arguments: &[Word]) -> Runs {
    const PLAIN: [&str; 8] =
        ["pipefail", "errexit", "nounset", "xtrace", "nullglob", "globstar", "dotglob", "failglob"];
    for word in arguments {
        match word.value.as_deref() {
            Some("--") if name == "set" => break,
            Some(value) if PLAIN.contains(&value) => {}
            Some(value)
                if value.strip_prefix(['-', '+']).is_some_and(|letters| {
                    let known = if name == "set" { "euxvfCbo" } else { "suqp" };
                    !letters.is_empty() && letters.chars().all(|letter| known.contains(letter))
                }) => {}
            Some(_) | None => return Runs::Unknown(format!("{name} changes how later words are read")),
        }
    }
    Runs::Itself
}

/// Why nothing is known of a builtin that sets variables by name: the name may be an expression, or one that alters.
fn assigning(name: &str, arguments: &[Word]) -> Option<String> {
    let declares = names::DECLARING.contains(&name);
    let is_naming = match name {
        "read" | "mapfile" | "readarray" | "getopts" | "unset" => true,
        "printf" | "wait" => arguments.first().is_some_and(|word| {
            word.value.as_ref().map_or_else(
                || word.text.trim_start_matches('"').starts_with(['$', '`']),
                |value| value.starts_with("-v") || value.starts_with("-p"),
            )
        }),
        "test" | "[" => arguments.iter().any(|word| word.is("-v") || word.is("-R")),
        _other => declares,
    };
    if !is_naming {
        return None;
    }
    arguments.iter().find_map(|word| {
        let text = word.value.as_ref().unwrap_or(&word.text);
        let (target, is_assigned) =
            text.split_once('=').map_or((text.as_str(), false), |(name, _)| (name, true));
        let target = target.trim_end_matches('+');
        let evaluates = match target.strip_prefix('-') {
            Some(letters) if declares => letters.contains(['i', 'n']),
            Some(letters) => name != "unset" && letters.contains('C'),
            None => target.contains(['[', '$', '`']) && !word.is("[") && !word.is("]"),
        };
        let unknown = word.value.is_none() && !(declares && is_assigned && names::is_name(target));
        if evaluates || unknown {
            Some(names::EVALUATES.to_owned())
        } else {
            names::alters(target).then(|| names::why_it_alters(target))
        }
    })
}
