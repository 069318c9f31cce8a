//! What `grep` finds, skips and warns about.

use std::cell::Cell;

use super::*;
use crate::tool::workspace::{
    grep::{GrepError, Matches, Query, grep},
    sensitive::Sensitive,
};

#[test]
fn matches_come_with_path_and_line_in_order() {
    let place = Place::new();
    place.file("b.txt", "no\nneedle 2\r\nno\nneedle 3\n");
    place.file("a/x.rs", "a needle\n");
    place.file(".github/ci.yml", "needle");
    place.file(".git/config", "needle");
    let found = search(&place, ".", "needle");
    assert_eq!(
        found.text,
        ".github/ci.yml:1:needle\na/x.rs:1:a needle\nb.txt:2:needle 2\nb.txt:4:needle 3\n"
    );
    assert_eq!((found.count, found.unreadable), (4, 0));
    assert_eq!(search(&place, "a", "needle").text, "a/x.rs:1:a needle\n");
    assert_eq!(search(&place, ".git", "needle").text, ".git/config:1:needle\n");
    assert_eq!(search(&place, "b.txt", "3$").text, "b.txt:4:needle 3\n");
    assert_eq!(search(&place, "b.txt", "^needle 2$").text, "b.txt:2:needle 2\n");
}

#[test]
fn what_cannot_be_read_is_a_warning_beside_what_was_found() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    place.file("ok.txt", "needle");
    for locked in ["locked.txt", "shut/x.txt"] {
        place.file(locked, "needle");
    }
    for locked in ["locked.txt", "shut"] {
        fs::set_permissions(place.inside(locked), fs::Permissions::from_mode(0o000)).unwrap();
    }
    place.link("broken", "missing");
    place.link("fine", "ok.txt");
    let found = unprivileged(|| search(&place, ".", "needle"));
    assert_eq!(found.text, "ok.txt:1:needle\n[3 paths could not be searched: broken, locked.txt, shut.]\n");
    assert_eq!((found.count, found.unreadable), (1, 3));
    let none = unprivileged(|| search(&place, ".", "nothing-here"));
    assert!(none.text.starts_with("No matches.\n[3 paths could not be searched"), "{}", none.text);
    fs::set_permissions(place.inside("shut"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn no_match_is_an_answer_and_a_bad_pattern_is_not() {
    let place = Place::new();
    place.file("a", "x (unclosed\n");
    assert_eq!(search(&place, ".", "nothing-here").text, "No matches.\n");
    let bad = grep(&place.to_read("."), &query("(unclosed"), &|| false).unwrap_err();
    let told = Told(&bad).to_string();
    assert!(told.starts_with("the pattern \"(unclosed\" is not a valid regular expression: "), "{told}");
    assert!(told.contains("unclosed group") && told.contains("^"), "{told}");
    let literal = Query { literal: true, ..query("(unclosed") };
    assert_eq!(run(&place, ".", &literal).text, "a:1:x (unclosed\n");
    for lines in [query(r"x\n"), Query { literal: true, ..query("x\ny") }] {
        assert!(matches!(grep(&place.to_read("."), &lines, &|| false), Err(GrepError::Pattern { .. })));
    }
    let glob = Query { glob: Some("a[".to_owned()), ..query("x") };
    assert!(matches!(grep(&place.to_read("."), &glob, &|| false), Err(GrepError::Glob { .. })));
    let missing = grep(&place.to_read("missing"), &query("x"), &|| false).unwrap_err();
    assert_eq!(missing.to_string(), "missing does not exist");
}

#[test]
fn special_files_are_skipped() {
    let place = Place::new();
    for (path, _) in special_files(&place, "logs") {
        assert!(matches!(grep(&place.to_read(&path), &query("x"), &|| false), Err(GrepError::Path(_))));
    }
    place.file("logs/a", "x");
    assert_eq!(search(&place, ".", "x").text, "logs/a:1:x\n");
}

#[test]
fn ignored_files_are_left_out_unless_they_are_named() {
    let place = Place::new();
    place.file(".gitignore", "*.log\n/target\n");
    place.file("sub/.gitignore", "local\n");
    for path in ["a.log", "target/x", "sub/b.log", "sub/local", "sub/target/x", "sub/seen"] {
        place.file(path, "needle");
    }
    let under_sub = "sub/seen:1:needle\nsub/target/x:1:needle\n";
    assert_eq!(search(&place, ".", "needle").text, under_sub);
    assert_eq!(search(&place, "sub", "needle").text, under_sub);
    assert_eq!(search(&place, "a.log", "needle").text, "a.log:1:needle\n");
    assert_eq!(search(&place, "target", "needle").text, "target/x:1:needle\n");
}

#[test]
fn ignore_files_above_the_workspace_do_not_count() {
    let place = Place::new();
    fs::write(place.inside("../.gitignore"), "*\n").unwrap();
    place.file("a", "needle");
    assert_eq!(search(&place, ".", "needle").text, "a:1:needle\n");
}

#[test]
fn a_glob_chooses_files_by_name_or_path() {
    let place = Place::new();
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/d.txt"] {
        place.file(path, "x");
    }
    for (path, glob, expected) in [
        (".", "*.rs", &["a.rs", "src/b.rs", "src/deep/c.rs"][..]),
        (".", "src/*.rs", &["src/b.rs"]),
        (".", "/*.rs", &["a.rs"]),
        ("src", "src/**/*.rs", &["src/b.rs", "src/deep/c.rs"]),
        ("src", "deep/*", &["src/deep/c.rs"]),
        (".", "*.{txt,md}", &["src/d.txt"]),
        (".", "!*.rs", &["src/d.txt"]),
    ] {
        let found = run(&place, path, &Query { glob: Some(glob.to_owned()), ..query("x") });
        let expected: String = expected.iter().map(|path| format!("{path}:1:x\n")).collect();
        assert_eq!(found.text, expected, "{glob}");
    }
}

#[test]
fn context_and_case_are_as_asked() {
    let place = Place::new();
    place.file("a", "1\n2\nNeedle\n4\n5\n6\n7\nneedle\n");
    assert_eq!(search(&place, ".", "needle").text, "a:8:needle\n");
    let wide = Query { ignore_case: true, context: 1, ..query("needle") };
    assert_eq!(run(&place, ".", &wide).text, "a-2-2\na:3:Needle\na-4-4\n--\na-7-7\na:8:needle\n");
}

#[test]
fn many_matches_and_long_lines_are_bounded_and_told() {
    let place = Place::new();
    place.file("many", "needle\n".repeat(5000));
    let found = search(&place, ".", "needle");
    assert_eq!(found.count, 500);
    assert!(
        found.text.ends_with(
            "[The first 500 matches; there are more. Narrow the pattern, the path or the glob.]\n"
        )
    );
    place.file("many", "needle\n".repeat(500));
    assert!(!search(&place, ".", "needle").text.contains("there are more"));

    place.file("many", format!("{}needle{}\n", "\u{e9}".repeat(10_000), "b".repeat(10_000)));
    let found = search(&place, ".", "needle").text;
    assert!(found.starts_with("many:1:[...] \u{e9}") && found.ends_with("b [...]\n"), "{found}");
    assert!(found.contains("needle") && found.len() < 1000);
}

#[test]
fn binary_and_sensitive_files_are_left_out_and_counted() {
    let place = Place::new();
    place.file("bin", b"needle\n\0\n");
    place.file(".env", "needle");
    place.file("keys/id_rsa", "needle");
    let careful = Query { sensitive: Sensitive::Skip, ..query("needle") };
    assert_eq!(
        run(&place, ".", &careful).text,
        "No matches.\n[1 path skipped as binary.]\n[2 paths not searched, as likely to hold secrets.]\n"
    );
    assert!(run(&place, ".env", &careful).text.starts_with("No matches.\n[1 path not searched"));
    assert!(search(&place, ".", "needle").text.contains(".env:1:needle\nkeys/id_rsa:1:needle\n"));
}

#[test]
fn a_search_ends_when_it_is_told_to_stop() {
    let place = Place::new();
    place.file("a", "x");
    place.file("big", "y\n".repeat(1 << 20));
    for after in [0, 3, 10] {
        let asked = Cell::new(0);
        let stop = || asked.replace(asked.get() + 1) >= after;
        let stopped = grep(&place.to_read("."), &query("needle"), &stop);
        assert!(matches!(stopped, Err(GrepError::Stopped)), "{after}: {stopped:?}");
    }
}

fn query(pattern: &str) -> Query {
    Query {
        pattern: pattern.to_owned(),
        literal: false,
        ignore_case: false,
        glob: None,
        context: 0,
        sensitive: Sensitive::Include,
        limits: Limits::DEFAULT,
    }
}

fn search(place: &Place, path: &str, pattern: &str) -> Matches {
    run(place, path, &query(pattern))
}

fn run(place: &Place, path: &str, query: &Query) -> Matches {
    grep(&place.to_read(path), query, &|| false).unwrap()
}
