//! A batch that dies once, at every place in turn.
//!
//! A place that is reached often is tried at the first few times and at ever fewer of the later ones; all of them with
//! `HERDER_TEST_ALL_TIMES=1`.

use herder::{crash::Point, domain::event::Event};

use crate::{again, asked, held, isolated, leftovers, prune, work::Work};

/// Kinds of facts that this batch has at its first start.
const KINDS: &[&str] = &[
    "submitted",
    "run_start",
    "turn_start",
    "message",
    "decision",
    "call_started",
    "command_group",
    "result",
    "turn_end",
    "model_retry",
    "request_sent",
    "model_switched",
    "correction",
    "run_end",
];

/// Named points that a batch reaches at its first start.
const LOG: &[&str] = &["append.before", "append.after", "batch.before", "batch.after"];
const WORLD: &[&str] = &[
    "request.before",
    "request.after",
    "call.before",
    "call.after",
    "temp.written",
    "rename.before",
    "rename.after",
];
const COMMANDS: &[&str] = &["guard.started", "command.launched", "command.started", "command.ended"];
const RESULTS: &[&str] = &["line.before", "line.half", "line.after", "results.before", "results.after"];

#[test]
fn every_point_is_tried_by_some_test() {
    let named: Vec<&str> =
        [LOG, WORLD, COMMANDS, RESULTS, leftovers::POINTS, held::POINTS, prune::POINTS, isolated::POINTS]
            .concat();
    let missing: Vec<_> = Point::ALL.iter().filter(|point| !named.contains(point)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let kinds: Vec<&str> = [KINDS, again::KINDS, held::KINDS, asked::KINDS].concat();
    let missing: Vec<_> = Event::KINDS.iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_death_at_the_log_changes_nothing() {
    LOG.iter().for_each(|point| dies_at(point));
}

#[test]
fn a_death_at_requests_calls_and_files_changes_nothing() {
    WORLD.iter().for_each(|point| dies_at(point));
}

#[test]
fn a_death_at_commands_leaves_no_process_and_repeats_nothing() {
    COMMANDS.iter().for_each(|point| dies_at(point));
}

#[test]
fn a_death_at_the_results_leaves_each_line_once() {
    RESULTS.iter().for_each(|point| dies_at(point));
}

#[test]
fn a_death_before_a_fact_is_on_disk_changes_nothing() {
    KINDS.iter().for_each(|kind| dies_at(&format!("{kind}.before")));
}

#[test]
fn a_death_after_a_fact_is_on_disk_changes_nothing() {
    KINDS.iter().for_each(|kind| dies_at(&format!("{kind}.after")));
}

/// Dies there at the first time, at the second, and so on, until there are no more.
fn dies_at(point: &str) {
    let mut deaths = Vec::new();
    for time in times() {
        let work = Work::new();
        if !work.dies(point, time) {
            break;
        }
        work.ends_as_undisturbed(&format!("{point} {time}"));
        deaths.push(time);
    }
    assert!(!deaths.is_empty(), "{point} is never reached");
    println!("{point}: {deaths:?}");
}

/// 1, 2, 3, 5, 8 and so on; or all.
pub(crate) fn times() -> impl Iterator<Item = usize> {
    let all = std::env::var_os("HERDER_TEST_ALL_TIMES").is_some();
    let mut next = (1, 2);
    std::iter::repeat_with(move || {
        let (time, later) = next;
        next = if all { (time + 1, time + 2) } else { (later, time + later) };
        time
    })
}
