//! The loop: when a run asks again, and when it is done.

use super::*;

#[test]
fn a_reply_with_no_calls_ends_the_run() {
    let mut play = Play::started();
    assert_eq!(play.says("the answer"), ["message", "turn_end", "run_end"]);
    assert_eq!((play.outcome(), &*play.end().text), (Outcome::Done, "the answer"));
    assert_eq!(play.run.owed(), []);
}

#[test]
fn a_run_goes_on_as_long_as_the_model_asks_for_tools() {
    let mut play = Play::new();
    assert_eq!(play.tell(Input::Submit(spec(Limits::default()))), ["submitted"]);
    assert_eq!(play.tell(start()), ["run_start", "turn_start"]);
    assert_eq!(play.asks(&[("a", "read")]), ["message", "decision"]);
    assert_eq!(play.grants("a"), ["call_started"]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    assert_eq!(play.says("done"), ["message", "turn_end", "run_end"]);
    assert_eq!(play.transcript(), ["user: task", "model: a", "tool a: did a", "model: done"]);
    let turns: Vec<_> = play.log.iter().map(|fact| fact.turn).collect();
    assert_eq!(turns, [0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn with_no_tools_every_call_is_refused_and_the_loop_still_ends() {
    let mut play = Play::limited(Limits { max_turns: Some(3), ..Limits::default() });
    for turn in 1..=3 {
        assert_eq!(play.run.turn(), turn);
        let id = format!("c{turn}");
        play.replies(proposal("", vec![refused(&id, Failure::UnknownTool, "no such tool")], Stop::ToolCalls));
    }
    assert_eq!(play.outcome(), Outcome::Budget(Limit::Turns));
    let refusal = Some(Failure::UnknownTool);
    assert_eq!(play.results(), [("c1", refusal), ("c2", refusal), ("c3", refusal)]);
}

#[test]
fn the_assistant_message_is_of_record_before_any_tool_runs() {
    let play = Play::acting(&[("a", "bash")]);
    let kinds: Vec<_> = play.log.iter().map(|fact| fact.event.kind()).collect();
    assert_eq!(kinds, ["submitted", "run_start", "turn_start", "message", "decision"]);
    assert!(matches!(play.run.owed().as_slice(), [Effect::RunCall { doubt: None, .. }]));
}

#[test]
fn a_truncated_reply_executes_nothing() {
    let mut play = Play::started();
    let calls = vec![call("a", "read"), call("b", "bash")];
    let kinds = play.replies(proposal("half", calls, Stop::Length));
    assert_eq!(kinds, ["message", "result", "result", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Blocked(Block::Truncated));
    assert_eq!(play.results(), [("a", Some(Failure::Truncated)), ("b", Some(Failure::Truncated))]);
    assert_eq!(validate(play.run.history()), Ok(()));
}

#[test]
fn an_answer_cut_short_is_not_done_and_its_text_is_kept() {
    let mut play = Play::started();
    play.replies(proposal("half an ans", Vec::new(), Stop::Length));
    assert_eq!((play.outcome(), &*play.end().text), (Outcome::Blocked(Block::Truncated), "half an ans"));
}

#[test]
fn a_refusal_executes_nothing() {
    let mut play = Play::started();
    play.replies(proposal("I won't", vec![call("a", "bash")], Stop::Refusal));
    assert_eq!(play.outcome(), Outcome::Blocked(Block::Refusal));
    assert_eq!(play.results(), [("a", Some(Failure::Denied))]);
}

#[test]
fn the_outcome_is_the_harness_s() {
    // A provider that says "tool calls" without a call, or "end of turn" with one, decides nothing by it.
    let mut silent = Play::started();
    silent.replies(proposal("bye", Vec::new(), Stop::ToolCalls));
    assert_eq!(silent.outcome(), Outcome::Done);

    let mut busy = Play::started();
    busy.replies(proposal("bye", vec![call("a", "read")], Stop::EndTurn));
    assert_eq!((busy.run.outcome(), busy.run.owed().len()), (None, 1));
}

#[test]
fn an_answer_of_nothing_is_a_fault_and_not_success() {
    for stop in [Stop::EndTurn, Stop::ToolCalls] {
        let mut play = Play::started();
        let nothing = Proposal { usage: None, ..proposal(" \n", Vec::new(), stop) };
        assert_eq!(play.replies(nothing), ["model_retry"]);
    }
    let mut play = Play::started();
    assert_eq!(play.replies(proposal("half", Vec::new(), Stop::Error)), ["model_retry"]);
    assert_eq!(play.transcript(), ["user: task"]);
}

#[test]
fn usage_that_the_provider_did_not_say_is_estimated_and_marked() {
    let mut play = Play::started();
    play.replies(Proposal { usage: None, ..proposal("12345678", Vec::new(), Stop::EndTurn) });
    assert_eq!(play.end().usage, Usage { input: 1, output: 2, estimated: true, ..Usage::default() });
}

#[test]
fn a_batch_ends_the_run_only_if_every_result_asks_for_it() {
    let finish = |first, second| {
        let mut play = Play::acting(&[("a", "read"), ("b", "read")]);
        for (id, terminate) in [("a", first), ("b", second)] {
            play.grants(id);
            play.tell(Input::CallEnded(ToolResult { terminate, ..result(id) }));
        }
        play.run.outcome()
    };
    assert_eq!(finish(true, true), Some(Outcome::Done));
    assert_eq!([finish(true, false), finish(false, true)], [None, None]);
}

#[test]
fn the_conversation_can_be_rebuilt_from_the_log_alone() {
    let mut play = Play::acting(&[("a", "edit"), ("b", "read")]);
    for id in ["b", "a"] {
        play.grants(id);
        play.ends(id);
    }
    play.fails(FaultClass::Overloaded, None);
    play.tell(say(InputKind::FollowUp, "and now?"));
    play.says("done");
    play.says("done again");
    assert_eq!(Run::replay(run_id(), &play.log), play.run);
}

#[test]
fn a_task_is_taken_on_once_and_starts_once() {
    let mut play = Play::new();
    assert_eq!(play.attempt(start()), Err(Refused::OutOfTurn));
    play.tell(Input::Submit(spec(Limits::default())));
    assert_eq!(play.attempt(Input::Submit(spec(Limits::default()))), Err(Refused::OutOfTurn));
    play.tell(start());
    assert_eq!(play.attempt(start()), Err(Refused::OutOfTurn));
}

#[test]
fn nothing_is_of_record_before_the_task() {
    let give_up = || Input::GiveUp { breakage: Breakage::Panic, error: String::new() };
    let restart = || Input::Restart { cause: RestartCause::Actor, error: None };
    let early =
        [Input::Interrupt, give_up(), restart(), Input::End(Outcome::Cancelled), say(InputKind::Steer, "x")];
    for input in early {
        assert_eq!(Play::new().attempt(input), Err(Refused::OutOfTurn));
    }
    let blank = TaskSpec { task: " ".into(), ..(*spec(Limits::default())).clone() };
    assert_eq!(Play::new().attempt(Input::Submit(Arc::new(blank))), Err(Refused::Empty));
}
