//! Every stream, however spoilt, is read without harm, and the same however the network cuts it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    codec::{CODECS, Codec},
    corpus,
    mutate::Dice,
};

/// Mutants of each protocol.
const MUTANTS: usize = 1_500;

#[test]
fn a_stream_is_read_the_same_however_it_is_cut() {
    for codec in CODECS {
        for entry in corpus::of(codec.name) {
            told_with(codec, &entry.name, &entry.bytes, || {
                let whole = codec.check(&entry.bytes);
                assert_eq!(codec.hear(entry.bytes.chunks(1)), whole, "byte by byte");
                for cut in 0..=entry.bytes.len() {
                    let (head, tail) = entry.bytes.split_at(cut);
                    assert_eq!(codec.hear([head, tail]), whole, "cut at {cut}");
                }
            });
        }
    }
}

#[test]
fn a_spoilt_stream_does_no_harm_and_is_read_the_same_however_it_is_cut() {
    mutants(1);
}

fn mutants(seed: u64) {
    for codec in CODECS {
        let corpus = corpus::of(codec.name);
        let mut dice = Dice::new(seed);
        for number in 0..MUTANTS {
            let bytes = dice.mutant(&corpus);
            let chunks = dice.chunks(&bytes);
            told_with(codec, &format!("mutant {number} of seed {seed}"), &bytes, || {
                let whole = codec.check(&bytes);
                assert_eq!(codec.hear(chunks.iter().copied()), whole, "in chunks");
            });
        }
    }
}

/// Runs a check; whatever fails is told with the stream that it failed on.
fn told_with(codec: &Codec, what: &str, bytes: &[u8], check: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
        let why = panic.downcast_ref::<String>().map_or("", String::as_str);
        panic!("{}, {what}: {why}\n{}", codec.name, bytes.escape_ascii());
    }
}
