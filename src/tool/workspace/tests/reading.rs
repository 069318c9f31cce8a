//! What `read` and `list` show, and what they say about the rest.

use super::*;
use crate::tool::workspace::{
    list::list,
    read::{ReadError, Window, read},
};

#[test]
fn a_window_says_what_is_missing_and_how_to_read_on() {
    let place = Place::new();
    place.file("n", (1..=10).map(|n| format!("{n}\n")).collect::<String>());
    for (offset, limit, expected) in [
        (None, None, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"),
        (None, Some(2), "1\n2\n[Lines 1-2 of 10. Read on with offset 3.]\n"),
        (Some(4), Some(2), "4\n5\n[Lines 4-5 of 10. Read on with offset 6.]\n"),
        (Some(9), None, "9\n10\n[Lines 9-10 of 10.]\n"),
        (Some(10), Some(1), "10\n[Lines 10-10 of 10.]\n"),
        (Some(0), Some(0), "1\n[Lines 1-1 of 10. Read on with offset 2.]\n"),
    ] {
        assert_eq!(text(&place, "n", offset, limit), expected, "{offset:?} {limit:?}");
    }
}

#[test]
fn an_empty_file_and_an_offset_beyond_the_end_are_told() {
    let place = Place::new();
    place.file("empty.txt", "");
    place.file("short.txt", "a\nb");
    assert_eq!(text(&place, "empty.txt", None, None), "The file is empty.");
    for offset in [3, 9999, u64::MAX] {
        let refused =
            read(&place.to_read("short.txt"), Window { offset: Some(offset), limit: None }, Limits::DEFAULT)
                .unwrap_err();
        let told = format!("offset {offset} is beyond the end of short.txt, which has 2 lines");
        assert_eq!(refused.to_string(), told);
    }
    let refused = read(&place.to_read("missing"), Window::default(), Limits::DEFAULT).unwrap_err();
    assert_eq!(refused.to_string(), "missing does not exist");
}

#[test]
fn no_more_than_2000_lines_or_50_kib_are_shown() {
    let place = Place::new();
    place.file("lines", "x\n".repeat(5000));
    place.file("bytes", format!("{}\n", "y".repeat(999)).repeat(100));
    let lines = text(&place, "lines", None, Some(u64::MAX));
    assert!(lines.ends_with("x\n[Lines 1-2000 of 5000. Read on with offset 2001.]\n"));
    let bytes = text(&place, "bytes", Some(2), None);
    assert!(bytes.ends_with("y\n[Lines 2-52 of 100. Read on with offset 53.]\n"));
    assert!(bytes.len() < (50 << 10) + 100);
}

#[test]
fn a_long_line_is_cut_on_a_character_and_the_notice_says_where() {
    let place = Place::new();
    place.file("wide", format!("a\n{}\r\nb\n", "\u{1f600}".repeat(3000)));
    let shown = text(&place, "wide", None, None);
    let expected = format!(
        "a\n{}\nb\n[Cut after 2000 characters: line 2 (1000 more), see the rest with grep or bash.]\n\
         [Some line ends are CRLF; edit keeps them.]\n",
        "\u{1f600}".repeat(2000)
    );
    assert_eq!(shown, expected);
    place.file("many", format!("{}\n", "z".repeat(2001)).repeat(7));
    assert!(text(&place, "many", None, None).contains("line 5 (1 more), and 2 more lines, see"));
    place.file("exact", format!("{}\n", "z".repeat(2000)));
    assert_eq!(text(&place, "exact", None, None).len(), 2001);
}

#[test]
fn a_huge_file_is_read_without_holding_it() {
    let place = Place::new();
    let path = place.file("huge", "first\n");
    // A hole: the second line is 3 GiB of NUL bytes, which only a look at it would tell.
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(3 << 30).unwrap();
    place.file("long", [b"head\n".repeat(3000), vec![b'q'; 70 << 20]].concat());
    assert!(matches!(
        read(&place.to_read("huge"), Window::default(), Limits::DEFAULT),
        Err(ReadError::Binary { .. })
    ));
    let shown = text(&place, "long", Some(2), Some(1));
    assert_eq!(shown, "head\n[Lines 2-2 of more than 3001. Read on with offset 3.]\n");
    let shown = text(&place, "long", Some(3001), None);
    assert!(shown.ends_with(
        "line 3001 (73398320 more), see the rest with grep or bash.]\n[Lines 3001-3001 of 3001.]\n"
    ));
}

#[test]
fn binary_is_refused_with_its_size_and_other_encodings_are_told() {
    let place = Place::new();
    place.file("bin", b"\x7fELF\0\0");
    place.file("late", [b"a\n".repeat(8 << 10), b"\0\n".to_vec()].concat());
    place.file("utf16", b"\xff\xfeh\0i\0");
    place.file("latin", b"caf\xe9\n");
    for (path, size) in [("bin", 6), ("utf16", 6)] {
        let told =
            format!("{path} is a binary file of {size} bytes, or text in an encoding other than UTF-8");
        assert_eq!(
            read(&place.to_read(path), Window::default(), Limits::DEFAULT).unwrap_err().to_string(),
            told
        );
    }
    let late = Window { offset: Some(8000), limit: None };
    assert!(matches!(read(&place.to_read("late"), late, Limits::DEFAULT), Err(ReadError::Binary { .. })));
    assert_eq!(
        text(&place, "latin", None, None),
        "caf\u{fffd}\n[Not all of it is valid UTF-8; other bytes are shown as \u{fffd}.]\n"
    );
}

#[test]
fn line_ends_are_shown_as_lf_and_a_byte_order_mark_is_not_shown() {
    let place = Place::new();
    place.file("dos", "\u{feff}one\r\ntwo\r\n");
    place.file("mark", "one\n\u{feff}two \u{fffd}\n");
    assert_eq!(text(&place, "dos", None, None), "one\ntwo\n[The line ends are CRLF; edit keeps them.]\n");
    assert_eq!(text(&place, "mark", None, None), "one\n\u{feff}two \u{fffd}\n");
}

#[test]
fn a_list_is_sorted_and_marks_what_is_not_a_plain_file() {
    let place = Place::new();
    place.file("b/deep/x", "");
    place.file("a.txt", "");
    place.file(".hidden", "");
    place.file("line\nbreak", "");
    place.file(".herder-0192f0c0a0b07000800000000000000a.tmp", "");
    place.link("c", place.outside(""));
    let mut expected = vec![
        ".hidden",
        "a.sock (socket)",
        "a.txt",
        "b/",
        "c (link)",
        "line\\nbreak",
        "live.pipe (named pipe)",
    ];
    if special_files(&place, "").len() == 3 {
        expected.push("zero (device)");
    }
    assert_eq!(list(&place.to_read("."), Limits::DEFAULT).unwrap(), expected.join("\n") + "\n");
    assert_eq!(list(&place.to_read("b"), Limits::DEFAULT).unwrap(), "deep/\n");
    assert_eq!(list(&place.to_read("b/deep/.."), Limits::DEFAULT).unwrap(), "deep/\n");
    fs::create_dir(place.inside("none")).unwrap();
    assert_eq!(list(&place.to_read("none"), Limits::DEFAULT).unwrap(), "The folder is empty.");
    assert_eq!(
        list(&place.to_read("missing"), Limits::DEFAULT).unwrap_err().to_string(),
        "missing does not exist"
    );
    let file = list(&place.to_read("a.txt"), Limits::DEFAULT).unwrap_err();
    assert_eq!(file.to_string(), "a.txt is not a folder, or a part of it is a file");
}

#[test]
fn a_large_folder_shows_its_first_names_and_how_many_there_are() {
    let place = Place::new();
    for n in 0..1500 {
        place.file(&format!("{n:04}"), "");
    }
    let shown = list(&place.to_read("."), Limits::DEFAULT).unwrap();
    assert!(shown.starts_with("0000\n0001\n"));
    assert!(shown.contains("0999\n[1000 of 1500 entries shown;"), "{}", &shown[shown.len() - 200..]);
}

fn text(place: &Place, path: &str, offset: Option<u64>, limit: Option<u64>) -> String {
    read(&place.to_read(path), Window { offset, limit }, Limits::DEFAULT).unwrap()
}
