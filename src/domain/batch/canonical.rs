//! One spelling for each JSON text, so that its hash tells whether the content changed.

use std::borrow::Cow;

use serde_json::Value;

/// Writes a value without white space, the keys of its objects sorted.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string())
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                separate(index, out);
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            // Sorted here: whether the map keeps an order of its own is a matter of features set elsewhere.
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                separate(index, out);
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
    }
}

fn separate(index: usize, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
}

/// Replaces escapes of half a UTF-16 pair in JSON text, which stand for no character, by U+FFFD.
pub fn repair_surrogates(text: &str) -> Cow<'_, str> {
    let mut repaired = String::new();
    let mut kept = 0;
    let mut at = 0;
    while let Some(found) = text[at..].find('\\') {
        let start = at + found;
        match unit(text, start) {
            None => {
                // Some other escape: its second character, whatever it is, escapes nothing.
                at = start + 1 + text[start + 1..].chars().next().map_or(0, char::len_utf8);
            }
            Some(0xD800..=0xDBFF) if matches!(unit(text, start + 6), Some(0xDC00..=0xDFFF)) => {
                at = start + 12
            }
            Some(0xD800..=0xDFFF) => {
                repaired.push_str(&text[kept..start]);
                repaired.push_str("\\ufffd");
                at = start + 6;
                kept = at;
            }
            Some(_) => at = start + 6,
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    repaired.push_str(&text[kept..]);
    Cow::Owned(repaired)
}

/// The UTF-16 unit that the escape at `at` stands for, if there is one.
fn unit(text: &str, at: usize) -> Option<u16> {
    let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
    digits
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit())
        .then(|| u16::from_str_radix(digits, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spelling_does_not_matter_and_content_does() {
        let canonical = |text: &str| canonical(&serde_json::from_str(text).expect("JSON"));
        let one = canonical(r#"{ "b": [1, {"d": null, "c": "\u0041\n"}], "a": 1.5 }"#);
        assert_eq!(one, r#"{"a":1.5,"b":[1,{"c":"A\n","d":null}]}"#);
        assert_eq!(one, canonical(r#"{"a":1.5,"b":[1,{"c":"A\n","d":null}]}"#));
        assert_ne!(canonical("[1,2]"), canonical("[2,1]"));
    }

    #[test]
    fn half_a_pair_is_replaced_and_a_whole_one_is_kept() {
        assert_eq!(repair_surrogates(r#""\ud83d\ude00 \n""#), r#""\ud83d\ude00 \n""#);
        assert_eq!(repair_surrogates(r#""a\ud83d b""#), r#""a\ufffd b""#);
        assert_eq!(repair_surrogates(r#""\ude00\ud83d""#), r#""\ufffd\ufffd""#);
        assert_eq!(repair_surrogates(r#""\ud83d\ud83d\ude00""#), r#""\ufffd\ud83d\ude00""#);
        assert_eq!(repair_surrogates(r#""\\ud83d""#), r#""\\ud83d""#);
        assert_eq!(repair_surrogates("\"\\"), "\"\\");
        assert_eq!(repair_surrogates("\"\\é\\ud8"), "\"\\é\\ud8");
    }
}
