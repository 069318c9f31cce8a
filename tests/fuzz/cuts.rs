//! An answer that was cut is never taken for one that is whole.

use super::{
    codec::{CODECS, Codec},
    corpus,
};

#[test]
fn an_answer_cut_before_it_said_that_it_was_whole_gives_no_stop() {
    for codec in CODECS.iter().filter(|codec| !codec.ends.is_empty()) {
        let whole =
            corpus::of(codec.name).into_iter().filter(|entry| codec.hear([&*entry.bytes]).end.is_ok());
        let mut checked = 0;
        for entry in whole {
            for cut in 0..end(codec, &entry.bytes) {
                let heard = codec.hear([&entry.bytes[..cut]]);
                let told = (heard.stops(), heard.end.is_ok());
                assert_eq!(told, (0, false), "{}, {} cut at {cut}: {heard:?}", codec.name, entry.name);
            }
            checked += 1;
        }
        assert!(checked >= 10, "{}: {checked} whole answers are few", codec.name);
    }
}

/// Where the line ends that says first that the answer is whole.
fn end(codec: &Codec, bytes: &[u8]) -> usize {
    let found = |mark: &&str| bytes.windows(mark.len()).position(|window| window == mark.as_bytes());
    let mark = codec.ends.iter().filter_map(found).min().unwrap();
    let rest = &bytes[mark..];
    mark + rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')).unwrap_or(rest.len())
}
