//! What becomes of a log that an older version wrote.

use std::path::Path;

use rusqlite::{Connection, params};

use super::{tests::temp, *};
use crate::{
    domain::{
        event::RunEnd,
        outcome::{Breakage, Outcome},
        run::Run,
        time::Timestamp,
    },
    store::{
        Asked,
        samples::{end, run_id, texts},
    },
};

/// A log of version 1 with three runs: one that failed, one that is open and was asked for in detail, and one whose
/// log is damaged.
fn first_version(path: &Path) {
    schema::make(path, 1).unwrap();
    let db = Connection::open(path).unwrap();
    let failed = RunEnd { outcome: Outcome::Failed(Breakage::Stuck), ..end() };
    insert(&db, 1, r#"{"task":"count","attempt":1,"model":"m","workspace":"/w"}"#, Some(&failed));
    let asked = r#"{"task":"count\nü","attempt":2,"predecessor":"00000000-0000-0000-0000-000000000001",
        "model":"large","workspace":"/w","priority":7,"labels":{"team":"a"}}"#;
    insert(&db, 2, asked, None);
    insert(&db, 3, "{", None);
}

/// The first two of them.
fn sound_runs() -> RunFilter {
    RunFilter { among: Some([run_id(1), run_id(2)].into()), ..RunFilter::default() }
}

/// Writes a run as version 1 did: its first event, and its row.
fn insert(db: &Connection, number: u64, spec: &str, end: Option<&RunEnd>) {
    let body = format!(r#"[{{"v":1,"at":{number},"turn":0,"kind":"submitted","data":{spec}}}]"#);
    db.execute("INSERT INTO append VALUES (?1, ?1, 1, 1, ?2)", params![number, body.into_bytes()]).unwrap();
    let (ended_at, end) = (end.map(|_| 9), end.map(|end| serde_json::to_vec(end).unwrap()));
    db.execute(
        "INSERT INTO run VALUES (?1, ?2, NULL, 't', 1, ?1, ?3, ?4)",
        params![number, run_id(number).as_bytes(), ended_at, end],
    )
    .unwrap();
}

async fn failed_and_open(store: &SqliteStore) -> Vec<RunRecord> {
    let failed = RunFilter { outcome: Some("failed".into()), ..sound_runs() };
    let stuck = RunFilter { outcome: Some("stuck".into()), ..RunFilter::default() };
    assert_eq!(store.runs(failed.clone()).await.unwrap(), store.runs(stuck).await.unwrap());
    let open = RunFilter { ended: Some(false), ..sound_runs() };
    let counts = store.count(sound_runs()).await.unwrap();
    assert_eq!(counts, RunCounts { total: 2, open: 1, ended: [("failed".to_owned(), 1)].into() });
    [store.runs(failed).await.unwrap(), store.runs(open).await.unwrap()].concat()
}

#[tokio::test]
async fn a_log_of_the_first_version_is_listed_as_it_is_by_one_who_only_reads() {
    let (_folder, path) = temp();
    first_version(&path);
    let before = std::fs::read(&path).unwrap();
    let store = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
    let record = |number: u64| RunRecord {
        run: run_id(number),
        batch: None,
        task_id: Some("t".into()),
        attempt: 1,
        submitted_at: Timestamp::from_micros(i64::try_from(number).unwrap()),
        asked: None,
        end: None,
        ended_at: None,
    };
    let failed = RunRecord {
        end: Some(Arc::new(RunEnd { outcome: Outcome::Failed(Breakage::Stuck), ..end() })),
        ended_at: Some(Timestamp::from_micros(9)),
        ..record(1)
    };
    assert_eq!(failed_and_open(&store).await, [failed, record(2)]);
    assert_eq!(store.count(RunFilter::default()).await.unwrap().open, 2);
    let page = RunFilter { before: Some(run_id(2)), ..RunFilter::default() };
    assert_eq!(store.runs(page).await.unwrap().len(), 1);
    let labelled = RunFilter { labels: vec![("team".into(), "a".into())], ..RunFilter::default() };
    assert_eq!(store.runs(labelled).await.unwrap(), []);
    assert_eq!(store.read(run_id(2), Seq::START).await.unwrap().len(), 1);
    assert_eq!(store.settings().await.unwrap(), BTreeMap::new());
    assert_eq!(store.audit(AuditFilter::default()).await.unwrap(), []);
    drop(store);
    assert!(std::fs::read(&path).unwrap() == before);
}

#[tokio::test]
async fn a_log_of_the_first_version_is_brought_up_to_date_by_one_who_writes() {
    let (_folder, path) = temp();
    first_version(&path);
    let reader = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
    let log = texts(&reader.read(run_id(2), Seq::START).await.unwrap());
    let store = SqliteStore::open(&path, Options::default()).unwrap();
    let records = failed_and_open(&store).await;
    let asked: Vec<_> = records.iter().map(|one| one.asked.as_deref().cloned()).collect();
    let plain = Asked {
        about: "count".into(),
        model: "m".into(),
        labels: BTreeMap::new(),
        priority: 0,
        predecessor: None,
        submission: None,
        owner: None,
    };
    let detailed = Asked {
        about: "count ü".into(),
        model: "large".into(),
        labels: [("team".to_owned(), "a".to_owned())].into(),
        priority: 7,
        predecessor: Some(run_id(1)),
        submission: None,
        owner: None,
    };
    assert_eq!(asked, [Some(plain), Some(detailed)]);
    // The third can not go on.
    assert_eq!(store.count(RunFilter::default()).await.unwrap().open, 1);
    assert_eq!(texts(&store.read(run_id(2), Seq::START).await.unwrap()), log);
    let after = RunFilter { predecessor: Some(run_id(1)), ..RunFilter::default() };
    assert_eq!(store.runs(after).await.unwrap().len(), 1);
    let saved = store.save_setting("paused", Some("all".to_owned())).unwrap();
    store.durable(saved).await.unwrap();
    // Whoever began to read before goes on.
    assert_eq!(failed_and_open(&reader).await.len(), 2);
    let late = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
    assert_eq!(failed_and_open(&late).await, records);
    assert_eq!(late.settings().await.unwrap().len(), 1);
}

/// A log of each earlier version, as text.
const SAMPLES: [&str; 3] = [
    include_str!("../../../tests/formats/log-1.sql"),
    include_str!("../../../tests/formats/log-2.sql"),
    include_str!("../../../tests/formats/log-3.sql"),
];

/// What the runs of every sample say.
async fn transcript(store: &SqliteStore) -> Vec<String> {
    let mut told = Vec::new();
    for record in store.runs(RunFilter::default()).await.unwrap() {
        let log = store.read(record.run, Seq::START).await.unwrap();
        let state = Run::replay(record.run, log.iter().map(|one| &one.fact));
        let said = record.end.as_ref().map(|end| end.text.to_string()).unwrap_or_default();
        let (task, seq, outcome) = (record.task_id.unwrap_or_default(), state.seq(), state.outcome());
        told.push(format!("{task}: {seq} events, {outcome:?}, {said:?}"));
    }
    told
}

#[tokio::test]
async fn a_log_of_every_earlier_version_says_what_it_said() {
    let expected = ["t-1: 6 events, Some(Done), \"all counted: caf\u{e9}\"", "t-2: 3 events, None, \"\""]
        .map(str::to_owned);
    for (number, sample) in SAMPLES.into_iter().enumerate() {
        let (_folder, path) = temp();
        Connection::open(&path).unwrap().execute_batch(sample).unwrap();
        let reader = SqliteStore::open_for_reading(&path, Options::default()).unwrap();
        assert_eq!(transcript(&reader).await, expected, "version {}", number + 1);
        drop(reader);
        let writer = SqliteStore::open(&path, Options::default()).unwrap();
        assert_eq!(transcript(&writer).await, expected, "version {}", number + 1);
        let batch = writer.batches().await.unwrap().remove(0);
        assert_eq!((batch.name.as_str(), writer.tasks(batch.id).await.unwrap().len()), ("tasks.jsonl", 2));
        drop(writer);
        assert_eq!(survey(&path, || false).unwrap().findings, [], "version {}", number + 1);
        let db = Connection::open(&path).unwrap();
        let version: usize = db.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, SAMPLES.len() + 1, "the version before has no sample");
    }
}
