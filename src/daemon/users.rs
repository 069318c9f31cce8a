//! Users of this machine, by number and by name, as the system's own file has them.

/// The name of a user.
pub(crate) fn name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut rows = users.lines().filter_map(row);
    rows.find_map(|(name, id)| (id == uid).then(|| name.to_owned()))
}

/// The number of a user, by name or number.
pub(super) fn uid(user: &str) -> Option<u32> {
    if let Ok(uid) = user.parse() {
        return Some(uid);
    }
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().filter_map(row).find_map(|(name, uid)| (name == user).then_some(uid))
}

/// The name and the number of a row, as `name:x:1000:...`.
fn row(row: &str) -> Option<(&str, u32)> {
    let mut fields = row.split(':');
    let name = fields.next()?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_by_name_and_number() {
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!((uid("root"), uid("0")), (Some(0), Some(0)));
        assert_eq!(uid("nobody-is-called-so"), None);
    }
}
