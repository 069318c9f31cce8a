//! One spelling for each JSON text, so that its hash tells whether the content changed.

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
}
