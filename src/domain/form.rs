//! An answer that is to be JSON, as models give it.

/// The JSON of an answer: what is inside the one fence that stands round it, if one does.
pub fn bare_json(text: &str) -> &str {
    let text = text.trim();
    let inside = || {
        let (info, rest) = text.strip_prefix("```")?.split_once('\n')?;
        let is_json = info.trim().is_empty() || info.trim().eq_ignore_ascii_case("json");
        is_json.then_some(rest.strip_suffix("```")?.trim())
    };
    inside().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fence_round_the_whole_answer_is_taken_away() {
        let table = [
            ("{}", "{}"),
            (" \n{\"a\": 1}\n", "{\"a\": 1}"),
            ("```json\n{}\n```", "{}"),
            ("```\n[1]\n```\n", "[1]"),
            ("```JSON \r\n{}\r\n```", "{}"),
            ("```json\n{\"a\": \"```\"}\n```", "{\"a\": \"```\"}"),
            ("```rust\n{}\n```", "```rust\n{}\n```"),
            ("Here: ```json\n{}\n```", "Here: ```json\n{}\n```"),
            ("```json\n{}", "```json\n{}"),
            ("``` {} ```", "``` {} ```"),
            ("", ""),
        ];
        for (text, expected) in table {
            assert_eq!(bare_json(text), expected, "{text}");
        }
    }
}
