//! Going on from the log: what is asked again, what is looked at, and what is never repeated.

use super::*;
use crate::domain::usage::NanoUsd;

#[test]
fn a_request_without_an_answer_is_sent_again() {
    let mut play = Play::started();
    play.fails(FaultClass::Overloaded, Some(Duration::from_secs(3)));
    let owed = play.run.owed();
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!(play.run.owed(), owed);
    play.says("done");
    assert_eq!((play.outcome(), play.end().turns), (Outcome::Done, 1));
}

#[test]
fn a_run_that_waited_for_its_slot_waits_on() {
    let mut play = Play::new();
    play.tell(Input::Submit(spec(Limits::default())));
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!((play.run.owed(), play.tell(start())), (Vec::new(), vec!["run_start", "turn_start"]));
}

#[test]
fn a_call_that_never_started_runs_as_it_was_judged() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "edit")]);
    let owed = play.run.owed();
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!(play.run.owed(), owed);
}

#[test]
fn a_read_that_had_started_runs_again() {
    let mut play = Play::acting(&[("a", "read")]);
    play.grants("a");
    assert_eq!(play.restarts(), ["restart"]);
    assert!(matches!(play.run.owed().as_slice(), [Effect::RunCall { doubt: None, .. }]));
    assert_eq!(play.grants("a"), ["call_started"]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
}

#[test]
fn a_change_that_had_started_is_owed_with_what_it_would_have_changed() {
    let mut play = Play::acting(&[("a", "edit")]);
    play.tell(granted("a", Some(change())));
    assert_eq!(play.restarts(), ["restart"]);
    let doubts = |play: &Play| {
        let doubt = |effect| match effect {
            Effect::RunCall { doubt, .. } => doubt,
            Effect::AskModel { .. } => None,
        };
        play.run.owed().into_iter().map(doubt).collect::<Vec<_>>()
    };
    assert_eq!(doubts(&play), [Some(change())]);

    // A second death before anybody looked leaves the doubt as it was.
    play.restarts();
    assert_eq!(doubts(&play), [Some(change())]);

    // It was not made after all: it starts again, and may be in doubt again.
    play.tell(granted("a", Some(change())));
    assert_eq!(doubts(&play), [None]);
    play.restarts();
    assert_eq!(doubts(&play), [Some(change())]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
}

#[test]
fn a_call_in_doubt_waits_for_its_lock_like_any_other() {
    let mut play = Play::acting(&[("a", "edit")]);
    play.tell(granted("a", Some(change())));
    assert_eq!(play.run.waiting_calls().count(), 0);
    play.restarts();
    assert_eq!(play.run.waiting_calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn what_cannot_be_checked_is_never_repeated() {
    for tool in ["bash", "edit"] {
        let mut play = Play::acting(&[("a", tool)]);
        play.grants("a");
        assert_eq!(play.restarts(), ["restart", "result", "turn_end", "turn_start"], "{tool}");
        assert_eq!(play.results(), [("a", Some(Failure::OutcomeUnknown))]);
        assert!(play.transcript()[2].starts_with("tool a: outcome unknown: interrupted"));
        assert_eq!(play.attempt(granted("a", None)), Err(Refused::UnknownCall));
    }
}

#[test]
fn a_batch_goes_on_with_the_calls_that_can() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash"), ("c", "bash"), ("d", "read")]);
    for id in ["a", "b", "d"] {
        play.grants(id);
    }
    play.ends("a");
    assert_eq!(play.restarts(), ["restart", "result"]);
    let owed: Vec<_> = play.run.owed().iter().map(Effect::id).collect();
    assert_eq!(owed, ["c", "d"].map(|id| EffectId::Call(CallId::new(id))));
    play.ends("d");
    play.ends("c");
    let unknown = Some(Failure::OutcomeUnknown);
    assert_eq!(play.results(), [("a", None), ("b", unknown), ("d", None), ("c", None)]);
    assert_eq!(play.transcript().len(), 6);
}

#[test]
fn a_run_that_was_being_ended_ends() {
    for (tool, change) in [("bash", None), ("edit", Some(change())), ("read", None)] {
        let mut play = Play::acting(&[("a", tool), ("b", "bash")]);
        play.tell(granted("a", change));
        play.tell(Input::End(Outcome::Cancelled));
        assert_eq!(play.restarts(), ["restart", "result", "turn_end", "run_end"]);
        assert_eq!(play.outcome(), Outcome::Cancelled);
        assert_eq!(
            play.results(),
            [("b", Some(Failure::AbortedBeforeStart)), ("a", Some(Failure::OutcomeUnknown))]
        );
        assert_eq!(validate(play.run.history()), Ok(()));
    }
}

#[test]
fn a_batch_whose_results_all_asked_for_the_end_ends_also_across_a_restart() {
    let mut play = Play::acting(&[("a", "read"), ("b", "read")]);
    play.tell(Input::CallEnded(ToolResult { terminate: true, ..result("a") }));
    play.restarts();
    play.tell(Input::CallEnded(ToolResult { terminate: true, ..result("b") }));
    assert_eq!(play.outcome(), Outcome::Done);
}

#[test]
fn what_was_said_and_not_yet_heard_is_heard_after_a_restart() {
    let mut play = Play::acting(&[("a", "bash")]);
    play.grants("a");
    play.tell(say(InputKind::Steer, "careful"));
    assert_eq!(play.restarts(), ["restart", "result", "turn_end", "input_claimed", "turn_start"]);
}

#[test]
fn only_restarts_without_progress_are_counted() {
    let mut play = Play::started();
    play.restarts();
    play.restarts();
    assert_eq!(play.run.idle_restarts().len(), 2);
    play.asks(&[("a", "read")]);
    assert_eq!(play.run.idle_restarts(), []);
    play.restarts();
    assert_eq!(play.run.idle_restarts().len(), 1);
}

#[test]
fn an_ended_run_is_not_restarted() {
    let mut play = Play::started();
    play.says("done");
    assert_eq!(
        play.attempt(Input::Restart { cause: RestartCause::Process, error: None }),
        Err(Refused::Ended)
    );
}

#[test]
fn a_change_that_turned_out_not_to_be_made_is_no_longer_in_doubt() {
    let mut play = Play::acting(&[("a", "edit"), ("b", "edit")]);
    play.tell(granted("a", Some(change())));
    assert_eq!(play.attempt(Input::NotMade(CallId::new("a"))), Err(Refused::UnknownCall));
    play.restarts();
    assert_eq!(play.run.in_doubt().collect::<Vec<_>>(), [(&CallId::new("a"), &change())]);
    assert_eq!(play.attempt(Input::NotMade(CallId::new("b"))), Err(Refused::UnknownCall));
    assert_eq!(play.tell(Input::NotMade(CallId::new("a"))), ["decision"]);
    for _ in 0..2 {
        assert_eq!(play.run.in_doubt().count(), 0);
        assert!(play.run.owed().iter().all(|effect| matches!(effect, Effect::RunCall { doubt: None, .. })));
        play.restarts();
    }
    assert_eq!(play.grants("a"), ["call_started"]);
}

#[test]
fn a_run_that_herder_dies_of_each_time_is_given_up() {
    let mut play = Play::acting(&[("a", "bash")]);
    for _ in 1..5 {
        assert_eq!(play.restarts(), ["restart"]);
    }
    // A stop that somebody asked for is no death.
    play.tell(Input::Interrupt);
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!(play.restarts(), ["restart", "result", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Failed(Breakage::RestartLimit));
}

#[test]
fn a_turn_that_ended_shows_that_a_run_is_not_what_herder_dies_of() {
    let mut play = Play::started();
    for id in ["a", "b", "c"] {
        play.asks(&[(id, "read")]);
        for _ in 1..5 {
            assert_eq!(play.restarts(), ["restart"]);
        }
        play.grants(id);
        assert_eq!(play.ends(id), ["result", "turn_end", "turn_start"]);
    }
}

fn sends(play: &mut Play) -> Usage {
    let Phase::Thinking { attempt, .. } = play.run.phase else { panic!("no request is open") };
    let cost = Some(NanoUsd::new(7));
    let usage = Usage { input: 100, output: 50, cost, estimated: true, ..Usage::default() };
    let turn = play.run.turn;
    assert_eq!(play.tell(Input::RequestSent { turn, attempt, usage }), ["request_sent"]);
    usage
}

#[test]
fn only_a_request_that_went_out_is_charged_when_its_process_is_gone_and_once() {
    let restart = |cause| Input::Restart { cause, error: None };
    let mut play = Play::started();
    assert_eq!(play.tell(restart(RestartCause::Process)), ["restart"]);
    assert_eq!(play.run.usage_at_most(), Usage::default());
    let usage = sends(&mut play);
    assert_eq!((play.run.usage(), play.run.usage_at_most()), (Usage::default(), usage));
    assert_eq!(play.tell(restart(RestartCause::Process)), ["request_lost", "restart"]);
    assert_eq!((play.run.usage(), play.run.usage_at_most()), (usage, usage));
    assert_eq!(play.tell(restart(RestartCause::Actor)), ["restart"]);
    assert_eq!(play.run.idle_restarts().len(), 3, "a request that nothing came of is no progress");
    assert_eq!(play.tell(Input::End(Outcome::Cancelled)), ["cancel_requested", "turn_end", "run_end"]);
    assert_eq!(play.run.usage(), usage);
}

#[test]
fn a_request_that_is_out_is_charged_however_its_run_stops_and_not_beside_what_it_came_to() {
    let endings: [(Input, &[&str]); 3] = [
        (Input::End(Outcome::Cancelled), &["request_lost", "cancel_requested", "turn_end", "run_end"]),
        (Input::Interrupt, &["request_lost", "interrupted"]),
        (
            Input::GiveUp { breakage: Breakage::Stuck, error: "stuck".to_owned() },
            &["request_lost", "turn_end", "run_end"],
        ),
    ];
    for (input, kinds) in endings {
        let mut play = Play::started();
        let usage = sends(&mut play);
        assert_eq!(play.tell(input), kinds);
        assert_eq!(play.run.usage(), usage);
        if let Event::RunEnd(end) = &play.log.last().expect("an end").event {
            assert_eq!(end.usage, usage);
        }
    }
    let mut play = Play::started();
    sends(&mut play);
    assert_eq!(play.fails(FaultClass::Overloaded, None), ["model_retry"]);
    assert_eq!(play.run.usage_at_most(), Usage::default());
    assert_eq!(play.tell(Input::Interrupt), ["interrupted"]);
}
