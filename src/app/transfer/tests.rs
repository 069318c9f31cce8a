//! What a run that is taken elsewhere is there, and which files are taken.

use std::sync::Arc;

use super::*;
use crate::{
    clock::SystemClock,
    domain::{
        call::{Arguments, EffectClass},
        event::CommandGroup,
        id::CallId,
        outcome::{Outcome, Stop},
        policy::Verdict,
        run::{Judgement, Proposal, ProposedCall},
    },
    store::{RunFilter, memory::MemoryStore},
};

/// A run as an earlier herder wrote it.
const SAMPLE: &str = include_str!("../../../tests/formats/export-1.jsonl");

fn facts(ended: bool) -> (RunId, Vec<Fact>) {
    let run = RunId::new(uuid::Uuid::from_u128(7));
    let spec = serde_json::json!({"task": "caf\u{e9}", "attempt": 1, "model": "m", "workspace": "/w"});
    let submit = Input::Submit(Arc::new(serde_json::from_value(spec).expect("a spec")));
    let mut facts = Run::new(run).decide(submit, Timestamp::from_micros(1)).expect("facts");
    if ended {
        let end = Input::End(Outcome::Cancelled);
        facts.extend(Run::replay(run, &facts).decide(end, Timestamp::from_micros(2)).expect("facts"));
    }
    (run, facts)
}

async fn exported(ended: bool) -> Vec<u8> {
    let (store, (run, facts)) = (MemoryStore::default(), facts(ended));
    store.append(run, Seq::START, &facts).expect("taken");
    let mut out = Vec::new();
    export(run, &store.read(run, Seq::START).await.expect("read"), &mut out).expect("written");
    out
}

#[tokio::test]
async fn a_run_that_was_taken_elsewhere_is_the_same_there_and_taking_it_again_changes_nothing() {
    let file = exported(true).await;
    let store = MemoryStore::default();
    let runs = read(&file[..]).expect("sound");
    assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Ended);
    assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Unchanged);
    let mut again = Vec::new();
    export(runs[0].run, &store.read(runs[0].run, Seq::START).await.expect("read"), &mut again)
        .expect("written");
    assert_eq!(String::from_utf8(again), String::from_utf8(file));
    let other = Exported { run: runs[0].run, facts: facts(true).1[..1].to_vec() };
    assert_eq!(import(&store, &other, &SystemClock).await.expect("a beginning"), Imported::Unchanged);
    let mut changed = facts(true).1;
    changed[0].at = Timestamp::from_micros(9);
    let refused = import(&store, &Exported { run: other.run, facts: changed }, &SystemClock).await;
    assert!(matches!(refused, Err(ImportError::Exists(_))));
}

#[tokio::test]
async fn a_run_that_has_not_ended_is_held_where_it_is_taken_to() {
    let store = MemoryStore::default();
    let runs = read(&exported(false).await[..]).expect("sound");
    assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Held);
    assert_eq!(import(&store, &runs[0], &SystemClock).await.expect("taken"), Imported::Unchanged);
    let log = store.read(runs[0].run, Seq::START).await.expect("read");
    assert!(Run::replay(runs[0].run, log.iter().map(|one| &one.fact)).is_paused());
    assert_eq!(store.runs(RunFilter::default()).await.expect("runs").len(), 1);
}

#[tokio::test]
async fn a_run_is_taken_at_once_and_one_of_which_a_beginning_is_there_is_completed() {
    let clock = &SystemClock;
    let (run, facts) = open_run(&[]);
    let exported = Exported { run, facts };
    for known in [0, 1, exported.facts.len() - 1] {
        let store = MemoryStore::default();
        let place = if known > 0 {
            store.append(run, Seq::START, &exported.facts[..known]).expect("taken");
            store.read(run, Seq::START).await.expect("read")[known - 1].pos
        } else {
            Pos::default()
        };
        assert_eq!(import(&store, &exported, clock).await.expect("taken"), Imported::Held);
        let log = store.read(run, Seq::START).await.expect("read");
        let state = Run::replay(run, log.iter().map(|one| &one.fact));
        assert!(state.is_paused() && state.spec().is_some());
        // Appends are given whole.
        let first = store.read_all(place, 1).await.expect("read");
        assert_eq!(first.len(), log.len() - known);
        assert_eq!(import(&store, &exported, clock).await.expect("there"), Imported::Unchanged);
    }
}

#[tokio::test]
async fn what_was_to_end_has_ended_where_it_is_taken_to() {
    let (run, facts) = open_run(&[Input::End(Outcome::Cancelled)]);
    let store = MemoryStore::default();
    let exported = Exported { run, facts };
    assert_eq!(import(&store, &exported, &SystemClock).await.expect("taken"), Imported::Ended);
    let log = store.read(run, Seq::START).await.expect("read");
    let state = Run::replay(run, log.iter().map(|one| &one.fact));
    assert_eq!(state.outcome(), Some(Outcome::Cancelled));
}

#[tokio::test]
async fn the_commands_of_a_run_stay_those_of_the_log_that_it_was_taken_from() {
    let (run, facts) = open_run(&[]);
    assert_eq!(Run::replay(run, &facts).command_groups().count(), 1);
    let store = MemoryStore::default();
    import(&store, &Exported { run, facts }, &SystemClock).await.expect("taken");
    let log = store.read(run, Seq::START).await.expect("read");
    let state = Run::replay(run, log.iter().map(|one| &one.fact));
    assert_eq!(state.command_groups().count(), 0);
    assert!(log.iter().any(|one| one.fact.event.kind() == "result"), "the call is answered");
}

#[tokio::test]
async fn a_run_that_is_taken_from_a_herder_at_work_did_not_die_there() {
    let (run, mut facts) = open_run(&[]);
    let restart = || Input::Restart { cause: RestartCause::Process, error: None };
    // It has died as often as it may.
    for at in 10..15 {
        let mut state = Run::replay(run, &facts);
        let more = state.decide(restart(), Timestamp::from_micros(at)).expect("facts");
        more.iter().for_each(|fact| state.evolve(fact));
        facts.extend(more);
    }
    let store = MemoryStore::default();
    let exported = Exported { run, facts };
    assert_eq!(import(&store, &exported, &SystemClock).await.expect("taken"), Imported::Held);
}

/// A run that is at work: a command of it runs. Then it is told more.
fn open_run(more: &[Input]) -> (RunId, Vec<Fact>) {
    let (run, mut facts) = facts(false);
    let mut state = Run::replay(run, &facts);
    let call = ProposedCall {
        id: Some("c".into()),
        name: "bash".into(),
        arguments: Arguments::empty(),
        judgement: Judgement::Judged {
            verdict: Verdict::Allow,
            rule: "test".to_owned(),
            effect: EffectClass::Outside,
            access: Vec::new(),
            ask: None,
        },
    };
    let proposal = Proposal { calls: vec![call], ..Proposal::new(Stop::ToolCalls) };
    let group = CommandGroup { call: CallId::new("c"), pid: 4, started: 5, boot: "b".into() };
    let inputs = [
        Input::Start { model: "m".into(), tools: vec!["bash".into()] },
        Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal) },
        Input::Granted { call: CallId::new("c"), change: None },
        Input::Grouped(group),
    ];
    for input in inputs.into_iter().chain(more.iter().cloned()) {
        let new = state.decide(input, Timestamp::from_micros(2)).expect("facts");
        new.iter().for_each(|fact| state.evolve(fact));
        facts.extend(new);
    }
    (run, facts)
}

#[tokio::test]
async fn a_file_that_is_not_whole_is_refused_with_the_line() {
    let whole = String::from_utf8(exported(true).await).expect("text");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let told = |bytes: &[u8]| read(bytes).expect_err("refused").to_string();
    let run = facts(true).0;
    let cut_short = format!("the file ends within run {run}: it was cut short");
    assert_eq!(told(lines[..2].concat().as_bytes()), cut_short);
    assert_eq!(told(&whole.as_bytes()[..lines[0].len() + 9]), "line 2: is no event");
    let within_a_letter = whole.find('é').expect("there") + 1;
    assert_eq!(told(&whole.as_bytes()[..within_a_letter]), "line 2: is no UTF-8");
    assert_eq!(
        told(whole.replace("café", "cafe").as_bytes()),
        "line 5: the run was changed after it was written"
    );
    let gap = [lines[0], lines[1], lines[3], lines[4]].concat();
    assert_eq!(told(gap.as_bytes()), format!("line 3: event 2 of run {run} is due here"));
    let missing = [lines[0], lines[1], lines[4]].concat();
    assert_eq!(told(missing.as_bytes()), "line 3: events are missing");
    assert_eq!(told(b""), "there is no run in it");
    assert_eq!(told(b"notes\n"), "line 1: does not begin a run");
    assert!(read(whole.trim_end().as_bytes()).is_ok());
    for newer in [
        whole.replace("\"herder_export\":1", "\"herder_export\":2"),
        whole.replace("\"kind\":\"run_end\"", "\"kind\":\"tea_break\""),
        whole.replace("\"v\":1", "\"v\":2"),
    ] {
        assert!(matches!(read(newer.as_bytes()), Err(ImportError::Newer { .. })), "{newer}");
    }
}

#[test]
fn what_an_earlier_version_exported_is_read() {
    let runs = read(SAMPLE.as_bytes()).expect("sound");
    let state = Run::replay(runs[0].run, &runs[0].facts);
    assert_eq!((runs.len(), state.outcome()), (1, Some(Outcome::Cancelled)));
}
