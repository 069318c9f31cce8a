//! What fails: calls again and again, requests that are too long, models that are given up.

use serde_json::json;

use super::*;

/// The model asks for a read with these arguments, which fails; says whether it was run.
fn fails_to_read(play: &mut Play, arguments: &str) -> bool {
    let id = format!("c{}", play.run.turn());
    let call = ProposedCall { arguments: Arguments::parse(arguments).unwrap(), ..call(&id, "read") };
    play.replies(proposal("", vec![call], Stop::ToolCalls));
    let runs = matches!(play.run.phase(), Phase::Acting(_));
    if runs {
        play.grants(&id);
        fails(play, &id);
    }
    runs
}

fn fails(play: &mut Play, id: &str) -> Vec<&'static str> {
    let output = "no such file".into();
    play.tell(Input::CallEnded(ToolResult {
        ok: false,
        failure: Some(Failure::Failed),
        output,
        ..result(id)
    }))
}

fn does(play: &mut Play, tool: &str) {
    let id = format!("{tool}{}", play.run.turn());
    play.asks(&[(&id, tool)]);
    play.grants(&id);
    play.ends(&id);
}

#[test]
fn a_call_that_failed_three_times_is_refused_and_told_why_until_the_turns_are_used_up() {
    let mut play = Play::limited(Limits { max_turns: Some(6), ..Limits::default() });
    let spellings = [r#"{"path":"a","n":1}"#, r#"{"n": 1, "path": "a"}"#, r#"{ "path": "a", "n": 1 }"#];
    let ran: Vec<_> = (0..6).map(|turn| fails_to_read(&mut play, spellings[turn % 3])).collect();
    assert_eq!(ran, [true, true, true, false, false, false]);
    assert_eq!(play.outcome(), Outcome::Budget(Limit::Turns));
    assert_eq!(play.results()[3..], ["c4", "c5", "c6"].map(|call| (call, Some(Failure::Repeated))));
    let told = play.transcript().pop().unwrap();
    let expected = "not executed: this call has failed 3 times in a row and would fail again. Do something else. What it \
                    was told last: no such file";
    assert_eq!(told, format!("tool c6: {expected}"));
}

#[test]
fn another_call_or_a_change_in_between_lets_it_run() {
    let mut play = Play::limited(Limits { max_repeats: Some(1), ..Limits::default() });
    assert!(fails_to_read(&mut play, r#"{"path":"a"}"#));
    assert!(fails_to_read(&mut play, r#"{"path":"b"}"#), "other arguments are another call");
    assert!(!fails_to_read(&mut play, r#"{"path":"a"}"#));
    does(&mut play, "read");
    assert!(!fails_to_read(&mut play, r#"{"path":"a"}"#), "a read changes nothing");
    does(&mut play, "edit");
    assert!(fails_to_read(&mut play, r#"{"path":"a"}"#));
    does(&mut play, "bash");
    assert!(fails_to_read(&mut play, r#"{"path":"a"}"#));
}

#[test]
fn a_call_that_succeeds_may_be_made_for_ever_and_a_success_forgives() {
    let mut play = Play::limited(Limits { max_repeats: Some(2), max_turns: Some(100), ..Limits::default() });
    for _ in 0..20 {
        does(&mut play, "read");
    }
    assert!(fails_to_read(&mut play, "{}"));
    does(&mut play, "read");
    assert!(fails_to_read(&mut play, "{}"));
    assert!(fails_to_read(&mut play, "{}"));
    assert!(!fails_to_read(&mut play, "{}"));
}

#[test]
fn what_was_kept_from_running_has_not_failed() {
    let mut play = Play::limited(Limits { max_repeats: Some(1), ..Limits::default() });
    for turn in 0..3 {
        let id = format!("a{turn}");
        play.asks(&[(&id, "read")]);
        play.tell(Input::CancelCall(CallId::new(id)));
    }
    assert!(fails_to_read(&mut play, "{}"));
}

#[test]
fn repeats_are_remembered_over_a_restart() {
    let mut play = Play::limited(Limits { max_repeats: Some(1), ..Limits::default() });
    fails_to_read(&mut play, "{}");
    play.run = Run::replay(run_id(), &play.log);
    play.restarts();
    assert!(!fails_to_read(&mut play, "{}"));
}

#[test]
fn of_one_answer_only_so_many_calls_are_run_and_the_others_are_told() {
    let mut play = Play::limited(Limits { max_calls_per_turn: Some(2), ..Limits::default() });
    let kinds = play.asks(&[("a", "read"), ("b", "read"), ("c", "read"), ("d", "read")]);
    assert_eq!(kinds, ["message", "decision", "decision", "result", "result"]);
    for id in ["b", "a"] {
        play.grants(id);
        play.ends(id);
    }
    let over = "not executed: over the limit of 2 calls in one answer; ask again for it in a later one";
    let told = [
        "user: task".to_owned(),
        "model: a b c d".to_owned(),
        "tool a: did a".to_owned(),
        "tool b: did b".to_owned(),
        format!("tool c: {over}"),
        format!("tool d: {over}"),
    ];
    assert_eq!(play.transcript(), told);
    assert_eq!(play.run.turn(), 2);
}

#[test]
fn ten_thousand_calls_of_one_answer_that_share_an_id_are_all_run() {
    const CALLS: usize = 10_000;
    let mut play = Play::limited(Limits { max_calls_per_turn: Some(20_000), ..Limits::default() });
    play.replies(proposal("", vec![call("same", "read"); CALLS], Stop::ToolCalls));
    let owed = play.run.owed();
    assert_eq!(owed.len(), CALLS);
    for effect in owed {
        let EffectId::Call(id) = effect.id() else { panic!("a request is owed") };
        play.grants(id.as_str());
        play.ends(id.as_str());
    }
    assert_eq!((play.run.turn(), play.run.answered()), (2, 10_000));
}

#[test]
fn a_task_may_stop_at_the_first_call_that_fails_once_its_batch_is_answered() {
    let mut play = Play::tasked(&json!({"stop_on_tool_error": true}));
    play.asks(&[("a", "bash"), ("b", "read")]);
    play.grants("a");
    play.grants("b");
    assert_eq!(fails(&mut play, "a"), ["result"]);
    assert_eq!(play.ends("b"), ["result", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Blocked(Block::ToolError));
    assert_eq!(play.end().error.as_deref(), Some("call a failed: no such file"));

    let mut denied = Play::tasked(&json!({"stop_on_tool_error": true}));
    denied.replies(proposal("", vec![judged("a", "bash", Verdict::Deny)], Stop::ToolCalls));
    assert_eq!(denied.outcome(), Outcome::Blocked(Block::ToolError));
}

/// A run whose model was shown some calls with outputs of a thousand bytes each.
fn long() -> Play {
    let mut play = Play::started();
    for turn in 0..4 {
        let id = format!("a{turn}");
        play.asks(&[(&id, "read")]);
        play.grants(&id);
        play.tell(Input::CallEnded(ToolResult { output: "o".repeat(1_000).into(), ..result(&id) }));
    }
    play
}

#[test]
fn a_conversation_that_is_too_long_is_sent_once_more_with_at_most_half_of_it() {
    let mut play = long();
    let full = play.run.projection(None);
    assert_eq!(play.fails(FaultClass::ContextOverflow, None), ["model_retry"]);
    let half = play.run.projection(None);
    assert!(half.bytes <= full.bytes / 2, "{} of {}", half.bytes, full.bytes);
    assert_eq!((half.included, validate(&half.messages)), (full.included, Ok(())));
    assert_eq!(play.run.phase(), &Phase::Thinking { attempt: 2, tries: 0, not_before: play.run.last_at });
    assert_eq!(Run::replay(run_id(), &play.log).projection(None), half);

    assert_eq!(play.fails(FaultClass::ContextOverflow, None), ["turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::ProviderError(FaultClass::ContextOverflow));
}

#[test]
fn a_later_turn_may_halve_again_and_what_fits_stays_small() {
    let mut play = long();
    play.fails(FaultClass::ContextOverflow, None);
    let half = play.run.projection(None).bytes;
    does(&mut play, "read");
    assert!(play.run.projection(None).bytes <= half + 100);
    assert_eq!(play.fails(FaultClass::ContextOverflow, None), ["model_retry"]);
    assert!(play.run.projection(None).bytes <= half);
}

#[test]
fn a_conversation_of_which_nothing_can_be_left_out_is_not_sent_again() {
    let mut play = Play::started();
    assert_eq!(play.fails(FaultClass::ContextOverflow, None), ["turn_end", "run_end"]);
}

/// The request was too long, with so much room for its answer.
fn overflows(play: &mut Play, allowed: u32, fits: bool) -> Vec<&'static str> {
    let mut failure = play.failure(FaultClass::ContextOverflow, None, None);
    if let Input::ModelFailed { allowed: told, fits: within, .. } = &mut failure {
        (*told, *within) = (Some(allowed), fits);
    }
    play.tell(failure)
}

#[test]
fn an_answer_gets_less_room_before_a_conversation_that_fits_is_shortened() {
    let mut play = long();
    let full = play.run.projection(None);
    assert_eq!(overflows(&mut play, 8_192, true), ["model_retry"]);
    assert_eq!((play.run.answer_at_most(), play.run.projection(None)), (Some(2_048), full.clone()));
    assert_eq!(overflows(&mut play, 2_048, true), ["model_retry"]);
    assert_eq!((play.run.answer_at_most(), play.run.projection(None)), (Some(1_024), full.clone()));
    assert_eq!(Run::replay(run_id(), &play.log), play.run);
    assert_eq!(overflows(&mut play, 1_024, true), ["model_retry"]);
    assert_eq!(play.run.answer_at_most(), None, "beside half of it there is room again");
    assert!(play.run.projection(None).bytes <= full.bytes / 2);
    assert_eq!(overflows(&mut play, 1_024, true), ["turn_end", "run_end"]);
}

#[test]
fn a_conversation_that_does_not_fit_is_shortened_first_and_then_its_answer() {
    let mut play = long();
    assert_eq!(overflows(&mut play, 8_192, false), ["model_retry"]);
    assert_eq!(play.run.answer_at_most(), None);
    assert_eq!(overflows(&mut play, 8_192, false), ["model_retry"]);
    assert_eq!(play.run.answer_at_most(), Some(2_048));
    let mut nothing_to_leave_out = Play::started();
    assert_eq!(overflows(&mut nothing_to_leave_out, 4_096, false), ["model_retry"]);
    assert_eq!(overflows(&mut nothing_to_leave_out, 1_024, false), ["turn_end", "run_end"]);
}

#[test]
fn another_model_goes_on_where_one_is_given_up() {
    for class in [FaultClass::Auth, FaultClass::Quota] {
        let mut play = Play::started();
        assert_eq!(play.fails_beside(class, "second"), ["model_switched"]);
        assert_eq!(play.run.model().map(|name| &**name), Some("second"));
        assert_eq!(play.run.phase(), &Phase::Thinking { attempt: 2, tries: 0, not_before: play.run.last_at });
        assert_eq!(Run::replay(run_id(), &play.log), play.run);
        assert_eq!(play.says("done"), ["message", "turn_end", "run_end"]);
    }
}

#[test]
fn a_fault_that_may_pass_is_waited_out_before_another_model_is_asked() {
    let mut play = Play::started();
    for _ in 1..crate::domain::retry::TRIES {
        assert_eq!(play.fails_beside(FaultClass::Overloaded, "second"), ["model_retry"]);
    }
    assert_eq!(play.fails_beside(FaultClass::Overloaded, "second"), ["model_switched"]);
    for _ in 1..crate::domain::retry::TRIES {
        assert_eq!(play.fails_beside(FaultClass::Stall, "third"), ["model_retry"]);
    }
    assert_eq!(play.fails_beside(FaultClass::Stall, "third"), ["model_switched"]);
    let models: Vec<_> = play.run.models().iter().map(|name| &**name).collect();
    assert_eq!(models, ["scripted:m", "second", "third"]);
}

#[test]
fn what_no_model_would_take_is_not_asked_of_another() {
    let mut play = Play::started();
    assert_eq!(play.fails_beside(FaultClass::Invalid, "second"), ["turn_end", "run_end"]);
}

#[test]
fn a_model_with_more_room_is_shown_everything_again() {
    let mut play = long();
    let full = play.run.projection(None);
    assert_eq!(play.fails_beside(FaultClass::ContextOverflow, "second"), ["model_retry"]);
    assert_eq!(play.fails_beside(FaultClass::ContextOverflow, "second"), ["model_switched"]);
    assert_eq!(play.run.projection(None), full);
}
