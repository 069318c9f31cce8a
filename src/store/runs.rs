//! What a store knows of a run without reading its log, and how runs are asked for.
//!
//! The matching here is the meaning of a filter; a store that has indexes answers the same by other means.

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    event::RunEnd,
    id::{BatchId, RunId},
    outcome::Outcome,
    task::{Submission, TaskSpec},
    time::Timestamp,
};

/// Characters of a task that are kept to tell what a run is about.
const ABOUT_CHARS: usize = 120;

/// Which runs are asked for. What is absent does not narrow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only these.
    pub among: Option<Vec<RunId>>,
    /// Only those of this batch.
    pub batch: Option<BatchId>,
    /// Only those that have ended, or only those that have not.
    pub ended: Option<bool>,
    /// Only those that ended so: the name of an outcome, or else of an outcome's detail.
    pub outcome: Option<String>,
    /// Only those of this task id.
    pub task_id: Option<String>,
    /// Only those whose id, written out, starts with this.
    pub id_prefix: Option<String>,
    /// Only those that have each of these labels.
    pub labels: Vec<(String, String)>,
    /// Only those that ask for this model.
    pub model: Option<String>,
    /// Only those that were submitted then or later.
    pub since: Option<Timestamp>,
    /// Only those that were submitted before then.
    pub until: Option<Timestamp>,
    /// Only those that were submitted with this key.
    pub key: Option<String>,
    /// Only those that are the next attempt after this run.
    pub predecessor: Option<RunId>,
    /// Only those that stand before this run in the order of the store; before an unknown one there is none.
    pub before: Option<RunId>,
    /// At most this many, the newest.
    pub limit: Option<usize>,
}

impl RunFilter {
    /// The first and the last id that, written out, can start with `prefix`; nothing if none can.
    pub(super) fn ids(prefix: &str) -> Option<(RunId, RunId)> {
        let complete = |rest: &str| format!("{prefix}{}", rest.get(prefix.len()..)?).parse().ok();
        Some((
            complete("00000000-0000-0000-0000-000000000000")?,
            complete("ffffffff-ffff-ffff-ffff-ffffffffffff")?,
        ))
    }

    /// Whether a run matches; `before` and `limit`, which choose among those that do, are not its business.
    pub(super) fn admits(&self, record: &RunRecord) -> bool {
        self.among.as_ref().is_none_or(|runs| runs.contains(&record.run))
            && self.batch.is_none_or(|batch| record.batch == Some(batch))
            && self.ended.is_none_or(|ended| record.end.is_some() == ended)
            && self.task_id.as_ref().is_none_or(|id| record.task_id.as_deref() == Some(id))
            && self.since.is_none_or(|since| record.submitted_at >= since)
            && self.until.is_none_or(|until| record.submitted_at < until)
            && self.outcome.as_ref().is_none_or(|name| {
                record.end.as_ref().is_some_and(|end| OutcomeName::of(name).names(end.outcome))
            })
            && self.id_prefix.as_ref().is_none_or(|prefix| {
                Self::ids(prefix).is_some_and(|(first, last)| (first..=last).contains(&record.run))
            })
            && (self.asks_nothing() || record.asked.as_ref().is_some_and(|asked| self.admits_asked(asked)))
    }

    fn asks_nothing(&self) -> bool {
        self.labels.is_empty() && self.model.is_none() && self.key.is_none() && self.predecessor.is_none()
    }

    fn admits_asked(&self, asked: &Asked) -> bool {
        self.labels.iter().all(|(name, value)| asked.labels.get(name) == Some(value))
            && self.model.as_ref().is_none_or(|model| *asked.model == **model)
            && self.predecessor.is_none_or(|run| asked.predecessor == Some(run))
            && self.key.as_ref().is_none_or(|key| {
                asked.submission.as_ref().is_some_and(|submission| *submission.key == **key)
            })
    }
}

/// What a name that is asked for names. Where an outcome and a detail share one, the outcome is meant.
pub(super) enum OutcomeName<'a> {
    Outcome(&'a str),
    Detail(&'a str),
}

impl<'a> OutcomeName<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        if Outcome::NAMES.contains(&name) { Self::Outcome(name) } else { Self::Detail(name) }
    }

    fn names(&self, outcome: Outcome) -> bool {
        match *self {
            Self::Outcome(name) => outcome.as_str() == name,
            Self::Detail(name) => outcome.detail() == Some(name),
        }
    }
}

/// What a store knows of a run without reading its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRecord {
    /// The run.
    pub run: RunId,
    /// Its batch, if any.
    pub batch: Option<BatchId>,
    /// Its task's id, if any.
    pub task_id: Option<Arc<str>>,
    /// Which attempt at the task it is.
    pub attempt: u32,
    /// When it was submitted.
    pub submitted_at: Timestamp,
    /// What was asked of it; absent where an older version wrote it and none has written to the log since.
    pub asked: Option<Arc<Asked>>,
    /// How it ended, if it has.
    pub end: Option<Arc<RunEnd>>,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
}

/// What was asked of a run, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The task's first words, in one line.
    pub about: Arc<str>,
    /// The model's name.
    pub model: Arc<str>,
    /// Names and values to find it by.
    pub labels: BTreeMap<String, String>,
    /// Runs with a higher one start first.
    pub priority: i32,
    /// The run that was the attempt before.
    pub predecessor: Option<RunId>,
    /// How to tell that it was asked for before.
    pub submission: Option<Submission>,
    /// The user who submitted it.
    pub owner: Option<Arc<str>>,
}

impl Asked {
    pub(super) fn of(spec: &TaskSpec) -> Self {
        Self {
            about: about(&spec.task).into(),
            model: Arc::clone(&spec.model),
            labels: spec.labels.clone(),
            priority: spec.priority,
            predecessor: spec.predecessor,
            submission: spec.submission.clone(),
            owner: spec.owner.clone(),
        }
    }
}

/// The first words of a task, in one line.
pub(super) fn about(task: &str) -> String {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let words = task.split(blank).filter(|word| !word.is_empty());
    let line = words.flat_map(|word| std::iter::once(' ').chain(word.chars())).skip(1);
    let mut about: String = line.take(ABOUT_CHARS).collect();
    about.truncate(about.trim_end().len());
    about
}

/// How many runs match, and how they stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// All of them.
    pub total: u64,
    /// Those that have not ended.
    pub open: u64,
    /// Those that have, by the name of their outcome; a name that none has is left out.
    pub ended: BTreeMap<String, u64>,
}

impl RunCounts {
    /// Counts `runs` more that stand so: by the name of an outcome, or open.
    pub(super) fn add(&mut self, outcome: Option<&str>, runs: u64) {
        self.total += runs;
        match outcome {
            None => self.open += runs,
            Some(name) => match self.ended.get_mut(name) {
                Some(known) => *known += runs,
                None => drop(self.ended.insert(name.to_owned(), runs)),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_is_about_is_one_short_line_cut_between_characters() {
        let table = [
            ("count", "count"),
            ("  count\n\n\tthe   words \r\n", "count the words"),
            ("a\u{1b}[31mb\0c", "a [31mb c"),
            ("", ""),
            (" \n ", ""),
        ];
        for (task, expected) in table {
            assert_eq!(about(task), expected, "{task:?}");
        }
        assert_eq!(about(&"ü".repeat(500)), "ü".repeat(ABOUT_CHARS));
        assert_eq!(about(&format!("{} b", "a".repeat(ABOUT_CHARS - 1))), "a".repeat(ABOUT_CHARS - 1));
    }
}
