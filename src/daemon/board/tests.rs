//! What the board shows of the open runs.

use std::cmp::Reverse;

use super::*;
use crate::{
    domain::{
        event::{Fact, decode},
        id::Pos,
        usage::NanoUsd,
    },
    store::memory::MemoryStore,
};

fn run_id(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

fn fact(at_s: i64, kind: &str, data: &str) -> Fact {
    let at = at_s * 1_000_000;
    let stored = format!(r#"[{{"v":1,"at":{at},"turn":1,"kind":"{kind}","data":{data}}}]"#);
    decode(stored.as_bytes(), run_id(1), Pos::new(1), Seq::new(1)).unwrap().remove(0).fact
}

fn submitted() -> Fact {
    fact(100, "submitted", r#"{"task":"t","attempt":1,"model":"m","workspace":"/w"}"#)
}

fn message(at_s: i64, tokens: u64) -> Fact {
    let usage = format!(r#"{{"input":{tokens},"output":0,"cost":1000000000}}"#);
    fact(at_s, "message", &format!(r#"{{"text":"hm","stop":"end_turn","usage":{usage}}}"#))
}

fn run_end() -> Fact {
    let usage = r#"{"input":0,"output":0}"#;
    let numbers = r#""turns":1,"calls":0,"queued_us":1,"duration_us":1,"active_us":1"#;
    fact(120, "run_end", &format!(r#"{{"outcome":"done","usage":{usage},{numbers}}}"#))
}

fn envelope(run: u64, seq: u64, fact: Fact) -> Envelope {
    Envelope { v: 1, pos: Pos::new(1_000), run: run_id(run), seq: Seq::new(seq), fact }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

#[tokio::test]
async fn it_holds_the_open_runs_and_takes_in_each_event_once() {
    let store = MemoryStore::default();
    store.append(run_id(1), Seq::START, &[submitted(), message(101, 5)]).unwrap();
    store.append(run_id(2), Seq::START, &[submitted(), run_end()]).unwrap();
    let board = Board::default();
    board.load(&store).await.unwrap();
    // What was in the log as it was loaded comes again from the feed, and more.
    for envelope in store.read_all(Pos::START, 100).await.unwrap() {
        board.fold(&envelope);
    }
    assert_eq!(board.get(run_id(2)), None);
    assert_eq!(board.get(run_id(1)).unwrap().usage.input, 5);
    let counts =
        |open, done| RunCounts { total: open + done, open, ended: [("done".to_owned(), done)].into() };
    assert_eq!(board.counts(), counts(1, 1));
    board.fold(&envelope(1, 3, message(102, 7)));
    board.fold(&envelope(3, 1, submitted()));
    assert_eq!(board.get(run_id(1)).unwrap().usage.input, 12);
    assert_eq!(board.page(|_| true, |_| (), 0, 10).total, 2);
    assert_eq!((board.counts(), board.ids(|_| true)), (counts(2, 1), vec![run_id(1), run_id(3)]));
    board.fold(&envelope(1, 4, run_end()));
    assert_eq!((board.counts(), board.ids(|_| true)), (counts(1, 2), vec![run_id(3)]));
    assert_eq!(board.page(|_| true, |_| (), 0, 10).runs, [board.get(run_id(3)).unwrap()]);
}

#[test]
fn a_page_is_filtered_sorted_and_cut_and_does_not_change_as_the_board_does() {
    let board = Board::default();
    for run in 1..=5 {
        board.fold(&envelope(run, 1, submitted()));
        board.fold(&envelope(run, 2, message(101, run % 3)));
    }
    let page = board.page(|run| run.usage.input > 0, |run| Reverse(run.usage.input), 1, 2);
    let runs: Vec<_> = page.runs.iter().map(|run| run.run).collect();
    assert_eq!((page.total, runs), (4, vec![run_id(5), run_id(1)]));
    board.fold(&envelope(5, 3, run_end()));
    assert_eq!(page.runs[0].stand, Stand::Between);
}

#[test]
fn totals_are_of_the_open_runs_and_rates_of_the_last_minute() {
    let board = Board::default();
    for run in 1..=3 {
        board.fold(&envelope(run, 1, submitted()));
    }
    for (run, second) in [(1, 100), (2, 110)] {
        board.fold(&envelope(run, 2, message(second, 30)));
    }
    board.fold(&envelope(2, 3, run_end()));
    let totals = board.totals(|_| true, at(130));
    assert_eq!((totals.open(), totals.stands), (2, [0, 1, 1, 0, 0]));
    assert_eq!((totals.usage.input, totals.usage.cost), (30, Some(NanoUsd::new(1_000_000_000))));
    let rates = |turns: f64| Rates {
        turns: turns / 30.0,
        tokens: turns,
        usd_per_minute: turns * 2.0,
        ends: 1.0 / 30.0,
    };
    assert_eq!(totals.rates, rates(2.0));
    assert_eq!(board.totals(|_| true, at(165)).rates.turns, 1.0 / 60.0);
    assert_eq!(board.totals(|_| true, at(1_000)).rates, Rates::default());
    assert_eq!(board.totals(|run| run.run == run_id(3), at(130)).open(), 1);
}

#[test]
fn a_held_run_is_counted_as_held_and_as_nothing_else() {
    let board = Board::default();
    for run in 1..=3 {
        board.fold(&envelope(run, 1, submitted()));
        board.fold(&envelope(run, 2, fact(101, "turn_start", "{}")));
    }
    board.fold(&envelope(1, 3, fact(102, "paused", "{}")));
    board.fold(&envelope(2, 3, fact(102, "paused", "{}")));
    board.fold(&envelope(2, 4, fact(103, "parked", r#"{"reason":"paused"}"#)));
    let totals = board.totals(|_| true, at(130));
    // One that is paused in the midst of a turn ends it first.
    assert_eq!((totals.held, totals.stand("thinking"), totals.open()), (1, 2, 3));
}
