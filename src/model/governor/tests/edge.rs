//! The queues and the waiting, on a clock that stands still.

use std::{future::Future, pin::pin, sync::Arc, task::Poll};

use futures_util::{FutureExt, poll};
use tokio::{
    task::yield_now,
    time::{Instant, advance},
};

use super::{
    super::{Account, Concurrency, Governor, LatchReason, Latched, Permit, RateLimits, Rates, Window},
    adaptive, count, fixed, secs,
};
use crate::domain::outcome::FaultClass;

fn governor(rates: Rates) -> Arc<Governor> {
    Governor::new(Account::new("a"), rates)
}

fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    future.now_or_never()
}

async fn sent(governor: &Arc<Governor>) -> Permit {
    let mut permit = governor.admit().await;
    permit.send(1).await;
    permit
}

#[tokio::test(start_paused = true)]
async fn as_many_are_admitted_as_there_are_places() {
    let governor = governor(fixed(2));
    let first = at_once(governor.admit()).unwrap();
    let _second = at_once(governor.admit()).unwrap();
    assert!(at_once(governor.admit()).is_none());
    drop(first);
    assert!(at_once(governor.admit()).is_some());
}

#[tokio::test(start_paused = true)]
async fn who_comes_first_is_admitted_first_and_nobody_overtakes() {
    let governor = governor(fixed(1));
    let held = governor.admit().await;
    let (mut first, mut second) = (pin!(governor.admit()), pin!(governor.admit()));
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    drop(held);
    assert!(at_once(governor.admit()).is_none(), "there are others before it");
    assert!(poll!(&mut second).is_pending());
    let Poll::Ready(place) = poll!(&mut first) else { panic!("it was first") };
    assert!(poll!(&mut second).is_pending());
    drop(place);
    assert!(poll!(&mut second).is_ready());
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_has_left_at_once_even_with_the_place_in_hand() {
    let governor = governor(fixed(1));
    let held = governor.admit().await;
    let mut first = Box::pin(governor.admit());
    let mut second = pin!(governor.admit());
    assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
    assert_eq!(governor.view().waiting, 2);
    drop(held);
    drop(first);
    assert_eq!(governor.view().waiting, 1);
    assert!(poll!(&mut second).is_ready());
    assert_eq!((governor.view().waiting, governor.view().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_is_kept_through_the_back_off() {
    let governor = governor(fixed(1));
    let mut permit = sent(&governor).await;
    permit.failed(FaultClass::Overloaded, None);
    assert!(at_once(governor.admit()).is_none());
    assert_eq!((governor.view().in_flight, governor.view().out), (1, 0));
    assert!(at_once(permit.send(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn after_a_cut_those_with_a_place_send_again_only_as_the_limit_allows() {
    let governor = governor(Rates { concurrency: adaptive(1, 2, 2), ..Rates::default() });
    let (mut refused, mut other) = (sent(&governor).await, sent(&governor).await);
    refused.failed(FaultClass::RateLimit, None);
    assert_eq!((governor.view().limit, governor.view().cuts), (Some(1), 1));
    assert!(at_once(refused.send(1)).is_none());
    assert!(!governor.has_room());
    {
        let mut again = pin!(refused.send(1));
        assert!(poll!(&mut again).is_pending());
        other.answered(1);
        assert!(poll!(&mut again).is_ready());
    }
    drop(other);
    assert!(at_once(governor.admit()).is_none());
    drop(refused);
    assert!(at_once(governor.admit()).is_some());
}

#[tokio::test(start_paused = true)]
async fn sending_waits_for_the_minute_and_keeps_its_order() {
    let rates = Rates { requests_per_minute: Some(count(1)), ..fixed(3) };
    let governor = governor(rates);
    let start = Instant::now();
    let mut permits = [governor.admit().await, governor.admit().await, governor.admit().await];
    let mut times = Vec::new();
    for permit in &mut permits {
        permit.send(1).await;
        times.push(start.elapsed().as_secs());
    }
    assert_eq!(times, [0, 60, 120]);
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_to_send_counts_for_nothing() {
    let governor = governor(Rates { requests_per_minute: Some(count(1)), ..fixed(3) });
    let start = Instant::now();
    let mut permits = [governor.admit().await, governor.admit().await, governor.admit().await];
    let [first, second, third] = &mut permits;
    first.send(1).await;
    {
        let mut left = pin!(second.send(1));
        assert!(poll!(&mut left).is_pending());
        assert_eq!(governor.view().held_back, 1);
    }
    assert_eq!(governor.view().held_back, 0);
    third.send(1).await;
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_word_that_frees_the_way_wakes_who_waits_to_send() {
    let governor = governor(fixed(3));
    let (mut one, mut other) = (sent(&governor).await, governor.admit().await);
    let word = |remaining| RateLimits {
        requests: Some(Window { limit: None, remaining: Some(remaining), reset: Some(secs(50)) }),
        tokens: None,
    };
    one.told(&word(0));
    let start = Instant::now();
    let waiting = tokio::spawn(async move { other.send(1).await });
    yield_now().await;
    one.told(&word(100));
    waiting.await.unwrap();
    assert_eq!(start.elapsed(), secs(0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_admitted_or_sent_while_the_account_is_shut() {
    for rates in [fixed(3), Rates { concurrency: Concurrency::Unlimited, ..Rates::default() }] {
        let governor = governor(rates);
        let mut permit = governor.admit().await;
        let shut = |seconds| Latched {
            reason: LatchReason::Quota,
            until: Some(Instant::now() + secs(seconds)),
            said: "".into(),
        };
        governor.account().shut(shut(30));
        assert!(!governor.has_room());
        let start = Instant::now();
        assert!(at_once(governor.admit()).is_none());
        permit.send(1).await;
        assert_eq!(start.elapsed(), secs(30));
        governor.account().shut(shut(1_000));
        let mut admitted = pin!(governor.admit());
        assert!(poll!(&mut admitted).is_pending());
        governor.account().open();
        assert!(poll!(&mut admitted).is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn there_is_room_until_places_waiting_and_pledges_make_up_the_limit() {
    let governor = governor(fixed(2));
    let pledge = governor.pledge();
    assert!(governor.has_room());
    let permit = governor.admit().await;
    assert!(!governor.has_room());
    assert!(at_once(governor.admit()).is_some(), "a pledge keeps nobody out");
    let mut room = governor.room();
    drop(pledge);
    assert!(room.has_changed().unwrap() && governor.has_room());
    room.mark_unchanged();
    drop(permit);
    assert!(!room.has_changed().unwrap(), "there was room already");
}

#[tokio::test(start_paused = true)]
async fn room_is_told_when_the_limit_rises_and_when_the_account_is_opened() {
    let governor = governor(fixed(1));
    let _permit = governor.admit().await;
    let mut room = governor.room();
    governor.set_concurrency(Concurrency::Fixed(count(2)));
    assert!(room.has_changed().unwrap());
    room.mark_unchanged();
    governor.account().shut(Latched { reason: LatchReason::Auth, until: None, said: "".into() });
    governor.account().open();
    assert!(room.has_changed().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_higher_limit_lets_in_who_waits() {
    let governor = governor(fixed(1));
    let _held = governor.admit().await;
    let mut waiting = [Box::pin(governor.admit()), Box::pin(governor.admit())];
    assert!(waiting.iter_mut().all(|waiting| waiting.now_or_never().is_none()));
    governor.set_concurrency(Concurrency::Fixed(count(3)));
    let [first, second] = waiting;
    let _places = (first.await, second.await);
    assert_eq!(governor.view().in_flight, 3);
}

#[tokio::test(start_paused = true)]
async fn without_any_limit_nobody_waits_and_nobody_is_counted() {
    let governor = governor(Rates { concurrency: Concurrency::Unlimited, ..Rates::default() });
    let mut permits: Vec<Permit> = Vec::new();
    for _ in 0..5_000 {
        permits.push(at_once(sent(&governor)).unwrap());
    }
    assert!(governor.has_room());
    assert_eq!((governor.view().limit, governor.view().in_flight), (None, 0));
    governor.set_concurrency(Concurrency::Fixed(count(1)));
    drop(permits);
    let _held = at_once(governor.admit()).unwrap();
    assert!(at_once(governor.admit()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nothing_was_said_of_is_no_longer_out() {
    let governor = governor(fixed(1));
    let mut permit = sent(&governor).await;
    permit.send(1).await;
    assert_eq!(governor.view().out, 1);
    drop(permit);
    assert_eq!((governor.view().out, governor.view().in_flight), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_view_tells_when_the_next_cut_may_come() {
    let governor = governor(Rates { horizon: secs(2), ..Rates::default() });
    let mut permit = sent(&governor).await;
    permit.failed(FaultClass::RateLimit, None);
    assert_eq!(governor.view().horizon, Some(Instant::now() + secs(2)));
    advance(secs(2)).await;
    assert_eq!(governor.view().horizon, None);
}
