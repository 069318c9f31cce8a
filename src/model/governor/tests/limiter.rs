//! The rules of the limit, one by one, with the time set by hand.

use tokio::time::Instant;

use super::{super::limiter::Limiter, adaptive, secs};
use crate::domain::outcome::FaultClass;

const HORIZON: u64 = 15;

fn limiter(min: u32, start: u32, max: u32) -> Limiter {
    Limiter::new(adaptive(min, start, max), secs(HORIZON))
}

/// So many answers, all to requests that were sent now, with so many out.
fn answers(limiter: &mut Limiter, many: u32, out: u32, now: Instant) {
    for _ in 0..many {
        limiter.answered(limiter.stamp(out), now);
    }
}

fn clean_round(limiter: &mut Limiter, now: Instant) {
    let limit = limiter.limit();
    answers(limiter, limit.max(4), limit, now);
}

fn refusal(limiter: &mut Limiter, now: Instant) {
    limiter.failed(limiter.stamp(limiter.limit()), FaultClass::RateLimit, None, now);
}

#[test]
fn it_starts_within_its_bounds() {
    assert_eq!(limiter(1, 20, 1_000).limit(), 20);
    assert_eq!(limiter(1, 20, 8).limit(), 8);
    assert_eq!(limiter(30, 20, 1_000).limit(), 30);
}

#[test]
fn each_clean_round_doubles_it_until_the_first_cut_and_then_adds_five_percent() {
    let now = Instant::now();
    let mut limiter = limiter(1, 20, 1_000);
    clean_round(&mut limiter, now);
    clean_round(&mut limiter, now);
    assert_eq!(limiter.limit(), 80);
    refusal(&mut limiter, now);
    assert_eq!(limiter.limit(), 64);
    clean_round(&mut limiter, now + secs(HORIZON));
    assert_eq!(limiter.limit(), 67);
}

#[test]
fn it_grows_by_at_least_one_and_never_beyond_its_maximum() {
    let now = Instant::now();
    let mut limiter = limiter(1, 4, 5);
    refusal(&mut limiter, now);
    assert_eq!(limiter.limit(), 3);
    for limit in [4, 5, 5] {
        clean_round(&mut limiter, now + secs(HORIZON));
        assert_eq!(limiter.limit(), limit);
    }
}

#[test]
fn a_round_is_four_answers_at_least() {
    let now = Instant::now();
    let mut limiter = limiter(1, 1, 100);
    answers(&mut limiter, 3, 1, now);
    assert_eq!(limiter.limit(), 1);
    answers(&mut limiter, 1, 1, now);
    assert_eq!(limiter.limit(), 2);
}

#[test]
fn a_round_in_which_less_than_four_fifths_were_out_at_once_shows_nothing() {
    let now = Instant::now();
    let mut limiter = limiter(1, 20, 1_000);
    answers(&mut limiter, 20, 15, now);
    assert_eq!(limiter.limit(), 20);
    answers(&mut limiter, 19, 15, now);
    answers(&mut limiter, 1, 16, now);
    assert_eq!(limiter.limit(), 40);
}

#[test]
fn a_cut_takes_a_fifth_and_at_least_one_but_never_goes_below_the_minimum() {
    let mut now = Instant::now();
    let mut limiter = limiter(2, 6, 10);
    for limit in [4, 3, 2, 2] {
        refusal(&mut limiter, now);
        assert_eq!(limiter.limit(), limit);
        now += secs(HORIZON);
    }
    let last = now - 2 * secs(HORIZON);
    assert_eq!((limiter.cuts(), limiter.last_cut()), (3, Some(last)), "a cut that cuts nothing is none");
}

#[test]
fn later_refusals_in_a_horizon_neither_cut_nor_move_its_end() {
    let now = Instant::now();
    let mut limiter = limiter(1, 100, 1_000);
    refusal(&mut limiter, now);
    for second in 0..HORIZON {
        refusal(&mut limiter, now + secs(second));
        assert_eq!(limiter.limit(), 80);
        assert_eq!(limiter.horizon(now + secs(second)), Some(now + secs(HORIZON)));
    }
    refusal(&mut limiter, now + secs(HORIZON));
    assert_eq!((limiter.limit(), limiter.cuts()), (64, 2));
}

#[test]
fn a_horizon_is_as_long_as_the_server_asks_but_a_minute_at_most() {
    for (asked, horizon) in [(7, 15), (40, 40), (3_600, 60)] {
        let now = Instant::now();
        let mut limiter = limiter(1, 100, 1_000);
        limiter.failed(limiter.stamp(100), FaultClass::RateLimit, Some(secs(asked)), now);
        assert_eq!(limiter.horizon(now), Some(now + secs(horizon)));
    }
}

#[test]
fn within_a_horizon_it_stays_short_of_where_it_was_refused_and_goes_on_after_it() {
    let now = Instant::now();
    let mut limiter = limiter(1, 100, 1_000);
    refusal(&mut limiter, now);
    for limit in [84, 88, 92, 95, 95] {
        clean_round(&mut limiter, now + secs(HORIZON - 1));
        assert_eq!(limiter.limit(), limit);
    }
    clean_round(&mut limiter, now + secs(HORIZON));
    assert_eq!(limiter.limit(), 99);
}

#[test]
fn within_a_horizon_it_does_not_grow_if_the_refusals_go_on() {
    let now = Instant::now();
    let mut limiter = limiter(1, 100, 1_000);
    refusal(&mut limiter, now);
    refusal(&mut limiter, now + secs(1));
    clean_round(&mut limiter, now + secs(HORIZON - 1));
    assert_eq!(limiter.limit(), 80);
    clean_round(&mut limiter, now + secs(HORIZON));
    assert_eq!(limiter.limit(), 84);
}

#[test]
fn what_was_sent_before_a_cut_neither_cuts_again_nor_lets_it_grow() {
    let now = Instant::now();
    let mut limiter = limiter(1, 100, 1_000);
    let before = limiter.stamp(100);
    refusal(&mut limiter, now);
    let after = now + secs(HORIZON);
    for _ in 0..100 {
        limiter.answered(before, after);
        limiter.failed(before, FaultClass::RateLimit, None, after);
        limiter.failed(before, FaultClass::Timeout, None, after);
    }
    assert_eq!((limiter.limit(), limiter.cuts()), (80, 1));
    clean_round(&mut limiter, after);
    assert_eq!(limiter.limit(), 84);
}

#[test]
fn faults_of_the_server_keep_it_from_growing_and_never_cut_it() {
    let classes = [FaultClass::Overloaded, FaultClass::Transient, FaultClass::Timeout, FaultClass::Stall];
    for class in classes {
        let now = Instant::now();
        let mut limiter = limiter(1, 20, 1_000);
        for _ in 0..2 {
            limiter.failed(limiter.stamp(20), class, None, now);
        }
        answers(&mut limiter, 18, 20, now);
        assert_eq!((limiter.limit(), limiter.cuts()), (20, 0), "{class}");
        clean_round(&mut limiter, now);
        assert_eq!(limiter.limit(), 40, "{class}: the next round is clean");
    }
}

#[test]
fn one_fault_in_twenty_does_not_spoil_a_round() {
    let now = Instant::now();
    let mut limiter = limiter(1, 20, 1_000);
    limiter.failed(limiter.stamp(20), FaultClass::Overloaded, None, now);
    answers(&mut limiter, 19, 20, now);
    assert_eq!(limiter.limit(), 40);
}

#[test]
fn what_is_no_fault_of_the_server_counts_for_nothing() {
    let classes = [
        FaultClass::Auth,
        FaultClass::Quota,
        FaultClass::Invalid,
        FaultClass::ContextOverflow,
        FaultClass::Cancelled,
    ];
    let now = Instant::now();
    let mut limiter = limiter(1, 20, 1_000);
    for class in classes.into_iter().cycle().take(100) {
        limiter.failed(limiter.stamp(20), class, None, now);
    }
    clean_round(&mut limiter, now);
    assert_eq!((limiter.limit(), limiter.cuts()), (40, 0));
}

#[test]
fn other_bounds_keep_what_was_learnt_as_far_as_they_allow() {
    let now = Instant::now();
    let mut limiter = limiter(1, 20, 1_000);
    clean_round(&mut limiter, now);
    limiter.set(adaptive(1, 5, 500));
    assert_eq!(limiter.limit(), 40);
    limiter.set(adaptive(1, 5, 30));
    assert_eq!(limiter.limit(), 30);
    limiter.set(super::fixed(7).concurrency);
    refusal(&mut limiter, now);
    assert_eq!((limiter.limit(), limiter.cuts()), (7, 0));
    limiter.set(adaptive(1, 5, 30));
    assert_eq!(limiter.limit(), 5);
}
