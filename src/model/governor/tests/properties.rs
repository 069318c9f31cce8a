//! Whatever order things happen in, places are conserved, kept below the limit, and given first come first served.

use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc};

use futures_util::FutureExt;
use proptest::prelude::*;
use tokio::{
    task::unconstrained,
    time::{advance, sleep},
};

use super::{
    super::{Account, Concurrency, Governor, Permit, Rates},
    adaptive, count, millis, secs,
};
use crate::domain::outcome::FaultClass;

/// The `usize` says which of those that are there, by remainder.
#[derive(Clone, Debug)]
enum Step {
    Ask,
    StopWaiting(usize),
    Send(usize),
    Answer(usize),
    Fail(usize, FaultClass),
    Leave(usize),
    Limit(u32),
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        1 => any::<usize>().prop_map(Step::StopWaiting),
        4 => any::<usize>().prop_map(Step::Send),
        3 => any::<usize>().prop_map(Step::Answer),
        1 => (any::<usize>(), prop::sample::select(FaultClass::ALL)).prop_map(|(index, class)| Step::Fail(index, class)),
        2 => any::<usize>().prop_map(Step::Leave),
        1 => (1..8_u32).prop_map(Step::Limit),
        1 => (1..20_000_u64).prop_map(Step::Later),
    ]
}

type Waiting = (u32, Pin<Box<dyn Future<Output = Permit>>>);

struct Play {
    governor: Arc<Governor>,
    asked: u32,
    waiting: VecDeque<Waiting>,
    admitted: Vec<u32>,
    permits: Vec<Permit>,
}

impl Play {
    /// Lets in whoever can be, polled in an order that must not matter.
    fn settle(&mut self) {
        loop {
            let mut moved = false;
            for index in (0..self.waiting.len()).rev() {
                // A task that is ready too often without a break is made to wait, though its turn has come.
                if let Some(permit) = unconstrained(&mut self.waiting[index].1).now_or_never() {
                    let (number, _) = self.waiting.remove(index).unwrap();
                    self.admitted.push(number);
                    self.permits.push(permit);
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    async fn step(&mut self, step: Step) {
        let permit =
            |permits: &mut Vec<Permit>, index: usize| (!permits.is_empty()).then(|| index % permits.len());
        match step {
            Step::Ask => {
                let governor = Arc::clone(&self.governor);
                self.waiting.push_back((self.asked, Box::pin(async move { governor.admit().await })));
                self.asked += 1;
            }
            Step::StopWaiting(index) => {
                if !self.waiting.is_empty() {
                    self.waiting.remove(index % self.waiting.len());
                }
            }
            Step::Send(index) => {
                if let Some(index) = permit(&mut self.permits, index) {
                    let _ = unconstrained(self.permits[index].send(1)).now_or_never();
                }
            }
            Step::Answer(index) => {
                if let Some(index) = permit(&mut self.permits, index) {
                    self.permits[index].answered(1);
                }
            }
            Step::Fail(index, class) => {
                if let Some(index) = permit(&mut self.permits, index) {
                    self.permits[index].failed(class, None);
                }
            }
            Step::Leave(index) => {
                if let Some(index) = permit(&mut self.permits, index) {
                    drop(self.permits.swap_remove(index));
                }
            }
            Step::Limit(max) => self.governor.set_concurrency(adaptive(1, max, max)),
            Step::Later(milliseconds) => advance(millis(milliseconds)).await,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn places_are_conserved_and_given_in_order(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let rates = Rates { concurrency: adaptive(1, 3, 8), horizon: secs(5), ..Rates::default() };
            let mut play = Play {
                governor: Governor::new(Account::new("a"), rates),
                asked: 0,
                waiting: VecDeque::new(),
                admitted: Vec::new(),
                permits: Vec::new(),
            };
            for step in steps {
                let (held, out) = (play.governor.view().in_flight, play.governor.view().out);
                play.step(step).await;
                play.settle();
                let view = play.governor.view();
                let limit = view.limit.unwrap();
                prop_assert_eq!(view.in_flight as usize, play.permits.len());
                prop_assert_eq!(view.waiting as usize, play.waiting.len());
                prop_assert!(view.in_flight <= limit.max(held) && view.out <= limit.max(out));
                prop_assert!(view.out <= view.in_flight);
                prop_assert!(view.waiting == 0 || view.in_flight >= limit, "somebody waits for a free place");
            }
            prop_assert!(play.admitted.is_sorted(), "{:?}", play.admitted);
            play.permits.clear();
            play.governor.set_concurrency(Concurrency::Fixed(count(1_000)));
            play.settle();
            prop_assert_eq!((play.waiting.len(), play.governor.view().waiting), (0, 0));
            play.permits.clear();
            prop_assert_eq!((play.governor.view().in_flight, play.governor.view().out), (0, 0));
            Ok(())
        })?;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_many_threads_every_one_of_those_that_wait_is_served_though_others_give_up() {
    let governor = Governor::new(Account::new("a"), super::fixed(3));
    let runs: Vec<_> = (0..300_u64)
        .map(|number| {
            let governor = Arc::clone(&governor);
            tokio::spawn(async move {
                let patience = if number % 3 == 0 { millis(number % 7) } else { secs(3_600) };
                let work = async {
                    let mut permit = governor.admit().await;
                    permit.send(1).await;
                    sleep(millis(number % 2)).await;
                    permit.answered(1);
                };
                tokio::time::timeout(patience, work).await.is_ok() || number % 3 == 0
            })
        })
        .collect();
    let served = tokio::time::timeout(secs(60), futures_util::future::join_all(runs)).await.unwrap();
    assert!(served.into_iter().all(|served| served.unwrap()));
    let view = governor.view();
    assert_eq!((view.in_flight, view.out, view.waiting, view.held_back), (0, 0, 0, 0));
}
