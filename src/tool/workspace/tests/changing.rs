//! Replacing files: all or nothing, with mode, owner and links kept.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;
use crate::tool::{
    text_edit::Edit,
    workspace::{
        mutate::{Change, MutateError, edit, write},
        replace::{ReplaceError, hash_file},
        temp::sweep_beside,
    },
};

#[test]
fn an_edit_keeps_the_mode_and_leaves_nothing_else_behind() {
    let place = Place::new();
    let hook = place.file("hook.sh", "#!/bin/sh\necho X\n");
    for mode in [0o755, 0o600, 0o4711, 0o666] {
        fs::write(&hook, "#!/bin/sh\necho X\n").unwrap();
        fs::set_permissions(&hook, fs::Permissions::from_mode(mode)).unwrap();
        replace(&place, "hook.sh", "X", "Y").prepared.commit().unwrap();
        assert_eq!(fs::read_to_string(&hook).unwrap(), "#!/bin/sh\necho Y\n");
        assert_eq!(fs::metadata(&hook).unwrap().mode() & 0o7777, mode);
    }
    assert_eq!(names(&place.inside("")), ["hook.sh"]);
}

#[test]
fn the_owner_is_kept_where_we_may() {
    let place = Place::new();
    let path = place.file("a", "old");
    // Only root can set this up; others own what they make.
    let theirs = std::os::unix::fs::chown(&path, Some(12_345), Some(12_345)).is_ok();
    let before = fs::metadata(&path).unwrap();
    write(&place.to_write("a"), "new").unwrap().prepared.commit().unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
    assert!(!theirs || after.uid() == 12_345);
}

#[test]
fn a_program_whose_owner_cannot_be_kept_no_longer_runs_as_its_owner() {
    let place = Place::new();
    let path = place.file("program", "old");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
        return; // Not root: there is no file of another owner to try it on.
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
    unprivileged(|| write(&place.to_write("program"), "new").unwrap().prepared.commit()).unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_ne!(after.uid(), 12_345);
    assert_eq!(after.mode() & 0o7777, 0o777);
}

#[test]
fn preparing_changes_nothing_and_tells_the_hashes_before_and_after() {
    let place = Place::new();
    let path = place.file("a.txt", "one\ntwo\n");
    let change = replace(&place, "a.txt", "two", "2");
    assert_eq!(change.prepared.hash_before, Some(sha256("one\ntwo\n")));
    assert_eq!(change.prepared.hash_after, sha256("one\n2\n"));
    assert_eq!(change.summary, "Edited a.txt: 1 replacement, the first on line 2.\n");
    assert_eq!(change.diff.as_deref(), Some("@@ -1,2 +1,2 @@\n one\n-two\n+2\n"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
    assert_eq!(hash_file(change.prepared.target()).unwrap(), change.prepared.hash_before);
    let after = change.prepared.hash_after.clone();
    change.prepared.commit().unwrap();
    assert_eq!(hash_file(&place.to_read("a.txt")).unwrap(), Some(after));

    let new = write(&place.to_write("new/b.txt"), "b\n").unwrap();
    assert_eq!((new.prepared.hash_before.as_deref(), &*new.summary), (None, "Created new/b.txt: 2 bytes."));
    assert_eq!(hash_file(new.prepared.target()).unwrap(), None);
    assert_eq!(names(&place.inside("")), ["a.txt"]);
}

#[test]
fn a_write_creates_parent_folders_and_replaces_what_is_there() {
    let place = Place::new();
    write(&place.to_write("a/b/c.txt"), "one").unwrap().prepared.commit().unwrap();
    assert_eq!(fs::read_to_string(place.inside("a/b/c.txt")).unwrap(), "one");
    let change = write(&place.to_write("a/b/c.txt"), "two").unwrap();
    assert_eq!(change.summary, "Replaced a/b/c.txt: 3 bytes.");
    change.prepared.commit().unwrap();
    assert_eq!(fs::read_to_string(place.inside("a/b/c.txt")).unwrap(), "two");
    assert_eq!(names(&place.inside("a/b")), ["c.txt"]);
}

#[test]
fn a_write_over_a_file_with_a_byte_order_mark_keeps_it_once() {
    let place = Place::new();
    let path = place.file("s.ps1", b"\xef\xbb\xbf# one\n");
    for content in ["# two\n", "\u{feff}# two\n"] {
        write(&place.to_write("s.ps1"), content).unwrap().prepared.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"\xef\xbb\xbf# two\n");
    }
}

#[test]
fn a_change_through_a_link_goes_to_its_target_and_the_link_stays() {
    let place = Place::new();
    place.file("real/a.txt", "one");
    place.link("link", "real/a.txt");
    place.link("dangling", "real/new.txt");
    replace(&place, "link", "one", "two").prepared.commit().unwrap();
    write(&place.to_write("dangling"), "new").unwrap().prepared.commit().unwrap();
    assert_eq!(fs::read_to_string(place.inside("real/a.txt")).unwrap(), "two");
    assert_eq!(fs::read_to_string(place.inside("real/new.txt")).unwrap(), "new");
    for link in ["link", "dangling"] {
        assert!(fs::symlink_metadata(place.inside(link)).unwrap().is_symlink());
    }
}

#[test]
fn a_file_changed_between_the_phases_is_not_overwritten() {
    let place = Place::new();
    let path = place.file("a.txt", "one\ntwo\n");
    let by_others: [&dyn Fn(); 4] = [
        &|| fs::write(&path, "ONE\ntwo\n").unwrap(),
        &|| {
            fs::write(place.inside("b"), "one\ntwo\n").unwrap();
            fs::rename(place.inside("b"), &path).unwrap();
        },
        &|| fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap(),
        &|| fs::remove_file(&path).unwrap(),
    ];
    for change_it in by_others {
        let change = replace(&place, "a.txt", "two", "TWO");
        change_it();
        let theirs = fs::read(&path).ok();
        assert!(matches!(change.prepared.commit(), Err(ReplaceError::Changed { .. })));
        assert_eq!(fs::read(&path).ok(), theirs);
    }
    assert_eq!(names(&place.inside("")), Vec::<String>::new());
}

#[test]
fn a_new_file_never_replaces_one_that_appeared_meanwhile() {
    let place = Place::new();
    let change = write(&place.to_write("sub/new.txt"), "ours").unwrap();
    let path = place.file("sub/new.txt", "theirs");
    assert!(matches!(change.prepared.commit(), Err(ReplaceError::Changed { .. })));
    assert_eq!(fs::read_to_string(path).unwrap(), "theirs");

    let change = write(&place.to_write("link.txt"), "ours").unwrap();
    place.link("link.txt", place.outside("made.txt"));
    assert!(matches!(change.prepared.commit(), Err(ReplaceError::Changed { .. })));
    assert_eq!(names(&place.outside("")), Vec::<String>::new());
    assert_eq!(names(&place.inside("")), ["link.txt", "sub"]);
}

#[test]
fn a_folder_swapped_for_a_link_between_the_phases_leads_nowhere() {
    let place = Place::new();
    place.file("sub/a.txt", "one");
    fs::write(place.outside("a.txt"), "one").unwrap();
    let edited = replace(&place, "sub/a.txt", "one", "two");
    let new = write(&place.to_write("sub/new/b.txt"), "new").unwrap();
    fs::rename(place.inside("sub"), place.inside("was")).unwrap();
    place.link("sub", place.outside(""));
    for change in [edited, new] {
        let refused = change.prepared.commit();
        assert!(matches!(refused, Err(ReplaceError::Path(PathError::Moved { .. }))), "{refused:?}");
    }
    assert_eq!(names(&place.outside("")), ["a.txt"]);
    assert_eq!(fs::read_to_string(place.outside("a.txt")).unwrap(), "one");
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_a_live_one_writes_is_not() {
    let place = Place::new();
    let left = ".herder-0192f0c0a0b07000800000000000000a.tmp";
    let live = ".herder-0192f0c0a0b07000800000000000000b.tmp";
    let others = [".herder-notes.tmp", ".herder-0192f0c0a0b07000800000000000000a", "a.tmp"];
    for name in [left, live].iter().chain(&others) {
        place.file(name, "half");
    }
    let held = fs::File::open(place.inside(live)).unwrap();
    held.lock().unwrap();
    write(&place.to_write("new.txt"), "x").unwrap().prepared.commit().unwrap();
    let mut kept = vec![live, "new.txt"];
    kept.extend(others);
    kept.sort_unstable();
    assert_eq!(names(&place.inside("")), kept);

    drop(held);
    sweep_beside(&place.to_write("new.txt")).unwrap();
    sweep_beside(&place.to_write("no/such/folder/x")).unwrap();
    kept.retain(|name| *name != live);
    assert_eq!(names(&place.inside("")), kept);
}

#[test]
fn a_folder_is_searched_for_left_overs_once_and_each_folder_is() {
    let place = Place::new();
    let left = ".herder-0192f0c0a0b07000800000000000000a.tmp";
    let write = |path| write(&place.to_write(path), "x").unwrap().prepared.commit().unwrap();
    for (folder, file) in [("a", "a/new.txt"), ("b", "b/new.txt")] {
        let left = place.file(&format!("{folder}/{left}"), "half");
        write(file);
        assert!(!left.exists());
        fs::write(&left, "half").unwrap();
        write(file);
        assert!(left.exists());
    }
}

#[test]
fn writers_in_one_folder_do_not_sweep_each_other_away() {
    let place = Place::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let place = &place;
            scope.spawn(move || {
                for round in 0..50 {
                    let change =
                        write(&place.to_write(&format!("{thread}.txt")), &round.to_string()).unwrap();
                    change.prepared.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(names(&place.inside("")), ["0.txt", "1.txt", "2.txt", "3.txt"]);
}

#[test]
fn a_refused_edit_says_why_and_leaves_the_file_as_it_was() {
    let place = Place::new();
    let path = place.file("x.txt", "a\nb\n");
    let refusals = [
        (refused(&place, "x.txt", "zzz"), "x.txt is unchanged: edit 1: old_text was not found"),
        (refused(&place, "x.txt", ""), "x.txt is unchanged: edit 1: old_text is empty"),
        (refused(&place, "no.txt", "a"), "no.txt does not exist"),
        (refused(&place, ".", "a"), ". is a folder, not a regular file"),
        // What is wrong with every file is told before the file is looked at.
        (refused(&place, "no.txt", ""), "no.txt is unchanged: edit 1: old_text is empty"),
    ];
    for (error, told) in refusals {
        assert_eq!(Told(&error).to_string(), told);
    }
    assert_eq!(fs::read_to_string(path).unwrap(), "a\nb\n");
    assert!(write(&place.to_write("."), "x").is_err());
}

#[test]
fn a_write_protected_file_or_folder_stays_as_it_is() {
    let place = Place::new();
    let path = place.file("a.txt", "one");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let refused = unprivileged(|| write(&place.to_write("a.txt"), "two").unwrap_err());
    assert_eq!(Told(&refused).to_string(), "cannot write a.txt: Permission denied (os error 13)");

    fs::create_dir(place.inside("locked")).unwrap();
    fs::set_permissions(place.inside("locked"), fs::Permissions::from_mode(0o555)).unwrap();
    let refused = unprivileged(|| write(&place.to_write("locked/b"), "two").unwrap().prepared.commit());
    assert!(matches!(refused, Err(ReplaceError::Unwritable { .. })));
    assert_eq!(fs::read_to_string(path).unwrap(), "one");
}

#[test]
fn edits_of_one_file_after_each_other_all_stay_over_many_rounds() {
    let rows: String = (1..=80).map(|n| format!("row {n:02}\n")).collect();
    let place = Place::new();
    for _ in 0..50 {
        let path = place.file("rows.txt", &rows);
        replace(&place, "rows.txt", "row 20", "ROW TWENTY").prepared.commit().unwrap();
        replace(&place, "./rows.txt", "row 61", "ROW SIXTY-ONE").prepared.commit().unwrap();
        let expected = rows.replace("row 20", "ROW TWENTY").replace("row 61", "ROW SIXTY-ONE");
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }
}

#[test]
fn a_file_too_large_to_hold_is_refused_by_its_size() {
    let place = Place::new();
    let path = place.file("big", "");
    fs::File::options().write(true).open(path).unwrap().set_len(40 << 20).unwrap();
    let error = refused(&place, "big", "a");
    assert!(matches!(error, MutateError::Replace(ReplaceError::TooLarge { size: 41_943_040, .. })));
}

fn replace(place: &Place, path: &str, old: &str, new: &str) -> Change {
    edit(&place.to_write(path), &[Edit { old_text: old.to_owned(), new_text: new.to_owned() }]).unwrap()
}

fn refused(place: &Place, path: &str, old: &str) -> MutateError {
    edit(&place.to_write(path), &[Edit { old_text: old.to_owned(), new_text: "new".to_owned() }]).unwrap_err()
}

fn sha256(text: &str) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
