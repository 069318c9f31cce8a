//! The streams that all begins with.
//!
//! They are kept escaped, since most hold what an editor or Git would mend: `\n`, `\r`, `\xNN` and `\\` stand for a byte,
//! and a line's end for nothing.

use std::{fs, path::Path};

/// One stream.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// The corpus of a codec, in the order of its names.
pub(crate) fn of(codec: &str) -> Vec<Entry> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(codec);
    let mut entries: Vec<Entry> = fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let name = file.file_name().into_string().unwrap();
            let bytes = unescape(&fs::read(file.path()).unwrap());
            Entry { name, bytes }
        })
        .collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!entries.is_empty());
    entries
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut text = text.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r'));
    while let Some(byte) = text.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match text.next().unwrap() {
            b'n' => b'\n',
            b'r' => b'\r',
            b'x' => {
                let digits = [text.next().unwrap(), text.next().unwrap()];
                u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            other => other,
        });
    }
    bytes
}

#[test]
fn escapes_are_bytes_and_line_ends_are_nothing() {
    assert_eq!(unescape(b"a\\r\\n\n\\xff\\\\\r\n\\\\n"), b"a\r\n\xff\\\\n");
}
