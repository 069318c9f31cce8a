//! The screen as it is seen, and what keys do to it.

use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
    style::Color,
};
use serde_json::json;

use super::{
    action::{Action, Target, Verb},
    once,
    samples::{self, NOW, batches, every_phase, look, run, status},
    state::{Effect, Look, Message, Pane, Prompt, Screen, Sort, State},
    view::{self, Theme},
};
use crate::daemon::{client, wire::RunState};

fn showing(look: Look) -> State {
    let mut state = State::new(Theme::COLORED, NOW);
    state.update(Message::Looked(Box::new(look)));
    state
}

fn busy() -> State {
    let mut look = look(status(7, 3, 2), every_phase());
    look.batches = batches().batches;
    showing(look)
}

fn drawn(state: &mut State, width: u16, height: u16) -> Terminal<TestBackend> {
    state.update(Message::Resized(width, height));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| view::draw(frame, state)).expect("drawn");
    terminal
}

fn screen(state: &mut State, width: u16, height: u16) -> String {
    drawn(state, width, height).backend().to_string()
}

fn press(state: &mut State, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        effect = state.update(Message::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }
    effect
}

fn event(kind: &str, seq: u64, data: &str) -> client::Event {
    let data = format!(
        r#"{{"v":1,"pos":{seq},"run":"r","seq":{seq},"at":"2026-01-02T03:04:0{seq}Z","turn":1,"kind":"{kind}","data":{data}}}"#
    );
    client::Event { id: Some(seq), name: kind.to_owned(), data }
}

fn with_log(state: &mut State) {
    let run = state.followed().expect("a run").to_owned();
    let text = "I read the parser. It takes a list apart twice, and that is why it is slow:\n\n- once to count\n- once to read";
    let reply = json!({"text": text, "calls": [{"id": "c1", "name": "edit", "arguments": {}}], "stop": "tool_calls",
                       "usage": {"input": 1_200, "output": 30}});
    let mut next_turn = event("turn_start", 5, "{}");
    next_turn.data = next_turn.data.replace(r#""turn":1"#, r#""turn":2"#);
    for event in [
        event("run_start", 1, r#"{"model": "openai:gpt-5", "tools": ["read", "edit"]}"#),
        event("turn_start", 2, "{}"),
        event("message", 3, &reply.to_string()),
        event("result", 4, r#"{"call": "c1", "ok": false, "output": "no such file", "failure": "failed"}"#),
        next_turn,
        client::Event {
            id: None,
            name: "text".to_owned(),
            data: r#"{"turn": 2, "text": "Now I look at 那😀 the other"}"#.to_owned(),
        },
    ] {
        state.update(Message::Event { run: run.clone(), event });
    }
}

#[test]
fn an_empty_daemon_says_what_to_do() {
    let mut state = showing(look(status(0, 0, 0), Vec::new()));
    insta::assert_snapshot!(screen(&mut state, 100, 24));
}

#[test]
fn runs_of_all_phases() {
    let mut state = busy();
    with_log(&mut state);
    insta::assert_snapshot!(screen(&mut state, 120, 40));
}

#[test]
fn the_same_in_80_columns_and_24_rows() {
    insta::assert_snapshot!(screen(&mut busy(), 80, 24));
}

#[test]
fn the_same_in_60_columns_and_15_rows() {
    insta::assert_snapshot!(screen(&mut busy(), 60, 15));
}

#[test]
fn no_size_breaks_it() {
    let mut state = busy();
    with_log(&mut state);
    for prompt in [None, Some(Prompt::Help), Some(Prompt::Filter { before: String::new() })] {
        state.prompt = prompt;
        for shown in [Screen::List, Screen::Log] {
            state.screen = shown;
            for (width, height) in [(1, 1), (2, 30), (9, 4), (30, 2), (59, 14), (300, 3), (300, 100)] {
                drop(screen(&mut state, width, height));
            }
        }
    }
}

#[test]
fn ten_thousand_runs_are_counted_and_a_page_of_them_shown() {
    let page = (0..200)
        .map(|number| run(number, &format!("task-{number}"), RunState::Queued, "queued: waits for a slot"));
    let mut state = showing(look(status(50, 9_950, 0), page.collect()));
    insta::assert_snapshot!(screen(&mut state, 100, 16));
    assert_eq!(state.query().limit, 200);
    state.update(Message::Key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE)));
    assert_eq!(state.query().limit, 400, "at the end of the page, more is asked for");
}

#[test]
fn what_is_paused_is_not_overlooked() {
    let mut status = status(7, 3, 2);
    status.paused = serde_json::from_value(json!([
        {"kind": "all", "name": null, "mode": "hold"}, {"kind": "model", "name": "gpt-5", "mode": "soft"}
    ]))
    .expect("gates");
    insta::assert_snapshot!(screen(&mut showing(look(status, every_phase())), 80, 14));
}

#[test]
fn an_account_that_is_shut_and_money_are_not_overlooked() {
    let mut status = status(7, 3, 2);
    status.shut = serde_json::from_value(json!([
        {"account": "api.openai.com/v1", "reason": "auth", "until": null, "said": "HTTP 401: no such key"}
    ]))
    .expect("latches");
    status.budgets = serde_json::from_value(json!([
        {"kind": "process", "user": null, "until": null, "spent_usd": 0.42, "reserved_usd": 0.0, "cap_usd": 1.0}
    ]))
    .expect("budgets");
    let shown = screen(&mut showing(look(status, every_phase())), 80, 14);
    assert!(shown.contains(" api.openai.com/v1: key refused · $0.42 of $1.00"), "{shown}");
}

#[test]
fn a_daemon_that_is_gone_is_told_in_red_over_what_was_last_seen() {
    let mut state = busy();
    state.update(Message::Missed("no daemon answers at /run/herder.sock".to_owned()));
    state.update(Message::Tick(NOW.after(std::time::Duration::from_secs(12))));
    state.update(Message::Missed("no daemon answers at /run/herder.sock".to_owned()));
    let terminal = drawn(&mut state, 90, 20);
    insta::assert_snapshot!(terminal.backend());
    let red = terminal.backend().buffer().content.iter().filter(|cell| cell.fg == Color::Red).count();
    assert!(red > 50, "{red}");
    state.update(Message::Looked(Box::new(look(status(1, 0, 0), Vec::new()))));
    assert!(!screen(&mut state, 90, 20).contains("trying again"));
}

#[test]
fn a_log_that_broke_off_with_the_daemon_is_read_anew_with_it() {
    let mut state = busy();
    let run = state.followed().expect("a run").to_owned();
    state.update(Message::FollowedOut { run: run.clone(), error: None });
    state.update(Message::Missed("gone".to_owned()));
    state.update(Message::Looked(Box::new(look(status(7, 3, 2), every_phase()))));
    assert_eq!(state.follows, 0, "what has ended is not");
    state.update(Message::Missed("gone".to_owned()));
    state.update(Message::FollowedOut { run, error: Some("gone".to_owned()) });
    state.update(Message::Looked(Box::new(look(status(7, 3, 2), every_phase()))));
    assert_eq!((state.follows, state.log.failed()), (1, false));
}

#[test]
fn without_any_daemon_it_waits_for_one() {
    let mut state = State::new(Theme::COLORED, NOW);
    state.update(Message::Missed(
        "no daemon answers at /run/herder.sock; `herder serve --detach` starts one".to_owned(),
    ));
    insta::assert_snapshot!(screen(&mut state, 80, 10));
}

#[test]
fn help_lists_the_keys_and_any_key_ends_it() {
    let mut state = busy();
    press(&mut state, "?");
    insta::assert_snapshot!(screen(&mut state, 80, 24));
    assert_eq!(press(&mut state, "q"), None);
    assert_eq!(state.prompt, None);
}

#[test]
fn a_run_is_cancelled_only_after_a_yes() {
    let mut state = busy();
    press(&mut state, "jc");
    insta::assert_snapshot!(screen(&mut state, 80, 12));
    assert_eq!(press(&mut state, "n"), None);
    let target = Target::Run { id: run(2, "", RunState::Running, "").id, name: "retry".to_owned() };
    assert_eq!(press(&mut state, "cy"), Some(Effect::Do(Action::Order { verb: Verb::Cancel, target })));
}

#[test]
fn the_log_of_a_run_fills_the_screen_and_stays_when_the_run_is_gone() {
    let mut state = busy();
    with_log(&mut state);
    press(&mut state, "f");
    insta::assert_snapshot!(screen(&mut state, 80, 16));
    let followed = state.followed().map(str::to_owned);
    state.update(Message::Looked(Box::new(look(status(0, 0, 0), Vec::new()))));
    assert_eq!(state.followed().map(str::to_owned), followed);
    press(&mut state, "\x1b");
    assert_eq!((state.screen, state.followed()), (Screen::List, None));
}

#[test]
fn steering_takes_a_line_whatever_its_letters_are() {
    let mut state = busy();
    press(&mut state, "sq? ");
    state.update(Message::Pasted("be\nquick".to_owned()));
    insta::assert_snapshot!(screen(&mut state, 60, 8));
    let told = Action::Steer {
        run: run(1, "", RunState::Running, "").id,
        name: "parse".to_owned(),
        text: "q? be quick".to_owned(),
    };
    assert_eq!(press(&mut state, "\n"), Some(Effect::Do(told)));
    assert_eq!(press(&mut state, "s\n"), None, "nothing is not said");
}

#[test]
fn a_filter_narrows_the_list_while_it_is_typed_and_esc_takes_it_back() {
    let mut state = busy();
    press(&mut state, "/PARSER edit-b");
    assert_eq!(state.runs.iter().map(|run| run.task_id.as_deref()).collect::<Vec<_>>(), [Some("edit-b")]);
    assert_eq!(state.query().limit, 1_000);
    press(&mut state, "\x1b");
    assert_eq!((state.runs.len(), state.filter.as_str()), (12, ""));
    press(&mut state, "/team=core held\n");
    assert_eq!(state.runs.len(), 2);
    assert_eq!(press(&mut state, "\x1b"), None);
    assert_eq!(press(&mut state, "\x1b"), None, "only q leaves");
}

#[test]
fn the_selection_stays_with_its_run_when_the_list_moves() {
    let mut state = busy();
    press(&mut state, "jjj");
    let selected = state.followed().map(str::to_owned);
    let mut runs = every_phase();
    runs.drain(..2);
    state.update(Message::Looked(Box::new(look(status(5, 3, 2), runs.clone()))));
    assert_eq!((state.followed().map(str::to_owned), state.at), (selected, 1));
    runs.remove(1);
    state.update(Message::Looked(Box::new(look(status(4, 3, 2), runs))));
    assert_eq!(state.at, 1, "its neighbour takes its place");
}

#[test]
fn a_batch_stays_selected_when_one_before_it_ends() {
    let mut state = busy();
    press(&mut state, "\t\tj");
    let mut look = look(status(7, 3, 2), every_phase());
    look.batches = batches().batches.split_off(1);
    state.update(Message::Looked(Box::new(look)));
    assert_eq!(state.selected_batch().map(|batch| &*batch.id), Some("b2"));
    state.update(Message::Looked(Box::new(samples::look(status(7, 3, 2), every_phase()))));
    assert_eq!((state.pane, state.batch_at), (Pane::Runs, 0));
}

#[test]
fn orders_go_to_what_is_selected() {
    let mut state = busy();
    let run_target = |number| {
        let run = every_phase().remove(number);
        Target::Run { name: run.task_id.clone().unwrap_or_default(), id: run.id }
    };
    let order = |verb, target| Some(Effect::Do(Action::Order { verb, target }));
    assert_eq!(press(&mut state, "p"), order(Verb::Pause, run_target(0)));
    assert_eq!(press(&mut state, "jjjjjjjp"), order(Verb::Resume, run_target(7)));
    press(&mut state, "\t\t");
    assert_eq!(state.pane, Pane::Batches);
    let nightly = Target::Batch { id: "b1".to_owned(), name: "nightly".to_owned() };
    assert_eq!(press(&mut state, "p"), order(Verb::Pause, nightly));
    press(&mut state, "\n");
    assert_eq!(state.query().batch.as_deref(), Some("b1"));
    assert_eq!(press(&mut state, "R"), order(Verb::Resume, Target::All));
    assert_eq!(press(&mut state, "Py"), order(Verb::Pause, Target::All));
}

#[test]
fn runs_are_sorted_by_each_column_and_the_other_way() {
    let mut state = busy();
    for sort in Sort::ALL {
        assert_eq!(state.sort, sort);
        let there: Vec<_> = state.runs.iter().map(|run| run.id.clone()).collect();
        press(&mut state, "O");
        let back: Vec<_> = state.runs.iter().rev().map(|run| run.id.clone()).collect();
        assert_eq!(there, back, "{sort:?}");
        press(&mut state, "Oo");
    }
    state.sort = Sort::Tokens;
    state.arrange();
    assert_eq!(state.runs[0].turns, 12);
}

#[test]
fn without_colour_nothing_has_one() {
    let mut state = busy();
    state.theme = Theme::PLAIN;
    with_log(&mut state);
    let terminal = drawn(&mut state, 120, 40);
    let cells = &terminal.backend().buffer().content;
    assert!(cells.iter().all(|cell| (cell.fg, cell.bg) == (Color::Reset, Color::Reset)));
}

#[test]
fn one_look_is_plain_text() {
    let text = once::frame(&busy());
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
    insta::assert_snapshot!(text);
}
