//! The number of a group that a person names.
//!
//! Reads the system's own list. Knows nothing of groups that a directory service keeps: those are named by number.

use std::fs;

use super::SocketError;

const GROUPS: &str = "/etc/group";

/// The number of the group that is named so, or that has this number.
pub fn group_id(name: &str) -> Result<u32, SocketError> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let list = fs::read_to_string(GROUPS).map_err(SocketError::io("read", GROUPS.as_ref()))?;
    listed(&list, name).ok_or_else(|| SocketError::NoSuchGroup { name: name.to_owned() })
}

fn listed(list: &str, wanted: &str) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (name == wanted).then(|| number.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "root:x:0:\n# a remark\nbroken\nherders:x:1234:ann,bob\n";

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        assert_eq!(listed(LIST, "herders"), Some(1234));
        assert_eq!(listed(LIST, "herder"), None);
        assert_eq!(listed(LIST, "broken"), None);
    }

    #[test]
    fn a_number_stands_for_itself_and_an_unknown_name_is_refused() {
        assert_eq!(group_id("4321").unwrap(), 4321);
        assert!(matches!(group_id("no such group"), Err(SocketError::NoSuchGroup { .. })));
    }
}
