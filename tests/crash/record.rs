//! What is left of a batch when it is over: its results, what was said in each of its runs, and what stayed in doubt.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use herder::{
    app::state::State,
    domain::{
        event::{Envelope, Event, RestartCause},
        id::Seq,
        message::{Message, validate},
        run::Run,
    },
    store::RunFilter,
};
use serde_json::Value;

use crate::process::{House, lines};

pub(crate) const STATE: &str = "out.jsonl.state";

/// How often herder dies in one turn of a run before the run is given up.
const TOO_OFTEN: usize = 5;

/// What a result says that does not hang on time, by task.
type Results = BTreeMap<String, Vec<Value>>;

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) results: Results,
    /// By task, in order.
    pub(crate) transcripts: BTreeMap<String, Vec<Said>>,
    /// Calls of which nobody knows whether they took effect.
    pub(crate) in_doubt: BTreeSet<String>,
    /// By task: how often herder died in the turn in which it last did.
    deaths: BTreeMap<String, usize>,
}

/// A message.
#[derive(Debug, PartialEq)]
pub(crate) struct Said {
    what: String,
    /// Absent where a death had a say in it.
    how: Option<String>,
}

impl Record {
    /// Reads results and log, and checks what holds for any log and any results.
    #[track_caller]
    pub(crate) fn of(house: &House, state: &str) -> Self {
        let text = fs::read_to_string(house.path("out.jsonl")).unwrap_or_default();
        let mut record = Self::of_log(house, state);
        for line in lines(&text) {
            let fields = ["outcome", "detail", "text", "attempt", "turns", "calls"];
            let told = fields.iter().map(|name| line[name].clone()).collect();
            let twice = record.results.insert(line["id"].as_str().unwrap().to_owned(), told);
            assert_eq!(twice, None, "two lines for one task: {text}");
        }
        assert!(text.is_empty() || text.ends_with('\n'), "the last line is torn: {text}");
        record
    }

    #[track_caller]
    pub(crate) fn of_log(house: &House, state: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = house.path(state);
        runtime.block_on(async {
            let mut record = Self::default();
            let state = State::to_read(&folder).unwrap();
            for run in state.store.runs(RunFilter::default()).await.unwrap() {
                let log = state.store.read(run.run, Seq::START).await.unwrap();
                let ends = log.iter().filter(|one| matches!(one.fact.event, Event::RunEnd(_))).count();
                assert_eq!(ends, 1, "ends of {:?}", run.task_id);
                assert!(
                    matches!(log.last().unwrap().fact.event, Event::RunEnd(_)),
                    "something follows an end"
                );
                let replayed = Run::replay(run.run, log.iter().map(|one| &one.fact));
                assert_eq!(validate(replayed.history()), Ok(()));
                let said = replayed.history().iter().map(|message| record.hear(message)).collect();
                let task = run.task_id.as_deref().unwrap_or_default().to_owned();
                record.deaths.insert(task.clone(), deaths_in_one_turn(&log));
                assert!(record.transcripts.insert(task, said).is_none(), "two runs of one task");
            }
            state.close().await;
            record
        })
    }

    fn hear(&mut self, message: &Message) -> Said {
        match message {
            Message::System(text) => Said { what: "system".to_owned(), how: Some(text.to_string()) },
            Message::User(text) => Said { what: "user".to_owned(), how: Some(text.to_string()) },
            Message::Assistant(reply) => {
                let calls: Vec<_> =
                    reply.calls.iter().map(|call| (&call.id, &call.name, &call.arguments)).collect();
                Said { what: "model".to_owned(), how: Some(format!("{} {calls:?}", reply.text)) }
            }
            Message::Tool(result) => {
                let is_unknown = result.output.starts_with("outcome unknown");
                if is_unknown {
                    self.in_doubt.insert(result.call.to_string());
                }
                let is_told_otherwise = is_unknown || result.output.contains("made before an interruption");
                let how =
                    Some(format!("{:?} {}", result.failure, result.output)).filter(|_| !is_told_otherwise);
                Said { what: format!("tool {}", result.call), how }
            }
        }
    }

    /// Checks that a run was given up for no other reason than that herder died in it too often.
    #[track_caller]
    pub(crate) fn assert_died_too_often(&self, task: &str, how: &str) {
        let deaths = self.deaths[task];
        assert!(deaths >= TOO_OFTEN, "{how}: {task} was given up after {deaths} deaths in its turn");
    }

    #[track_caller]
    pub(crate) fn assert_equals(&self, undisturbed: &Self, how: &str) {
        assert_eq!(self.results, undisturbed.results, "{how}");
        let tasks = |record: &Self| record.transcripts.keys().cloned().collect::<Vec<_>>();
        assert_eq!(tasks(self), tasks(undisturbed), "{how}");
        for (task, said) in &self.transcripts {
            let wanted = &undisturbed.transcripts[task];
            let is_same = said.len() == wanted.len()
                && said
                    .iter()
                    .zip(wanted)
                    .all(|(a, b)| a.what == b.what && (a.how.is_none() || a.how == b.how));
            assert!(is_same, "{how}: {task}: {said:#?} instead of {wanted:#?}");
        }
    }
}

/// The deaths of herder from the last one back to where its turn began. A run that is given up over it ends its turn only
/// then.
fn deaths_in_one_turn(log: &[Envelope]) -> usize {
    let is_death =
        |event: &&Event| matches!(event, Event::Restart(restart) if restart.cause == RestartCause::Process);
    let back = log.iter().rev().map(|one| &one.fact.event).skip_while(|event| !is_death(event));
    back.take_while(|event| !matches!(event, Event::TurnEnd(_))).filter(is_death).count()
}
