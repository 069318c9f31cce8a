//! A file whose replacement was cut short.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::work::{Work, left_in};

#[test]
fn a_file_is_whole_when_its_replacement_dies_before_the_rename_and_the_next_start_tidies_up() {
    for point in ["temp.written", "rename.before"] {
        // The edit and the write come in either order, or both at once.
        for time in [1, 2] {
            let work = Work::new();
            assert!(work.dies(point, time));
            let file = work.house.path("work/a.txt");
            let text = fs::read_to_string(&file).unwrap();
            assert!(["one\ntwo\n", "ONE\ntwo\n"].contains(&text.as_str()), "{text}");
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
            let temporary =
                |names: Vec<String>| names.iter().filter(|name| name.starts_with(".herder-")).count();
            assert!(temporary(left_in(&work.house)) >= 1);
            work.ends_as_undisturbed(point);
            assert_eq!(temporary(left_in(&work.house)), 0);
        }
    }
}
