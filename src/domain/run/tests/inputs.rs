//! What a person says while a run is under way.

use super::*;

#[test]
fn a_steer_is_taken_up_after_the_tools_results_and_before_the_next_request() {
    let mut play = Play::acting(&[("a", "read")]);
    assert_eq!(play.tell(say(InputKind::Steer, "look left")), ["input_queued"]);
    assert_eq!(play.ends("a"), ["result", "turn_end", "input_claimed", "turn_start"]);
    assert_eq!(play.transcript(), ["user: task", "model: a", "tool a: did a", "user: look left"]);
}

#[test]
fn a_follow_up_is_taken_up_only_when_the_run_would_be_done() {
    let mut play = Play::acting(&[("a", "read")]);
    play.tell(say(InputKind::FollowUp, "and then?"));
    assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
    assert_eq!(play.says("done"), ["message", "turn_end", "input_claimed", "turn_start"]);
    assert_eq!(play.says("that"), ["message", "turn_end", "run_end"]);
    assert_eq!(play.transcript()[3..], ["model: done", "user: and then?", "model: that"]);
}

#[test]
fn a_steer_that_finds_no_batch_is_taken_up_before_the_run_is_done() {
    let mut play = Play::started();
    play.tell(say(InputKind::FollowUp, "later"));
    play.tell(say(InputKind::Steer, "first"));
    play.says("done");
    play.says("again");
    play.says("and again");
    let said =
        ["user: task", "model: done", "user: first", "model: again", "user: later", "model: and again"];
    assert_eq!(play.transcript(), said);
}

#[test]
fn inputs_are_taken_up_one_at_a_time_in_the_order_in_which_they_were_said() {
    let mut play = Play::started();
    play.tell(say(InputKind::Steer, "one"));
    play.tell(say(InputKind::Steer, "two"));
    for (id, heard) in [("a", "user: one"), ("b", "user: two")] {
        play.asks(&[(id, "read")]);
        play.ends(id);
        assert_eq!(play.transcript().last().map(String::as_str), Some(heard));
    }
    let claimed = play.log.iter().filter_map(|fact| {
        let Event::InputClaimed(claimed) = &fact.event else { return None };
        Some(claimed.input)
    });
    assert_eq!(claimed.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_steer_may_name_the_turn_that_it_expects() {
    let mut play = Play::acting(&[("a", "read")]);
    let steer =
        |turn| Input::Say { when: InputKind::Steer, text: "x".into(), expected_turn: Some(turn), key: None };
    assert_eq!(play.attempt(steer(2)), Err(Refused::OtherTurn { actual: 1 }));
    assert_eq!(play.attempt(steer(1)), Ok(vec!["input_queued"]));
}

#[test]
fn an_input_is_refused_by_name_when_it_can_no_longer_be_heard() {
    let mut play = Play::acting(&[("a", "bash")]);
    assert_eq!(play.attempt(say(InputKind::Steer, " \n")), Err(Refused::Empty));
    play.grants("a");
    play.tell(Input::End(Outcome::Cancelled));
    assert_eq!(play.attempt(say(InputKind::Steer, "wait")), Err(Refused::Ending));
    play.ends("a");
    assert_eq!(play.attempt(say(InputKind::FollowUp, "wait")), Err(Refused::Ended));
}

#[test]
fn an_input_is_not_claimed_for_a_turn_that_a_limit_forbids() {
    let mut play = Play::limited(Limits { max_turns: Some(1), ..Limits::default() });
    play.tell(say(InputKind::FollowUp, "and then?"));
    assert_eq!(play.says("done"), ["message", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Budget(Limit::Turns));
    assert_eq!(&*play.end().text, "done");
}

#[test]
fn what_was_said_to_a_waiting_run_is_heard_after_its_first_turn() {
    let mut play = Play::new();
    play.tell(Input::Submit(spec(Limits::default())));
    play.tell(say(InputKind::Steer, "early"));
    play.tell(start());
    play.asks(&[("a", "read")]);
    play.ends("a");
    assert_eq!(play.transcript().last().map(String::as_str), Some("user: early"));
}

#[test]
fn what_is_said_again_under_the_same_name_is_not_heard_again() {
    let mut play = Play::acting(&[("c", "read")]);
    let steer = |key: &str| Input::Say {
        when: InputKind::Steer,
        text: "stop that".into(),
        expected_turn: None,
        key: Some(key.into()),
    };
    assert_eq!(play.tell(steer("a")), ["input_queued"]);
    assert_eq!(play.attempt(steer("a")), Err(Refused::Unchanged));
    assert_eq!(play.tell(steer("b")), ["input_queued"]);
    play.grants("c");
    play.ends("c");
    assert_eq!(play.attempt(steer("a")), Err(Refused::Unchanged), "also once it was taken up");
}

#[test]
fn a_run_that_goes_on_from_another_begins_with_all_that_was_said_and_gives_no_call_an_id_that_was_used() {
    let mut first = Play::acting(&[("a", "read")]);
    first.grants("a");
    first.ends("a");
    first.says("half done");
    let before = serde_json::to_value(first.run.history()).unwrap();
    let mut next = Play::tasked(&serde_json::json!({"task": "go on", "before": before}));
    assert_eq!(next.transcript().last().unwrap(), "user: go on");
    assert_eq!(next.run.history().len(), first.run.history().len() + 1);
    next.asks(&[("a", "read")]);
    assert_eq!(next.run.waiting_calls().map(|call| call.id.as_str()).collect::<Vec<_>>(), ["a_2"]);
    next.tell(Input::End(Outcome::Cancelled));
    assert_eq!(&*next.end().text, "", "what the other one said last is not this one's");
}
