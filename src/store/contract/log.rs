//! Promises of the log itself: what is appended, in which order, and how it is read.

use super::*;

pub(super) async fn every_kind_of_event_comes_back_as_it_went_in(subject: Subject) {
    let facts = every_kind();
    put(&*subject.store, run_id(1), 0, &facts).await;
    let read = subject.store.read(run_id(1), Seq::START).await.unwrap();
    let placed = facts.into_iter().zip(1..).map(|(fact, place)| {
        text(&Envelope { v: 1, pos: Pos::new(place), run: run_id(1), seq: seq(place), fact })
    });
    assert_eq!(texts(&read), placed.collect::<Vec<_>>());
    assert_eq!(texts(&everything(&*subject.store, 1).await), texts(&read));
}

pub(super) async fn a_conflict_is_told_and_harms_nothing_else(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2)]).await;
    let wrong = store.append(run_id(1), seq(1), &[turn(9)]).unwrap();
    let right = store.append(run_id(1), seq(2), &[turn(3)]).unwrap();
    let other = store.append(run_id(2), Seq::START, &[turn(1)]).unwrap();
    for _ in 0..2 {
        let StoreError::Conflict { run, expected, actual } = store.durable(wrong).await.unwrap_err() else {
            panic!("not a conflict");
        };
        assert_eq!((run, expected, actual), (run_id(1), seq(1), seq(2)));
    }
    store.durable(right).await.unwrap();
    store.durable(other).await.unwrap();
    let turns: Vec<_> = everything(store, 10).await.iter().map(|one| (one.run, one.fact.turn)).collect();
    assert_eq!(turns, [(run_id(1), 1), (run_id(1), 2), (run_id(1), 3), (run_id(2), 1)]);
}

pub(super) async fn what_builds_on_a_failed_append_fails_too(subject: Subject) {
    let store = &*subject.store;
    let chain: Vec<_> =
        [5, 6, 7].map(|expected| store.append(run_id(1), seq(expected), &[turn(1)]).unwrap()).into();
    for ticket in chain {
        assert!(matches!(store.durable(ticket).await, Err(StoreError::Conflict { actual: Seq::START, .. })));
    }
    assert!(store.read(run_id(1), Seq::START).await.unwrap().is_empty());
    put(store, run_id(1), 0, &[turn(1)]).await;
}

pub(super) async fn of_two_that_expect_the_same_exactly_one_wins(subject: Subject) {
    for round in 0..50 {
        let race = [1, 2].map(|racer| {
            let store = Arc::clone(&subject.store);
            tokio::spawn(async move {
                let ticket = store.append(run_id(1), seq(round), &[turn(racer)]).unwrap();
                store.durable(ticket).await.is_ok()
            })
        });
        let mut won = Vec::new();
        for racer in race {
            won.push(racer.await.unwrap());
        }
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "round {round}: {won:?}");
        let last = subject.store.read(run_id(1), seq(round)).await.unwrap();
        assert_eq!(last.iter().map(|one| one.fact.turn).collect::<Vec<_>>(), [if won[0] { 1 } else { 2 }]);
    }
}

pub(super) async fn an_append_of_nothing_only_checks_the_head(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[]).await;
    put(store, run_id(1), 0, &[turn(1)]).await;
    put(store, run_id(1), 1, &[]).await;
    let wrong = store.append(run_id(1), seq(2), &[]).unwrap();
    assert!(matches!(store.durable(wrong).await, Err(StoreError::Conflict { .. })));
    put(store, run_id(1), 1, &[turn(2)]).await;
    let places: Vec<_> = everything(store, 10).await.iter().map(|one| one.pos.get()).collect();
    assert_eq!(places, [1, 2]);
}

pub(super) async fn a_reader_sees_what_was_handed_over_before(subject: Subject) {
    let store = &*subject.store;
    for number in 0..200 {
        let ticket = store.append(run_id(1), seq(number), &[turn(1)]).unwrap();
        let read = store.read(run_id(1), seq(number)).await.unwrap();
        assert_eq!(read.iter().map(|one| one.seq).collect::<Vec<_>>(), [seq(number + 1)]);
        assert_eq!(store.watch().borrow().get(), number + 1);
        store.durable(ticket).await.unwrap();
    }
}

pub(super) async fn reading_starts_after_the_cursor_even_within_an_append(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2), turn(3)]).await;
    put(store, run_id(1), 3, &[turn(4), turn(5)]).await;
    for after in 0..=5 {
        let expected: Vec<_> = (after + 1..=5).collect();
        let read = store.read(run_id(1), seq(after)).await.unwrap();
        assert_eq!(read.iter().map(|one| one.seq.get()).collect::<Vec<_>>(), expected);
        let read = store.read_all(Pos::new(after), 100).await.unwrap();
        assert_eq!(read.iter().map(|one| one.pos.get()).collect::<Vec<_>>(), expected);
    }
    assert!(store.read(run_id(1), seq(u64::MAX)).await.unwrap().is_empty());
    assert!(store.read_all(Pos::new(u64::MAX), 1).await.unwrap().is_empty());
    assert!(store.read(run_id(9), Seq::START).await.unwrap().is_empty());
    let pages = [(0, 1, 3), (0, 3, 3), (0, 4, 5), (1, 2, 2), (1, 0, 2)];
    for (after, limit, count) in pages {
        let page = store.read_all(Pos::new(after), limit).await.unwrap();
        assert_eq!(page.len(), count, "after {after}, limit {limit}");
    }
}

pub(super) async fn a_page_of_a_run_is_the_beginning_of_what_is_to_be_read(subject: Subject) {
    let store = &*subject.store;
    put(store, run_id(1), 0, &[turn(1), turn(2), turn(3)]).await;
    put(store, run_id(1), 3, &[turn(4), turn(5)]).await;
    for after in (0..7).map(seq) {
        let all = texts(&store.read(run_id(1), after).await.unwrap());
        for limit in 1..7 {
            let some = texts(&store.read_some(run_id(1), after, limit).await.unwrap());
            assert_eq!(some, all[..all.len().min(limit)], "{limit} after {after}");
        }
    }
}
