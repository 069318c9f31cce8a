//! Promises of what is known of runs without reading their logs.

use super::*;

pub(super) async fn runs_are_found_without_their_logs(subject: Subject) {
    let store = &*subject.store;
    let batch = BatchId::from_bytes([9; 16]);
    put(store, run_id(0xa1), 0, &[submitted(10, Some(batch), "a", 1), turn(1), run_end(20)]).await;
    put(store, run_id(0xa2), 0, &[submitted(30, Some(batch), "a", 2)]).await;
    put(store, run_id(0xb1), 0, &[submitted(40, None, "a", 1)]).await;
    put(store, run_id(0xb2), 0, &[submitted(50, Some(batch), "b", 1), turn(1)]).await;
    put(store, run_id(0xb2), 2, &[run_end(60)]).await;
    let found = |filter: RunFilter| async move {
        let records = store.runs(filter).await.unwrap();
        records.iter().map(|one| u64::from(one.run.as_bytes()[15])).collect::<Vec<_>>()
    };
    let all = RunFilter::default;
    assert_eq!(found(all()).await, [0xa1, 0xa2, 0xb1, 0xb2]);
    assert_eq!(found(RunFilter { batch: Some(batch), ..all() }).await, [0xa1, 0xa2, 0xb2]);
    assert_eq!(found(RunFilter { ended: Some(true), ..all() }).await, [0xa1, 0xb2]);
    assert_eq!(found(RunFilter { ended: Some(false), ..all() }).await, [0xa2, 0xb1]);
    assert_eq!(found(RunFilter { task_id: Some("a".into()), ..all() }).await, [0xa1, 0xa2, 0xb1]);
    assert_eq!(
        found(RunFilter { task_id: Some("a".into()), batch: Some(batch), ..all() }).await,
        [0xa1, 0xa2]
    );
    assert_eq!(found(RunFilter { limit: Some(2), ..all() }).await, [0xb1, 0xb2]);
    assert_eq!(found(RunFilter { limit: Some(1), ended: Some(false), ..all() }).await, [0xb1]);
    let prefixed = |prefix: &str| found(RunFilter { id_prefix: Some(prefix.into()), ..all() });
    assert_eq!(prefixed("00000000-0000-0000-0000-0000000000b").await, [0xb1, 0xb2]);
    assert_eq!(prefixed("00000000-0000-0000-0000-0000000000a2").await, [0xa2]);
    assert_eq!(prefixed("").await.len(), 4);
    for nothing in ["1", "zz", "000000000000", "00000000-0000-0000-0000-0000000000a20", "ü"] {
        assert_eq!(prefixed(nothing).await, [0_u64; 0], "{nothing}");
    }
    let first = RunFilter { limit: Some(1), id_prefix: Some(run_id(0xa1).to_string()), ..all() };
    let record = RunRecord {
        run: run_id(0xa1),
        batch: Some(batch),
        task_id: Some("a".into()),
        attempt: 1,
        submitted_at: Timestamp::from_micros(10),
        asked: Some(Arc::new(Asked {
            about: "count".into(),
            model: "scripted".into(),
            labels: BTreeMap::new(),
            priority: 0,
            predecessor: None,
            submission: None,
            owner: None,
        })),
        end: Some(Arc::new(end())),
        ended_at: Some(Timestamp::from_micros(20)),
    };
    assert_eq!(store.runs(first).await.unwrap(), [record]);
}

/// A run as it was submitted, and how it ended, if it has.
struct Life {
    number: u64,
    spec: &'static str,
    end: Option<Outcome>,
}

const LIVES: &[Life] = &[
    Life {
        number: 1, spec: r#""model":"large","labels":{"team":"a","b\"c":"ü"}"#, end: Some(Outcome::Done)
    },
    Life {
        number: 2,
        spec: r#""model":"small","labels":{"team":"a"},"priority":-3"#,
        end: Some(Outcome::Failed(Breakage::Stuck)),
    },
    Life {
        number: 3,
        spec: r#""model":"small","submission":{"key":"k","digest":"1"}"#,
        end: Some(Outcome::Cancelled),
    },
    Life {
        number: 4,
        spec: r#""model":"large","predecessor":"00000000-0000-0000-0000-000000000002""#,
        end: Some(Outcome::ProviderError(FaultClass::Cancelled)),
    },
    Life {
        number: 5,
        spec: r#""model":"small","labels":{"team":"b"}"#,
        end: Some(Outcome::Failed(Breakage::RestartLimit)),
    },
    Life { number: 6, spec: r#""model":"large","submission":{"key":"k","digest":"2"}"#, end: None },
];

/// Submits each of them, one a microsecond, and ends those that have an end.
async fn live(store: &dyn EventStore) {
    for Life { number, spec, end: ended } in LIVES {
        let spec = format!(r#"{{"task":"count\n {number}","attempt":1,"workspace":"/w",{spec}}}"#);
        let event = Event::Submitted(Arc::new(serde_json::from_str(&spec).unwrap()));
        let at = Timestamp::from_micros(i64::try_from(*number).unwrap());
        put(store, run_id(*number), 0, &[Fact { at, turn: 0, event }]).await;
        if let Some(outcome) = *ended {
            let event = Event::RunEnd(Box::new(RunEnd { outcome, ..end() }));
            put(store, run_id(*number), 1, &[Fact { at, turn: 1, event }]).await;
        }
    }
}

async fn numbers(store: &dyn EventStore, filter: RunFilter) -> Vec<u64> {
    let records = store.runs(filter).await.unwrap();
    records.iter().map(|one| u64::from(one.run.as_bytes()[15])).collect()
}

pub(super) async fn what_was_asked_is_known_without_the_log(subject: Subject) {
    let store = &*subject.store;
    live(store).await;
    let records = store.runs(RunFilter::default()).await.unwrap();
    let asked: Vec<Asked> = records.iter().map(|one| (**one.asked.as_ref().unwrap()).clone()).collect();
    let plain = |number: u64, model: &str| Asked {
        about: format!("count {number}").into(),
        model: model.into(),
        labels: BTreeMap::new(),
        priority: 0,
        predecessor: None,
        submission: None,
        owner: None,
    };
    let labels = |labels: &[(&str, &str)]| {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let submission = |digest: &str| Some(Submission { key: "k".into(), digest: digest.into() });
    let expected = [
        Asked { labels: labels(&[("team", "a"), ("b\"c", "ü")]), ..plain(1, "large") },
        Asked { labels: labels(&[("team", "a")]), priority: -3, ..plain(2, "small") },
        Asked { submission: submission("1"), ..plain(3, "small") },
        Asked { predecessor: Some(run_id(2)), ..plain(4, "large") },
        Asked { labels: labels(&[("team", "b")]), ..plain(5, "small") },
        Asked { submission: submission("2"), ..plain(6, "large") },
    ];
    assert_eq!(asked, expected);
}

pub(super) async fn a_filter_narrows_by_what_was_asked_and_by_how_it_ended(subject: Subject) {
    let store = &*subject.store;
    live(store).await;
    let all = RunFilter::default;
    let outcome = |name: &str| RunFilter { outcome: Some(name.into()), ..all() };
    let labels = |labels: &[(&str, &str)]| RunFilter {
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..all()
    };
    let time = |micros: i64| Some(Timestamp::from_micros(micros));
    let table: &[(RunFilter, &[u64])] = &[
        (outcome("failed"), &[2, 5]),
        (outcome("restart_limit"), &[5]),
        (outcome("cancelled"), &[3]),
        (outcome("provider_error"), &[4]),
        (outcome("nonsense"), &[]),
        (RunFilter { ended: Some(false), ..outcome("failed") }, &[]),
        (labels(&[("team", "a")]), &[1, 2]),
        (labels(&[("team", "a"), ("b\"c", "ü")]), &[1]),
        (labels(&[("team", "a"), ("team", "b")]), &[]),
        (labels(&[("a", "team")]), &[]),
        (RunFilter { model: Some("small".into()), ..all() }, &[2, 3, 5]),
        (RunFilter { since: time(2), until: time(4), ..all() }, &[2, 3]),
        (RunFilter { since: time(7), ..all() }, &[]),
        (RunFilter { key: Some("k".into()), ..all() }, &[3, 6]),
        (RunFilter { key: Some("K".into()), ..all() }, &[]),
        (RunFilter { predecessor: Some(run_id(2)), ..all() }, &[4]),
        (RunFilter { among: Some([5, 9, 1].map(run_id).to_vec()), ..all() }, &[1, 5]),
        (RunFilter { among: Some(Vec::new()), ..all() }, &[]),
        (RunFilter { model: Some("small".into()), ..outcome("failed") }, &[2, 5]),
        (RunFilter { model: Some("small".into()), limit: Some(1), ..outcome("failed") }, &[5]),
        (RunFilter { before: Some(run_id(1)), ..all() }, &[]),
        (RunFilter { before: Some(run_id(9)), ..all() }, &[]),
        (RunFilter { before: Some(run_id(4)), model: Some("large".into()), ..all() }, &[1]),
    ];
    for (filter, expected) in table {
        assert_eq!(numbers(store, filter.clone()).await, *expected, "{filter:?}");
    }
}

pub(super) async fn pages_from_the_newest_to_the_oldest_give_each_run_once(subject: Subject) {
    let store = &*subject.store;
    live(store).await;
    let mut pages = Vec::new();
    let mut filter = RunFilter { limit: Some(2), ..RunFilter::default() };
    loop {
        let page = numbers(store, filter.clone()).await;
        let Some(oldest) = page.first() else { break };
        filter.before = Some(run_id(*oldest));
        pages.push(page);
    }
    assert_eq!(pages, [[5, 6], [3, 4], [1, 2]]);
}

pub(super) async fn counts_say_how_the_runs_that_match_stand(subject: Subject) {
    let store = &*subject.store;
    assert_eq!(store.count(RunFilter::default()).await.unwrap(), RunCounts::default());
    live(store).await;
    // Nobody has submitted it, so it is no run yet.
    put(store, run_id(7), 0, &[turn(1)]).await;
    let ended =
        |names: &[(&str, u64)]| names.iter().map(|(name, runs)| ((*name).to_owned(), *runs)).collect();
    let all = [("done", 1), ("failed", 2), ("cancelled", 1), ("provider_error", 1)];
    let paged = RunFilter { limit: Some(1), before: Some(run_id(2)), ..RunFilter::default() };
    for filter in [RunFilter::default(), paged] {
        let counts = store.count(filter).await.unwrap();
        assert_eq!(counts, RunCounts { total: 6, open: 1, ended: ended(&all) });
    }
    let large = RunFilter { model: Some("large".into()), ..RunFilter::default() };
    let counts = store.count(large).await.unwrap();
    assert_eq!(counts, RunCounts { total: 3, open: 1, ended: ended(&[("done", 1), ("provider_error", 1)]) });
    let nothing = RunFilter { id_prefix: Some("zz".into()), ..RunFilter::default() };
    assert_eq!(store.count(nothing).await.unwrap(), RunCounts::default());
}
