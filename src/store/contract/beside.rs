//! Promises of what is kept beside the log: snapshots, batches, settings and who changed what.

use super::*;

pub(super) async fn a_later_checkpoint_replaces_an_earlier_one(subject: Subject) {
    let store = &*subject.store;
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap(), None);
    put(store, run_id(1), 0, &(1..=8).map(turn).collect::<Vec<_>>()).await;
    for through in [3, 8] {
        store.save_checkpoint(run_id(1), seq(through), vec![0xff, 0]).unwrap();
    }
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap(), Some((seq(8), vec![0xff, 0])));
    let ahead = store.save_checkpoint(run_id(1), seq(9), Vec::new()).unwrap();
    assert!(matches!(store.durable(ahead).await, Err(StoreError::Conflict { .. })));
    assert_eq!(store.checkpoint(run_id(1)).await.unwrap().map(|(through, _)| through), Some(seq(8)));
    assert_eq!(store.checkpoint(run_id(2)).await.unwrap(), None);
}

pub(super) async fn batches_and_their_tasks_are_kept_in_order(subject: Subject) {
    let store = &*subject.store;
    let batch = |id: u8, created: i64, options: &str| BatchRecord {
        id: BatchId::from_bytes([id; 16]),
        name: format!("batch-{id}.jsonl"),
        created_at: Timestamp::from_micros(created),
        options: options.to_owned(),
    };
    let task = |id: &str, hash: &str| TaskRecord { task_id: id.into(), hash: hash.to_owned() };
    store.record_batch(batch(2, 10, "{}"), vec![task("z", "1"), task("a", "2")]).unwrap();
    store.record_batch(batch(1, 20, "{}"), vec![task("z", "3")]).unwrap();
    let again = store.record_batch(batch(2, 30, r#"{"x":1}"#), vec![task("m", "4"), task("z", "5")]).unwrap();
    store.durable(again).await.unwrap();
    assert_eq!(store.batches().await.unwrap(), [batch(2, 10, r#"{"x":1}"#), batch(1, 20, "{}")]);
    let tasks = store.tasks(BatchId::from_bytes([2; 16])).await.unwrap();
    assert_eq!(tasks, [task("z", "5"), task("a", "2"), task("m", "4")]);
    assert_eq!(store.tasks(BatchId::from_bytes([7; 16])).await.unwrap(), []);
}

pub(super) async fn a_setting_is_kept_until_it_is_replaced_or_forgotten(subject: Subject) {
    let store = &*subject.store;
    assert_eq!(store.settings().await.unwrap(), BTreeMap::new());
    store.save_setting("paused", Some("all".to_owned())).unwrap();
    store.save_setting("a", Some(String::new())).unwrap();
    store.save_setting("gone", Some("1".to_owned())).unwrap();
    store.save_setting("paused", Some("batch".to_owned())).unwrap();
    store.save_setting("gone", None).unwrap();
    let last = store.save_setting("never there", None).unwrap();
    store.durable(last).await.unwrap();
    let expected = [("a", ""), ("paused", "batch")];
    let expected: BTreeMap<_, _> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    assert_eq!(store.settings().await.unwrap(), expected);
}

pub(super) async fn changes_that_were_asked_for_are_found_by_who_asked_what(subject: Subject) {
    let store = &*subject.store;
    let record = |at: i64, uid: Option<u32>, verb: &str, target: &str| AuditRecord {
        at: Timestamp::from_micros(at),
        uid,
        user: uid.map(|uid| format!("user-{uid}")),
        client: uid.map(|_| "herder/0.1.0".to_owned()),
        verb: verb.to_owned(),
        target: target.to_owned(),
        changed: verb == "submit",
        detail: (verb == "cancel").then(|| "by hand".to_owned()),
    };
    let records = [
        record(10, Some(1), "submit", "x"),
        record(20, Some(u32::MAX), "cancel", "x"),
        record(30, None, "submit", "y"),
        record(30, Some(1), "cancel", "y"),
    ];
    let mut last = None;
    for record in records.clone() {
        last = Some(store.record_audit(record).unwrap());
    }
    store.durable(last.unwrap()).await.unwrap();
    let all = AuditFilter::default;
    let time = |micros: i64| Some(Timestamp::from_micros(micros));
    let table: &[(AuditFilter, &[usize])] = &[
        (all(), &[0, 1, 2, 3]),
        (AuditFilter { limit: Some(3), ..all() }, &[1, 2, 3]),
        (AuditFilter { since: time(20), ..all() }, &[1, 2, 3]),
        (AuditFilter { until: time(20), ..all() }, &[0]),
        (AuditFilter { uid: Some(1), ..all() }, &[0, 3]),
        (AuditFilter { uid: Some(1), limit: Some(1), ..all() }, &[3]),
        (AuditFilter { user: Some(format!("user-{}", u32::MAX)), ..all() }, &[1]),
        (AuditFilter { verb: Some("submit".into()), ..all() }, &[0, 2]),
        (AuditFilter { target: Some("y".into()), since: time(30), ..all() }, &[2, 3]),
        (AuditFilter { target: Some("z".into()), ..all() }, &[]),
    ];
    for (filter, expected) in table {
        let expected: Vec<_> = expected.iter().map(|index| records[*index].clone()).collect();
        assert_eq!(store.audit(filter.clone()).await.unwrap(), expected, "{filter:?}");
    }
}
