//! Ends from outside: whatever a run is doing, it ends once, and its transcript is one that a provider accepts.

use super::*;

/// A run in every phase that can be ended, by name.
fn everywhere() -> Vec<(&'static str, Play)> {
    let mut queued = Play::new();
    queued.tell(Input::Submit(spec(Limits::default())));
    let mut retrying = Play::started();
    retrying.fails(FaultClass::Overloaded, None);
    let waiting = Play::acting(&[("a", "read"), ("b", "bash")]);
    let mut started = Play::acting(&[("a", "read"), ("b", "bash")]);
    started.grants("b");
    let mut half = Play::acting(&[("a", "read"), ("b", "bash")]);
    half.grants("a");
    half.grants("b");
    half.ends("b");
    let mut doubtful = Play::acting(&[("a", "edit"), ("b", "bash")]);
    doubtful.tell(granted("a", Some(change())));
    doubtful.restarts();
    let mut interrupted = Play::acting(&[("a", "read")]);
    interrupted.grants("a");
    interrupted.tell(Input::Interrupt);
    vec![
        ("queued", queued),
        ("thinking", Play::started()),
        ("retrying", retrying),
        ("waiting", waiting),
        ("started", started),
        ("half answered", half),
        ("in doubt", doubtful),
        ("interrupted", interrupted),
    ]
}

fn assert_ended_once(phase: &str, play: &mut Play) {
    let ends = play.log.iter().filter(|fact| fact.event.kind() == "run_end").count();
    assert_eq!(ends, 1, "{phase}");
    assert_eq!(validate(play.run.history()), Ok(()), "{phase}");
    assert_eq!(play.run.owed(), [], "{phase}");
    assert_eq!(play.attempt(Input::End(Outcome::Cancelled)), Err(Refused::Ended), "{phase}");
}

#[test]
fn a_cancel_in_any_phase_gives_exactly_one_end() {
    for (phase, mut play) in everywhere() {
        play.tell(Input::End(Outcome::Cancelled));
        // What had started is waited for; an ended run owes nothing.
        for effect in play.run.owed() {
            let Effect::RunCall { call, .. } = effect else { panic!("{phase}: a request is owed") };
            let failure = Some(Failure::Cancelled);
            play.tell(Input::CallEnded(ToolResult { ok: false, failure, ..result(call.id.as_str()) }));
        }
        assert_eq!(play.outcome(), Outcome::Cancelled, "{phase}");
        assert_ended_once(phase, &mut play);
    }
}

#[test]
fn giving_up_in_any_phase_ends_the_run_at_once() {
    for (phase, mut play) in everywhere() {
        play.tell(Input::GiveUp { breakage: Breakage::Panic, error: "index out of bounds".to_owned() });
        assert_eq!(play.outcome(), Outcome::Failed(Breakage::Panic), "{phase}");
        assert_eq!(play.end().error.as_deref(), Some("index out of bounds"), "{phase}");
        assert_ended_once(phase, &mut play);
    }
}

#[test]
fn an_abort_during_a_tool_ends_the_run_at_that_turn() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash")]);
    play.grants("a");
    assert_eq!(play.tell(Input::End(Outcome::Cancelled)), ["cancel_requested", "result"]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "run_end"]);
    assert_eq!((play.outcome(), play.end().turns), (Outcome::Cancelled, 1));
    assert_eq!(play.results(), [("b", Some(Failure::AbortedBeforeStart)), ("a", None)]);
    assert_eq!(play.transcript()[2..], ["tool a: did a", "tool b: aborted before start: the run was ended"]);
}

#[test]
fn nothing_starts_once_the_end_was_asked_for() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash")]);
    play.grants("a");
    play.tell(Input::End(Outcome::Cancelled));
    assert_eq!(play.attempt(granted("b", None)), Err(Refused::Ending));
    assert_eq!(play.attempt(Input::End(Outcome::Budget(Limit::WallTime))), Err(Refused::Ending));
    assert_eq!(play.run.owed().len(), 1);
}

#[test]
fn the_reason_for_an_end_from_outside_is_its_outcome() {
    for outcome in
        [Outcome::Budget(Limit::WallTime), Outcome::Budget(Limit::Cost), Outcome::Blocked(Block::Approval)]
    {
        let mut play = Play::acting(&[("a", "bash")]);
        play.grants("a");
        play.tell(Input::End(outcome));
        play.ends("a");
        assert_eq!(play.outcome(), outcome);
    }
}

#[test]
fn a_call_that_never_stops_is_given_up_with_its_outcome_unknown() {
    let mut play = Play::acting(&[("a", "bash")]);
    play.grants("a");
    play.tell(Input::End(Outcome::Cancelled));
    play.tell(Input::GiveUp { breakage: Breakage::Stuck, error: "did not end".to_owned() });
    assert_eq!(play.outcome(), Outcome::Failed(Breakage::Stuck));
    assert_eq!(play.results(), [("a", Some(Failure::OutcomeUnknown))]);
}

#[test]
fn an_interrupted_run_has_not_ended_and_takes_what_still_comes() {
    let mut play = Play::acting(&[("a", "bash")]);
    play.grants("a");
    assert_eq!(play.tell(Input::Interrupt), ["interrupted"]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    play.says("done");
    assert_eq!(play.outcome(), Outcome::Done);
}
