//! A folder that keeps being swapped for a link out of the workspace.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{CWD, RenameFlags};

use super::*;
use crate::tool::workspace::{
    grep::{Query, grep},
    mutate::write,
    sensitive::Sensitive,
};

const ROUNDS: usize = 2_000;

#[test]
fn nothing_outside_changes_while_a_folder_flips_between_itself_and_a_link() {
    let place = Place::new();
    place.file("sub/a.txt", "inside");
    fs::write(place.outside("a.txt"), "outside").unwrap();
    place.link("link", place.outside(""));
    let (mut written, mut refused) = (0, 0);
    while_flipping(&place, "sub", || {
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
    let mut seen = BTreeSet::new();
    while_flipping(&place, "a.txt", || {
        // On a busy machine a round may last as long as the link stands there.
        let mut rounds = 0;
        while rounds < ROUNDS || seen.is_empty() && rounds < 1_000 * ROUNDS {
            rounds += 1;
            if let Ok(target) = place.workspace.resolve("a.txt", Intent::Read)
                && let Ok(text) = read::read(&target, read::Window::default(), Limits::DEFAULT)
            {
                seen.insert(text);
            }
        }
    });
    assert_eq!(seen, ["inside\n".to_owned()].into());
}

#[test]
fn nothing_outside_is_found_while_a_folder_flips_between_itself_and_a_link() {
    let place = Place::new();
    place.file("sub/a.txt", "inside");
    fs::write(place.outside("a.txt"), "secret").unwrap();
    fs::write(place.outside("secret"), "").unwrap();
    place.link("link", place.outside(""));
    let query = Query {
        pattern: "inside|secret".to_owned(),
        literal: false,
        ignore_case: false,
        glob: None,
        context: 0,
        sensitive: Sensitive::Include,
        limits: Limits::DEFAULT,
    };
    let mut seen = String::new();
    while_flipping(&place, "sub", || {
        for _ in 0..ROUNDS / 4 {
            for path in [".", "sub"] {
                if let Ok(target) = place.workspace.resolve(path, Intent::Read) {
                    // Names of files that could not be opened may show up as such, their content may not.
                    seen.extend(
                        grep(&target, &query, &|| false).map(|found| found.text.replace("/secret", "")),
                    );
                }
            }
            if let Ok(target) = place.workspace.resolve("sub", Intent::Read) {
                seen.extend(list::list(&target, Limits::DEFAULT));
            }
        }
    });
    assert!(seen.contains("sub/a.txt:1:inside"), "the race was not run");
    assert!(!seen.contains("secret"));
}

/// Does `work` while another thread keeps exchanging `path` with `link`.
fn while_flipping(place: &Place, path: &str, work: impl FnOnce()) {
    struct Done<'a>(&'a AtomicBool);
    impl Drop for Done<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends_with_the_work = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (one, other) = (place.inside(path), place.inside("link"));
                rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        work();
    });
}
