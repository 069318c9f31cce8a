//! What a policy promises, whoever wrote it.

use super::*;

fn policy(rules: serde_json::Value) -> Policy {
    serde_json::from_value(serde_json::json!({ "name": "test", "rule": rules })).unwrap()
}

fn judge(policy: &Policy, tool: &str, effect: EffectClass, paths: &[&str]) -> (Verdict, String) {
    policy.judge(&Subject { tool, effect, paths, command: None, arguments: None })
}

#[test]
fn the_first_rule_that_fits_decides() {
    let policy = policy(serde_json::json!([
        { "tools": ["edit"], "path": ["src/**"], "decision": "ask", "reason": "sources are looked at" },
        { "tools": ["edit", "write"], "decision": "allow" },
        { "effect": ["read", "outside"], "decision": "deny" },
    ]));
    let said = |tool, effect, path| judge(&policy, tool, effect, &[path]);
    assert_eq!(
        said("edit", EffectClass::Write, "src/a.rs"),
        (Verdict::Ask, "rule 1 of policy test: sources are looked at".to_owned())
    );
    assert_eq!(
        said("edit", EffectClass::Write, "doc/a.md"),
        (Verdict::Allow, "rule 2 of policy test says allow".to_owned())
    );
    assert_eq!(said("write", EffectClass::Write, "src/a.rs").0, Verdict::Allow);
    assert_eq!(
        said("read", EffectClass::Read, "src/a.rs"),
        (Verdict::Deny, "rule 3 of policy test says deny".to_owned())
    );
}

#[test]
fn what_no_rule_fits_is_denied() {
    let nothing = (Verdict::Deny, "no rule of policy test allows it".to_owned());
    assert_eq!(judge(&policy(serde_json::json!([])), "read", EffectClass::Read, &["a"]), nothing);
    let reads = policy(serde_json::json!([{ "effect": "read", "decision": "allow" }]));
    assert_eq!(judge(&reads, "bash", EffectClass::Outside, &[""]), nothing);
}

#[test]
fn names_that_mean_something_elsewhere_mean_nothing_here() {
    let policy = policy(serde_json::json!([{ "tools": ["read"], "decision": "allow" }]));
    for tool in ["constructor", "__proto__", "toString", "hasOwnProperty", "", "READ", "read ", "*"] {
        assert_eq!(judge(&policy, tool, EffectClass::Read, &["a"]).0, Verdict::Deny, "{tool:?}");
        assert_eq!(policy.could_allow(tool, EffectClass::Read), Verdict::Deny, "{tool:?}");
    }
}

#[test]
fn an_allowed_path_never_carries_a_forbidden_one_along() {
    let policy = policy(serde_json::json!([
        { "path": ["src/**"], "decision": "allow" },
        { "path": ["doc/**"], "decision": "ask" },
    ]));
    let verdict = |paths| judge(&policy, "move", EffectClass::Write, paths).0;
    assert_eq!(verdict(&["src/a", "src/b"]), Verdict::Allow);
    assert_eq!(verdict(&["src/a", "doc/b"]), Verdict::Ask);
    assert_eq!(verdict(&["doc/b", "secret", "src/a"]), Verdict::Deny);
}

#[test]
fn a_pattern_s_star_stays_in_its_folder_and_two_stars_do_not() {
    let policy = policy(serde_json::json!([{ "path": ["src/*.rs", "doc/**"], "decision": "allow" }]));
    let verdict = |path| judge(&policy, "read", EffectClass::Read, &[path]).0;
    assert_eq!(verdict("src/a.rs"), Verdict::Allow);
    assert_eq!(verdict("src/a/b.rs"), Verdict::Deny);
    assert_eq!(verdict("doc/a/b.md"), Verdict::Allow);
    assert_eq!(verdict(""), Verdict::Deny);
}

#[test]
fn a_call_that_touches_nothing_known_is_judged_by_rules_without_a_path() {
    let policy = policy(serde_json::json!([
        { "path": ["**"], "decision": "allow" },
        { "decision": "ask" },
    ]));
    assert_eq!(judge(&policy, "fetch", EffectClass::Outside, &[]).0, Verdict::Ask);
    assert_eq!(judge(&policy, "fetch", EffectClass::Outside, &[""]).0, Verdict::Allow);
}

#[test]
fn the_best_that_a_tool_could_get_looks_past_rules_for_some_paths_only() {
    let policy = policy(serde_json::json!([
        { "path": ["**/.env"], "decision": "deny" },
        { "tools": ["edit"], "path": ["src/**"], "decision": "ask" },
        { "tools": ["edit"], "decision": "deny" },
        { "effect": "read", "decision": "allow" },
        { "tools": ["edit"], "decision": "allow" },
    ]));
    assert_eq!(policy.could_allow("read", EffectClass::Read), Verdict::Allow);
    assert_eq!(policy.could_allow("edit", EffectClass::Write), Verdict::Ask);
    assert_eq!(policy.could_allow("bash", EffectClass::Outside), Verdict::Deny);
}

#[test]
fn a_tool_that_nobody_has_is_named_with_its_rule() {
    let policy = policy(serde_json::json!([
        { "tools": ["read"], "decision": "allow" },
        { "tools": ["edit", "reed"], "decision": "allow" },
    ]));
    let unknown = policy.unknown_tools(&["read", "edit"]);
    assert_eq!(unknown, [UnknownTool { rule: 2, tool: "reed".to_owned() }]);
    assert_eq!(unknown[0].to_string(), "rule 2 names the tool \"reed\", which does not exist");
}

#[test]
fn a_rule_for_some_commands_leaves_the_others_to_the_next() {
    let policy = policy(serde_json::json!([
        { "command": ["rm"], "decision": "deny" },
        { "command": ["git status"], "decision": "allow" },
        { "tools": ["bash"], "decision": "ask" },
    ]));
    assert_eq!(policy.could_allow("bash", EffectClass::Outside), Verdict::Allow);
    assert_eq!(policy.could_allow("other", EffectClass::Outside), Verdict::Allow);
    assert_eq!(policy.could_allow("edit", EffectClass::Write), Verdict::Deny);
    // A call that runs no command line is what no rule with commands is about.
    assert_eq!(judge(&policy, "other", EffectClass::Outside, &[""]).0, Verdict::Deny);
    assert_eq!(judge(&policy, "bash", EffectClass::Outside, &[""]).0, Verdict::Ask);
}

#[test]
fn a_rule_is_about_the_arguments_that_it_names() {
    let policy = policy(serde_json::json!([
        { "args": { "url": ["*://evil.org/*"] }, "decision": "deny" },
        { "args": { "url": ["https://good.org/*", "https://also.org/*"], "depth": ["1"] }, "decision": "allow" },
        { "decision": "ask" },
    ]));
    let verdict = |arguments: serde_json::Value| {
        let subject = Subject { arguments: Some(&arguments), ..ANY };
        policy.verdict(&subject)
    };
    let one =
        |url: &str, depth: serde_json::Value| verdict(serde_json::json!({ "url": url, "depth": depth }));
    assert_eq!(one("https://good.org/a/b", 1.into()), Verdict::Allow);
    assert_eq!(one("https://good.org/a", "1".into()), Verdict::Allow);
    assert_eq!(one("https://good.org/a", 2.into()), Verdict::Ask);
    assert_eq!(one("http://evil.org/a", 1.into()), Verdict::Deny);
    assert_eq!(verdict(serde_json::json!({ "url": "https://good.org/a" })), Verdict::Ask);
    // Of a list, all must be allowed, and one is enough to deny.
    let many = |urls: &[&str]| verdict(serde_json::json!({ "url": urls, "depth": 1 }));
    assert_eq!(many(&["https://good.org/", "https://also.org/"]), Verdict::Allow);
    assert_eq!(many(&["https://good.org/", "https://else.org/"]), Verdict::Ask);
    assert_eq!(many(&["https://good.org/", "https://evil.org/"]), Verdict::Deny);
    assert_eq!(many(&[]), Verdict::Ask);
    assert_eq!(policy.verdict(&ANY), Verdict::Ask);
    assert_eq!(policy.could_allow("fetch", EffectClass::Outside), Verdict::Allow);
}

/// A call of which nothing is known.
const ANY: Subject<'static> =
    Subject { tool: "fetch", effect: EffectClass::Outside, paths: &[], command: None, arguments: None };
