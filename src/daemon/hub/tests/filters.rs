//! Which events a stream of all runs has.

use super::*;

/// The ids that come, up to the first sign of life.
async fn ids(reader: &mut Reader) -> Vec<u64> {
    let mut ids = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Sent { id: Some(id), .. } => ids.push(id),
            Sent { event, .. } => {
                assert_eq!(event, ": ping");
                return ids;
            }
        }
    }
}

/// What `filter` lets through of three runs of three events each, the first two of a batch.
async fn passed(filter: Filter) -> Vec<u64> {
    let world = world().await;
    let mut follower = world.reader_of_all(0, filter.clone()).await;
    assert!(ids(&mut follower).await.is_empty(), "nothing has happened yet");
    let mut late = None;
    for (place, fact) in [(0, None), (1, Some(turn(1))), (2, Some(run_end()))] {
        for run in 1..=3 {
            let batch = Some(batch_id(9)).filter(|_| run < 3);
            let fact = fact.clone().unwrap_or_else(|| submitted(batch));
            world.append(run_id(run), place, &[fact]);
        }
        if place == 1 {
            late = Some(world.reader_of_all(0, filter.clone()).await);
        }
    }
    let passed = ids(&mut follower).await;
    assert_eq!(ids(&mut late.unwrap()).await, passed, "it matters when a reader comes");
    assert_eq!(ids(&mut world.reader_of_all(4, filter).await).await, after(&passed, 4));
    passed
}

fn after(ids: &[u64], cursor: u64) -> Vec<u64> {
    ids.iter().copied().filter(|id| *id > cursor).collect()
}

#[tokio::test(start_paused = true)]
async fn a_filter_lets_through_what_is_of_the_batch_the_runs_and_the_kinds() {
    let kinds = |names: &[&str]| Kinds::named(names.iter().copied()).unwrap();
    let batch = Some(batch_id(9));
    let runs = |numbers: &[u64]| numbers.iter().copied().map(run_id).collect::<BTreeSet<_>>();
    let none = Filter::default();
    assert_eq!(passed(none.clone()).await, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(passed(Filter { batch, ..none.clone() }).await, [1, 2, 4, 5, 7, 8]);
    assert_eq!(passed(Filter { runs: runs(&[1, 3]), ..none.clone() }).await, [1, 3, 4, 6, 7, 9]);
    let ends = kinds(&["submitted", "run_end"]);
    assert_eq!(passed(Filter { kinds: ends.clone(), ..none.clone() }).await, [1, 2, 3, 7, 8, 9]);
    assert_eq!(passed(Filter { batch, runs: runs(&[2, 3]), kinds: ends }).await, [2, 8]);
    assert!(passed(Filter { batch: Some(batch_id(8)), ..none }).await.is_empty());
}

#[test]
fn an_unknown_kind_is_refused_with_those_that_there_are() {
    let error = Kinds::named(["run_end", "run_ended"]).unwrap_err();
    assert_eq!(error, UnknownKind("run_ended".to_owned()));
    assert!(error.to_string().ends_with("restart, run_end"), "{error}");
}
