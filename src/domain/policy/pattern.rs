//! Patterns of commands and of arguments.
//!
//! A pattern of a command is the words that it begins with: `rm` fits `rm -rf d`. A `*` in a word stands for anything, a
//! last word `$` for the end. A rule that allows takes the command's name as it is, or from a standard folder; one that
//! does not takes it from any folder, and where options stand between the words it may be meant.

use serde::Deserialize;

use super::{
    Verdict,
    command::{Part, Sight, Word, base_name, standard_name},
};

/// Whether something is what a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    No,
    /// It may be once it runs.
    Maybe,
    Yes,
}

/// Patterns of commands; one that fits is enough.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub(super) struct Commands(Vec<Pattern>);

#[derive(Clone, Debug)]
struct Pattern {
    words: Vec<String>,
    is_whole: bool,
}

impl TryFrom<Vec<String>> for Commands {
    type Error = String;

    fn try_from(patterns: Vec<String>) -> Result<Self, Self::Error> {
        if patterns.is_empty() {
            return Err("an empty list fits no command; leave it out to mean every call".to_owned());
        }
        let read = |pattern: &String| {
            let mut words: Vec<String> = pattern.split_whitespace().map(str::to_owned).collect();
            let is_whole = words.last().is_some_and(|word| word == "$");
            if is_whole {
                words.pop();
            }
            // Whatever follows fits already.
            while words.len() > 1 && !is_whole && words.last().is_some_and(|word| word == "*") {
                words.pop();
            }
            let odd =
                [";", "|", "&", ">", "<", "`", "$(", "\"", "'"].iter().find(|odd| pattern.contains(**odd));
            match (odd, words.is_empty()) {
                (Some(odd), _) => Err(format!(
                    "{pattern:?} never fits: it is matched with one command at a time, without {odd}"
                )),
                (None, true) => Err(format!("{pattern:?} has no word")),
                (None, false) => Ok(Pattern { words, is_whole }),
            }
        };
        patterns.iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl Commands {
    /// Whether a part is what a rule with this decision is about.
    pub(super) fn fit(&self, part: &Part, decision: Verdict, allows_redirections: bool) -> Fit {
        let best = self.0.iter().map(|pattern| pattern.fit(&part.words, decision)).max().unwrap_or(Fit::No);
        let is_plain = part.sets.is_empty() && (part.reaches.is_empty() || allows_redirections);
        match (&part.sight, decision) {
            (Sight::Unread(_), _) => Fit::Maybe,
            (Sight::Hidden(_), Verdict::Allow) => Fit::No,
            (Sight::Clear | Sight::Through | Sight::Opaque(_), Verdict::Allow) => {
                if best == Fit::Yes && is_plain { Fit::Yes } else { Fit::No }
            }
            (Sight::Clear | Sight::Through, Verdict::Ask | Verdict::Deny) => best,
            (Sight::Hidden(_) | Sight::Opaque(_), Verdict::Ask | Verdict::Deny) => best.max(Fit::Maybe),
        }
    }
}

impl Pattern {
    fn fit(&self, words: &[Word], decision: Verdict) -> Fit {
        let (Some(name), Some(wanted)) = (words.first(), self.words.first()) else { return Fit::No };
        let Some(name) = name.value.as_deref() else { return Fit::Maybe };
        let named = match decision {
            _ if wanted.contains('/') => is_like(wanted, name),
            Verdict::Allow => standard_name(name).is_some_and(|name| is_like(wanted, name)),
            Verdict::Ask | Verdict::Deny => is_like(wanted, base_name(name)),
        };
        if !named {
            return Fit::No;
        }
        let (wanted, given) = (self.words.get(1..).unwrap_or_default(), words.get(1..).unwrap_or_default());
        let fit = self.arguments(wanted, given);
        let may_be_meant = decision != Verdict::Allow && behind_options(wanted, given);
        if may_be_meant { fit.max(Fit::Maybe) } else { fit }
    }

    fn arguments(&self, wanted: &[String], given: &[Word]) -> Fit {
        let mut given = given.iter();
        for wanted in wanted {
            match given.next() {
                None => return Fit::No,
                Some(Word { value: None, .. }) => return Fit::Maybe,
                Some(Word { value: Some(value), .. }) if is_like(wanted, value) => {}
                Some(_) => return Fit::No,
            }
        }
        match given.next() {
            Some(word) if self.is_whole => {
                if word.value.is_none() {
                    Fit::Maybe
                } else {
                    Fit::No
                }
            }
            Some(_) | None => Fit::Yes,
        }
    }
}

/// Whether the words stand there in their order, with nothing between but options and a word behind each.
fn behind_options(wanted: &[String], given: &[Word]) -> bool {
    let mut wanted = wanted.iter().peekable();
    let mut given = given.iter();
    let mut may_skip = false;
    while let Some(next) = wanted.peek() {
        let Some(word) = given.next() else { return false };
        let Some(value) = word.value.as_deref() else { return true };
        if is_like(next, value) {
            wanted.next();
            may_skip = false;
        } else if value.starts_with('-') {
            may_skip = true;
        } else if may_skip {
            may_skip = false;
        } else {
            return false;
        }
    }
    true
}

/// Whether a text is what a pattern says, in which `*` stands for anything.
pub(super) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let (middle, tail) = rest.rsplit_once('*').map_or((None, rest), |(middle, tail)| (Some(middle), tail));
    let Some(before) = text.strip_suffix(tail) else { return false };
    text = before;
    // The earliest place for each piece leaves the most room for the next.
    middle.into_iter().flat_map(|middle| middle.split('*')).all(|piece| match text.find(piece) {
        Some(place) => {
            text = text.get(place + piece.len()..).unwrap_or_default();
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything_and_nothing() {
        for (pattern, text) in [
            ("*", ""),
            ("a*", "a"),
            ("a*c", "abc"),
            ("*b*", "abc"),
            ("a*b*c", "aXbYc"),
            ("--*=x", "--a/b=x"),
            ("é*", "éa"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*a", "a"), ("a*b*c", "acb"), ("*x*x", "x"), ("", "a"), ("ab*ba", "aba")]
        {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }
}
