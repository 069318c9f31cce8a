//! What the time to the first token does to the limit.

use std::time::Duration;

use tokio::time::Instant;

use super::{super::limiter::Limiter, adaptive, millis, secs};

struct Server {
    limiter: Limiter,
    now: Instant,
}

fn server(start: u32) -> Server {
    Server { limiter: Limiter::new(adaptive(1, start, 1_000), secs(15)), now: Instant::now() }
}

impl Server {
    /// One round of answers whose first token took so long.
    fn round(&mut self, first_token: Duration) -> u32 {
        let limit = self.limiter.limit();
        for _ in 0..limit.max(16) {
            let stamp = self.limiter.stamp(limit);
            self.limiter.first_token(stamp, first_token, self.now);
            self.limiter.answered(stamp, self.now);
        }
        self.limiter.limit()
    }
}

#[test]
fn a_server_that_takes_twice_as_long_is_asked_no_more_and_three_times_less() {
    let mut server = server(20);
    assert_eq!(server.round(secs(1)), 40);
    assert_eq!(server.round(millis(2_500)), 40);
    assert_eq!(server.round(millis(3_500)), 32);
    assert_eq!(server.limiter.cuts(), 1);
}

#[test]
fn slowness_cuts_once_in_a_horizon() {
    let mut server = server(20);
    server.round(secs(1));
    for _ in 0..5 {
        assert_eq!(server.round(secs(9)), 32);
        server.now += secs(2);
    }
    server.now += secs(5);
    assert_eq!(server.round(secs(8)), 25);
}

#[test]
fn a_rise_that_nobody_would_notice_is_none() {
    let mut server = server(20);
    server.round(millis(50));
    assert_eq!(server.round(millis(900)), 80);
}

#[test]
fn one_slow_prompt_in_many_proves_nothing() {
    let mut server = server(20);
    server.round(secs(1));
    server.limiter.first_token(server.limiter.stamp(40), secs(30), server.now);
    assert_eq!(server.round(secs(1)), 80);
}

#[test]
fn slowness_that_two_cuts_do_not_help_is_not_the_load_and_becomes_the_measure() {
    let mut server = server(100);
    server.round(secs(1));
    let mut limits = Vec::new();
    for _ in 0..6 {
        limits.push(server.round(secs(6)));
        server.now += secs(15);
    }
    assert_eq!(limits, [160, 128, 134, 140, 147, 154]);
}

#[test]
fn a_server_that_stays_slow_is_put_to_the_test_after_five_minutes() {
    let mut server = server(20);
    server.round(secs(1));
    assert_eq!(server.round(millis(2_500)), 40);
    let mut limits = Vec::new();
    for _ in 0..4 {
        server.now += secs(5 * 60);
        limits.push(server.round(millis(2_500)));
    }
    assert_eq!(limits, [32, 25, 26, 27], "two cuts in vain, and it is what it is");
}

#[test]
fn a_server_that_is_kept_too_busy_is_not_taken_for_a_slow_one() {
    let mut server = server(20);
    let mut most = 0;
    for _ in 0..1_000 {
        let load = server.limiter.limit().max(40);
        server.round(secs(1) * load / 40);
        server.now += secs(5);
        most = most.max(server.limiter.limit());
    }
    assert_eq!(most, 160);
    assert!(server.limiter.limit() < 100, "{}", server.limiter.limit());
}

#[test]
fn first_tokens_of_before_a_cut_show_nothing_of_after_it() {
    let mut server = server(20);
    server.round(secs(1));
    let before = server.limiter.stamp(40);
    server.round(secs(9));
    server.now += secs(15);
    for _ in 0..100 {
        server.limiter.first_token(before, secs(9), server.now);
    }
    assert_eq!(server.limiter.cuts(), 1);
}
