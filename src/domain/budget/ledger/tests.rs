//! The ledger: tables for its rules, and a property for its promise.

use proptest::prelude::*;

use super::*;
use crate::domain::{budget::Period, id::BatchId};

fn wish(nodes: &[Node], amount: u64, least: u64) -> Wish {
    let (amount, least) = (NanoUsd::new(amount), NanoUsd::new(least));
    Wish { path: nodes.to_vec(), amount, least, opens: false }
}

fn granted(amount: u64) -> Answer {
    Answer::Granted(NanoUsd::new(amount))
}

fn batch(n: u8) -> Node {
    Node::Batch(BatchId::from_bytes([n; 16]))
}

fn capped(caps: &[(Node, u64)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (node, cap) in caps {
        assert_eq!(ledger.set_cap(node.clone(), Some(NanoUsd::new(*cap))), []);
    }
    ledger
}

#[test]
fn a_request_that_does_not_fit_waits_for_those_in_flight_and_is_refused_when_there_are_none() {
    let path = [Node::Process, batch(1)];
    let mut ledger = capped(&[(batch(1), 100)]);
    let [one, two, three] = [1, 2, 3].map(Reservation);
    assert_eq!(ledger.reserve(one, wish(&path, 80, 80)), Some(granted(80)));
    assert_eq!(ledger.reserve(two, wish(&path, 60, 60)), None);
    assert_eq!(ledger.reserve(three, wish(&path, 10, 10)), None, "nobody overtakes");
    let answers = ledger.settle(one, Some(NanoUsd::new(50)));
    assert_eq!(answers, [(two, Answer::Refused(batch(1))), (three, granted(10))]);
    assert_eq!(ledger.settle(three, None), []);
    let spent = Standing { cap: Some(NanoUsd::new(100)), spent: NanoUsd::new(60), reserved: NanoUsd::new(0) };
    assert_eq!(ledger.standing(&batch(1)), spent);
    assert_eq!(ledger.standing(&Node::Process), Standing { cap: None, ..spent });
}

#[test]
fn what_would_do_is_granted_only_when_nothing_in_flight_could_make_room() {
    let mut ledger = capped(&[(Node::Process, 100)]);
    let [one, two, three] = [1, 2, 3].map(Reservation);
    assert_eq!(ledger.reserve(one, wish(&[Node::Process], 70, 70)), Some(granted(70)));
    assert_eq!(ledger.reserve(two, wish(&[Node::Process], 60, 20)), None);
    assert_eq!(ledger.settle(one, None), [(two, granted(30))]);
    assert_eq!(ledger.settle(two, None), []);
    assert_eq!(ledger.reserve(three, wish(&[Node::Process], 1, 1)), Some(Answer::Refused(Node::Process)));
}

#[test]
fn what_one_batch_waits_for_is_no_other_batchs_concern() {
    let mut ledger = capped(&[(batch(1), 100)]);
    let [one, two, three] = [1, 2, 3].map(Reservation);
    assert_eq!(ledger.reserve(one, wish(&[Node::Process, batch(1)], 80, 80)), Some(granted(80)));
    assert_eq!(ledger.reserve(two, wish(&[Node::Process, batch(1)], 80, 80)), None);
    assert_eq!(ledger.reserve(three, wish(&[Node::Process, batch(2)], 80, 80)), Some(granted(80)));
}

#[test]
fn work_that_was_begun_goes_before_work_that_was_not() {
    let mut ledger = capped(&[(Node::Process, 100)]);
    let [one, two, three] = [1, 2, 3].map(Reservation);
    assert_eq!(ledger.reserve(one, wish(&[Node::Process], 100, 100)), Some(granted(100)));
    let begins = Wish { opens: true, ..wish(&[Node::Process], 60, 60) };
    assert_eq!(ledger.reserve(two, begins), None);
    assert_eq!(ledger.reserve(three, wish(&[Node::Process], 60, 60)), None);
    assert_eq!(ledger.settle(one, Some(NanoUsd::new(0))), [(three, granted(60))]);
    assert_eq!(ledger.settle(three, Some(NanoUsd::new(0))), [(two, granted(60))]);
}

#[test]
fn no_work_of_a_batch_is_begun_once_something_did_not_fit_until_its_cap_is_raised() {
    let mut ledger = capped(&[(batch(1), 100)]);
    let begins = |amount| Wish { opens: true, ..wish(&[batch(1)], amount, amount) };
    let refused = Some(Answer::Refused(batch(1)));
    assert_eq!(ledger.reserve(Reservation(1), wish(&[batch(1)], 200, 200)), refused);
    assert_eq!(ledger.reserve(Reservation(2), begins(1)), refused);
    assert_eq!(ledger.reserve(Reservation(3), wish(&[batch(1)], 50, 50)), Some(granted(50)));
    assert_eq!(ledger.set_cap(batch(1), Some(NanoUsd::new(200))), []);
    assert_eq!(ledger.reserve(Reservation(4), begins(1)), Some(granted(1)));
}

#[test]
fn what_did_not_fit_in_a_shared_budget_keeps_nothing_cheaper_from_beginning() {
    let today = |user: &str| Node::User { user: user.into(), per: Period::Day, since: Timestamp::default() };
    for shared in [Node::Process, today("a")] {
        let mut ledger = capped(&[(shared.clone(), 100)]);
        let dear = [shared.clone(), batch(1)];
        assert_eq!(
            ledger.reserve(Reservation(1), wish(&dear, 200, 200)),
            Some(Answer::Refused(shared.clone()))
        );
        let begins = Wish { opens: true, ..wish(&[shared, batch(2)], 60, 60) };
        assert_eq!(ledger.reserve(Reservation(2), begins), Some(granted(60)));
    }
}

#[test]
fn what_is_over_goes_once_nothing_is_open_there_and_is_counted_anew() {
    let mut ledger = capped(&[(batch(1), 100)]);
    assert_eq!(ledger.reserve(Reservation(1), wish(&[Node::Process, batch(1)], 60, 60)), Some(granted(60)));
    ledger.forget(&batch(1));
    assert!(ledger.knows(&batch(1)));
    assert_eq!(ledger.settle(Reservation(1), None), []);
    assert!(!ledger.knows(&batch(1)) && ledger.knows(&Node::Process));
    assert_eq!(ledger.sums().collect::<Vec<_>>(), [("batch", Sum::default()), ("process", sum(0, 60, 0))]);
    ledger.spend(batch(1), NanoUsd::new(60));
    assert_eq!(ledger.standing(&batch(1)).spent, NanoUsd::new(60));
}

#[test]
fn periods_that_are_over_go_and_those_that_run_stay() {
    let day = |since| Node::User { user: "a".into(), per: Period::Day, since: Timestamp::from_micros(since) };
    let total = Node::User { user: "a".into(), per: Period::Total, since: Timestamp::default() };
    let next = 24 * 60 * 60 * 1_000_000;
    let mut ledger = capped(&[(day(0), 5), (day(next), 5), (total.clone(), 5)]);
    ledger.forget_periods(Timestamp::from_micros(next));
    assert_eq!([day(0), day(next), total].map(|node| ledger.knows(&node)), [false, true, true]);
    assert_eq!(ledger.sums().collect::<Vec<_>>(), [("user", sum(10, 0, 0))]);
}

const fn sum(caps: u128, spent: u128, reserved: u128) -> Sum {
    Sum { caps, spent, reserved }
}

#[test]
fn a_raised_cap_answers_whoever_waits_and_one_who_went_away_holds_nobody_up() {
    let mut ledger = capped(&[(Node::Process, 100)]);
    let [one, two, three] = [1, 2, 3].map(Reservation);
    assert_eq!(ledger.reserve(one, wish(&[Node::Process], 90, 90)), Some(granted(90)));
    assert_eq!(ledger.reserve(two, wish(&[Node::Process], 200, 200)), None);
    assert_eq!(ledger.reserve(three, wish(&[Node::Process], 30, 30)), None);
    assert_eq!(ledger.settle(two, None), []);
    assert_eq!(ledger.set_cap(Node::Process, Some(NanoUsd::new(120))), [(three, granted(30))]);
}

#[derive(Clone, Debug)]
enum Step {
    Reserve {
        path: usize,
        amount: u64,
        least: u64,
        opens: bool,
    },
    /// Of one that is open: so many percent of it.
    Settle {
        which: usize,
        percent: Option<u64>,
    },
    Cap {
        node: usize,
        cap: Option<u64>,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let reserve =
        (0..3_usize, 1..200_u64, 0..100_u64, any::<bool>()).prop_map(|(path, amount, percent, opens)| {
            Step::Reserve { path, amount, least: amount * percent / 100, opens }
        });
    let settle = (any::<prop::sample::Index>(), prop::option::of(0..=100_u64))
        .prop_map(|(which, percent)| Step::Settle { which: which.index(64), percent });
    let cap = (0..3_usize, prop::option::of(0..1_000_u64)).prop_map(|(node, cap)| Step::Cap { node, cap });
    prop::collection::vec(prop_oneof![4 => reserve, 4 => settle, 1 => cap], 1..200)
}

proptest! {
    #[test]
    fn no_cap_is_ever_passed_by_what_was_admitted_and_everybody_has_an_answer_in_the_end(steps in steps()) {
        let nodes = [Node::Process, batch(1), batch(2)];
        let paths = [vec![nodes[0].clone()], vec![nodes[0].clone(), nodes[1].clone()], vec![nodes[0].clone(), nodes[2].clone()]];
        let mut ledger = Ledger::default();
        let (mut open, mut waiting, mut spent) = (Vec::new(), Vec::new(), 0);
        let mut next = 0;
        // What was within its cap before a step is so after it; a cap may be set below what is spent.
        let within = |ledger: &Ledger, node: &Node| {
            let Standing { cap, spent, reserved } = ledger.standing(node);
            cap.is_none_or(|cap| spent.get() + reserved.get() <= cap.get())
        };
        let end = [Step::Settle { which: 0, percent: None }];
        for step in steps.iter().chain(std::iter::repeat_n(&end[0], 400)) {
            let before = nodes.clone().map(|node| within(&ledger, &node));
            let taken = nodes.clone().map(|node| ledger.standing(&node)).map(|one| one.spent.get() + one.reserved.get());
            let mut answers = Vec::new();
            match step.clone() {
                Step::Reserve { path, amount, least, opens } => {
                    next += 1;
                    let id = Reservation(next);
                    let wish = Wish { opens, ..wish(&paths[path], amount, least) };
                    waiting.push((id, amount, least));
                    answers.extend(ledger.reserve(id, wish).map(|answer| (id, answer)));
                }
                Step::Settle { which, percent } if !open.is_empty() => {
                    let (id, amount): (Reservation, u64) = open.remove(which % open.len());
                    let actual = percent.map(|percent| NanoUsd::new(amount * percent / 100));
                    spent += actual.map_or(amount, NanoUsd::get);
                    answers = ledger.settle(id, actual);
                }
                Step::Settle { .. } => {}
                Step::Cap { node, cap } => answers = ledger.set_cap(nodes[node].clone(), cap.map(NanoUsd::new)),
            }
            let is_cap = matches!(step, Step::Cap { .. });
            for (id, answer) in answers {
                let place = waiting.iter().position(|(waits, ..)| *waits == id).expect("one that waited");
                let (_, amount, least) = waiting.remove(place);
                if let Answer::Granted(granted) = answer {
                    prop_assert!((least..=amount).contains(&granted.get()));
                    open.push((id, granted.get()));
                }
            }
            for ((node, before), taken) in nodes.iter().zip(before).zip(taken) {
                let now = ledger.standing(node);
                let grew = now.spent.get() + now.reserved.get() > taken;
                prop_assert!(within(&ledger, node) || !grew && (is_cap || !before));
            }
            let mut sums = std::collections::BTreeMap::<_, Sum>::new();
            for (node, standing) in ledger.nodes() {
                let sum = sums.entry(node.kind()).or_default();
                *sum = sum.replaced(Sum::default(), Sum::of(standing));
            }
            prop_assert_eq!(ledger.sums().collect::<Vec<_>>(), sums.into_iter().collect::<Vec<_>>());
            let reserved: u64 = open.iter().map(|(_, amount)| amount).sum();
            let process = ledger.standing(&Node::Process);
            prop_assert_eq!((process.spent.get(), process.reserved.get()), (spent, reserved));
        }
        prop_assert!(waiting.is_empty() && open.is_empty(), "{waiting:?}");
    }
}
