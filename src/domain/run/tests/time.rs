//! Retries and clocks: when a request goes out again, and which time counts.

use super::*;

fn micros(ms: i64) -> Timestamp {
    Timestamp::from_micros(ms * 1_000)
}

#[test]
fn a_failed_request_is_sent_again_when_its_wait_is_over() {
    let mut play = Play::started();
    play.now = 100;
    assert_eq!(play.fails(FaultClass::Overloaded, Some(Duration::from_secs(3))), ["model_retry"]);
    assert_eq!(play.run.owed(), [Effect::AskModel { turn: 1, attempt: 2, not_before: micros(3_100) }]);
    assert_eq!(play.run.replies(), 1);
    play.says("done");
    assert_eq!((play.outcome(), play.end().turns, play.run.replies()), (Outcome::Done, 1, 2));
}

#[test]
fn the_fifth_failure_of_a_turn_ends_the_run_as_the_provider_s_error() {
    let mut play = Play::started();
    for _ in 0..4 {
        assert_eq!(play.fails(FaultClass::Transient, None), ["model_retry"]);
    }
    assert_eq!(play.fails(FaultClass::Transient, None), ["turn_end", "run_end"]);
    assert_eq!(play.outcome(), Outcome::ProviderError(FaultClass::Transient));
    assert_eq!(play.end().error.as_deref(), Some("no"));
}

#[test]
fn a_rate_limit_uses_up_no_try() {
    let mut play = Play::started();
    for _ in 0..20 {
        play.fails(FaultClass::RateLimit, None);
    }
    for _ in 0..4 {
        play.fails(FaultClass::Timeout, None);
    }
    assert_eq!(play.run.outcome(), None);
    assert_eq!(play.fails(FaultClass::Timeout, None), ["turn_end", "run_end"]);
}

#[test]
fn each_turn_has_its_own_tries() {
    let mut play = Play::started();
    for _ in 0..4 {
        play.fails(FaultClass::Stall, None);
    }
    play.asks(&[("a", "read")]);
    play.ends("a");
    assert_eq!(play.fails(FaultClass::Stall, None), ["model_retry"]);
}

#[test]
fn what_cannot_be_retried_ends_the_run_at_once() {
    for class in [FaultClass::Auth, FaultClass::Quota, FaultClass::Invalid, FaultClass::ContextOverflow] {
        let mut play = Play::started();
        play.fails(class, Some(Duration::from_secs(1)));
        assert_eq!(play.outcome(), Outcome::ProviderError(class));
    }
}

#[test]
fn time_never_goes_back_within_a_run() {
    let mut play = Play::started();
    play.now = 5_000;
    play.asks(&[("a", "read")]);
    play.now = 1_000;
    play.grants("a");
    play.ends("a");
    play.says("done");
    assert!(play.log.is_sorted_by_key(|fact| fact.at));
    assert_eq!(play.log.last().unwrap().at, micros(5_000));
}

#[test]
fn waiting_for_a_slot_is_not_part_of_a_run_s_duration() {
    let mut play = Play::new();
    play.tell(Input::Submit(spec(Limits::default())));
    play.now = 60_000;
    play.tell(start());
    play.now = 61_000;
    play.says("done");
    let end = play.end();
    assert_eq!((end.queued_us, end.duration_us, end.active_us), (60_000_000, 1_000_000, 1_000_000));
}

#[test]
fn active_time_leaves_out_the_sleep_before_a_retry() {
    let mut play = Play::started();
    play.now = 1_000;
    play.fails(FaultClass::Overloaded, Some(Duration::from_secs(10)));
    play.now = 6_000;
    assert_eq!(play.run.active(micros(6_000)), Duration::from_secs(1));
    play.now = 13_000;
    play.says("done");
    assert_eq!((play.end().active_us, play.end().duration_us), (3_000_000, 13_000_000));
}

#[test]
fn a_restart_during_the_sleep_before_a_retry_does_not_make_it_active() {
    let mut play = Play::started();
    play.fails(FaultClass::Overloaded, Some(Duration::from_secs(10)));
    play.now = 2_000;
    play.restarts();
    play.now = 11_000;
    play.says("done");
    assert_eq!(play.end().active_us, 1_000_000);
}

#[test]
fn active_time_leaves_out_the_wait_for_a_lock() {
    let mut play = Play::acting(&[("a", "edit")]);
    play.now = 5_000;
    play.grants("a");
    play.now = 7_000;
    play.ends("a");
    assert_eq!(play.run.active(micros(7_000)), Duration::from_secs(2));
}

#[test]
fn calls_side_by_side_count_once() {
    let mut play = Play::acting(&[("a", "read"), ("b", "read")]);
    play.grants("a");
    play.now = 1_000;
    play.grants("b");
    play.now = 3_000;
    play.ends("a");
    play.now = 4_000;
    play.ends("b");
    assert_eq!(play.run.active(micros(4_000)), Duration::from_secs(4));
}

#[test]
fn the_time_in_which_herder_was_down_is_nobody_s() {
    let mut play = Play::acting(&[("a", "read")]);
    play.grants("a");
    play.now = 1_000;
    play.tell(Input::Interrupt);
    play.now = 90_000;
    play.restarts();
    play.grants("a");
    play.now = 92_000;
    play.ends("a");
    play.says("done");
    assert_eq!(play.end().active_us, 3_000_000);
}

#[test]
fn a_run_that_ends_as_it_restarts_was_not_active_meanwhile() {
    let mut play = Play::limited(Limits { active_time_s: Some(60), ..Limits::default() });
    play.asks(&[("a", "bash"), ("b", "read")]);
    play.grants("a");
    play.now = 1_000;
    // The last sign of life; what a person says after it is none.
    play.ends("b");
    play.now = 2_000;
    play.tell(say(InputKind::Steer, "faster"));
    play.now = 900_000;
    assert_eq!(play.restarts(), ["restart", "result", "turn_end", "input_claimed", "turn_start"]);
    play.says("done");
    assert_eq!(play.end().active_us, 1_000_000);
}

#[test]
fn a_night_in_which_herder_was_down_uses_up_no_wall_time() {
    let limits = Limits { wall_time_s: Some(3_600), ..Limits::default() };
    // Stopped in the evening, or killed: then the last sign of life is the last that counts.
    for stopped in [true, false] {
        let mut play = Play::limited(limits);
        play.asks(&[("a", "read")]);
        play.now = 1_000_000;
        play.grants("a");
        if stopped {
            play.now = 1_500_000;
            play.tell(Input::Interrupt);
        }
        let lived = Duration::from_millis(u64::try_from(play.now).unwrap());
        play.now = 40_000_000;
        play.restarts();
        assert_eq!(play.run.wall(micros(41_000_000)), lived + Duration::from_secs(1_000));
        play.grants("a");
        play.now = 41_000_000;
        assert_eq!(play.ends("a"), ["result", "turn_end", "turn_start"]);
        play.says("done");
        assert_eq!(Duration::from_micros(play.end().duration_us), lived + Duration::from_secs(1_000));
    }
}

#[test]
fn wall_time_is_up_however_often_herder_was_down() {
    let mut play = Play::limited(Limits { wall_time_s: Some(3), ..Limits::default() });
    for hour in 1..=3 {
        let id = format!("c{hour}");
        play.asks(&[(&id, "read")]);
        play.now += 1_000;
        play.ends(&id);
        if hour < 3 {
            play.tell(Input::Interrupt);
            play.now = i64::from(hour) * 3_600_000;
            play.restarts();
        }
    }
    assert_eq!((play.outcome(), play.end().duration_us), (Outcome::Budget(Limit::WallTime), 3_000_000));
}

#[test]
fn a_run_that_ends_as_it_restarts_did_not_live_meanwhile() {
    let mut play = Play::limited(Limits { wall_time_s: Some(60), ..Limits::default() });
    play.asks(&[("a", "bash")]);
    play.now = 1_000;
    play.grants("a");
    play.now = 900_000;
    assert_eq!(play.restarts(), ["restart", "result", "turn_end", "turn_start"]);
    play.says("done");
    assert_eq!(play.end().duration_us, 1_000_000);
}

#[test]
fn the_wait_to_be_started_again_after_a_panic_is_wall_time() {
    let mut play = Play::started();
    play.now = 30_000;
    play.tell(Input::Restart { cause: RestartCause::Actor, error: None });
    play.says("done");
    assert_eq!((play.end().duration_us, play.end().active_us), (30_000_000, 0));
}
