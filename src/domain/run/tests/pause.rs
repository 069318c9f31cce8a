//! Pausing, parking and the end of a single call.

use super::*;

fn park() -> Input {
    Input::Park(ParkReason::Paused)
}

/// A run that was paused in its first turn, and is parked before its second request.
fn parked() -> Play {
    let mut play = Play::acting(&[("a", "bash")]);
    play.tell(Input::Pause);
    play.grants("a");
    play.ends("a");
    play.tell(park());
    play
}

#[test]
fn a_paused_run_ends_its_turn_and_owes_the_next_request_until_it_is_parked() {
    let mut play = Play::acting(&[("a", "bash")]);
    assert_eq!(play.tell(Input::Pause), ["paused"]);
    play.grants("a");
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    assert_eq!(play.run.owed().len(), 1);
    assert_eq!(play.tell(park()), ["parked"]);
    assert_eq!((play.run.owed(), play.run.parked()), (Vec::new(), Some(ParkReason::Paused)));
}

#[test]
fn a_run_that_goes_on_owes_the_request_that_it_was_parked_before() {
    let mut play = parked();
    assert_eq!(play.attempt(Input::Unpark), Err(Refused::Paused));
    assert_eq!(play.tell(Input::Resume), ["resumed"]);
    assert_eq!(play.tell(Input::Unpark), ["unparked"]);
    assert!(matches!(*play.run.owed(), [Effect::AskModel { turn: 2, attempt: 1, .. }]));
    assert_eq!(play.says("done"), ["message", "turn_end", "run_end"]);
}

#[test]
fn pausing_twice_or_resuming_what_is_not_paused_changes_nothing() {
    let mut play = Play::started();
    assert_eq!(play.attempt(Input::Resume), Err(Refused::NotPaused));
    play.tell(Input::Pause);
    assert_eq!(play.attempt(Input::Pause), Err(Refused::Paused));
    play.tell(Input::Resume);
    assert_eq!(play.attempt(Input::Resume), Err(Refused::NotPaused));
}

#[test]
fn a_queued_run_can_be_paused_and_resumed() {
    let mut play = Play::new();
    play.tell(Input::Submit(spec(Limits::default())));
    assert_eq!(play.tell(Input::Pause), ["paused"]);
    assert!(play.run.is_paused());
    assert_eq!(play.attempt(park()), Err(Refused::OutOfTurn), "it has no slot to give up");
    assert_eq!(play.tell(Input::Resume), ["resumed"]);
    assert_eq!(play.tell(start()), ["run_start", "turn_start"]);
}

#[test]
fn no_time_of_a_parked_run_passes() {
    let mut play = Play::started();
    play.now = 1_000;
    play.tell(Input::Pause);
    play.now = 2_000;
    play.tell(park());
    play.now = 3_000;
    play.tell(say(InputKind::FollowUp, "and then"));
    play.now = 50_000;
    play.tell(Input::Resume);
    play.now = 90_000;
    play.tell(Input::Unpark);
    play.now = 91_000;
    let at = Timestamp::from_micros(91_000_000);
    let seconds = Duration::from_secs;
    assert_eq!((play.run.wall(at), play.run.active(at)), (seconds(3), seconds(1)));
}

#[test]
fn no_time_passes_while_herder_is_down_whatever_a_person_says_before_the_run_goes_on() {
    let mut play = Play::started();
    play.now = 1_000;
    play.tell(Input::Pause);
    play.now = 50_000;
    play.tell(Input::Resume);
    play.now = 60_000;
    play.restarts();
    let at = Timestamp::from_micros(60_000_000);
    assert_eq!((play.run.wall(at), play.run.active(at)), (Duration::ZERO, Duration::ZERO));
}

#[test]
fn a_wait_before_a_retry_is_not_counted_whether_the_run_is_parked_in_it_or_not() {
    let mut play = Play::started();
    play.fails(FaultClass::Overloaded, Some(Duration::from_secs(30)));
    play.tell(Input::Pause);
    play.tell(park());
    play.now = 10_000;
    play.tell(Input::Resume);
    play.tell(Input::Unpark);
    let at = Timestamp::from_micros(31_000_000);
    assert_eq!(play.run.active(at), Duration::from_secs(1));
    assert_eq!(
        play.run.owed(),
        [Effect::AskModel { turn: 1, attempt: 2, not_before: Timestamp::from_micros(30_000_000) }]
    );
}

#[test]
fn a_parked_run_that_is_cancelled_ends_at_once() {
    let mut play = parked();
    assert_eq!(play.tell(Input::End(Outcome::Cancelled)), ["cancel_requested", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Cancelled);
    assert!(!play.run.is_paused() && play.run.parked().is_none());
}

#[test]
fn what_is_said_to_a_parked_run_goes_along_with_its_next_request() {
    let mut play = parked();
    play.tell(say(InputKind::Steer, "faster"));
    play.tell(say(InputKind::Steer, "now"));
    play.tell(Input::Resume);
    assert_eq!(play.tell(Input::Unpark), ["unparked", "input_claimed"]);
    assert_eq!(play.transcript(), ["user: task", "model: a", "tool a: did a", "user: faster"]);
}

#[test]
fn a_request_that_takes_an_input_along_takes_no_other() {
    let mut play = Play::acting(&[("a", "read")]);
    play.tell(say(InputKind::Steer, "faster"));
    play.tell(say(InputKind::Steer, "now"));
    play.grants("a");
    assert_eq!(play.ends("a"), ["result", "turn_end", "input_claimed", "turn_start"]);
    play.tell(park());
    assert_eq!(play.tell(Input::Unpark), ["unparked"]);
}

#[test]
fn an_answer_to_a_request_from_before_the_run_was_parked_comes_too_late() {
    let mut play = Play::started();
    let reply = play.reply(proposal("done", Vec::new(), Stop::EndTurn));
    play.tell(park());
    assert_eq!(play.attempt(reply), Err(Refused::StaleRequest));
}

#[test]
fn a_restart_of_a_parked_run_leaves_it_parked() {
    let mut play = parked();
    assert_eq!(play.restarts(), ["restart"]);
    assert_eq!((play.run.owed(), play.run.parked().is_some()), (Vec::new(), true));
    play.now = 5_000;
    assert_eq!(play.run.active(Timestamp::from_micros(5_000_000)), Duration::ZERO);
}

#[test]
fn a_call_that_waits_is_cancelled_alone() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash")]);
    play.grants("a");
    assert_eq!(play.tell(Input::CancelCall(CallId::new("b"))), ["result"]);
    assert_eq!(play.attempt(granted("b", None)), Err(Refused::UnknownCall));
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    assert_eq!(play.results(), [("b", Some(Failure::AbortedBeforeStart)), ("a", None)]);
}

#[test]
fn a_turn_whose_last_call_is_cancelled_is_over() {
    let mut play = Play::acting(&[("a", "bash")]);
    let kinds = play.tell(Input::CancelCall(CallId::new("a")));
    assert_eq!(kinds, ["result", "turn_end", "turn_start"]);
}

#[test]
fn a_call_that_has_started_is_answered_or_is_unknown_is_not_cancelled_here() {
    let mut play = Play::acting(&[("a", "bash"), ("b", "bash")]);
    let cancel = |play: &mut Play, id| play.attempt(Input::CancelCall(CallId::new(id)));
    play.grants("a");
    assert_eq!(cancel(&mut play, "a"), Err(Refused::CallStarted));
    play.ends("a");
    assert_eq!(cancel(&mut play, "a"), Err(Refused::UnknownCall));
    assert_eq!(cancel(&mut play, "nobody"), Err(Refused::UnknownCall));
}

#[test]
fn a_run_whose_account_was_seen_to_asks_at_once_and_one_that_waits_for_a_time_does_not() {
    for (reason, due_s) in [(ParkReason::Quota, 60), (ParkReason::Auth, 60), (ParkReason::RateLimit, 3_600)] {
        let mut play = Play::started();
        let started = play.now;
        let mut failure = play.failure(FaultClass::Quota, Some(Duration::from_secs(3_600)), None);
        if let Input::ModelFailed { parks, .. } = &mut failure {
            *parks = Some(reason);
        }
        play.tell(failure);
        play.tell(Input::Park(reason));
        play.now = started + 60_000;
        play.tell(Input::Unpark);
        let due = Timestamp::from_micros(started * 1_000).after(Duration::from_secs(due_s));
        assert_eq!(play.run.not_before(), Some(due), "{reason:?}");
    }
}
