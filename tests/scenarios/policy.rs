//! Policies for command lines: what a run's commands may do, and `herder policy`.

use serde_json::json;

use crate::support::{Place, call};

const RULES: &str = r#"name = "mine"

[[rule]]
command = ["rm"]
decision = "deny"
reason = "nothing is deleted"

[[rule]]
command = ["cat", "echo"]
decision = "allow"

[[rule]]
decision = "ask"
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("mine.toml", RULES);
    place
}

#[test]
fn a_run_s_command_line_runs_only_if_every_command_in_it_may() {
    let place = place();
    place.write("work/kept", "kept");
    place.write("work/a", "seen");
    let bash = |line: &str| call("bash", json!({ "command": line }));
    let script = json!([
        bash("cat a"),
        bash("cat a && rm kept"),
        bash("echo \"$(rm kept)\""),
        bash("cat a > made"),
        bash("cat 'a"),
        { "text": "Done." },
    ]);
    place.write("script.json", script.to_string());
    let run = [
        "run",
        "x",
        "--script",
        "script.json",
        "--state",
        "runs",
        "--policy",
        "mine.toml",
        "--workspace",
        "work",
    ];
    assert_eq!(place.herder(&run).expect(0).out, "Done.\n");
    assert!(place.path("work/kept").exists() && !place.path("work/made").exists());
    let results: Vec<String> = place
        .events("runs")
        .iter()
        .filter(|event| event["kind"] == "result")
        .map(|event| event["data"]["output"].as_str().unwrap().to_owned())
        .collect();
    let denied = |what: &str| format!("denied: rule 1 of policy mine denies {what}: nothing is deleted");
    let asked =
        |what: &str| format!("denied: rule 3 of policy mine asks about {what}, and nobody is there to ask");
    let wanted = [
        "seen\n".to_owned(),
        denied(r#""rm kept""#),
        denied(r#""rm kept" (in $(...))"#),
        asked(r#""cat a > made" (writes to made)"#),
        asked(r#""cat 'a" (cannot be parsed: a single quote does not end)"#),
    ];
    assert_eq!(results, wanted);
}

#[test]
fn a_check_shows_each_command_and_ends_with_the_verdict() {
    let place = place();
    let check = |more: &[&str]| place.herder(&[&["policy", "check"], more].concat());
    let denied = check(&["mine.toml", "--", "cat a | xargs rm"]).expect(1);
    assert_eq!(
        denied.out,
        "VERDICT  RULE  COMMAND  REMARK\n\
         allow       2  cat a\n\
         deny        1  rm ...   in xargs\n\
         deny: rule 1 of policy mine denies \"rm ...\" (in xargs): nothing is deleted\n"
    );
    assert_eq!(denied.err, "");
    check(&["mine.toml", "--", "cat", "a", "&&", "echo", "it's"]).expect(0);
    check(&["mine.toml", "--", "ls"]).expect(1);
    check(&["trusted", "--", "rm -rf d"]).expect(0);
    check(&["edit-workspace", "--tool", "write", "--path", "src/a.rs"]).expect(0);
    check(&["edit-workspace", "--tool", "write", "--path", "src/a.rs", "--path", ".env"]).expect(1);

    let refused = check(&["trusted", "--tool", "write", "--path", "a", "--path", "../x"]).expect(1);
    assert_eq!(refused.out, "deny: the tool write refuses it: ../x is outside the workspace\n");
    let refused = check(&["trusted", "--json", "--tool", "read", "--path", "/etc/passwd"]).expect(1).json();
    assert_eq!(refused[0]["verdict"], "deny");
    check(&["edit-workspace", "--tool", "read", "--path", "src/../.env"]).expect(1);
    check(&["edit-workspace", "--tool", "read", "--path", "work/../a.rs"]).expect(0);

    let json = check(&["mine.toml", "--json", "--", "cat a; rm b"]).expect(1).json().remove(0);
    assert_eq!((&json["verdict"], &json["commands"][0]["verdict"]), (&json!("deny"), &json!("allow")));
    let second = &json["commands"][1];
    assert_eq!((&second["command"], &second["rule"]), (&json!("rm b"), &json!(1)));

    let piped =
        place.shell("printf 'cat a\\nrm b\\n' | \"$0\" \"$@\"", &["policy", "check", "mine.toml", "--", "-"]);
    assert_eq!({ piped }.status().unwrap().code(), Some(1));
}

#[test]
fn what_is_wrong_with_a_check_is_told_and_ends_it_with_2() {
    let place = place();
    place.write("bad.toml", RULES.replace("\"ask\"", "\"maybe\""));
    place.write("typo.toml", RULES.replace("command = [\"rm\"]", "tools = [\"bsh\"]"));
    let told = |args: &[&str]| place.herder(args).expect(2).err;
    let wrong = told(&["policy", "check", "bad.toml", "--", "ls"]);
    assert!(wrong.starts_with("herder: bad.toml:13: decision: unknown variant 'maybe'"), "{wrong}");
    let unknown = told(&["policy", "check", "typo.toml", "--", "ls"]);
    assert!(unknown.starts_with("herder: typo.toml:3: tools: rule 1 names the tool \"bsh\""), "{unknown}");
    assert!(told(&["policy", "show", "lenient"]).starts_with("herder: there is no policy \"lenient\""));
    assert!(told(&["policy", "check", "mine.toml"]).contains("nothing to judge"));
    assert!(
        told(&["policy", "check", "mine.toml", "--tool", "reed", "--", "ls"])
            .contains("there is no tool \"reed\"")
    );
    assert!(
        told(&["policy", "check", "mine.toml", "--tool", "read", "--", "ls"])
            .contains("runs no command line")
    );
}

#[test]
fn the_built_in_policies_are_listed_and_printed() {
    let place = Place::new();
    let listed = place.herder(&["policy", "list"]).expect(0).out;
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["read-only", "edit-workspace", "careful", "trusted"]);
    let shown = place.herder(&["policy", "show", "careful"]).expect(0).out;
    place.write("copy.toml", &shown);
    assert_eq!(place.herder(&["policy", "show", "copy.toml"]).expect(0).out, shown);
}
