//! Changes a stream at random, always the same way from the same seed.

use super::corpus::Entry;

/// What servers, proxies and networks put where it does not belong.
const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\xEF\xBB\xBF",
    b"\xFF",
    b"\xE9\x82",
    b"\xF0\x9F\x98",
    b"\xED\xA0\xBD",
    b"\0",
    b"\\ud83d",
    b"\\ude00",
    b"\\",
    b"\"",
    b"data: ",
    b"\ndata:",
    b"\nid: 1\n",
    b"\nevent: error\n",
    b": ping\n\n",
    b"null",
    b"{}",
    b"[]",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\"index\":4000000000,",
    b"\"index\":-9223372036854775808,",
    b"data: [DONE]\n\n",
];

/// As much nesting as goes beyond what any parser takes.
const DEEPEST: usize = 400;

/// Bytes of a line that does not end for long.
const LONGEST: usize = 5_000;

/// A source of numbers that look random (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end as u64).max(1)).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Two places in `length` bytes, in their order.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let (a, b) = (self.below(length + 1), self.below(length + 1));
        a.min(b)..a.max(b)
    }

    /// Cuts bytes into chunks, of which some may be empty.
    pub(crate) fn chunks<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let longest = self.pick(&[2, 8, 64, 512]);
        let mut chunks = Vec::new();
        while !bytes.is_empty() {
            let (chunk, rest) = bytes.split_at(self.below(longest).min(bytes.len()));
            chunks.push(chunk);
            bytes = rest;
        }
        chunks
    }

    /// An entry of the corpus, changed in up to four ways.
    pub(crate) fn mutant(&mut self, corpus: &[Entry]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].bytes.clone();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, corpus);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Entry]) {
        let at = self.below(bytes.len() + 1);
        match self.below(11) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => bytes.truncate(at),
            2 => drop(bytes.drain(self.range(bytes.len()))),
            3 => bytes.extend_from_within(self.range(bytes.len())),
            4 => {
                let again = bytes[self.range(bytes.len())].to_vec();
                insert(bytes, at, &again);
            }
            5 => {
                let other = &corpus[self.below(corpus.len())].bytes;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[self.below(other.len() + 1)..]);
            }
            6 => insert(bytes, at, self.pick(TOKENS)),
            7 => {
                let digit = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|found| at + found);
                let number: &[u8] =
                    self.pick(&[&b"99999999999999999999"[..], b"-1", b"0.5", b"1e400", b"\"1\""]);
                bytes.splice(digit.map_or(at..at, |digit| digit..digit + 1), number.iter().copied());
            }
            8 => {
                let open: &[u8] = self.pick(&[&b"["[..], b"{\"a\":", b"{\"error\":["]);
                insert(bytes, at, &open.repeat(self.below(DEEPEST)));
            }
            9 => insert(bytes, at, &vec![self.pick(b"x \"\\:\xC3"); self.below(LONGEST)]),
            _ => {
                let end: &[u8] = self.pick(&[&b"\r"[..], b"\r\n", b"\n\r"]);
                let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
                *bytes = lines.join(end);
            }
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, more: &[u8]) {
    bytes.splice(at..at, more.iter().copied());
}
