//! Finds a policy by name or file. The built-in ones are files like any other, carried in the program.

use std::{borrow::Cow, io, ops::Range, path::Path};

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use crate::domain::policy::Policy;

/// The policy of those who name none.
pub const DEFAULT: &str = "edit-workspace";

const BUILTIN: [(&str, &str); 4] = [
    ("read-only", include_str!("../../config/policy/read-only.toml")),
    ("edit-workspace", include_str!("../../config/policy/edit-workspace.toml")),
    ("careful", include_str!("../../config/policy/careful.toml")),
    ("trusted", include_str!("../../config/policy/trusted.toml")),
];

/// Why there is no such policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error(
        "there is no policy {0:?}: the built-in ones are {names}, anything else is a file",
        names = names().collect::<Vec<_>>().join(", ")
    )]
    Unknown(String),
    #[error("policy file {file:?} cannot be read")]
    Unreadable {
        file: String,
        #[source]
        source: io::Error,
    },
    #[error("{file}:{line}: {what}")]
    Invalid { file: String, line: usize, what: String },
}

/// The names of the built-in policies, the strictest first.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The text of a built-in policy.
pub fn builtin(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// What a built-in policy is for: the first line of its text.
pub fn about(name: &str) -> &'static str {
    let first = builtin(name).and_then(|text| text.lines().next()).unwrap_or_default();
    first.trim_start_matches("# ")
}

/// Reads a built-in policy by its name, or else a file.
///
/// # Errors
/// There is no such file, or it holds no policy.
pub fn load(name_or_file: &str) -> Result<Policy, PolicyError> {
    parse(name_or_file, &text(name_or_file)?)
}

/// As [`load`], for a process that has these tools.
///
/// # Errors
/// As [`load`]; or a rule names a tool that is not there, so that it would silently do nothing.
pub fn load_for(name_or_file: &str, tools: &[&str]) -> Result<Policy, PolicyError> {
    let text = text(name_or_file)?;
    let policy = parse(name_or_file, &text)?;
    match policy.unknown_tools(tools).first() {
        None => Ok(policy),
        Some(unknown) => Err(PolicyError::Invalid {
            file: name_or_file.to_owned(),
            line: line_of_rule(&text, unknown.rule),
            what: format!("tools: {unknown}; the tools are: {}", tools.join(", ")),
        }),
    }
}

/// The text of a policy, built in or in a file.
///
/// # Errors
/// There is no such file, or it cannot be read.
pub fn text(name_or_file: &str) -> Result<Cow<'static, str>, PolicyError> {
    if let Some(text) = builtin(name_or_file) {
        return Ok(text.into());
    }
    match std::fs::read_to_string(name_or_file) {
        Ok(text) => Ok(text.into()),
        Err(source) if source.kind() == io::ErrorKind::NotFound && !looks_like_file(name_or_file) => {
            Err(PolicyError::Unknown(name_or_file.to_owned()))
        }
        Err(source) => Err(PolicyError::Unreadable { file: name_or_file.to_owned(), source }),
    }
}

fn looks_like_file(name: &str) -> bool {
    name.contains('/') || Path::new(name).extension().is_some()
}

/// Reads the text of a policy; `file` names it in errors.
///
/// # Errors
/// The first thing that is wrong with it, and where.
pub fn parse(file: &str, text: &str) -> Result<Policy, PolicyError> {
    let policy: Policy = toml::from_str(text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        let message = error.message().trim().replace('\n', ", ").replace('`', "'");
        let what = match field_at(text, &place) {
            Some(field) if !message.contains(&format!("'{field}'")) => format!("{field}: {message}"),
            Some(_) | None => message,
        };
        PolicyError::Invalid { file: file.to_owned(), line: line_at(text, place.start), what }
    })?;
    match policy.fits_nothing() {
        None => Ok(policy),
        Some(rule) => Err(PolicyError::Invalid {
            file: file.to_owned(),
            line: line_of_rule(text, rule),
            what: format!(
                "rule {rule} has both path and command, and so never fits: path is about tools on files; write two rules"
            ),
        }),
    }
}

/// Where a rule begins; the first rule is 1.
fn line_of_rule(text: &str, number: usize) -> usize {
    #[derive(Deserialize)]
    struct Rules {
        rule: Vec<Spanned<IgnoredAny>>,
    }
    let rules: Option<Rules> = toml::from_str(text).ok();
    let start = rules.and_then(|rules| Some(rules.rule.get(number.checked_sub(1)?)?.span().start));
    line_at(text, start.unwrap_or(0))
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// The field whose value starts at `place`.
fn field_at<'a>(text: &'a str, place: &Range<usize>) -> Option<&'a str> {
    let before = text.get(..place.start)?.trim_end();
    let key = before.strip_suffix('=')?.trim_end();
    key.rsplit(['\n', ',', '{']).next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        call::EffectClass,
        policy::{Subject, Verdict},
    };

    const TOOLS: [(&str, EffectClass); 6] = [
        ("read", EffectClass::Read),
        ("list", EffectClass::Read),
        ("grep", EffectClass::Read),
        ("edit", EffectClass::Write),
        ("write", EffectClass::Write),
        ("bash", EffectClass::Outside),
    ];

    fn verdicts(policy: &str, paths: &[&str]) -> Vec<&'static str> {
        let policy = load(policy).unwrap();
        let judge = |(tool, effect)| {
            policy.verdict(&Subject { tool, effect, paths, command: None, arguments: None }).as_str()
        };
        TOOLS.into_iter().map(judge).collect()
    }

    #[test]
    fn each_built_in_policy_is_named_like_its_file_and_names_no_unknown_tool() {
        for name in names() {
            let policy = load(name).unwrap();
            assert_eq!(policy.name(), name);
            assert_eq!(policy.unknown_tools(&["read", "list", "grep", "edit", "write"]), []);
        }
        assert!(builtin(DEFAULT).is_some());
    }

    #[test]
    fn built_in_policies_say_what_their_names_say() {
        let plain = |policy| verdicts(policy, &["src/main.rs"]);
        assert_eq!(plain("read-only"), ["allow", "allow", "allow", "deny", "deny", "deny"]);
        assert_eq!(plain("edit-workspace"), ["allow", "allow", "allow", "allow", "allow", "ask"]);
        assert_eq!(plain("careful"), ["allow", "allow", "allow", "ask", "ask", "ask"]);
        assert_eq!(plain("trusted"), ["allow"; 6]);
        assert_eq!(verdicts("edit-workspace", &[""]), plain("edit-workspace"));
    }

    #[test]
    fn secrets_are_denied_by_all_but_trusted() {
        let secrets = [
            ".env",
            "app/.env.local",
            ".envs/production/db",
            "tls/server.key",
            "cert.pem",
            "deploy/id_ed25519",
            ".ssh/config",
            ".git-credentials",
            "home/.netrc",
            ".npmrc",
            ".aws/credentials",
            "credentials.json",
        ];
        for secret in secrets {
            for policy in ["read-only", "edit-workspace", "careful"] {
                assert_eq!(verdicts(policy, &[secret]), ["deny"; 6], "{policy} {secret}");
            }
            assert_eq!(verdicts("trusted", &[secret]), ["allow"; 6]);
        }
        for harmless in
            ["src/env.rs", "environment.yml", "keys.rs", "id_rsa.pub", "monkey", "src/credentials.rs"]
        {
            assert_eq!(verdicts("edit-workspace", &[harmless])[0], "allow", "{harmless}");
        }
    }

    #[test]
    fn git_s_own_files_are_read_but_not_written() {
        for path in [".git", ".git/config", "vendor/lib/.git/hooks/pre-commit"] {
            let verdicts = verdicts("edit-workspace", &[path]);
            assert_eq!(verdicts, ["allow", "allow", "allow", "deny", "deny", "deny"], "{path}");
        }
        assert_eq!(verdicts("edit-workspace", &[".gitignore"])[3], "allow");
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_said_in_one_line_with_file_line_and_field() {
        let cases = [
            (
                "name = \"x\"\n[[rule]]\ndecision = \"alow\"",
                "p.toml:3: decision: unknown variant 'alow', expected one of 'allow', 'ask', 'deny'",
            ),
            (
                "name = \"x\"\n[[rule]]\ndecision = \"deny\"\ntool = []",
                "p.toml:4: unknown field 'tool', expected one of 'tools', 'effect', 'path', 'command', \
                 'redirections', 'args', 'decision', 'reason'",
            ),
            ("name = \"x\"\n\n[[rule]]\ntools = [\"read\"]", "p.toml:3: missing field 'decision'"),
            ("[[rule]]\ndecision = \"deny\"", "p.toml:1: missing field 'name'"),
            (
                "name = \"x\"\n[[rule]]\neffect = \"reed\"\ndecision = \"deny\"",
                "p.toml:3: effect: expected \"read\", \"write\" or \"outside\", or a list of them",
            ),
            (
                "name = \"x\"\n[[rule]]\ntools = []\ndecision = \"deny\"",
                "p.toml:3: tools: an empty list fits no tool; leave it out to mean every tool",
            ),
            (
                "name = \"x\"\n[[rule]]\npath = [\n  \"a\",\n  \"/etc/**\",\n]\ndecision = \"deny\"",
                "p.toml:3: path: \"/etc/**\" never fits: paths are relative to the workspace",
            ),
            (
                "name = \"x\"\n[[rule]]\npath = [\"a{\"]\ndecision = \"deny\"",
                "p.toml:3: path: \"a{\" is no pattern: unclosed alternate group; missing '}' (maybe escape '{' with '[{]'?)",
            ),
            (
                "name = \"x\"\n[[rule]]\ncommand = []\ndecision = \"deny\"",
                "p.toml:3: command: an empty list fits no command; leave it out to mean every call",
            ),
            (
                "name = \"x\"\n[[rule]]\ncommand = [\"ls; rm\"]\ndecision = \"deny\"",
                "p.toml:3: command: \"ls; rm\" never fits: it is matched with one command at a time, without ;",
            ),
            (
                "name = \"x\"\n[[rule]]\ncommand = [\" \"]\ndecision = \"deny\"",
                "p.toml:3: command: \" \" has no word",
            ),
            (
                "name = \"x\"\n[[rule]]\nargs = { url = [] }\ndecision = \"deny\"",
                "p.toml:3: args: the empty list of \"url\" fits nothing; [\"*\"] fits any value",
            ),
            (
                "name = \"x\"\n[[rule]]\ndecision = \"ask\"\n[[rule]]\npath = [\"a\"]\ncommand = [\"cat\"]\ndecision = \"deny\"",
                "p.toml:4: rule 2 has both path and command, and so never fits: path is about tools on files; write two \
                 rules",
            ),
        ];
        for (text, said) in cases {
            assert_eq!(parse("p.toml", text).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn a_name_that_is_no_policy_is_told_which_ones_there_are() {
        for name in ["readonly", "constructor", "__proto__", ""] {
            let said = load(name).unwrap_err().to_string();
            let right =
                "the built-in ones are read-only, edit-workspace, careful, trusted, anything else is a file";
            assert_eq!(said, format!("there is no policy {name:?}: {right}"));
        }
        assert!(matches!(load("./none.toml"), Err(PolicyError::Unreadable { .. })));
    }

    #[test]
    fn a_policy_is_read_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, "name = \"mine\"\n[[rule]]\ndecision = \"ask\"").unwrap();
        let policy = load(file.to_str().unwrap()).unwrap();
        assert_eq!(policy.could_allow("bash", EffectClass::Outside), Verdict::Ask);
    }
}
