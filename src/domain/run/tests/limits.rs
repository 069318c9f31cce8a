//! Limits: each ends the run as `budget` and says which one it was.

use super::*;

/// Plays turns of one read call each, a second apart, until the run ends.
fn outcome(limits: Limits) -> (Outcome, u32) {
    let mut play = Play::limited(limits);
    while play.run.outcome().is_none() {
        let id = format!("c{}", play.run.turn());
        play.asks(&[(&id, "read")]);
        if play.run.outcome().is_none() {
            play.grants(&id);
            play.now += 1_000;
            play.ends(&id);
        }
    }
    assert_eq!(validate(play.run.history()), Ok(()));
    (play.outcome(), play.end().turns)
}

#[test]
fn the_turn_budget_stops_a_provider_that_never_finishes() {
    let limits = Limits { max_turns: Some(3), ..Limits::default() };
    assert_eq!(outcome(limits), (Outcome::Budget(Limit::Turns), 3));
    assert_eq!(outcome(Limits::default()), (Outcome::Budget(Limit::Turns), Limits::DEFAULT_MAX_TURNS));
}

#[test]
fn a_limit_of_no_turns_asks_the_model_nothing() {
    let play = Play::limited(Limits { max_turns: Some(0), ..Limits::default() });
    assert_eq!((play.outcome(), play.run.owed()), (Outcome::Budget(Limit::Turns), Vec::new()));
}

#[test]
fn each_limit_that_is_reached_ends_the_run_by_its_name() {
    // A turn sends 10 tokens, is answered with 5, and takes a second.
    let none = Limits::default();
    let cases = [
        (Limits { max_input_tokens: Some(20), ..none }, Limit::InputTokens, 2),
        (Limits { max_output_tokens: Some(11), ..none }, Limit::OutputTokens, 3),
        (Limits { max_total_tokens: Some(60), ..none }, Limit::TotalTokens, 4),
        (Limits { wall_time_s: Some(5), ..none }, Limit::WallTime, 5),
        (Limits { active_time_s: Some(6), ..none }, Limit::ActiveTime, 6),
        (Limits { max_tool_calls: Some(3), ..none }, Limit::ToolCalls, 4),
    ];
    for (limits, limit, turns) in cases {
        assert_eq!(outcome(limits), (Outcome::Budget(limit), turns), "{limits:?}");
    }
}

#[test]
fn a_batch_that_would_pass_the_limit_of_calls_is_refused_whole() {
    let mut play = Play::limited(Limits { max_tool_calls: Some(3), ..Limits::default() });
    play.asks(&[("a", "read"), ("b", "read")]);
    play.ends("a");
    play.ends("b");
    play.asks(&[("c", "read"), ("d", "read")]);
    assert_eq!(play.outcome(), Outcome::Budget(Limit::ToolCalls));
    let refused = Some(Failure::Denied);
    assert_eq!(play.results(), [("a", None), ("b", None), ("c", refused), ("d", refused)]);
}

#[test]
fn what_was_said_before_a_limit_is_kept() {
    let mut play = Play::limited(Limits { max_turns: Some(2), ..Limits::default() });
    play.replies(proposal("I found it", vec![call("a", "read")], Stop::ToolCalls));
    play.ends("a");
    play.asks(&[("b", "read")]);
    play.ends("b");
    assert_eq!((play.outcome(), &*play.end().text), (Outcome::Budget(Limit::Turns), "I found it"));
}

#[test]
fn an_answer_that_needs_no_further_turn_is_done_whatever_it_used_up() {
    let mut play = Play::limited(Limits { max_total_tokens: Some(1), ..Limits::default() });
    play.says("done");
    assert_eq!(play.outcome(), Outcome::Done);
}

#[test]
fn the_end_of_a_run_sums_up_its_log() {
    let mut play = Play::acting(&[("a", "read"), ("b", "read")]);
    play.ends("a");
    play.ends("b");
    play.says("done");
    let end = play.end();
    assert_eq!((end.turns, end.calls), (2, 2));
    assert_eq!(end.usage, Usage { input: 20, output: 10, ..Usage::default() });
}

#[test]
fn limits_are_changed_while_the_run_goes_on_and_what_is_not_named_stays() {
    let turns = |turns| Input::SetLimits(Limits { max_turns: Some(turns), ..Limits::default() });
    let mut play = Play::limited(Limits { max_turns: Some(1), max_tool_calls: Some(9), ..Limits::default() });
    assert_eq!(play.attempt(turns(1)), Err(Refused::Unchanged));
    play.tell(turns(2));
    let limits = play.run.spec().expect("a spec").limits;
    assert_eq!((limits.max_turns, limits.max_tool_calls), (Some(2), Some(9)));
    play.asks(&[("c1", "read")]);
    play.grants("c1");
    play.ends("c1");
    assert_eq!((play.run.turn(), play.run.outcome()), (2, None), "the first limit would have ended it");
    play.tell(turns(1));
    play.asks(&[("c2", "read")]);
    play.grants("c2");
    play.ends("c2");
    assert_eq!((play.outcome(), play.end().turns), (Outcome::Budget(Limit::Turns), 2));
    assert_eq!(play.attempt(turns(9)), Err(Refused::Ended));
}
