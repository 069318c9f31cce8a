//! Builtins that take names of variables or texts to run, and what is known of what they do with them.
//!
//! A variable that is named may be an expression with commands in it, so a name must be known, and plain.

use super::{
    Word, names,
    wrapper::{How, Inner, Runs},
};

/// Operators of `test` between two words.
const BETWEEN: [&str; 14] =
    ["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];

pub(super) fn trap(arguments: &[Word]) -> Runs {
    let unknown = || Runs::Unknown("trap runs what is known only when it runs".to_owned());
    match arguments {
        [] => Runs::Itself,
        [first, rest @ ..] => match first.value.as_deref() {
            None => unknown(),
            Some("--") => Runs::Unknown("an option of trap that is not known".to_owned()),
            Some(value) if value.is_empty() || value.starts_with('-') || rest.is_empty() => Runs::Itself,
            Some(value) => Runs::Only(vec![Inner::Here(value.to_owned())]),
        },
    }
}

/// `jobs -x` runs a command.
pub(super) fn jobs(arguments: &[Word]) -> Runs {
    let may_run =
        |word: &Word| word.value.as_ref().is_none_or(|value| value.starts_with('-') && value.contains('x'));
    if arguments.iter().any(may_run) {
        Runs::Unknown("jobs may run a command".to_owned())
    } else {
        Runs::Itself
    }
}

pub(super) fn settings(name: &str, arguments: &[Word]) -> Runs {
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

/// Why nothing is known of a builtin that sets or looks at variables by name.
pub(super) fn assigning(name: &str, arguments: &[Word], how: How) -> Option<String> {
    let evaluates = || Some(names::EVALUATES.to_owned());
    match name {
        "read" | "mapfile" | "readarray" | "getopts" | "unset" => naming(arguments),
        "wait" => {
            let is_job = |word: &Word| matches!(word.text.trim_matches('"'), "$!" | "$$");
            let words: Vec<Word> = arguments.iter().filter(|word| !is_job(word)).cloned().collect();
            naming(&words)
        }
        "printf" => match arguments {
            [first, ..] if may_be_option(first) => {
                if first.is("--") {
                    format_names(arguments.get(1..)?)
                } else {
                    naming(arguments)
                }
            }
            words => format_names(words),
        },
        "test" | "[" => {
            if arguments.iter().any(|word| word.is("-v") || word.is("-R")) {
                naming(arguments)
            } else if is_sure_test(arguments) {
                None
            } else {
                evaluates()
            }
        }
        _other if names::DECLARING.contains(&name) => declaring(arguments, how),
        _other => None,
    }
}

fn naming(arguments: &[Word]) -> Option<String> {
    arguments.iter().find_map(|word| {
        let Some(value) = word.value.as_deref() else { return Some(names::EVALUATES.to_owned()) };
        let is_plain = match value.strip_prefix('-') {
            Some(letters) => {
                letters.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.N".contains(c))
            }
            None => matches!(value, "[" | "]") || !value.contains(['[', '$', '`']),
        };
        if !is_plain {
            return Some(names::EVALUATES.to_owned());
        }
        names::alters(value).then(|| names::why_it_alters(value))
    })
}

/// Whether the first word of `printf` may be an option.
fn may_be_option(word: &Word) -> bool {
    if let Some(value) = &word.value {
        return value.starts_with('-');
    }
    let inner = word.text.strip_prefix('"').unwrap_or(&word.text);
    let first = inner.strip_prefix('\\').filter(|_| inner.len() < word.text.len()).unwrap_or(inner);
    !first.starts_with(|c: char| {
        c.is_ascii_alphanumeric() || " %.,:/_(=#".contains(c) && inner.len() < word.text.len()
    })
}

/// Whether a format sets variables, with `%n`, and which.
fn format_names(words: &[Word]) -> Option<String> {
    let (format, rest) = words.split_first()?;
    let sets = |format: &str| {
        let mut rest = format;
        while let Some((_, behind)) = rest.split_once('%') {
            let behind =
                behind.trim_start_matches(|c: char| c.is_ascii_digit() || "#'-+ .*hlLjzt".contains(c));
            if behind.starts_with('n') {
                return true;
            }
            rest = behind.strip_prefix('%').unwrap_or(behind);
        }
        false
    };
    match format.value.as_deref() {
        // It may become several words, and those behind the first name variables.
        None if !is_single(format) => Some(names::EVALUATES.to_owned()),
        Some(format) if !sets(format) => None,
        Some(_) | None => naming(rest),
    }
}

/// Whether `test` is called so that no word which is not known can be an operator.
fn is_sure_test(arguments: &[Word]) -> bool {
    if arguments.iter().all(|word| word.value.is_some()) {
        return true;
    }
    let mut words = arguments;
    if let [rest @ .., last] = words
        && last.is("]")
    {
        words = rest;
    }
    if let [first, rest @ ..] = words
        && first.is("!")
        && rest.len() > 1
    {
        words = rest;
    }
    let all_single = words.iter().all(|word| word.value.is_some() || is_single(word));
    all_single
        && match words {
            [_] => true,
            [operator, _] => operator.value.is_some(),
            [_, operator, _] => BETWEEN.iter().any(|between| operator.is(between)),
            _other => false,
        }
}

/// Whether what is not known is one word for sure: it is all in double quotes, and no list.
fn is_single(word: &Word) -> bool {
    let inner = word.text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.is_some_and(|inner| !inner.contains(['"', '@']))
}

fn declaring(arguments: &[Word], how: How) -> Option<String> {
    arguments.iter().find_map(|word| {
        let evaluates = || Some(names::EVALUATES.to_owned());
        let text = word.value.as_ref().unwrap_or(&word.text);
        if let Some(letters) = text.strip_prefix('-') {
            return if letters.contains(['i', 'n']) || word.value.is_none() { evaluates() } else { None };
        }
        let (target, assigned) =
            text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
        let target = target.trim_end_matches('+');
        if target.contains(['[', '$', '`']) {
            return evaluates();
        }
        let written = word.text.split_once('=').map_or("", |(_, value)| value);
        // A list that stands there is read where it stands; one that a text makes is evaluated.
        let is_list = word.value.is_none() && written.starts_with('(');
        let lists =
            arguments.iter().any(|word| word.text.starts_with(['-', '+', '"', '\'', '\\']) && !word.is("--"));
        let is_text_of_list = assigned.is_some_and(|value| word.value.is_some() && value.starts_with('('));
        let unknown = word.value.is_none()
            && !is_list
            && (assigned.is_none()
                || !names::is_name(target)
                || !how.is_bare
                || how.is_sh
                || lists
                || how.has_lists);
        if is_text_of_list || unknown {
            return evaluates();
        }
        names::alters(target).then(|| names::why_it_alters(target))
    })
}
