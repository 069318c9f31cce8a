//! `edit` and `write`: what they announce, do and refuse.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;
use sha2::{Digest, Sha256};

use super::*;

fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn an_edit_is_announced_before_it_is_made() {
    let bench = Bench::new();
    bench.file("a.txt", "one\ntwo\n");
    let arguments = edit_of("a.txt", "two", "2");
    let context = bench.context(bench.access("edit", &arguments).unwrap());
    let Started::Ready { change, work } = bench.start("edit", arguments, context).await else {
        panic!("not ready")
    };
    assert_eq!(bench.content("a.txt"), "one\ntwo\n");
    let expected = FileChange {
        path: bench.key("a.txt"),
        before: Some(sha256("one\ntwo\n")),
        after: sha256("one\n2\n"),
    };
    assert_eq!(change, Some(expected));
    let output = work.await;
    assert_eq!(bench.content("a.txt"), "one\n2\n");
    assert_eq!(
        output,
        Output::ok("Edited a.txt: 1 replacement, the first on line 2.\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    );
}

#[tokio::test]
async fn a_file_that_changes_between_announcement_and_edit_is_left_as_it_is() {
    let bench = Bench::new();
    bench.file("a.txt", "one\n");
    let arguments = edit_of("a.txt", "one", "1");
    let context = bench.context(bench.access("edit", &arguments).unwrap());
    let Started::Ready { work, .. } = bench.start("edit", arguments, context).await else {
        panic!("not ready")
    };
    bench.file("a.txt", "someone else's\n");
    let output = work.await;
    assert_eq!(output.failure, Some(Failure::Failed));
    assert_eq!(output.text, "a.txt was changed by something else meanwhile; nothing was written");
    assert_eq!(bench.content("a.txt"), "someone else's\n");
}

#[tokio::test]
async fn a_new_file_is_announced_without_a_before() {
    let bench = Bench::new();
    let (output, change) = bench.call("write", json!({"path": "new/dir/a.txt", "content": "hi\n"})).await;
    assert_eq!(output, Output::ok("Created new/dir/a.txt: 3 bytes."));
    assert_eq!(
        change,
        Some(FileChange { path: bench.key("new/dir/a.txt"), before: None, after: sha256("hi\n") })
    );
    assert_eq!(bench.content("new/dir/a.txt"), "hi\n");
}

#[tokio::test]
async fn edits_keep_line_ends_marks_modes_and_literal_text() {
    let bench = Bench::new();
    bench.file("a.cs", "one\r\ntwo\r\nthree\r\n");
    bench.ok("edit", json!({"path": "a.cs", "oldText": "one\ntwo", "newText": "ONE\nTWO\nTWO-B"})).await;
    assert_eq!(bench.content("a.cs"), "ONE\r\nTWO\r\nTWO-B\r\nthree\r\n");

    bench.file("run.sh", "# top\nprint_status ready\n# bottom\n");
    fs::set_permissions(bench.path("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let literal = "pid=$$ a=$& b=$` c=$' d=$1 e=${HOME} f=\\1 g=$0";
    bench.ok("edit", edit_of("run.sh", "print_status ready", literal)).await;
    assert_eq!(bench.content("run.sh"), format!("# top\n{literal}\n# bottom\n"));
    assert_eq!(fs::metadata(bench.path("run.sh")).unwrap().permissions().mode() & 0o777, 0o755);

    bench.file("s.ps1", "\u{feff}# one\n# é\n");
    bench.ok("edit", edit_of("s.ps1", "\u{feff}# one", "# ONE")).await;
    assert_eq!(bench.content("s.ps1"), "\u{feff}# ONE\n# é\n");
    bench.ok("write", json!({"path": "s.ps1", "content": "new\n"})).await;
    assert_eq!(bench.content("s.ps1"), "\u{feff}new\n");
}

#[tokio::test]
async fn a_refused_edit_says_why_and_changes_nothing() {
    let bench = Bench::new();
    let content = "k\nv=1\nk\nv=1\nk\nv=1\n";
    bench.file("m.txt", content);
    bench.file("n.md", "abc");
    let cases = [
        (
            edit_of("m.txt", "v=1", "v=2"),
            "m.txt is unchanged: edit 1: old_text occurs 3 times, on lines 2, 4 and 6; add context that makes it unique",
        ),
        (
            edit_of("m.txt", "k\nv=1\nk", "x"),
            "m.txt is unchanged: edit 1: old_text occurs 2 times, on lines 1 and 3; add context that makes it unique",
        ),
        (edit_of("n.md", "", "X"), "n.md is unchanged: edit 1: old_text is empty"),
        (
            edit_of("n.md", "abc", "abc"),
            "n.md is unchanged: edit 1: old_text and new_text are the same, so nothing would change (line ends are kept)",
        ),
        (
            json!({"path": "n.md", "edits": [
                {"old_text": "a", "new_text": "A"},
                {"oldText": "zzz", "newText": "Z"},
            ]}),
            "n.md is unchanged: edit 2: old_text was not found",
        ),
        (edit_of("missing.txt", "a", "b"), "missing.txt does not exist"),
        (edit_of("../outside.txt", "a", "b"), "../outside.txt is outside the workspace"),
    ];
    for (arguments, why) in cases {
        assert_eq!(bench.refused("edit", arguments).await, why);
    }
    assert_eq!((bench.content("m.txt"), bench.content("n.md")), (content.to_owned(), "abc".to_owned()));
}

#[tokio::test]
async fn texts_without_bounds_of_their_own_are_cut() {
    let output = Limits { lines: 3, ..Limits::default() };
    let bench = Bench::with(BuiltinOptions { launcher: Arc::new(launcher(output)), ..options() });
    bench.file("a.txt", "one\ntwo\n");
    let text = bench.ok("edit", edit_of("a.txt", "two", "2")).await;
    assert_eq!(
        text,
        "Edited a.txt: 1 replacement, the first on line 2.\n@@ -1,2 +1,2 @@\n one\n[2 lines (8 bytes) left out]"
    );
}
