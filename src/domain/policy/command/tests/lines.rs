//! A table of lines, each with its verdict and the words of the reason, under one set of rules.

use super::*;

const TABLES: [&str; 3] =
    [include_str!("words.tsv"), include_str!("commands.tsv"), include_str!("bypasses.tsv")];

#[test]
fn each_line_gets_its_verdict_and_its_reason() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for row in
        TABLES.iter().flat_map(|table| table.lines()).filter(|row| !row.is_empty() && !row.starts_with('#'))
    {
        let [verdict, line, said] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let (number, words) = said.split_once(' ').unwrap();
        let said = format!("rule {number} of policy listed {words}");
        let line: String = serde_json::from_str(line).unwrap();
        let (got, reason) = judge(LISTED, &line);
        if (got.as_str(), &reason) != (verdict, &said) {
            wrong.push(format!("{line:?}\n  want {verdict}: {said}\n  have {}: {reason}", got.as_str()));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 350, "{count}");
}

#[test]
fn an_empty_line_is_no_command_that_could_be_allowed() {
    assert_eq!(judge(LISTED, "").0, Verdict::Ask);
    assert_eq!(judge(OPEN, "").0, Verdict::Allow);
}

#[test]
fn under_a_list_of_what_is_forbidden_the_rest_is_allowed_and_the_undecided_asked() {
    for line in [
        "ls",
        "X=1 cc all > log",
        "git push",
        "tr a b",
        "f() { ls; }; f",
        "timeout 5 cc",
        "x=1",
        "cc $x",
        "tar xf a.tar",
        "git status",
    ] {
        assert_eq!(judge(OPEN, line).0, Verdict::Allow, "{line}");
    }
    for line in [
        "$x",
        "python -c 'import os'",
        "awk 1 a",
        "ssh host ls",
        "bash a.sh",
        ". a",
        "PATH=. ls",
        "LD_PRELOAD=x ls",
        "env PATH=. ls",
        "r? d",
        "curl x",
        "sudo -X ls",
        "alias a=b",
        "echo $((x))",
        "eval $x",
        "make 'a",
        "declare -n x=y",
        "mapfile -C ls a",
        "sed e a",
        "make all",
        "tar xf a --checkpoint-action=exec=ls",
        "tar xf a --to-com=ls",
        "split --filter=ls a",
        "rg --pre ls a",
        "fd -x ls",
        "rsync -ae ls a b",
        "zip -TT ls a b",
        "git -c alias.a=!ls a",
        "git bisect run ls",
        "sqlite3 a",
        "tmux new ls",
        "npx a",
        "php8.2 a",
    ] {
        assert_eq!(judge(OPEN, line).0, Verdict::Ask, "{line}");
    }
}

#[test]
fn a_rule_says_that_its_commands_may_write_to_files() {
    let policy = r#"{ "name": "x", "rule": [
        { "command": ["make"], "redirections": true, "decision": "allow" },
        { "command": ["cat"], "decision": "allow" },
        { "decision": "ask" }
    ] }"#;
    for (line, verdict) in
        [("make > log 2>&1", Verdict::Allow), ("cat a > b", Verdict::Ask), ("make | cat > b", Verdict::Ask)]
    {
        assert_eq!(judge(policy, line).0, verdict, "{line}");
    }
}

#[test]
fn a_rule_for_what_only_runs_another_is_heard_too() {
    let policy = r#"{ "name": "x", "rule": [
        { "command": ["xargs cat", "sudo"], "decision": "deny" },
        { "command": ["cat", "sudo"], "decision": "allow" }
    ] }"#;
    for (line, verdict) in [
        ("xargs cat", Verdict::Deny),
        ("xargs -0 cat", Verdict::Ask),
        ("nice cat", Verdict::Allow),
        ("nice xargs cat", Verdict::Deny),
        ("sudo cat", Verdict::Deny),
        ("xargs ls", Verdict::Deny),
    ] {
        assert_eq!(judge(policy, line).0, verdict, "{line}");
    }
}
