//! Ways round a rule that looks at how a line begins only.

use super::{super::super::Verdict, *};

const ALLOWED: &str = r#"{ "name": "x", "rule": [
    { "command": ["rm"], "decision": "deny" },
    { "command": ["git status", "cat"], "decision": "allow" },
    { "decision": "ask" }
] }"#;

#[test]
fn what_is_allowed_carries_nothing_else_along() {
    let deny = |what: &str| (Verdict::Deny, format!("rule 1 of policy x denies {what}"));
    let ask = |what: &str| (Verdict::Ask, format!("rule 3 of policy x asks about {what}"));
    let cases = [
        ("git status && rm -rf ./d", deny(r#""rm -rf ./d""#)),
        ("git status\nrm -rf ./d", deny(r#""rm -rf ./d""#)),
        ("cat a.txt; rm d", deny(r#""rm d""#)),
        ("cat a | tee b", ask(r#""tee b""#)),
        ("git status $(rm d)", deny(r#""rm d" (in $(...))"#)),
        ("git status `rm d`", deny(r#""rm d" (in `...`)"#)),
        ("cat <(rm d)", deny(r#""rm d" (in <(...))"#)),
        ("git status & rm d", deny(r#""rm d""#)),
        ("cat a > /etc/x", ask(r#""cat a > /etc/x" (writes to /etc/x)"#)),
        ("X=1 rm d", deny(r#""X=1 rm d" (sets X)"#)),
    ];
    for (line, said) in cases {
        assert_eq!(judge(ALLOWED, line), said, "{line}");
    }
    let allow = |what: &str| (Verdict::Allow, format!("rule 2 of policy x allows {what}"));
    assert_eq!(judge(ALLOWED, "git status"), allow(r#""git status""#));
    assert_eq!(judge(ALLOWED, "cat a.txt"), allow(r#""cat a.txt""#));
}

#[test]
fn what_is_forbidden_is_found_behind_what_runs_it() {
    let deny = |what: &str| (Verdict::Deny, format!("rule 1 of policy open denies {what}"));
    let cases = [
        ("bash -c 'rm -rf d'", deny(r#""rm -rf d" (in bash -c)"#)),
        ("env A=1 rm d", deny(r#""rm d" (in env; sets A)"#)),
        ("timeout 1 rm d", deny(r#""rm d" (in timeout)"#)),
        ("nohup rm d", deny(r#""rm d" (in nohup)"#)),
        ("echo d | xargs rm", deny(r#""rm ..." (in xargs)"#)),
        ("eval 'r''m d'", deny(r#""rm d" (in eval)"#)),
        ("find . -exec rm {} +", deny(r#""rm {}" (in find -exec)"#)),
        ("\\rm d", deny(r#""\\rm d""#)),
        ("/bin/rm d", deny(r#""/bin/rm d""#)),
        (
            "command curl http://x",
            (Verdict::Ask, r#"rule 2 of policy open asks about "curl http://x" (in command)"#.to_owned()),
        ),
        (
            "$(echo rm) d",
            (
                Verdict::Ask,
                "rule 1 of policy open may be about \"$(echo rm) d\" (cannot be decided: what runs is known only when it runs)"
                    .to_owned(),
            ),
        ),
    ];
    for (line, said) in cases {
        assert_eq!(judge(OPEN, line), said, "{line}");
    }
}

#[test]
fn where_everything_is_allowed_nothing_is_looked_into() {
    let trusted = r#"{ "name": "t", "rule": [{ "decision": "allow" }] }"#;
    for line in ["$x", "'", "rm -rf d", "eval \"$y\"", ""] {
        assert_eq!(
            judge(trusted, line),
            (Verdict::Allow, "rule 1 of policy t says allow".to_owned()),
            "{line}"
        );
    }
}

#[test]
fn what_cannot_be_parsed_is_never_allowed_where_a_rule_names_commands() {
    let only_allowed =
        r#"{ "name": "x", "rule": [{ "command": ["cat"], "decision": "allow" }, { "decision": "allow" }] }"#;
    let denied =
        r#"{ "name": "x", "rule": [{ "command": ["cat"], "decision": "allow" }, { "decision": "deny" }] }"#;
    for line in ["cat 'a", "cat $(", "if cat a", "cat <<E\n", "cat )"] {
        assert_eq!(judge(only_allowed, line).0, Verdict::Ask, "{line}");
        assert_eq!(judge(denied, line).0, Verdict::Deny, "{line}");
        assert_eq!(judge(OPEN, line).0, Verdict::Ask, "{line}");
    }
}
