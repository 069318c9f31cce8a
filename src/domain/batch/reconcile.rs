//! Compares a batch's input with its journal: what is still to be done.
//!
//! A task is known by its id and the hash of its line. Done stays done, an open run goes on from its log, a task that
//! was never started starts. What fits in no way is refused as a whole, before anything runs.

use std::{collections::BTreeMap, sync::Arc};

use super::is_worth_a_retry;
use crate::domain::{
    id::RunId,
    outcome::{Block, Breakage, FaultClass, Limit, Outcome},
};

/// A task of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub id: Arc<str>,
    pub hash: String,
    /// Whether it is asked for this time; a task that is not is left as it is.
    pub selected: bool,
}

/// A task of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub id: Arc<str>,
    pub hash: String,
    /// Its latest attempt, if it was ever started.
    pub latest: Option<Latest>,
}

/// The latest attempt at a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latest {
    pub run: RunId,
    pub attempt: u32,
    pub state: LatestState,
}

/// How far an attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatestState {
    /// It has not ended, whether or not anything works on it.
    Open,
    Ended(Outcome),
}

/// What becomes of a task whose line changed since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleLines {
    /// The batch is refused.
    Refuse,
    /// The task starts again, as its line is now.
    Restart,
}

/// Which ended tasks get another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryFailed {
    None,
    /// Every one that is not done.
    All,
    /// Those with this outcome, or this detail of one.
    Class(&'static str),
}

impl RetryFailed {
    /// Every name that [`Self::named`] takes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Outcome::NAMES
            .iter()
            .copied()
            .filter(|name| *name != Outcome::Done.as_str())
            .chain(Limit::ALL.iter().map(|limit| limit.as_str()))
            .chain(Block::ALL.iter().map(|block| block.as_str()))
            .chain(FaultClass::ALL.iter().map(|class| class.as_str()))
            .chain(Breakage::ALL.iter().map(|breakage| breakage.as_str()))
    }

    /// The class of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::names().find(|known| *known == name).map(Self::Class)
    }

    fn takes(self, outcome: Outcome) -> bool {
        let done = matches!(outcome, Outcome::Done);
        match self {
            Self::None => false,
            Self::All => !done,
            Self::Class(name) => !done && (outcome.as_str() == name || outcome.detail() == Some(name)),
        }
    }
}

/// What is to be done, in the order of the input. Tasks are named by their place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub start: Vec<Start>,
    pub resume: Vec<Resume>,
    /// Ended, and left as they are.
    pub settled: Vec<Settled>,
    /// Open runs whose task starts again: to be cancelled before anything starts.
    pub abandon: Vec<RunId>,
}

/// A task that gets a new attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    pub task: usize,
    pub attempt: u32,
    pub predecessor: Option<RunId>,
    /// Attempts before it that count towards its retries; none if a person asked for it.
    pub made: u32,
}

/// A task whose run goes on from its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    pub task: usize,
    pub run: RunId,
    pub attempt: u32,
    /// As in [`Start`].
    pub made: u32,
}

/// A task whose latest attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    pub task: usize,
    pub run: RunId,
    pub attempt: u32,
    pub outcome: Outcome,
}

/// Why an input does not fit its journal, in a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Misfit(String);

/// Says what of `wanted` is still to be done, given what is `known`. A task whose `retries` were cut short has them yet.
///
/// # Errors
/// Tasks whose line changed, unless they shall restart, and tasks of the journal that the input no longer has.
pub fn reconcile(
    wanted: &[Wanted],
    known: &[Known],
    stale_lines: StaleLines,
    retry: RetryFailed,
    retries: u32,
) -> Result<Plan, Misfit> {
    let journal: BTreeMap<&str, &Known> = known.iter().map(|task| (&*task.id, task)).collect();
    let mut plan = Plan::default();
    let mut stale = Vec::new();
    for (task, line) in wanted.iter().enumerate().filter(|(_, line)| line.selected) {
        let record = journal.get(&*line.id).copied();
        let Some((record, latest)) = record.and_then(|record| Some((record, record.latest?))) else {
            plan.start.push(Start { task, attempt: 1, predecessor: None, made: 0 });
            continue;
        };
        let again = Start { task, attempt: latest.attempt + 1, predecessor: Some(latest.run), made: 0 };
        let changed = record.hash != line.hash;
        match (latest.state, stale_lines) {
            (_, StaleLines::Refuse) if changed => stale.push(line.id.clone()),
            (LatestState::Open, StaleLines::Restart) if changed => {
                plan.abandon.push(latest.run);
                plan.start.push(again);
            }
            (LatestState::Ended(_), StaleLines::Restart) if changed => plan.start.push(again),
            (LatestState::Ended(outcome), _) if retry.takes(outcome) => plan.start.push(again),
            (LatestState::Ended(outcome), _) if latest.attempt <= retries && is_worth_a_retry(outcome) => {
                plan.start.push(Start { made: latest.attempt, ..again });
            }
            (LatestState::Open, _) => {
                let made = latest.attempt.saturating_sub(1);
                plan.resume.push(Resume { task, run: latest.run, attempt: latest.attempt, made });
            }
            (LatestState::Ended(outcome), _) => {
                plan.settled.push(Settled { task, run: latest.run, attempt: latest.attempt, outcome });
            }
        }
    }
    let here: std::collections::BTreeSet<&str> = wanted.iter().map(|line| &*line.id).collect();
    let missing: Vec<_> =
        known.iter().map(|task| task.id.clone()).filter(|id| !here.contains(&**id)).collect();
    if stale.is_empty() && missing.is_empty() { Ok(plan) } else { Err(Misfit::of(&stale, &missing)) }
}

impl Misfit {
    fn of(stale: &[Arc<str>], missing: &[Arc<str>]) -> Self {
        let mut parts = Vec::new();
        if !stale.is_empty() {
            parts.push(format!(
                "{} changed since the journal was written ({}); undo the change, or give --restart-stale to run them \
                 again",
                lines(stale.len()),
                some(stale)
            ));
        }
        if !missing.is_empty() {
            parts.push(format!(
                "the input lacks {} of the journal ({}); put back what is missing, or write to another OUT",
                lines(missing.len()),
                some(missing)
            ));
        }
        Self(parts.join("; "))
    }
}

fn lines(count: usize) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

/// The first few names, and how many more there are.
fn some(ids: &[Arc<str>]) -> String {
    const SHOWN: usize = 5;
    let mut text = ids.iter().take(SHOWN).map(|id| format!("{id:?}")).collect::<Vec<_>>().join(", ");
    if let Some(more) = ids.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: LatestState = LatestState::Ended(Outcome::ProviderError(FaultClass::Timeout));
    const DONE: LatestState = LatestState::Ended(Outcome::Done);

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 16])
    }

    fn wanted(tasks: &[(&str, &str)]) -> Vec<Wanted> {
        let line =
            |(id, hash): &(&str, &str)| Wanted { id: (*id).into(), hash: (*hash).to_owned(), selected: true };
        tasks.iter().map(line).collect()
    }

    fn known(id: &str, hash: &str, latest: Option<(u8, u32, LatestState)>) -> Known {
        let latest = latest.map(|(number, attempt, state)| Latest { run: run(number), attempt, state });
        Known { id: id.into(), hash: hash.to_owned(), latest }
    }

    #[test]
    fn done_stays_done_open_goes_on_and_the_rest_starts() {
        let wanted = wanted(&[("new", "1"), ("done", "1"), ("open", "1"), ("failed", "1"), ("never", "1")]);
        let known = [
            known("done", "1", Some((1, 1, DONE))),
            known("open", "1", Some((2, 3, LatestState::Open))),
            known("failed", "1", Some((3, 1, FAILED))),
            known("never", "1", None),
        ];
        let plan = reconcile(&wanted, &known, StaleLines::Refuse, RetryFailed::None, 0).expect("fits");
        let start = |task| Start { task, attempt: 1, predecessor: None, made: 0 };
        let outcome = Outcome::ProviderError(FaultClass::Timeout);
        assert_eq!(
            plan,
            Plan {
                start: vec![start(0), start(4)],
                resume: vec![Resume { task: 2, run: run(2), attempt: 3, made: 2 }],
                settled: vec![
                    Settled { task: 1, run: run(1), attempt: 1, outcome: Outcome::Done },
                    Settled { task: 3, run: run(3), attempt: 1, outcome },
                ],
                abandon: Vec::new(),
            }
        );
    }

    #[test]
    fn a_failed_task_is_tried_again_if_its_class_is_asked_for() {
        let wanted = wanted(&[("done", "1"), ("failed", "1")]);
        let known = [known("done", "1", Some((1, 1, DONE))), known("failed", "1", Some((2, 2, FAILED)))];
        let started = |retry| reconcile(&wanted, &known, StaleLines::Refuse, retry, 0).expect("fits").start;
        let again = [Start { task: 1, attempt: 3, predecessor: Some(run(2)), made: 0 }];
        assert_eq!(started(RetryFailed::All), again);
        for class in ["provider_error", "timeout"] {
            assert_eq!(started(RetryFailed::named(class).expect("known")), again);
        }
        assert_eq!(started(RetryFailed::named("budget").expect("known")), []);
        assert_eq!(RetryFailed::named("done"), None);
    }

    #[test]
    fn a_task_whose_retries_were_cut_short_has_them_yet() {
        let wanted = wanted(&[("a", "1")]);
        let started = |attempt, state, retries| {
            let known = [known("a", "1", Some((1, attempt, state)))];
            let plan = reconcile(&wanted, &known, StaleLines::Refuse, RetryFailed::None, retries);
            plan.expect("fits").start.first().map(|start| start.attempt)
        };
        assert_eq!(
            (started(1, FAILED, 2), started(2, FAILED, 2), started(3, FAILED, 2)),
            (Some(2), Some(3), None)
        );
        assert_eq!((started(1, FAILED, 0), started(1, DONE, 2)), (None, None));
        let barred = LatestState::Ended(Outcome::ProviderError(FaultClass::Auth));
        assert_eq!(started(1, barred, 2), None);
    }

    #[test]
    fn a_changed_line_is_refused_or_starts_again() {
        let wanted = wanted(&[("a", "2"), ("b", "2"), ("never", "2")]);
        let known = [
            known("a", "1", Some((1, 1, DONE))),
            known("b", "1", Some((2, 1, LatestState::Open))),
            known("never", "1", None),
        ];
        let refused =
            reconcile(&wanted, &known, StaleLines::Refuse, RetryFailed::None, 0).expect_err("stale");
        assert_eq!(
            refused.to_string(),
            "2 lines changed since the journal was written (\"a\", \"b\"); undo the change, or give --restart-stale to \
             run them again"
        );
        let plan = reconcile(&wanted, &known, StaleLines::Restart, RetryFailed::None, 0).expect("fits");
        let again = |task, number| Start { task, attempt: 2, predecessor: Some(run(number)), made: 0 };
        assert_eq!(
            plan.start,
            [again(0, 1), again(1, 2), Start { task: 2, attempt: 1, predecessor: None, made: 0 }]
        );
        assert_eq!(plan.abandon, [run(2)]);
    }

    #[test]
    fn a_line_that_is_gone_is_refused_and_one_that_is_not_selected_is_let_be() {
        let mut wanted = wanted(&[("a", "2"), ("b", "1")]);
        wanted[0].selected = false;
        let known = [known("a", "1", Some((1, 1, LatestState::Open)))];
        let plan = reconcile(&wanted, &known, StaleLines::Refuse, RetryFailed::None, 0).expect("fits");
        assert_eq!(
            plan,
            Plan {
                start: vec![Start { task: 1, attempt: 1, predecessor: None, made: 0 }],
                ..Plan::default()
            }
        );
        let refused = reconcile(&[], &known, StaleLines::Restart, RetryFailed::None, 0).expect_err("missing");
        assert_eq!(
            refused.to_string(),
            "the input lacks 1 line of the journal (\"a\"); put back what is missing, or write to another OUT"
        );
    }
}
