//! What a server's word on what is left does to what is sent.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        RateLimits, Rates, Window,
        state::{Held, Sent, State},
    },
    count, fixed, millis, secs, tokens,
};

/// A state with so many places, of which one request is out, and what its answer says.
fn told(places: u32, window: Window) -> (State, Instant) {
    let now = Instant::now();
    let mut state = State::new(&fixed(places), now);
    let own = state.send(100, now).unwrap();
    state.told(&RateLimits { requests: Some(window), tokens: None }, Some(own), now);
    state.answered(own, 100, now);
    (state, now)
}

fn window(remaining: u64, reset: Duration) -> Window {
    Window { limit: Some(1_000), remaining: Some(remaining), reset: Some(reset) }
}

/// Sends `many` as early as it may; says when, from `start`.
fn sent(state: &mut State, many: usize, start: Instant) -> Vec<Duration> {
    let mut now = start;
    let mut times = Vec::new();
    while times.len() < many {
        match state.send(100, now) {
            Ok(sent) => {
                state.back(sent);
                times.push(now - start);
            }
            Err(Held::Until(until)) => now = until,
            Err(Held::Full) => panic!("nothing is out"),
        }
    }
    times
}

#[test]
fn where_nothing_is_left_all_wait_for_the_reset_and_then_go_one_by_one() {
    let (mut state, now) = told(20, window(0, secs(9)));
    let times = sent(&mut state, 4, now);
    assert_eq!(times, [millis(9_000), millis(9_100), millis(9_200), millis(9_300)]);
}

#[test]
fn where_little_is_left_it_is_spread_over_the_time_to_the_reset() {
    let (mut state, now) = told(20, window(4, secs(10)));
    assert_eq!(sent(&mut state, 5, now), [secs(2), secs(4), secs(6), secs(8), secs(10)]);
}

#[test]
fn where_plenty_is_left_nothing_is_held() {
    let (mut state, now) = told(20, window(20, secs(10)));
    assert_eq!(sent(&mut state, 100, now), [Duration::ZERO; 100]);
}

#[test]
fn what_is_out_counts_as_gone_since_the_server_may_not_have_seen_it() {
    let now = Instant::now();
    let mut state = State::new(&fixed(20), now);
    let all: Vec<Sent> = (0..10).map(|_| state.send(100, now).unwrap()).collect();
    let said = RateLimits { requests: Some(window(9, secs(30))), tokens: None };
    state.told(&said, Some(all[0]), now);
    assert_eq!(state.send(100, now).err(), Some(Held::Until(now + secs(30))));
    assert_eq!(state.requests_left(now), Some(0));
}

#[test]
fn tokens_are_held_by_what_a_request_needs() {
    let now = Instant::now();
    let mut state = State::new(&fixed(20), now);
    let own = state.send(100, now).unwrap();
    let said = RateLimits { requests: None, tokens: Some(window(150, secs(10))) };
    state.told(&said, Some(own), now);
    let until = |held: Held| match held {
        Held::Until(until) => until - now,
        Held::Full => Duration::MAX,
    };
    assert_eq!(state.send(151, now).map_err(until).err(), Some(secs(10)));
    let little = state.send(100, now).map_err(until).err().unwrap();
    assert!(little > secs(6) && little < secs(7), "{little:?}");
    assert!(state.send(10_000_000, now + secs(10)).is_ok(), "more than the server ever allows");
}

#[test]
fn a_reset_that_is_hours_away_is_believed_for_a_minute() {
    let (mut state, now) = told(20, window(0, secs(86_400)));
    assert_eq!(sent(&mut state, 1, now), [secs(60)]);
}

#[test]
fn a_later_word_replaces_an_earlier_one() {
    let (mut state, now) = told(20, window(0, secs(50)));
    state.told(&RateLimits { requests: Some(window(900, secs(50))), tokens: None }, None, now);
    assert_eq!(sent(&mut state, 1, now), [Duration::ZERO]);
}

#[test]
fn half_a_word_holds_nothing() {
    let full = window(0, secs(50));
    let halves = [
        Window { remaining: None, ..full },
        Window { reset: None, ..full },
        Window { reset: Some(Duration::ZERO), ..full },
        Window { limit: Some(0), ..full },
    ];
    for half in halves {
        let (mut state, now) = told(20, half);
        assert_eq!(sent(&mut state, 1, now), [Duration::ZERO], "{half:?}");
    }
}

#[test]
fn of_what_is_configured_and_what_is_told_the_stricter_holds() {
    let now = Instant::now();
    let rates =
        Rates { requests_per_minute: Some(count(60)), tokens_per_minute: Some(tokens(1_000)), ..fixed(20) };
    let told = |remaining, reset| {
        let mut state = State::new(&rates, now);
        for _ in 0..3 {
            let sent = state.send(0, now).unwrap();
            state.back(sent);
        }
        let said = RateLimits { requests: Some(window(remaining, reset)), tokens: None };
        state.told(&said, None, now);
        sent_zero(&mut state, now)
    };
    assert!(told(900, secs(10)) < millis(1_100));
    assert!(told(900, secs(10)) > millis(1_000));
    assert_eq!(told(0, secs(10)), secs(10));
    let mut state = State::new(&rates, now);
    let sent = state.send(1_000, now).unwrap();
    state.back(sent);
    assert!(matches!(state.send(10, now), Err(Held::Until(_))), "tokens hold where requests do not");
}

fn sent_zero(state: &mut State, now: Instant) -> Duration {
    match state.send(0, now) {
        Ok(_) => Duration::ZERO,
        Err(Held::Until(until)) => until - now,
        Err(Held::Full) => Duration::MAX,
    }
}
