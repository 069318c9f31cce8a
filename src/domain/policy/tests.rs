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
