//! Answers that are not yet what was asked for: cut, or of another form.

use serde_json::{Value, json};

use super::*;

fn cut(play: &mut Play) -> Vec<&'static str> {
    let id = format!("c{}", play.run.turn());
    play.replies(proposal("", vec![call(&id, "bash")], Stop::Length))
}

#[test]
fn an_answer_cut_in_its_calls_is_tried_again_twice_in_a_row_if_the_task_says_so() {
    let mut play = Play::tasked(&json!({"on_truncated": "retry"}));
    assert_eq!(cut(&mut play), ["message", "result", "turn_end", "turn_start"]);
    assert_eq!(cut(&mut play), ["message", "result", "turn_end", "turn_start"]);
    play.asks(&[("ok", "read")]);
    play.grants("ok");
    play.ends("ok");
    cut(&mut play);
    cut(&mut play);
    assert_eq!(cut(&mut play), ["message", "result", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Blocked(Block::Truncated));
    let truncated = play.results().iter().filter(|(_, failure)| *failure == Some(Failure::Truncated)).count();
    assert_eq!((truncated, validate(play.run.history())), (5, Ok(())));
}

#[test]
fn words_cut_short_are_no_answer_whatever_the_task_says() {
    let mut play = Play::tasked(&json!({"on_truncated": "retry"}));
    play.replies(proposal("half an ans", Vec::new(), Stop::Length));
    assert_eq!(play.outcome(), Outcome::Blocked(Block::Truncated));
}

fn formal() -> Value {
    json!({"response_format": {"type": "json_object"}})
}

fn misfits(play: &mut Play) -> Vec<&'static str> {
    let proposal = proposal("well", Vec::new(), Stop::EndTurn);
    play.replies(Proposal { misfit: Some("it is no JSON".into()), ..proposal })
}

#[test]
fn an_answer_of_another_form_is_to_be_mended_and_its_json_is_the_run_s_text() {
    let mut play = Play::tasked(&formal());
    assert_eq!(misfits(&mut play), ["message", "turn_end", "correction", "turn_start"]);
    assert_eq!(play.says("```json\n{}\n```"), ["message", "turn_end", "run_end"]);
    assert_eq!((play.outcome(), &*play.end().text), (Outcome::Done, "{}"));
    let correction = "user: Your answer is not of the form that it must have: it is no JSON\n\nAnswer again, with the \
                      whole JSON and nothing else: no words around it.";
    assert_eq!(play.transcript(), ["user: task", "model: well", correction, "model: ```json\n{}\n```"]);
}

#[test]
fn a_run_whose_third_answer_is_of_another_form_too_is_blocked_with_what_is_wrong() {
    let mut play = Play::tasked(&formal());
    misfits(&mut play);
    misfits(&mut play);
    assert_eq!(misfits(&mut play), ["message", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Blocked(Block::Format));
    assert_eq!((play.end().error.as_deref(), &*play.end().text), (Some("it is no JSON"), "well"));
}

#[test]
fn corrections_take_turns_and_turns_are_limited() {
    let mut play = Play::tasked(&json!({
        "response_format": {"type": "json_object"}, "limits": {"max_turns": 1}
    }));
    assert_eq!(misfits(&mut play), ["message", "turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::Budget(Limit::Turns));
}

#[test]
fn what_a_person_said_waits_until_the_answer_is_of_its_form() {
    let mut play = Play::tasked(&formal());
    play.tell(say(InputKind::Steer, "now this"));
    play.tell(say(InputKind::FollowUp, "and then this"));
    assert_eq!(misfits(&mut play), ["message", "turn_end", "correction", "turn_start"]);
    assert_eq!(play.says("{}"), ["message", "turn_end", "input_claimed", "turn_start"]);
    // Each answer has corrections of its own.
    misfits(&mut play);
    misfits(&mut play);
    assert_eq!(play.says("{}"), ["message", "turn_end", "input_claimed", "turn_start"]);
    assert_eq!(play.says("{}"), ["message", "turn_end", "run_end"]);
}

#[test]
fn a_name_that_no_server_takes_back_is_changed() {
    let mut play = Play::started();
    let names = ["", " \n", "open a window!", &"x".repeat(100), "fine-1_"];
    let calls = names.iter().map(|name| ProposedCall { name: (*name).into(), ..call("", "read") }).collect();
    play.replies(proposal("", calls, Stop::ToolCalls));
    let Phase::Acting(calls) = play.run.phase() else { panic!("no calls are open") };
    let named: Vec<_> = calls.iter().map(|open| &*open.call.name).collect();
    assert_eq!(named, ["unnamed", "unnamed", "open_a_window_", &"x".repeat(64), "fine-1_"]);
}
