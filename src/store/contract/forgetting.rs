//! Promises of taking things off the record: what was named and is not open goes, and leaves no trace in what stays.

use super::*;

fn batch(id: u8) -> BatchRecord {
    BatchRecord {
        id: BatchId::from_bytes([id; 16]),
        name: "tasks.jsonl".to_owned(),
        created_at: Timestamp::from_micros(1),
        options: "{}".to_owned(),
    }
}

async fn forget(store: &dyn EventStore, batches: &[u8], runs: &[u64]) {
    let batches = batches.iter().map(|id| batch(*id).id).collect();
    let runs = runs.iter().copied().map(run_id).collect();
    store.durable(store.forget(batches, runs).unwrap()).await.unwrap();
}

async fn runs(store: &dyn EventStore) -> Vec<RunId> {
    store.runs(RunFilter::default()).await.unwrap().iter().map(|record| record.run).collect()
}

pub(super) async fn a_forgotten_run_is_gone_and_the_others_are_as_they_were(subject: Subject) {
    let store = &*subject.store;
    for run in 1..=3 {
        put(store, run_id(run), 0, &[submitted(10, None, "a", 1)]).await;
    }
    for run in 1..=3 {
        put(store, run_id(run), 1, &[turn(1), run_end(20)]).await;
    }
    store.save_checkpoint(run_id(2), seq(2), vec![1]).unwrap();
    let others = |facts: Vec<Envelope>| -> Vec<String> {
        texts(&facts.into_iter().filter(|one| one.run != run_id(2)).collect::<Vec<_>>())
    };
    let before = others(everything(store, 2).await);
    forget(store, &[], &[2, 77]).await;
    assert_eq!(runs(store).await, [run_id(1), run_id(3)]);
    for page in [1, 2, 100] {
        assert_eq!(texts(&everything(store, page).await), before);
    }
    assert_eq!(texts(&store.read(run_id(2), Seq::START).await.unwrap()), [""; 0]);
    assert_eq!(store.read(run_id(3), Seq::START).await.unwrap().len(), 3);
    assert_eq!(store.checkpoint(run_id(2)).await.unwrap(), None);
    assert_eq!(store.count(RunFilter::default()).await.unwrap().total, 2);
    let pages = RunFilter { before: Some(run_id(3)), ..RunFilter::default() };
    assert_eq!(store.runs(pages).await.unwrap().len(), 1);
    let late = store.append(run_id(2), seq(3), &[turn(2)]).unwrap();
    assert!(matches!(store.durable(late).await, Err(StoreError::Conflict { .. })));
}

pub(super) async fn a_place_is_not_used_again_even_if_it_was_the_last(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[submitted(10, None, "a", 1), turn(1), run_end(20)]).await;
    forget(store, &[], &[1]).await;
    assert_eq!(*store.watch().borrow(), Pos::new(3));
    put(store, run_id(2), 0, &[submitted(30, None, "b", 1)]).await;
    forget(store, &[], &[2]).await;
    put(store, run_id(2), 1, &[turn(1)]).await;
    let places: Vec<_> = everything(store, 9).await.iter().map(|one| one.pos).collect();
    assert_eq!(places, [Pos::new(4), Pos::new(5)]);
    let after = store.read_all(Pos::new(2), 9).await.unwrap();
    assert_eq!(after.len(), 2, "a cursor in the gap goes on after it");
    assert_eq!(store.settings().await.unwrap(), BTreeMap::new());
}

pub(super) async fn what_is_open_is_not_forgotten(subject: Subject) {
    let store = &*subject.store;
    let task = || vec![TaskRecord { task_id: "a".into(), hash: "1".to_owned() }];
    for id in [1, 2] {
        store.record_batch(batch(id), task()).unwrap();
    }
    put(store, run_id(1), 0, &[submitted(10, Some(batch(1).id), "a", 1), run_end(20)]).await;
    put(store, run_id(2), 0, &[submitted(30, Some(batch(2).id), "a", 1)]).await;
    forget(store, &[1, 2, 3], &[1, 2]).await;
    assert_eq!(runs(store).await, [run_id(2)]);
    assert_eq!(store.batches().await.unwrap(), [batch(2)]);
    assert_eq!(store.tasks(batch(1).id).await.unwrap(), []);
    assert_eq!(store.tasks(batch(2).id).await.unwrap(), task());
    put(store, run_id(2), 1, &[run_end(40)]).await;
    forget(store, &[2], &[2]).await;
    assert_eq!(store.batches().await.unwrap(), []);
    assert_eq!(everything(store, 9).await.len(), 0);
}
