//! What an edit does to a text, and when it is refused.

use proptest::prelude::*;

use super::*;

#[test]
fn an_edit_takes_the_line_ends_of_the_place_it_goes_to() {
    for (original, old, new, expected) in [
        ("one\r\ntwo\r\nthree\r\n", "one\ntwo", "ONE\nTWO\nTWO-B", "ONE\r\nTWO\r\nTWO-B\r\nthree\r\n"),
        ("one\r\ntwo\r\n", "one\r\ntwo\r\n", "1\r\n2\r\n", "1\r\n2\r\n"),
        ("one\ntwo\n", "one\r\ntwo", "1\r\n2", "1\n2\n"),
        // Mixed: only the place itself counts, and each of its lines keeps its own end.
        ("a\nb\r\nc\r\nd\n", "b\nc", "B\nx\nC", "a\nB\r\nx\r\nC\r\nd\n"),
        ("a\nb\r\nc\r\nd\n", "a\nb\nc", "A\nB\nC", "A\nB\r\nC\r\nd\n"),
        // A place without a line end: that of its line, or of the line before.
        ("a\nb\r\nc\n", "b", "b\nB", "a\nb\r\nB\r\nc\n"),
        ("a\r\nb", "b", "b\nc", "a\r\nb\r\nc"),
        ("a", "a", "a\nb", "a\nb"),
        // A carriage return by itself is text.
        ("a\rb\r\nc\r\n", "a\rb", "x", "x\r\nc\r\n"),
    ] {
        assert_eq!(text(original, &[(old, new)]), Ok(expected.to_owned()), "{original:?} {old:?}");
    }
}

#[test]
fn new_text_is_taken_literally() {
    let new = "pid=$$ a=$& b=$` c=$' d=$1 e=${HOME} f=\\1 g=$0";
    assert_eq!(
        text("# top\nprint_status ready\n# bottom\n", &[("print_status ready", new)]),
        Ok(format!("# top\n{new}\n# bottom\n"))
    );
}

#[test]
fn a_byte_order_mark_is_kept_exactly_once() {
    for (old, new) in [
        ("# one", "# ONE"),
        ("\u{feff}# one", "# ONE"),
        ("\u{feff}# one", "\u{feff}# ONE"),
        ("# one", "\u{feff}# ONE"),
    ] {
        let edited = bytes(b"\xef\xbb\xbf# one\n# \xc3\xa9\n", &[(old, new)]);
        assert_eq!(edited, Ok(b"\xef\xbb\xbf# ONE\n# \xc3\xa9\n".to_vec()), "{old:?} {new:?}");
    }
}

#[test]
fn a_byte_order_mark_in_the_middle_is_text_like_any_other() {
    let original = "\u{feff}a\nb \u{feff} c\n";
    assert_eq!(text(original, &[("a", "A")]), Ok("\u{feff}A\nb \u{feff} c\n".to_owned()));
    assert_eq!(text(original, &[("\u{feff} c", "c")]), Ok("\u{feff}a\nb c\n".to_owned()));
    assert_eq!(refusal(original, &[("\u{feff}a", "a")]), NO_CHANGE);
}

#[test]
fn overlapping_matches_count_as_several() {
    for (original, old, lines) in [
        ("on = 1\non = 1\non = 1\n", "on = 1\non = 1\n", "2 times, on lines 1 and 2"),
        ("zzzz", "zzz", "2 times, on line 1"),
        ("\n\n\n\n", "\n\n", "3 times, on lines 1, 2 and 3"),
        ("\r\n\r\n\r\n\r\n", "\n\n", "3 times, on lines 1, 2 and 3"),
        ("tatata", "tata", "2 times, on line 1"),
        ("k\nv=1\nk\nv=1\nk\nv=1\n", "v=1", "3 times, on lines 2, 4 and 6"),
        ("\n\nx\nx\nx\nx\nx\nx\nx\n", "x", "7 times, on lines 3, 4, 5, 6, 7 and 2 more"),
    ] {
        assert_eq!(
            refusal(original, &[(old, "new")]),
            format!("edit 1: old_text occurs {lines}; add context that makes it unique"),
            "{original:?}"
        );
    }
}

#[test]
fn several_edits_all_match_the_original_and_not_each_others_result() {
    assert_eq!(text("a b\n", &[("a", "b"), ("b", "c")]), Ok("b c\n".to_owned()));
    assert_eq!(text("x\ny\nz\n", &[("z", "Z"), ("x", "X")]), Ok("X\ny\nZ\n".to_owned()));
    assert_eq!(text("ab", &[("a", "1"), ("b", "2")]), Ok("12".to_owned()));
    let sequential = [("k\nv=1\nk", "v=1\nv=1"), ("v=1\nv=1", "v=2")];
    assert!(refusal("k\nv=1\nk\n", &sequential).starts_with("edit 2: old_text was not found"));
}

#[test]
fn one_edit_that_does_not_apply_stops_them_all_and_is_named() {
    assert!(
        refusal("a\nb\nc\n", &[("a", "A"), ("zzz", "Z"), ("c", "C")])
            .starts_with("edit 2: old_text was not found")
    );
    assert_eq!(
        refusal("abc\n", &[("abc", "1"), ("x", "x")]),
        "edit 2: old_text and new_text are the same, so nothing would change (line ends are kept)"
    );
    assert_eq!(
        refusal("\nabcd\n", &[("cd", "1"), ("abc", "2")]),
        "edits 1 and 2 overlap on line 2; join them into one"
    );
    assert_eq!(
        refusal("abab\n", &[("abab", "1"), ("abab", "2")]),
        "edits 1 and 2 overlap on line 1; join them into one"
    );
}

#[test]
fn an_empty_old_text_is_refused_before_the_text_is_looked_at() {
    for edits in [&[("", "X")][..], &[("", "")], &[("a", "b"), ("", "X"), ("c", "d")]] {
        let number = 1 + edits.iter().position(|(old, _)| old.is_empty()).unwrap();
        assert_eq!(validate(&make(edits)), Err(EditError::EmptyOldText { edit: number }));
        assert_eq!(bytes(b"", edits), Err(EditError::EmptyOldText { edit: number }));
    }
    assert_eq!(validate(&[]), Err(EditError::NoEdits));
    assert_eq!(validate(&make(&[("a", "b"); 101])), Err(EditError::TooManyEdits { count: 101 }));
}

#[test]
fn text_that_is_not_found_is_hinted_at_by_what_is_nearest() {
    let menu = "soup  \t\nbread and  \nbutter\nprice “4” — per person  \n";
    for (original, old, hint) in [
        (menu, "bread and\nbutter", "; line 2 differs only in white space: \"bread and  \""),
        (
            "a\nfn main() {\n    one();\n}\n",
            "fn main() {\n    two();\n}",
            "; it matches from line 2 on, but line 3 is \"    one();\", not \"    two();\"",
        ),
        ("a\nb", "b\nc\nd", "; it matches from line 2 on, but the file ends before \"c\""),
        ("a\nb\n", "b\nc\n", "; it matches from line 2 on, but the file ends before \"c\""),
        ("a\nb\nx\na\nb\nc\n", "a\nb\nc\nd", "; it matches from line 4 on, but the file ends before \"d\""),
        ("x\na\n", "\n\na", "; the nearest is line 2: \"a\""),
        ("x\nlet value = 1;\n", "let value = 2;", "; the nearest is line 2: \"let value = 1;\""),
        ("x\ny\n", "nothing alike", ""),
        ("", "a", ""),
        ("a\n", "\n\n\n", ""),
    ] {
        assert_eq!(refusal(original, &[(old, "new")]), format!("edit 1: old_text was not found{hint}"));
    }
}

#[test]
fn bytes_that_are_not_utf8_stay_as_they_are() {
    assert_eq!(bytes(b"caf\xe9\none\n\xff\n", &[("one", "two")]), Ok(b"caf\xe9\ntwo\n\xff\n".to_vec()));
    assert_eq!(bytes(b"caf\xe9\none\n", &[("one", "z\u{e9}")]), Err(EditError::NotUtf8 { edit: 1 }));
}

#[test]
fn hostile_sizes_end_in_bounded_time() {
    let same = "a".repeat(4 << 20);
    let refused = refusal(&same, &[(&same[..64 << 10], "b")]);
    assert!(refused.contains("occurs 1000 times or more"), "{refused}");
    let lines = "a\n".repeat(1 << 20);
    let old = format!("{}b", "a\n".repeat(1 << 18));
    assert!(refusal(&lines, &[(&old, "c")]).contains("not found"));
    let all_new: String = (0..200_000).map(|n| format!("{n}\n")).collect();
    let diff = diff(lines.as_bytes(), all_new.as_bytes(), usize::MAX);
    assert_eq!(diff.text, "[The change is too large to show as a diff.]\n");
}

#[test]
fn the_diff_shows_the_changed_lines_with_their_context() {
    let original: String = (1..=40).map(|n| format!("line {n}\n")).collect();
    let edited =
        apply(original.as_bytes(), &make(&[("line 10\n", "ten\nTEN\n"), ("line 30", "thirty")])).unwrap();
    assert_eq!(edited.first_changed_line, 10);
    assert_eq!((edited.diff.added, edited.diff.removed), (3, 2));
    assert_eq!(
        edited.diff.text,
        "@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n+TEN\n line 11\n line 12\n line 13\n\
         @@ -27,7 +28,7 @@\n line 27\n line 28\n line 29\n-line 30\n+thirty\n line 31\n line 32\n line 33\n"
    );
}

#[test]
fn the_diff_is_right_at_the_ends_of_a_text() {
    assert_eq!(diff(b"", b"a\n", 9).text, "@@ -0,0 +1,1 @@\n+a\n");
    assert_eq!(diff(b"a\n", b"", 9).text, "@@ -1,1 +0,0 @@\n-a\n");
    assert_eq!(diff(b"a", b"a\n", 9).text, "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
    assert_eq!(diff(b"a\na\n", b"a\na\na\n", 9).text, "@@ -1,2 +1,3 @@\n a\n a\n+a\n");
    assert_eq!(diff(b"same\n", b"same\n", 9).text, "");
}

#[test]
fn a_long_diff_is_cut_and_says_so() {
    let new: String = (0..500).map(|n| format!("{n}\n")).collect();
    let diff = diff(b"", new.as_bytes(), usize::MAX);
    assert_eq!(diff.added, 500);
    assert!(diff.text.ends_with("+199\n[300 more lines of the diff are not shown.]\n"), "{}", diff.text);
}

#[test]
fn a_new_whole_content_keeps_the_byte_order_mark_that_was_there() {
    assert_eq!(keep_bom(b"\xef\xbb\xbfold", "new"), b"\xef\xbb\xbfnew");
    assert_eq!(keep_bom(b"\xef\xbb\xbfold", "\u{feff}new"), b"\xef\xbb\xbfnew");
    assert_eq!(keep_bom(b"old", "new"), b"new");
    assert_eq!(keep_bom(b"", "\u{feff}new"), b"\xef\xbb\xbfnew");
}

proptest! {
    // A failing input belongs in a test of its own, not in a file of seeds.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Pieces of text are numbered, so each is unique, and some are replaced.
    #[test]
    fn edits_of_unique_pieces_do_what_replacing_each_by_hand_does(
        pieces in prop::collection::vec(("[a-c\u{e9} \n]{0,6}", prop::option::of("[x-z\u{fc}\n$]{0,6}")), 1..20),
        with_bom: bool,
        crlf: bool,
        backwards: bool,
    ) {
        let end = |text: &str| if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
        let (mut original, mut expected) = (String::new(), String::new());
        let mut edits = Vec::new();
        if with_bom {
            original.push_str(BOM);
            expected.push_str(BOM);
        }
        // Fixes the line end of a place that has none of its own.
        original.push_str(&end("\n"));
        expected.push_str(&end("\n"));
        for (number, (old, new)) in pieces.iter().enumerate() {
            let old = format!("<{number}>{old}");
            original.push_str(&end(&old));
            match new {
                Some(new) => {
                    expected.push_str(&end(new));
                    edits.push(Edit { old_text: old, new_text: new.clone() });
                }
                None => expected.push_str(&end(&old)),
            }
        }
        if backwards {
            edits.reverse();
        }
        prop_assume!(!edits.is_empty());
        prop_assert_eq!(apply(original.as_bytes(), &edits).map(|edited| edited.bytes), Ok(expected.into_bytes()));
    }

    #[test]
    fn an_edit_applies_exactly_when_its_text_occurs_once(original in "[ab\n]{0,12}", old in "[ab\n]{1,3}") {
        let places = (0..original.len()).filter(|at| original[*at..].starts_with(&old)).count();
        match text(&original, &[(&old, "new")]) {
            Ok(edited) => prop_assert_eq!((places, edited), (1, original.replacen(&old, "new", 1))),
            Err(EditError::NotFound { .. }) => prop_assert_eq!(places, 0),
            Err(EditError::Ambiguous { count, .. }) => prop_assert_eq!(count, Count(places)),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_bytes_and_any_edits_end_without_a_panic(original: Vec<u8>, old in "\\PC{0,3}|[\r\n\u{feff}]{1,3}", new in "[\r\na\u{feff}]{0,4}") {
        let mut original = original;
        let _ = bytes(&original, &[(&old, &new)]);
        original.splice(0..0, BOM.bytes());
        original.extend(old.bytes());
        let _ = bytes(&original, &[(&old, &new)]);
    }
}

const NO_CHANGE: &str =
    "edit 1: old_text and new_text are the same, so nothing would change (line ends are kept)";

fn make(edits: &[(&str, &str)]) -> Vec<Edit> {
    edits.iter().map(|(old, new)| Edit { old_text: (*old).to_owned(), new_text: (*new).to_owned() }).collect()
}

fn bytes(original: &[u8], edits: &[(&str, &str)]) -> Result<Vec<u8>, EditError> {
    apply(original, &make(edits)).map(|edited| edited.bytes)
}

fn text(original: &str, edits: &[(&str, &str)]) -> Result<String, EditError> {
    bytes(original.as_bytes(), edits).map(|bytes| String::from_utf8(bytes).unwrap())
}

fn refusal(original: &str, edits: &[(&str, &str)]) -> String {
    bytes(original.as_bytes(), edits).unwrap_err().to_string()
}
