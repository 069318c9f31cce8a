//! What a call holds a lock on, and what it does when that has moved.

use std::{fs, os::unix::fs::symlink};

use serde_json::json;

use super::{
    super::{grep::Grep, on_path::OnPath},
    *,
};
use crate::{
    domain::call::{EffectClass, Mode, Scope},
    tool::workspace::Intent,
};

#[test]
fn a_call_locks_what_its_tool_touches() {
    let bench = Bench::new();
    bench.file("src/a.txt", "a");
    let on = |scope, path, mode| vec![Access { scope, path: bench.key(path), mode }];
    let cases = [
        ("read", json!({"path": "src/a.txt"}), on(Scope::File, "src/a.txt", Mode::Shared)),
        ("list", json!({}), on(Scope::Tree, ".", Mode::Shared)),
        ("list", json!({"path": "src"}), on(Scope::Tree, "src", Mode::Shared)),
        ("grep", json!({"pattern": "a"}), on(Scope::Tree, ".", Mode::Shared)),
        ("grep", json!({"pattern": "a", "path": "src/a.txt"}), on(Scope::File, "src/a.txt", Mode::Shared)),
        ("edit", edit_of("src/a.txt", "a", "b"), on(Scope::File, "src/a.txt", Mode::Exclusive)),
        ("write", json!({"path": "new/b.txt", "content": ""}), on(Scope::File, "new/b.txt", Mode::Exclusive)),
        ("bash", json!({"command": "true"}), on(Scope::Tree, ".", Mode::Exclusive)),
    ];
    for (name, arguments, access) in cases {
        assert_eq!(bench.access(name, &arguments), Ok(access), "{name} {arguments}");
    }
}

#[test]
fn file_tools_read_or_write_and_a_command_may_do_anything() {
    let bench = Bench::new();
    let effect = |name: &str| bench.toolbox.get(name).map(|tool| tool.effect());
    for name in ["read", "list", "grep"] {
        assert_eq!(effect(name), Some(EffectClass::Read), "{name}");
    }
    for name in ["edit", "write"] {
        assert_eq!(effect(name), Some(EffectClass::Write), "{name}");
    }
    assert_eq!(effect("bash"), Some(EffectClass::Outside));
}

#[test]
fn every_spelling_of_a_file_is_one_key() {
    let bench = Bench::new();
    bench.file("a.txt", "a");
    fs::create_dir(bench.path("sub")).unwrap();
    symlink("../a.txt", bench.path("sub/link")).unwrap();
    let absolute = bench.path("a.txt").to_str().unwrap().to_owned();
    for path in ["a.txt", "./a.txt", "sub/../a.txt", "sub/link", &absolute] {
        let access = bench.access("edit", &edit_of(path, "a", "b")).unwrap();
        assert_eq!(access[0].path, bench.key("a.txt"), "{path}");
    }
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_by_then_is_queued_anew_and_nothing_is_done() {
    let bench = Bench::new();
    bench.file("a.txt", "text");
    bench.file("b.txt", "text");
    symlink("a.txt", bench.path("link")).unwrap();
    for (name, arguments) in [
        ("read", json!({"path": "link"})),
        ("edit", edit_of("link", "text", "changed")),
        ("write", json!({"path": "link", "content": "changed"})),
    ] {
        fs::remove_file(bench.path("link")).unwrap();
        symlink("a.txt", bench.path("link")).unwrap();
        let context = bench.context(bench.access(name, &arguments).unwrap());
        fs::remove_file(bench.path("link")).unwrap();
        symlink("b.txt", bench.path("link")).unwrap();
        match bench.start(name, arguments, context).await {
            Started::Moved(access) => assert_eq!(access[0].path, bench.key("b.txt"), "{name}"),
            Started::Ended(_) | Started::Ready { .. } => panic!("{name} did not see the move"),
        }
    }
    assert_eq!((bench.content("a.txt"), bench.content("b.txt")), ("text".to_owned(), "text".to_owned()));
}

#[tokio::test]
async fn a_cancelled_call_does_not_begin() {
    let bench = Bench::new();
    bench.file("a.txt", "text");
    let arguments = edit_of("a.txt", "text", "changed");
    let context = bench.context(bench.access("edit", &arguments).unwrap());
    let cancelled = Output::failed(Failure::Cancelled, "cancelled before it began; nothing was done");

    let started = bench.start("edit", arguments.clone(), context.clone()).await;
    let Started::Ready { work, .. } = started else { panic!("not ready") };
    context.cancel.cancel();
    assert_eq!(work.await, cancelled);

    let Started::Ended(output) = bench.start("edit", arguments, context).await else { panic!("it began") };
    assert_eq!(output, cancelled);
    assert_eq!(bench.content("a.txt"), "text");
}

#[test]
fn a_search_that_is_cancelled_half_way_says_so() {
    let bench = Bench::new();
    bench.file("a.txt", "text");
    let target = bench.workspace.resolve(".", Intent::Read).unwrap();
    let arguments = serde_json::from_value(json!({"pattern": "text"})).unwrap();
    let cancel = CancellationToken::new();
    let prepared =
        Grep { sensitive: Sensitive::Skip, limits: Limits::DEFAULT }.prepare(arguments, target, &cancel);
    let Ok(prepared) = prepared else { panic!("refused") };
    cancel.cancel();
    let expected = Output::failed(Failure::Cancelled, "the search was stopped before its end");
    assert_eq!(prepared.run(), expected);
}
