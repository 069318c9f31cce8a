//! `read`, `list` and `grep`, through their text.

use std::fs;

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_read_gives_the_lines_and_how_to_go_on() {
    let bench = Bench::new();
    bench.file("a.txt", "one\r\ntwo\r\nthree\r\n");
    let text = bench.ok("read", json!({"path": "a.txt", "offset": 2, "limit": 1})).await;
    assert_eq!(
        text,
        "two\n[The line ends are CRLF; edit keeps them.]\n[Lines 2-2 of 3. Read on with offset 3.]\n"
    );
}

#[tokio::test]
async fn a_file_is_read_as_it_is_while_the_call_gets_ready() {
    let bench = Bench::new();
    bench.file("a.txt", "one\n");
    let arguments = json!({"path": "a.txt"});
    let context = bench.context(bench.access("read", &arguments).unwrap());
    let started = bench.start("read", arguments, context).await;
    let Started::Ready { change: None, mut work } = started else { panic!("not ready") };
    let told = futures_util::FutureExt::now_or_never(&mut work);
    assert_eq!(told, Some(Output::ok("one\n")), "it takes a second hop");
}

#[tokio::test]
async fn what_cannot_be_read_is_refused_at_once_and_by_name() {
    let bench = Bench::new();
    bench.file("short.txt", "one\n");
    bench.file("program", b"\x7fELF\0\0");
    let pipe = bench.path("live.pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o644);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (path, why) in [
        ("live.pipe", "live.pipe is a named pipe, not a regular file"),
        (".", ". is a folder, not a regular file"),
        ("missing", "missing does not exist"),
        ("program", "program is a binary file of 6 bytes, or text in an encoding other than UTF-8"),
        ("/dev/zero", "/dev/zero is outside the workspace"),
    ] {
        assert_eq!(bench.refused("read", json!({"path": path})).await, why);
    }
    let beyond = bench.refused("read", json!({"path": "short.txt", "offset": 9999})).await;
    assert_eq!(beyond, "offset 9999 is beyond the end of short.txt, which has 1 lines");
}

#[tokio::test]
async fn an_empty_file_and_an_empty_folder_are_said_to_be_empty() {
    let bench = Bench::new();
    fs::create_dir(bench.path("empty")).unwrap();
    bench.file("empty.txt", "");
    assert_eq!(bench.ok("read", json!({"path": "empty.txt"})).await, "The file is empty.");
    assert_eq!(bench.ok("list", json!({"path": "empty"})).await, "The folder is empty.");
}

#[tokio::test]
async fn what_is_not_utf8_is_shown_as_what_it_is() {
    let bench = Bench::new();
    bench.file("latin1.txt", b"caf\xe9\n");
    let text = bench.ok("read", json!({"path": "latin1.txt"})).await;
    assert_eq!(text, "caf\u{fffd}\n[Not all of it is valid UTF-8; other bytes are shown as \u{fffd}.]\n");
}

#[tokio::test]
async fn without_a_path_the_workspace_is_meant() {
    let bench = Bench::new();
    bench.file("src/a.rs", "needle\n");
    bench.file("b.txt", "needle\n");
    assert_eq!(bench.ok("list", json!({})).await, "b.txt\nsrc/\n");
    let found = bench.ok("grep", json!({"pattern": "NEEDLE", "ignore_case": true, "glob": "*.rs"})).await;
    assert_eq!(found, "src/a.rs:1:needle\n");
}

#[tokio::test]
async fn a_search_without_matches_is_a_result_and_a_bad_pattern_is_not() {
    let bench = Bench::new();
    bench.file("a.txt", "f(x)\n");
    assert_eq!(bench.ok("grep", json!({"pattern": "nothing"})).await, "No matches.\n");
    let why = bench.refused("grep", json!({"pattern": "f("})).await;
    assert!(why.starts_with("the pattern \"f(\" is not a valid regular expression: "), "{why}");
    let found = bench.ok("grep", json!({"pattern": "f(", "literal": true, "path": "a.txt"})).await;
    assert_eq!(found, "a.txt:1:f(x)\n");
}

#[tokio::test]
async fn files_that_hold_secrets_are_searched_only_if_that_is_wanted() {
    let skip = Bench::new();
    let include = Bench::with(BuiltinOptions { sensitive: Sensitive::Include, ..options() });
    for bench in [&skip, &include] {
        bench.file(".env", "KEY=1\n");
    }
    let arguments = json!({"pattern": "KEY"});
    let skipped = "No matches.\n[1 path not searched, as likely to hold secrets.]\n";
    assert_eq!(skip.ok("grep", arguments.clone()).await, skipped);
    assert_eq!(include.ok("grep", arguments).await, ".env:1:KEY=1\n");
}

#[tokio::test]
async fn limits_of_output_bind_every_tool_that_looks() {
    let output = Limits { lines: 2, bytes: 40, line_chars: 8 };
    let bench = Bench::with(BuiltinOptions { launcher: Arc::new(launcher(output)), ..options() });
    for name in ["a.txt", "b.txt", "c.txt"] {
        bench.file(name, "0123456789\ntwo\nthree\n");
    }
    assert_eq!(
        bench.ok("read", json!({ "path": "a.txt" })).await,
        "01234567\ntwo\n[Cut after 8 characters: line 1 (2 more), see the rest with grep or bash.]\n\
         [Lines 1-2 of 3. Read on with offset 3.]\n"
    );
    assert_eq!(
        bench.ok("list", json!({})).await,
        "a.txt\nb.txt\n[2 of 3 entries shown; list a folder below, or use grep with a glob.]\n"
    );
    let more = "there are more. Narrow the pattern, the path or the glob.]\n";
    assert_eq!(
        bench.ok("grep", json!({ "pattern": "0" })).await,
        format!("a.txt:1:01234567 [...]\n[The first 1 matches; {more}")
    );
    assert_eq!(
        bench.ok("grep", json!({ "pattern": "three" })).await,
        format!("a.txt:3:three\nb.txt:3:three\n[The first 2 matches; {more}")
    );
}

#[tokio::test]
async fn a_line_longer_than_the_whole_result_may_be_is_cut_and_not_lost() {
    let output = Limits { bytes: 16, ..Limits::default() };
    let bench = Bench::with(BuiltinOptions { launcher: Arc::new(launcher(output)), ..options() });
    bench.file("a.txt", "\u{e9}".repeat(10));
    assert_eq!(
        bench.ok("read", json!({ "path": "a.txt" })).await,
        "\u{e9}\u{e9}\u{e9}\u{e9}\n[Cut after 4 characters: line 1 (6 more), see the rest with grep or bash.]\n"
    );
}
