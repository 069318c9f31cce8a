//! A batch that dies, and dies again while it is taken up.

use crate::{points::times, work::Work};

/// Kinds of facts of a second start.
pub(crate) const KINDS: &[&str] = &["restart", "request_lost", "interrupted"];

/// Where the first death leaves what it takes to reach those: an edit in doubt, a request that is out.
const FIRST: &[(&str, usize)] = &[("rename.after", 1), ("request_sent.after", 1)];

#[test]
fn a_second_death_while_the_first_is_made_up_for_changes_nothing() {
    let kinds = KINDS.iter().flat_map(|kind| [format!("{kind}.before"), format!("{kind}.after")]);
    for second in kinds {
        let deaths: usize = FIRST.iter().map(|first| dies_twice(*first, &second)).sum();
        assert!(deaths > 0, "{second} is never reached");
        println!("{second}: {deaths}");
    }
}

fn dies_twice(first: (&str, usize), second: &str) -> usize {
    let mut deaths = 0;
    for time in times() {
        let work = Work::new();
        assert!(work.dies(first.0, first.1), "{first:?} is not reached");
        if !work.dies(second, time) {
            break;
        }
        work.ends_as_undisturbed(&format!("{first:?}, then {second} {time}"));
        deaths += 1;
    }
    deaths
}
