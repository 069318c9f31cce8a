//! Where a run stands and what it waits for: one wording for every command that tells it.
//!
//! Told from the log alone, so it is as true while another process writes as it is afterwards.

use serde_json::{Value, json};

use crate::{
    domain::{
        id::Seq,
        run::{Phase, Run},
    },
    store::{EventStore, RunRecord, StoreError},
};

/// Open runs whose logs are read for a list. Older ones are told as no more than open.
const READ: usize = 200;

/// Where one run stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Standing {
    /// For people.
    pub(super) phase: String,
    /// The calls that wait for a lock or permit, as data; null if nobody looked.
    pub(super) waits_for: Value,
}

impl Standing {
    pub(super) fn of(run: &Run) -> Self {
        let waits_for = run.waiting_calls().map(|call| json!({ "call": call.id, "tool": call.name }));
        Self { phase: phase(run), waits_for: waits_for.collect() }
    }

    /// What a list of runs knows of one without its log.
    pub(super) fn at_a_glance(record: &RunRecord) -> Self {
        match &record.end {
            Some(end) => Self { phase: end.outcome.to_string(), waits_for: json!([]) },
            None => Self { phase: "open".to_owned(), waits_for: Value::Null },
        }
    }

    /// Where each of these runs stands, which are in order of age. Reads the logs of the newest that are open.
    pub(super) async fn of_all(
        store: &dyn EventStore,
        records: &[RunRecord],
    ) -> Result<Vec<Self>, StoreError> {
        let mut standings: Vec<_> = records.iter().map(Self::at_a_glance).collect();
        let open = records.iter().zip(&mut standings).rev().filter(|(record, _)| record.end.is_none());
        for (record, standing) in open.take(READ) {
            *standing = match store.read(record.run, Seq::START).await {
                Ok(log) => Self::of(&Run::replay(record.run, log.iter().map(|envelope| &envelope.fact))),
                // One run that cannot be read hides no other.
                Err(StoreError::Damaged { .. }) => {
                    Self { phase: "open: its log is damaged".to_owned(), waits_for: Value::Null }
                }
                Err(error) => return Err(error),
            };
        }
        Ok(standings)
    }
}

fn phase(run: &Run) -> String {
    match run.phase() {
        Phase::New => "new".to_owned(),
        Phase::Queued => "queued: waits for a slot".to_owned(),
        Phase::Between => "between turns".to_owned(),
        Phase::Thinking { attempt: 1, .. } => "thinking: waits for the model".to_owned(),
        Phase::Thinking { attempt, .. } => format!("thinking: request {attempt} of this turn"),
        Phase::Acting(calls) => {
            let running =
                calls.iter().filter(|open| open.is_started()).map(|open| format!("{} runs", open.call.name));
            let waiting =
                run.waiting_calls().map(|call| format!("{} waits for its lock or permit", call.name));
            format!("acting: {}", running.chain(waiting).collect::<Vec<_>>().join(", "))
        }
        Phase::Ended(outcome) => outcome.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::{id::RunId, run::Input, time::Timestamp},
        store::{RunFilter, memory::MemoryStore},
    };

    #[tokio::test]
    async fn of_many_open_runs_only_the_newest_are_looked_into() {
        let store = MemoryStore::default();
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w"}"#;
        for number in 0..=READ {
            let run = RunId::new(uuid::Uuid::from_u128(number as u128));
            let submit = Input::Submit(Arc::new(serde_json::from_str(spec).expect("a spec")));
            let facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).expect("a fact");
            store.append(run, Seq::START, &facts).expect("taken");
        }
        let records = store.runs(RunFilter::default()).await.expect("runs");
        let standings = Standing::of_all(&store, &records).await.expect("logs");
        assert_eq!(standings.len(), READ + 1);
        assert_eq!(standings[0], Standing { phase: "open".to_owned(), waits_for: Value::Null });
        let queued = Standing { phase: "queued: waits for a slot".to_owned(), waits_for: json!([]) };
        assert!(standings[1..].iter().all(|standing| *standing == queued));
    }
}
