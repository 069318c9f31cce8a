//! A folder that keeps being swapped for a link out of the workspace.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::tool::workspace::mutate::write;

const ROUNDS: usize = 2_000;

#[test]
fn nothing_outside_changes_while_a_folder_flips_between_itself_and_a_link() {
    let place = Place::new();
    place.file("sub/a.txt", "inside");
    fs::write(place.outside("a.txt"), "outside").unwrap();
    place.link("link", place.outside(""));
    let done = AtomicBool::new(false);
    let (mut written, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (sub, link) = (place.inside("sub"), place.inside("link"));
                let both = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &sub, rustix::fs::CWD, &link, both).unwrap();
            }
        });
        for round in 0..ROUNDS {
            let path = ["sub/a.txt", "sub/new/b.txt", "link/a.txt"][round % 3];
            let change = place
                .workspace
                .resolve(path, Intent::Write)
                .map_err(drop)
                .and_then(|target| write(&target, &round.to_string()).map_err(drop))
                .and_then(|change| change.prepared.commit().map_err(drop));
            *if change.is_ok() { &mut written } else { &mut refused } += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(names(&place.outside("")), ["a.txt"]);
    assert_eq!(fs::read_to_string(place.outside("a.txt")).unwrap(), "outside");
    assert!(written > 0 && refused > 0, "{written} written, {refused} refused: the race was not run");
}

#[test]
fn nothing_outside_is_read_while_a_file_flips_between_itself_and_a_link() {
    let place = Place::new();
    place.file("a.txt", "inside");
    fs::write(place.outside("a.txt"), "secret").unwrap();
    place.link("link", place.outside("a.txt"));
    let done = AtomicBool::new(false);
    let mut seen = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (file, link) = (place.inside("a.txt"), place.inside("link"));
                let both = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(rustix::fs::CWD, &file, rustix::fs::CWD, &link, both).unwrap();
            }
        });
        for _ in 0..ROUNDS {
            if let Ok(target) = place.workspace.resolve("a.txt", Intent::Read)
                && let Ok(text) = read::read(&target, read::Window::default())
            {
                seen.insert(text);
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(seen, ["inside\n".to_owned()].into());
}
