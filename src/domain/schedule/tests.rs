//! The rules of the schedule, one by one.

use super::{Phase, Schedule, Ticket};
use crate::domain::call::{
    Access,
    Mode::{self, Exclusive, Shared},
    Scope::{self, File, Tree},
};

const MANY: usize = 1_000;

#[test]
fn two_jobs_conflict_if_their_scopes_overlap_and_one_is_exclusive() {
    let table = [
        (file(Shared, "/a"), file(Shared, "/a"), false),
        (file(Shared, "/a"), file(Exclusive, "/a"), true),
        (file(Exclusive, "/a"), file(Exclusive, "/a"), true),
        (file(Exclusive, "/a"), file(Exclusive, "/b"), false),
        (tree(Shared, "/a"), file(Shared, "/a/b"), false),
        (tree(Shared, "/a"), file(Exclusive, "/a/b"), true),
        (tree(Exclusive, "/a"), file(Shared, "/a/b"), true),
        (tree(Exclusive, "/a"), file(Exclusive, "/a/b/c/d"), true),
        (tree(Shared, "/a"), file(Exclusive, "/a"), true),
        (tree(Exclusive, "/a"), file(Shared, "/a"), true),
        (tree(Shared, "/a"), file(Shared, "/a"), false),
        (tree(Exclusive, "/a/b"), file(Exclusive, "/a/c"), false),
        (tree(Shared, "/a"), tree(Shared, "/a"), false),
        (tree(Shared, "/a"), tree(Exclusive, "/a"), true),
        (tree(Exclusive, "/a"), tree(Exclusive, "/a"), true),
        (tree(Shared, "/a"), tree(Shared, "/a/b"), false),
        (tree(Shared, "/a"), tree(Exclusive, "/a/b/c"), true),
        (tree(Exclusive, "/a"), tree(Shared, "/a/b/c"), true),
        (tree(Exclusive, "/a/b"), tree(Exclusive, "/a/c"), false),
    ];
    for (one, other, conflict) in table {
        assert_eq!(conflicts(&one, &other), conflict, "{one} before {other}");
        assert_eq!(conflicts(&other, &one), conflict, "{other} before {one}");
    }
}

#[test]
fn a_tree_holds_whole_components_only() {
    assert!(!conflicts(&tree(Exclusive, "/a/b"), &file(Exclusive, "/a/bc")));
    assert!(!conflicts(&tree(Exclusive, "/a/b"), &tree(Exclusive, "/a/bc")));
    assert!(conflicts(&tree(Exclusive, "/a/b"), &file(Exclusive, "/a/b/c")));
}

#[test]
fn the_root_tree_holds_everything() {
    for other in [file(Shared, "/a"), file(Shared, "/a/b/c"), tree(Shared, "/a"), tree(Shared, "/")] {
        assert!(conflicts(&tree(Exclusive, "/"), &other), "{other}");
        assert!(conflicts(&other, &tree(Exclusive, "/")), "{other}");
    }
    assert!(!conflicts(&tree(Shared, "/"), &file(Shared, "/a")));
}

#[test]
fn a_files_name_says_nothing_of_what_is_below_it() {
    assert!(!conflicts(&file(Exclusive, "/a"), &file(Exclusive, "/a/b")));
    assert!(!conflicts(&file(Exclusive, "/a"), &tree(Exclusive, "/a/b")));
}

#[test]
fn conflicting_jobs_start_in_order_of_arrival() {
    let mut schedule = Schedule::new(MANY);
    let jobs: Vec<_> = (0..5).map(|_| schedule.submit(&[file(Exclusive, "/a")])).collect();
    for job in jobs {
        assert_eq!(start_all(&mut schedule), [job]);
        assert_eq!(schedule.remove(job), Some(Phase::Running));
    }
}

#[test]
fn a_reader_does_not_pass_a_writer_that_waits() {
    let mut schedule = Schedule::new(MANY);
    let reader = schedule.submit(&[file(Shared, "/a")]);
    let writer = schedule.submit(&[file(Exclusive, "/a")]);
    let late = [schedule.submit(&[file(Shared, "/a")]), schedule.submit(&[file(Shared, "/a")])];
    assert_eq!(start_all(&mut schedule), [reader]);
    schedule.remove(reader);
    assert_eq!(start_all(&mut schedule), [writer]);
    schedule.remove(writer);
    assert_eq!(start_all(&mut schedule), late);
}

#[test]
fn a_job_waits_for_the_last_of_those_that_share() {
    let mut schedule = Schedule::new(MANY);
    let readers = [schedule.submit(&[file(Shared, "/a")]), schedule.submit(&[tree(Shared, "/")])];
    let writer = schedule.submit(&[file(Exclusive, "/a")]);
    assert_eq!(start_all(&mut schedule), readers);
    schedule.remove(readers[1]);
    assert_eq!(start_all(&mut schedule), []);
    schedule.remove(readers[0]);
    assert_eq!(start_all(&mut schedule), [writer]);
}

#[test]
fn an_unrelated_job_starts_past_those_that_wait() {
    let mut schedule = Schedule::new(MANY);
    let first = schedule.submit(&[file(Exclusive, "/a")]);
    schedule.submit(&[file(Exclusive, "/a"), tree(Exclusive, "/b")]);
    let unrelated = schedule.submit(&[file(Exclusive, "/c")]);
    assert_eq!(start_all(&mut schedule), [first, unrelated]);
}

#[test]
fn a_job_that_waits_for_one_of_its_files_keeps_its_place_at_the_other() {
    let mut schedule = Schedule::new(MANY);
    let first = schedule.submit(&[file(Exclusive, "/a")]);
    let both = schedule.submit(&[file(Exclusive, "/a"), file(Exclusive, "/b")]);
    let later = schedule.submit(&[file(Exclusive, "/b")]);
    assert_eq!(start_all(&mut schedule), [first]);
    schedule.remove(first);
    assert_eq!(start_all(&mut schedule), [both]);
    schedule.remove(both);
    assert_eq!(start_all(&mut schedule), [later]);
}

#[test]
fn the_accesses_of_one_job_do_not_conflict() {
    let mut schedule = Schedule::new(MANY);
    let all = [
        file(Shared, "/a/b"),
        file(Exclusive, "/a/b"),
        tree(Exclusive, "/a"),
        tree(Exclusive, "/a"),
        tree(Shared, "/"),
    ];
    let first = schedule.submit(&all);
    let second = schedule.submit(&all);
    assert_eq!(start_all(&mut schedule), [first]);
    schedule.remove(first);
    assert_eq!(start_all(&mut schedule), [second]);
}

#[test]
fn a_job_that_touches_nothing_waits_for_no_lock() {
    let mut schedule = Schedule::new(2);
    let root = schedule.submit(&[tree(Exclusive, "/")]);
    let jobs = [schedule.submit(&[]), schedule.submit(&[])];
    assert_eq!(start_all(&mut schedule), [root, jobs[0]]);
    schedule.remove(root);
    assert_eq!(start_all(&mut schedule), [jobs[1]]);
}

#[test]
fn the_earliest_job_free_of_locks_takes_the_next_permit() {
    let mut schedule = Schedule::new(1);
    let first = schedule.submit(&[file(Exclusive, "/a")]);
    let second = schedule.submit(&[file(Exclusive, "/a")]);
    let third = schedule.submit(&[file(Exclusive, "/b")]);
    assert_eq!(start_all(&mut schedule), [first]);
    schedule.remove(first);
    assert_eq!(start_all(&mut schedule), [second], "free of locks only now, but earlier than the third");
    schedule.remove(second);
    assert_eq!(start_all(&mut schedule), [third]);
}

#[test]
fn a_waiting_job_holds_no_permit() {
    let mut schedule = Schedule::new(2);
    let first = schedule.submit(&[file(Exclusive, "/a")]);
    schedule.submit(&[file(Exclusive, "/a")]);
    let third = schedule.submit(&[file(Exclusive, "/b")]);
    assert_eq!(start_all(&mut schedule), [first, third]);
    assert_eq!((schedule.waiting(), schedule.running()), (1, 2));
}

#[test]
fn fewer_permits_stop_starts_but_not_what_runs() {
    let mut schedule = Schedule::new(2);
    let jobs = [schedule.submit(&[]), schedule.submit(&[]), schedule.submit(&[])];
    assert_eq!(start_all(&mut schedule), jobs[..2]);
    schedule.set_permits(1);
    schedule.remove(jobs[0]);
    assert_eq!(start_all(&mut schedule), []);
    assert_eq!((schedule.waiting(), schedule.running()), (1, 1));
    schedule.set_permits(2);
    assert_eq!(start_all(&mut schedule), [jobs[2]]);
    schedule.set_permits(0);
    schedule.remove(jobs[1]);
    schedule.remove(jobs[2]);
    schedule.submit(&[]);
    assert_eq!(schedule.start_next(), None);
}

#[test]
fn a_cancelled_job_leaves_at_once_and_frees_those_behind_it() {
    let mut schedule = Schedule::new(MANY);
    let reader = schedule.submit(&[file(Shared, "/a")]);
    let writer = schedule.submit(&[tree(Exclusive, "/")]);
    let late = schedule.submit(&[file(Shared, "/a")]);
    assert_eq!(start_all(&mut schedule), [reader]);
    assert_eq!(schedule.remove(writer), Some(Phase::Waiting));
    assert_eq!(start_all(&mut schedule), [late]);
}

#[test]
fn a_job_cancelled_while_it_waits_for_a_permit_never_starts() {
    let mut schedule = Schedule::new(1);
    let jobs = [schedule.submit(&[]), schedule.submit(&[]), schedule.submit(&[])];
    assert_eq!(start_all(&mut schedule), [jobs[0]]);
    assert_eq!(schedule.remove(jobs[1]), Some(Phase::Waiting));
    schedule.remove(jobs[0]);
    assert_eq!(start_all(&mut schedule), [jobs[2]]);
}

#[test]
fn removing_a_job_again_does_nothing_even_when_its_place_is_taken() {
    let mut schedule = Schedule::new(MANY);
    let gone = schedule.submit(&[file(Exclusive, "/a")]);
    schedule.remove(gone);
    let next = schedule.submit(&[file(Exclusive, "/a")]);
    assert_eq!(schedule.remove(gone), None);
    assert_eq!(schedule.blocked_by(gone), None);
    assert_eq!(start_all(&mut schedule), [next]);
}

#[test]
fn a_job_is_blocked_by_the_earliest_that_conflicts_with_it() {
    let mut schedule = Schedule::new(1);
    let unrelated = schedule.submit(&[file(Exclusive, "/z")]);
    let reader = schedule.submit(&[file(Shared, "/a/b")]);
    let folder = schedule.submit(&[tree(Exclusive, "/a")]);
    let writer = schedule.submit(&[file(Exclusive, "/a/b"), file(Exclusive, "/c")]);
    assert_eq!(start_all(&mut schedule), [unrelated]);
    assert_eq!(schedule.blocked_by(unrelated), None, "it runs");
    assert_eq!(schedule.blocked_by(reader), None, "it waits for a permit only");
    assert_eq!(schedule.blocked_by(folder), Some(reader));
    assert_eq!(schedule.blocked_by(writer), Some(reader));
    schedule.remove(reader);
    assert_eq!(schedule.blocked_by(writer), Some(folder));
}

#[test]
fn jobs_that_come_and_go_behind_one_that_stays_leave_nothing_behind() {
    let mut schedule = Schedule::new(MANY);
    let stays = schedule.submit(&[file(Exclusive, "/w/stays"), file(Shared, "/w/read")]);
    for number in 0..10_000 {
        let path = format!("/w/{number}");
        let job = schedule.submit(&[file(Exclusive, &path), file(Shared, "/w/read")]);
        schedule.remove(job);
    }
    assert_eq!(schedule.paths.nodes(), 4, "the root, the folder and the two files");
    assert!(schedule.paths.entries() < 200, "{}", schedule.paths.entries());
    schedule.remove(stays);
    assert_eq!(schedule.paths.nodes(), 0);
}

#[test]
fn memory_is_given_back_once_all_jobs_have_left() {
    let mut schedule = Schedule::new(MANY);
    let path = |number| format!("/w/{}/{number}", number % 10);
    let jobs: Vec<_> = (0..10_000).map(|number| schedule.submit(&[file(Exclusive, &path(number))])).collect();
    assert_eq!(schedule.paths.nodes(), 10_012);
    for job in jobs {
        schedule.remove(job);
    }
    assert_eq!((schedule.waiting(), schedule.running()), (0, 0));
    assert_eq!((schedule.paths.capacity(), schedule.jobs.capacity()), (0, 0));
}

fn conflicts(one: &Access, other: &Access) -> bool {
    let mut schedule = Schedule::new(MANY);
    let first = schedule.submit(std::slice::from_ref(one));
    let second = schedule.submit(std::slice::from_ref(other));
    let started = start_all(&mut schedule);
    assert_eq!(started[0], first);
    let blocked = schedule.blocked_by(second).is_some();
    assert_eq!(started.len(), if blocked { 1 } else { 2 });
    blocked
}

fn start_all(schedule: &mut Schedule) -> Vec<Ticket> {
    std::iter::from_fn(|| schedule.start_next()).collect()
}

fn file(mode: Mode, path: &str) -> Access {
    access(File, mode, path)
}

fn tree(mode: Mode, path: &str) -> Access {
    access(Tree, mode, path)
}

fn access(scope: Scope, mode: Mode, path: &str) -> Access {
    Access { scope, path: path.into(), mode }
}
