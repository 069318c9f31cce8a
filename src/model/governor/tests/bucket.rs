//! What passes in a minute, with the time set by hand.

use std::time::Duration;

use tokio::time::Instant;

use super::{super::bucket::Bucket, Dice, millis, secs};

const MINUTE: Duration = Duration::from_secs(60);

/// Takes `units` as early as it may; says when.
fn take(bucket: &mut Bucket, units: u64, now: Instant) -> Instant {
    let ready = bucket.ready(units, now);
    bucket.take(units, ready);
    ready
}

#[test]
fn no_minute_sees_more_than_the_allowance_wherever_it_begins() {
    for allowance in [1, 2, 3, 19, 20, 60, 599, 1_200] {
        let start = Instant::now();
        let mut dice = Dice(allowance);
        let mut bucket = Bucket::new(allowance, start);
        let mut now = start;
        let mut taken = Vec::new();
        while now < start + 5 * MINUTE {
            now = take(&mut bucket, 1, now);
            taken.push(now);
            // Pauses let a burst gather.
            if dice.share() < 0.02 {
                now += dice.between(Duration::ZERO, secs(20));
            }
        }
        for (index, from) in taken.iter().enumerate() {
            let within = taken[index..].iter().take_while(|at| **at < *from + MINUTE).count();
            assert!(within as u64 <= allowance, "{within} of {allowance}");
        }
    }
}

#[test]
fn under_constant_demand_hardly_any_of_the_allowance_is_lost() {
    for allowance in [1, 10, 60, 1_000] {
        let start = Instant::now();
        let mut bucket = Bucket::new(allowance, start);
        let mut now = start;
        for _ in 0..allowance * 10 {
            now = take(&mut bucket, 1, now);
        }
        let ideal = MINUTE.as_secs_f64() * 10.0;
        assert!((now - start).as_secs_f64() < ideal * 1.06, "{allowance}: {:?}", now - start);
    }
}

#[test]
fn large_takes_exceed_the_allowance_of_a_minute_by_less_than_one_of_them() {
    let start = Instant::now();
    let mut dice = Dice(3);
    let mut bucket = Bucket::new(100_000, start);
    let mut now = start;
    let mut taken = Vec::new();
    for _ in 0..300 {
        let units = 1 + dice.next() % 20_000;
        now = take(&mut bucket, units, now);
        taken.push((now, units));
    }
    for (index, (from, _)) in taken.iter().enumerate() {
        let within: Vec<u64> = taken[index..]
            .iter()
            .take_while(|(at, _)| *at < *from + MINUTE)
            .map(|(_, units)| *units)
            .collect();
        let last = within.last().unwrap().saturating_sub(5_000);
        assert!(within.iter().sum::<u64>() <= 100_000 + last);
    }
}

#[test]
fn a_take_beyond_the_whole_allowance_goes_alone_and_then_its_debt_is_waited_for() {
    let start = Instant::now();
    let mut bucket = Bucket::new(1_000, start);
    assert_eq!(take(&mut bucket, 3_000, start), start);
    let next = take(&mut bucket, 1, start) - start;
    assert!(next > secs(180) && next < secs(200), "{next:?}");
}

#[test]
fn an_absurd_estimate_is_waited_for_no_longer_than_ten_minutes() {
    let start = Instant::now();
    let mut bucket = Bucket::new(1_000, start);
    bucket.take(u64::MAX, start);
    assert!(bucket.ready(1, start) - start < 11 * MINUTE);
}

#[test]
fn what_was_not_used_comes_back_and_what_was_used_beyond_is_a_debt() {
    let start = Instant::now();
    let mut bucket = Bucket::new(60_000, start);
    bucket.take(3_000, start);
    assert!(bucket.ready(3_000, start) > start + secs(3));
    bucket.settle(3_000, 0);
    assert_eq!(bucket.ready(3_000, start), start);
    bucket.take(100, start);
    bucket.settle(100, 30_000);
    assert!(bucket.ready(1, start) > start + secs(25));
    assert_eq!(bucket.left(start + millis(1)) / 1_000, 30);
}

#[test]
fn a_bucket_is_never_more_than_full() {
    let start = Instant::now();
    let mut bucket = Bucket::new(60, start);
    bucket.settle(1_000, 0);
    let mut sent = 0;
    while bucket.ready(1, start) == start {
        bucket.take(1, start);
        sent += 1;
    }
    assert_eq!(sent, 3);
}
