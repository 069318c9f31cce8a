//! How the programs are called that run a command which is among their arguments.
//!
//! An option that is not known here might take the next word for its own, so behind it nothing is known.

use super::Word;

/// How a program that only runs another is called.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Letters of options without a value.
    switches: &'static str,
    /// Letters of options with one.
    valued: &'static str,
    /// Long options, with `=` where they take a value.
    long: &'static [&'static str],
    /// Words between the options and the command.
    pub(super) operands: usize,
}

pub(super) const WRAPPERS: [Wrapper; 12] = [
    Wrapper {
        name: "timeout",
        switches: "vf",
        valued: "ks",
        long: &["--foreground", "--preserve-status", "--verbose", "--kill-after=", "--signal="],
        operands: 1,
    },
    Wrapper { name: "nohup", switches: "", valued: "", long: &[], operands: 0 },
    Wrapper { name: "nice", switches: "0123456789", valued: "n", long: &["--adjustment="], operands: 0 },
    Wrapper { name: "ionice", switches: "t", valued: "cn", long: &["--class=", "--classdata="], operands: 0 },
    Wrapper {
        name: "stdbuf",
        switches: "",
        valued: "ioe",
        long: &["--input=", "--output=", "--error="],
        operands: 0,
    },
    Wrapper {
        name: "setsid",
        switches: "cfw",
        valued: "",
        long: &["--ctty", "--fork", "--wait"],
        operands: 0,
    },
    Wrapper { name: "time", switches: "pv", valued: "f", long: &["--portability", "--verbose"], operands: 0 },
    Wrapper { name: "command", switches: "p", valued: "", long: &[], operands: 0 },
    Wrapper { name: "builtin", switches: "", valued: "", long: &[], operands: 0 },
    Wrapper { name: "exec", switches: "cl", valued: "a", long: &[], operands: 0 },
    Wrapper {
        name: "xargs",
        switches: "0rtx",
        valued: "InPLdsaE",
        long: &[
            "--null",
            "--no-run-if-empty",
            "--verbose",
            "--exit",
            "--max-args=",
            "--max-procs=",
            "--max-lines=",
            "--max-chars=",
            "--delimiter=",
            "--arg-file=",
            "--replace=",
        ],
        operands: 0,
    },
    Wrapper {
        name: "env",
        switches: "i0v",
        valued: "uC",
        long: &["--ignore-environment", "--null", "--debug", "--unset=", "--chdir="],
        operands: 0,
    },
];

/// Those that do something of their own beside.
pub(super) const CHANGERS: [Wrapper; 3] = [
    Wrapper {
        name: "sudo",
        switches: "nEHbkSP",
        valued: "ugpCTR",
        long: &["--non-interactive", "--preserve-env", "--set-home", "--user=", "--group=", "--background"],
        operands: 0,
    },
    Wrapper { name: "doas", switches: "n", valued: "uC", long: &[], operands: 0 },
    Wrapper {
        name: "chroot",
        switches: "",
        valued: "",
        long: &["--userspec=", "--groups=", "--skip-chdir"],
        operands: 1,
    },
];

impl Wrapper {
    /// The words behind the options, and the value of `-I`; nothing, if an option is not known.
    pub(super) fn past_options<'a>(&self, mut words: &'a [Word]) -> Option<(&'a [Word], Option<String>)> {
        let mut replaced = None;
        let mut appends = false;
        while let [first, rest @ ..] = words {
            let Some(value) = first.value.as_deref() else {
                // Where the command begins, it is for the command to say that it is not known.
                return (self.operands == 0).then_some((words, replaced));
            };
            if value == "--" {
                return Some((rest, replaced));
            } else if let Some(option) = value.strip_prefix("--") {
                appends |= self.name == "xargs" && option.starts_with("max-") && !option.starts_with("max-p");
                replaced = self.long_option(option)?.or(replaced);
                words = rest;
            } else if value == "-" && self.name == "env" {
                words = rest;
            } else if let Some(letters) = value.strip_prefix('-').filter(|letters| !letters.is_empty()) {
                appends |= self.name == "xargs" && letters.contains(['n', 'L']);
                let (given, rest) = self.letters(letters, rest)?;
                replaced = given.or(replaced);
                words = rest;
            } else {
                break;
            }
            // Of `-I` and what appends words, the later one counts.
            if appends && replaced.is_some() {
                return None;
            }
        }
        Some((words, replaced))
    }

    /// Whether a long option is known; with its value, if that stands for what is filled in.
    fn long_option(&self, option: &str) -> Option<Option<String>> {
        let (name, value) =
            option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let known = self.long.iter().any(|known| match known.strip_suffix('=') {
            Some(known) => known.strip_prefix("--") == Some(name) && value.is_some(),
            None => known.strip_prefix("--") == Some(name) && value.is_none(),
        });
        known.then(|| value.filter(|_| name == "replace").map(str::to_owned))
    }

    fn letters<'a>(&self, letters: &str, rest: &'a [Word]) -> Option<(Option<String>, &'a [Word])> {
        let behind = letters.trim_start_matches(|letter| self.switches.contains(letter));
        let mut chars = behind.chars();
        let Some(letter) = chars.next() else { return Some((None, rest)) };
        if !self.valued.contains(letter) {
            return None;
        }
        let (given, rest) = match chars.as_str() {
            "" => {
                let (next, rest) = rest.split_first()?;
                (next.value.clone()?, rest)
            }
            joined => (joined.to_owned(), rest),
        };
        Some(((letter == 'I').then_some(given), rest))
    }
}
