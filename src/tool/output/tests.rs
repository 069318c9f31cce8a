//! What is shown of long text, and what is said of the rest.

use proptest::prelude::*;

use super::*;

const SMALL: Limits = Limits { lines: 4, bytes: 64, line_chars: 10 };

#[test]
fn a_text_within_the_limits_is_shown_as_it_is() {
    let shown = head("one\ntwo", &Limits::default());
    assert_eq!(shown, Shown { text: "one\ntwo".to_owned(), lines: 2, omitted: None, shortened: 0 });
}

#[test]
fn a_head_says_how_many_lines_and_bytes_are_missing() {
    let shown = head("1\n2\n3\n4\n5\n6", &SMALL);
    assert_eq!(shown.text, "1\n2\n3\n4\n");
    assert_eq!(shown.omitted, Some(Omitted { lines: 2, bytes: 3 }));
}

#[test]
fn a_head_stops_before_the_line_that_passes_the_byte_limit() {
    let shown = head("aaaa\nbbbb\ncccc\n", &Limits { bytes: 12, ..SMALL });
    assert_eq!((shown.text.as_str(), shown.lines), ("aaaa\nbbbb\n", 2));
}

#[test]
fn a_long_line_is_cut_between_characters_and_says_how_many_follow() {
    let shown = head("äöüäöüäöüäöü\nx", &SMALL);
    assert_eq!(shown.text, "äöüäöüäöüä [+2 characters]\nx");
    assert_eq!((shown.omitted, shown.shortened), (None, 1));
}

#[test]
fn both_ends_are_kept_and_the_gap_is_exact() {
    let ends = collect(numbers(1..=20_000).as_bytes(), 4096, Limits::default());
    let front = numbers(1..=1000);
    let back = numbers(19_001..=20_000);
    let bytes = (numbers(1..=20_000).len() - front.len() - back.len()) as u64;
    assert_eq!(ends, Ends { front, back, omitted: Some(Omitted { lines: 18_000, bytes }), shortened: 0 });
}

#[test]
fn a_stream_exactly_at_the_limits_is_whole() {
    let text = numbers(1..=2000);
    let ends = collect(text.as_bytes(), 7, Limits { bytes: text.len(), ..Limits::default() });
    assert_eq!(ends, Ends { front: text, back: String::new(), omitted: None, shortened: 0 });
}

#[test]
fn an_unfinished_last_line_counts_as_a_line() {
    let ends = collect(b"1\n2\n3\n4\n5", 1, Limits { lines: 2, ..SMALL });
    assert_eq!(ends.join("[gap]"), "1\n[gap]\n5");
    assert_eq!(ends.omitted, Some(Omitted { lines: 3, bytes: 6 }));
}

#[test]
fn of_one_endless_line_both_ends_are_shown() {
    let text = format!("{}{}", "ä".repeat(500), "ö".repeat(500));
    let ends = collect(text.as_bytes(), 33, SMALL);
    assert_eq!(ends.join("[gap]"), format!("{}\n[gap]\n{}", "ä".repeat(10), "ö".repeat(10)));
    assert_eq!(ends.omitted, Some(Omitted { lines: 0, bytes: 1960 }));
}

#[test]
fn bytes_that_are_no_text_are_replaced_and_the_rest_is_kept() {
    let ends = collect(b"ok \xff\xfe caf\xe9 \0 end\n", 3, Limits::default());
    assert_eq!(ends.front, "ok \u{fffd}\u{fffd} caf\u{fffd} \u{fffd} end\n");
}

#[test]
fn a_program_is_binary_and_text_in_an_old_encoding_is_not() {
    let is_binary = |bytes: &[u8]| {
        let mut stream = HeadTail::new(Limits::default());
        stream.push(bytes);
        stream.is_binary()
    };
    assert!(is_binary(&[0; 5000]));
    assert!(is_binary(
        &"utf-16 text, which nobody prints".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()
    ));
    assert!(!is_binary(b"ok \xff\xfe caf\xe9 \0 end\n"));
    assert!(!is_binary(&b"caf\xe9 cr\xe8me br\xfbl\xe9e\n".repeat(100)));
    assert!(!is_binary("\u{1b}[31mrot\u{1b}[0m 漢字\r\n".repeat(100).as_bytes()));
    assert!(!is_binary(b""));
}

#[test]
fn memory_stays_within_the_limit_whatever_comes() {
    let mut stream = HeadTail::new(Limits::default());
    let chunk = b"filler-line\n".repeat(5000);
    for _ in 0..500 {
        stream.push(&chunk);
        assert!(stream.held().len() <= Limits::default().bytes);
    }
    assert_eq!((stream.bytes(), stream.lines()), (30_000_000, 2_500_000));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn how_a_stream_is_chunked_changes_nothing(bytes in stream(), size in 1usize..80) {
        prop_assert_eq!(collect(&bytes, size, SMALL), collect(&bytes, bytes.len().max(1), SMALL));
    }

    #[test]
    fn nothing_passes_the_limits(bytes in stream()) {
        let ends = collect(&bytes, 16, SMALL);
        prop_assert!(ends.front.len() + ends.back.len() <= SMALL.bytes);
        prop_assert!(ends.front.lines().count() + ends.back.lines().count() <= SMALL.lines);
    }

    #[test]
    fn what_is_shown_and_what_is_left_out_add_up(lines in prop::collection::vec("[a-zäß]{0,9}", 0..40)) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let ends = collect(text.as_bytes(), 16, SMALL);
        let omitted = ends.omitted.unwrap_or(Omitted { lines: 0, bytes: 0 });
        let shown = [ends.front.as_str(), ends.back.as_str()].concat();
        prop_assert_eq!(shown.len() as u64 + omitted.bytes, text.len() as u64);
        prop_assert_eq!(shown.lines().count() as u64 + omitted.lines, lines.len() as u64);
        prop_assert!(text.starts_with(&ends.front) && text.ends_with(&ends.back));
    }
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        "[a-zäß漢\n]{0,12}".prop_map(String::into_bytes),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn collect(bytes: &[u8], chunk: usize, limits: Limits) -> Ends {
    let mut stream = HeadTail::new(limits);
    bytes.chunks(chunk).for_each(|chunk| stream.push(chunk));
    stream.finish()
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> String {
    range.map(|number| format!("{number}\n")).collect()
}
