//! Folders with runs of all kinds: what is old and has ended goes, all of it, and nothing else does.

use std::{fs, path::Path, sync::Arc};

use super::*;
use crate::{
    app::{
        doctor::{Grade, examine},
        state::{State, log_bytes},
    },
    config::Durability,
    domain::{
        event::{Event, Fact},
        id::Seq,
        outcome::{Breakage, FaultClass},
        run::{Input, Run},
    },
    store::{BatchRecord, TaskRecord},
};

const OLD: i64 = 1_000;
const NEW: i64 = 9_000;
const ALL: Terms = Terms { before: Timestamp::from_micros(5_000), keep_failed: false };
const DONE_ALONE: Terms = Terms { keep_failed: true, ..ALL };
const OUTAGE: Outcome = Outcome::ProviderError(FaultClass::Transient);

fn run_id(number: u128) -> RunId {
    RunId::new(uuid::Uuid::from_u128(number))
}

fn batch_id(number: u128) -> BatchId {
    BatchId::new(uuid::Uuid::from_u128(number))
}

struct Folder {
    folder: tempfile::TempDir,
    state: State,
}

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::to_write(folder.path(), Durability::Process).unwrap();
        Self { folder, state }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A run that ended at that time, or has not; of a batch, an attempt at a task.
    async fn run(&self, run: u128, of: Option<(u128, &str, u32)>, ended: Option<(i64, Outcome)>) {
        let mut spec = serde_json::json!({"task": "t", "attempt": 1, "model": "m", "workspace": "/w"});
        if let Some((batch, task, attempt)) = of {
            spec["batch"] = serde_json::json!(batch_id(batch));
            spec["task_id"] = task.into();
            spec["attempt"] = attempt.into();
        }
        let run = run_id(run);
        let submit = Input::Submit(Arc::new(serde_json::from_value(spec).unwrap()));
        let mut facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).unwrap();
        if let Some((at, outcome)) = ended {
            let end = Input::End(Outcome::Cancelled);
            let ended = Run::replay(run, &facts).decide(end, Timestamp::from_micros(at)).unwrap();
            facts.extend(ended.into_iter().map(|mut fact: Fact| {
                if let Event::RunEnd(end) = &mut fact.event {
                    end.outcome = outcome;
                }
                fact
            }));
        }
        let store = &self.state.store;
        store.durable(store.append(run, Seq::START, &facts).unwrap()).await.unwrap();
        fs::create_dir_all(self.path().join(format!("spill/{run}"))).unwrap();
        fs::write(self.path().join(format!("spill/{run}/c1")), "long").unwrap();
    }

    async fn batch(&self, batch: u128, options: &str, tasks: &[&str]) {
        let record = BatchRecord {
            id: batch_id(batch),
            name: "in.jsonl".to_owned(),
            created_at: Timestamp::from_micros(1),
            options: options.to_owned(),
        };
        let tasks = tasks.iter().map(|id| TaskRecord { task_id: (*id).into(), hash: "h".to_owned() });
        let store = &self.state.store;
        store.durable(store.record_batch(record, tasks.collect()).unwrap()).await.unwrap();
    }

    async fn prune(&self, terms: Terms, act: Act) -> (u64, u64, u64) {
        let place = Place { folder: self.path().to_owned(), batches: None, isolation: None };
        let pruned = prune(&*self.state.store, &place, terms, act).await.unwrap();
        (pruned.runs, pruned.batches, pruned.unfinished)
    }

    async fn runs(&self) -> Vec<u128> {
        let runs = self.state.store.runs(RunFilter::default()).await.unwrap();
        runs.iter().map(|record| u128::from_be_bytes(*record.run.as_bytes())).collect()
    }

    fn spilled(&self) -> usize {
        fs::read_dir(self.path().join("spill")).unwrap().count()
    }

    /// What is wrong with it, but for how full this machine's disk is.
    fn troubles(&self) -> Vec<String> {
        let lines = examine(self.path()).unwrap().into_iter();
        let lines = lines.filter(|line| line.grade != Grade::Ok && !line.what.contains("MiB free"));
        lines.map(|line| format!("{}: {}", line.place, line.what)).collect()
    }
}

#[tokio::test]
async fn old_runs_go_with_their_files_and_what_is_new_or_open_stays() {
    let folder = Folder::new();
    folder.run(1, None, Some((OLD, Outcome::Done))).await;
    folder.run(2, None, Some((OLD, Outcome::Failed(Breakage::Stuck)))).await;
    folder.run(3, None, Some((NEW, Outcome::Done))).await;
    folder.run(4, None, None).await;
    fs::create_dir(folder.path().join("patches")).unwrap();
    let left = [format!("patches/{}.patch", run_id(1)), format!("patches/{}.json", run_id(1))];
    let kept = [format!("patches/{}.patch", run_id(4)), "patches/mine.txt".to_owned()];
    for name in left.iter().chain(&kept) {
        fs::write(folder.path().join(name), "x").unwrap();
    }
    assert_eq!(folder.prune(ALL, Act::Look).await, (2, 0, 0));
    assert_eq!((folder.runs().await.len(), folder.spilled()), (4, 4), "it was only looked");
    assert_eq!(folder.prune(DONE_ALONE, Act::Remove).await, (1, 0, 0));
    assert_eq!((folder.runs().await, folder.spilled()), (vec![2, 3, 4], 3));
    assert_eq!(folder.prune(ALL, Act::Remove).await, (1, 0, 0));
    assert_eq!((folder.runs().await, folder.spilled()), (vec![3, 4], 2));
    assert!(left.iter().all(|name| !folder.path().join(name).exists()));
    assert!(kept.iter().all(|name| folder.path().join(name).exists()));
}

#[tokio::test]
async fn a_batch_goes_whole_once_all_of_it_has_ended_or_stays_whole() {
    let done = Some((OLD, Outcome::Done));
    type Attempt<'a> = (&'a str, u32, Option<(i64, Outcome)>);
    type Case<'a> = (&'a str, &'a [&'a str], &'a [Attempt<'a>], (u64, u64, u64));
    let table: &[Case<'_>] = &[
        ("{}", &["a", "b"], &[("a", 1, done), ("b", 1, done)], (2, 1, 0)),
        ("{}", &["a", "b"], &[("a", 1, done), ("b", 1, Some((NEW, Outcome::Done)))], (0, 0, 0)),
        ("{}", &["a", "b"], &[("a", 1, done), ("b", 1, None)], (0, 0, 0)),
        // What was not started may yet be.
        ("{}", &["a", "b"], &[("a", 1, done)], (0, 0, 1)),
        // It would be tried again.
        (r#"{"retries":1}"#, &["a"], &[("a", 1, Some((OLD, OUTAGE)))], (0, 0, 1)),
        (r#"{"retries":1}"#, &["a"], &[("a", 1, Some((OLD, OUTAGE))), ("a", 2, done)], (2, 1, 0)),
        (r#"{"retries":1}"#, &["a"], &[("a", 1, Some((OLD, Outcome::Cancelled)))], (1, 1, 0)),
        // A daemon says itself whether its batch has ended.
        (r#"{"state":"open"}"#, &["a"], &[("a", 1, done)], (0, 0, 1)),
        (r#"{"state":"cancelled"}"#, &["a", "b"], &[("a", 1, done)], (1, 1, 0)),
        (r#"{"state":"of a later version"}"#, &["a"], &[("a", 1, done)], (0, 0, 0)),
    ];
    for (options, tasks, attempts, expected) in table {
        let folder = Folder::new();
        folder.batch(7, options, tasks).await;
        for (number, (task, attempt, ended)) in (1..).zip(*attempts) {
            folder.run(number, Some((7, task, *attempt)), *ended).await;
        }
        let input = folder.path().join(format!("batches/{}.digest.jsonl", batch_id(7)));
        fs::create_dir(folder.path().join("batches")).unwrap();
        fs::write(&input, "{}\n").unwrap();
        assert_eq!(folder.prune(ALL, Act::Look).await, *expected, "{options} {attempts:?}");
        assert_eq!(folder.prune(ALL, Act::Remove).await, *expected, "{options} {attempts:?}");
        let goes = expected.1 == 1;
        assert_eq!(folder.runs().await.is_empty(), goes, "{options} {attempts:?}");
        assert_eq!((folder.spilled() == 0, input.exists()), (goes, !goes));
        assert_eq!(folder.state.store.batches().await.unwrap().is_empty(), goes);
        if goes {
            assert_eq!(folder.troubles(), [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_batch_in_which_a_task_failed_is_kept_if_that_is_asked() {
    let folder = Folder::new();
    let ended = |outcome| Some((OLD, outcome));
    folder.batch(7, "{}", &["a"]).await;
    folder.run(1, Some((7, "a", 1)), ended(OUTAGE)).await;
    folder.run(2, Some((7, "a", 2)), ended(Outcome::Done)).await;
    folder.batch(8, "{}", &["a", "b"]).await;
    folder.run(3, Some((8, "a", 1)), ended(Outcome::Done)).await;
    folder.run(4, Some((8, "b", 1)), ended(OUTAGE)).await;
    assert_eq!(folder.prune(DONE_ALONE, Act::Remove).await, (2, 1, 0));
    assert_eq!(folder.runs().await, [3, 4]);
    assert_eq!(folder.troubles(), [""; 0]);
}

#[tokio::test]
async fn what_a_prune_that_was_cut_short_left_the_next_one_takes() {
    let folder = Folder::new();
    folder.batch(7, "{}", &["a", "b"]).await;
    for (run, task) in [(1, "a"), (2, "b")] {
        folder.run(run, Some((7, task, 1)), Some((OLD, Outcome::Done))).await;
    }
    let store = &folder.state.store;
    store.durable(store.forget(vec![batch_id(7)], vec![run_id(1)]).unwrap()).await.unwrap();
    let aged = fs::File::open(folder.path().join(format!("spill/{}", run_id(1)))).unwrap();
    aged.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(folder.troubles().len(), 2, "{:?}", folder.troubles());
    assert_eq!(folder.prune(ALL, Act::Remove).await, (1, 0, 0));
    assert_eq!((folder.runs().await.len(), folder.spilled()), (0, 0));
    assert_eq!(folder.troubles(), [""; 0]);
}

#[tokio::test]
async fn more_than_goes_at_once_goes_and_the_file_can_be_made_smaller() {
    let folder = Folder::new();
    folder.batch(7, "{}", &[]).await;
    let mut last = None;
    for run in (1..=1_201).map(run_id) {
        let of = (run < run_id(601)).then(|| batch_id(7));
        let spec = serde_json::json!({"task": "word ".repeat(100), "attempt": 1, "model": "m", "workspace": "/w", "batch": of});
        let submit = Input::Submit(Arc::new(serde_json::from_value(spec).unwrap()));
        let mut facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).unwrap();
        let end = Input::End(Outcome::Cancelled);
        facts.extend(Run::replay(run, &facts).decide(end, Timestamp::from_micros(OLD)).unwrap());
        last = Some(folder.state.store.append(run, Seq::START, &facts).unwrap());
    }
    folder.state.store.durable(last.unwrap()).await.unwrap();
    assert_eq!(folder.prune(ALL, Act::Remove).await, (1_201, 1, 0));
    assert_eq!(folder.state.store.count(RunFilter::default()).await.unwrap().total, 0);
    let Folder { folder, state } = folder;
    let size = || log_bytes(folder.path()).unwrap();
    let before = size();
    state.close_compact().await.unwrap();
    assert!(size() < before / 4, "{} of {before}", size());
    let lines = examine(folder.path()).unwrap();
    assert!(lines.iter().all(|line| line.grade == Grade::Ok || line.what.contains("MiB free")), "{lines:?}");
}
