//! Promises to those who follow the log while it is written, and to everybody when it closes.

use super::*;

/// Eight tasks append 200 events each, one to three an append, all runs interleaved.
async fn eight_write(store: &Arc<dyn EventStore>) {
    let writers = (1..=8).map(|writer| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            let mut head = 0;
            let mut tickets: Vec<Ticket> = Vec::new();
            while head < 200 {
                let count = (1 + head % 3).min(200 - head);
                let facts: Vec<_> = (0..count).map(|_| turn(1)).collect();
                tickets.push(store.append(run_id(writer), seq(head), &facts).unwrap());
                head += count;
                if head % 7 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            // In the order of handing over: once the last is durable, all are.
            store.durable(*tickets.last().unwrap()).await.unwrap();
            for ticket in tickets {
                assert!(matches!(futures_util::FutureExt::now_or_never(store.durable(ticket)), Some(Ok(()))));
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
}

fn assert_whole(facts: &[Envelope]) {
    assert_eq!(facts.iter().map(|one| one.pos.get()).collect::<Vec<_>>(), (1..=8 * 200).collect::<Vec<_>>());
    for writer in 1..=8 {
        let run = facts.iter().filter(|one| one.run == run_id(writer));
        assert_eq!(run.map(|one| one.seq.get()).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    }
}

pub(super) async fn places_are_dense_over_interleaved_runs_whatever_the_page(subject: Subject) {
    eight_write(&subject.store).await;
    for page in [1, 7, 100, usize::MAX] {
        assert_whole(&everything(&*subject.store, page).await);
    }
}

pub(super) async fn a_feed_loses_and_doubles_nothing_while_eight_write(subject: Subject) {
    put(&*subject.store, run_id(1), 0, &[]).await;
    let mut feed = Feed::all(Arc::clone(&subject.store), Pos::START);
    let following = tokio::spawn(async move {
        let mut facts = Vec::new();
        while facts.len() < 8 * 200 {
            facts.extend(feed.next().await.unwrap());
        }
        (feed, facts)
    });
    eight_write(&subject.store).await;
    let (mut feed, facts) = timeout(DEADLINE, following).await.unwrap().unwrap();
    assert_whole(&facts);
    // It waits for more, and a wait that is given up costs nothing.
    assert!(futures_util::FutureExt::now_or_never(feed.next()).is_none());
    put(&*subject.store, run_id(9), 0, &[turn(1)]).await;
    assert_eq!(timeout(DEADLINE, feed.next()).await.unwrap().unwrap().len(), 1);
    let mut late = Feed::all(Arc::clone(&subject.store), Pos::new(1600));
    assert_eq!(timeout(DEADLINE, late.next()).await.unwrap().unwrap()[0].pos, Pos::new(1601));
}

pub(super) async fn a_feed_of_one_run_gives_that_run_alone(subject: Subject) {
    let mut feed = Feed::run(Arc::clone(&subject.store), run_id(3), seq(5));
    let following = tokio::spawn(async move {
        let mut seqs = Vec::new();
        while seqs.len() < 195 {
            seqs.extend(feed.next().await.unwrap().iter().map(|one| (one.run, one.seq.get())));
        }
        seqs
    });
    eight_write(&subject.store).await;
    let seqs = timeout(DEADLINE, following).await.unwrap().unwrap();
    assert_eq!(seqs, (6..=200).map(|place| (run_id(3), place)).collect::<Vec<_>>());
}

pub(super) async fn a_closed_store_takes_and_gives_nothing(subject: Subject) {
    let mut feed = Feed::all(Arc::clone(&subject.store), Pos::START);
    let handed_over = subject.store.append(run_id(1), Seq::START, &[turn(1)]).unwrap();
    assert_eq!(timeout(DEADLINE, feed.next()).await.unwrap().unwrap().len(), 1);
    let waiting = tokio::spawn(async move { feed.next().await });
    (subject.close)();
    assert!(matches!(timeout(DEADLINE, waiting).await.unwrap().unwrap(), Err(StoreError::Closed)));
    subject.store.durable(handed_over).await.unwrap();
    let refused = subject.store.append(run_id(1), seq(1), &[turn(1)]);
    assert!(matches!(refused, Err(StoreError::Closed)));
    assert!(matches!(subject.store.read(run_id(1), Seq::START).await, Err(StoreError::Closed)));
    assert!(matches!(subject.store.durable(Ticket(99)).await, Err(StoreError::Closed)));
}
