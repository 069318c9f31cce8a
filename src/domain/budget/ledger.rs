//! The ledger: what is spent and reserved in each budget, and who waits for room.
//!
//! Amounts are whole numbers, so totals are exact. No reservation that is granted takes what is spent and reserved
//! together above a cap; only an estimate that turns out too low can, and it is counted. Whoever waits for the same room
//! gets it in the order of arrival, work that was begun before work that was not, and has an answer at the latest when
//! nothing is in flight there.

use std::collections::{BTreeMap, VecDeque};

use super::Node;
use crate::domain::usage::NanoUsd;

/// Names a reservation; chosen by whoever asks, and never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation(pub u64);

/// What somebody wants to reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Everything that it is counted for.
    pub path: Vec<Node>,
    /// The most that can come of it.
    pub amount: NanoUsd,
    /// What would do, when no more is to be had.
    pub least: NanoUsd,
    /// Nothing of the work has been paid for yet: it is not begun with what would not carry it further.
    pub opens: bool,
}

/// What becomes of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// So much is reserved.
    Granted(NanoUsd),
    /// It does not fit in there, and waiting would not help.
    Refused(Node),
}

/// How an account stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The most that may be spent.
    pub cap: Option<NanoUsd>,
    /// What was spent.
    pub spent: NanoUsd,
    /// What is reserved by requests in flight.
    pub reserved: NanoUsd,
}

impl Standing {
    fn room(&self) -> NanoUsd {
        let taken = self.spent.get().saturating_add(self.reserved.get());
        self.cap.map_or(NanoUsd::new(u64::MAX), |cap| NanoUsd::new(cap.get().saturating_sub(taken)))
    }
}

#[derive(Debug, Default)]
struct Account {
    standing: Standing,
    /// Reservations that are open.
    in_flight: usize,
    /// Whoever waits for room here to go on, and to begin. Never with nothing in flight.
    going_on: VecDeque<Reservation>,
    beginning: VecDeque<Reservation>,
    /// Something did not fit and nothing was in flight: no work is begun any more until there is another cap.
    is_used_up: bool,
}

impl Account {
    /// Whether a wish has others before it.
    fn is_awaited(&self, opens: bool) -> bool {
        !self.going_on.is_empty() || opens && !self.beginning.is_empty()
    }

    fn queue(&mut self, opens: bool) -> &mut VecDeque<Reservation> {
        if opens { &mut self.beginning } else { &mut self.going_on }
    }

    fn first(&self) -> Option<Reservation> {
        self.going_on.front().or_else(|| self.beginning.front()).copied()
    }

    fn leave(&mut self, id: Reservation) {
        self.going_on.retain(|waits| *waits != id);
        self.beginning.retain(|waits| *waits != id);
    }
}

/// All accounts of a process.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Node, Account>,
    open: BTreeMap<Reservation, (Vec<Node>, NanoUsd)>,
    waiting: BTreeMap<Reservation, Wish>,
}

/// What can be done about a wish now.
enum Now {
    Answer(Answer),
    WaitAt(Node),
}

impl Ledger {
    /// How a node stands.
    pub fn standing(&self, node: &Node) -> Standing {
        self.accounts.get(node).map(|account| account.standing).unwrap_or_default()
    }

    /// Every node that has anything to say.
    pub fn nodes(&self) -> impl Iterator<Item = (&Node, Standing)> {
        self.accounts.iter().map(|(node, account)| (node, account.standing))
    }

    /// Whether somebody has yet to hear of this wish.
    pub fn is_waiting(&self, id: Reservation) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Counts what was spent before.
    pub fn spend(&mut self, node: Node, amount: NanoUsd) {
        self.accounts.entry(node).or_default().standing.spent += amount;
    }

    /// Sets how much may be spent in all. Returns who has an answer by that.
    #[must_use]
    pub fn set_cap(&mut self, node: Node, cap: Option<NanoUsd>) -> Vec<(Reservation, Answer)> {
        let account = self.accounts.entry(node.clone()).or_default();
        if account.standing.cap != cap {
            account.standing.cap = cap;
            account.is_used_up = false;
        }
        self.wake(&[node])
    }

    /// Reserves, at once if there is an answer at once.
    pub fn reserve(&mut self, id: Reservation, wish: Wish) -> Option<Answer> {
        let queued = wish
            .path
            .iter()
            .find(|node| self.accounts.get(node).is_some_and(|account| account.is_awaited(wish.opens)));
        let now = match queued {
            Some(node) => Now::WaitAt(node.clone()),
            None => self.examine(&wish),
        };
        match now {
            Now::Answer(answer) => {
                self.take(id, wish.path, &answer);
                Some(answer)
            }
            Now::WaitAt(node) => {
                self.accounts.entry(node).or_default().queue(wish.opens).push_back(id);
                self.waiting.insert(id, wish);
                None
            }
        }
    }

    /// Ends a reservation at what it has come to, at the whole of it if nobody knows, or a wish that nobody waits for any
    /// more. Returns who has an answer by that.
    #[must_use]
    pub fn settle(&mut self, id: Reservation, actual: Option<NanoUsd>) -> Vec<(Reservation, Answer)> {
        if let Some(wish) = self.waiting.remove(&id) {
            for node in &wish.path {
                if let Some(account) = self.accounts.get_mut(node) {
                    account.leave(id);
                }
            }
            return self.wake(&wish.path);
        }
        let Some((path, amount)) = self.open.remove(&id) else { return Vec::new() };
        for node in &path {
            let account = self.accounts.entry(node.clone()).or_default();
            let reserved = &mut account.standing.reserved;
            *reserved = NanoUsd::new(reserved.get().saturating_sub(amount.get()));
            account.standing.spent += actual.unwrap_or(amount);
            account.in_flight = account.in_flight.saturating_sub(1);
        }
        self.wake(&path)
    }

    fn examine(&self, wish: &Wish) -> Now {
        let accounts = || wish.path.iter().filter_map(|node| Some((node, self.accounts.get(node)?)));
        if let Some((node, _)) = accounts().find(|(_, account)| wish.opens && account.is_used_up) {
            return Now::Answer(Answer::Refused(node.clone()));
        }
        let short = || accounts().filter(|(_, account)| account.standing.room() < wish.amount);
        let hopeless = |account: &Account| account.in_flight == 0 && account.standing.room() < wish.least;
        if let Some((node, _)) = short().find(|(_, account)| hopeless(account)) {
            return Now::Answer(Answer::Refused(node.clone()));
        }
        if let Some((node, _)) = short().find(|(_, account)| account.in_flight > 0) {
            return Now::WaitAt(node.clone());
        }
        let room = short().map(|(_, account)| account.standing.room()).min();
        Now::Answer(Answer::Granted(room.unwrap_or(wish.amount)))
    }

    fn take(&mut self, id: Reservation, path: Vec<Node>, answer: &Answer) {
        match answer {
            Answer::Granted(amount) => {
                for node in &path {
                    let account = self.accounts.entry(node.clone()).or_default();
                    account.standing.reserved += *amount;
                    account.in_flight += 1;
                }
                self.open.insert(id, (path, *amount));
            }
            Answer::Refused(node) => self.accounts.entry(node.clone()).or_default().is_used_up = true,
        }
    }

    /// Answers whoever waits at these nodes, as far as that goes.
    fn wake(&mut self, nodes: &[Node]) -> Vec<(Reservation, Answer)> {
        let mut answered = Vec::new();
        for node in nodes {
            while let Some(id) = self.accounts.get(node).and_then(Account::first)
                && let Some(wish) = self.waiting.get(&id)
            {
                let (now, opens) = (self.examine(wish), wish.opens);
                if matches!(&now, Now::WaitAt(at) if at == node) {
                    break;
                }
                if let Some(account) = self.accounts.get_mut(node) {
                    account.queue(opens).pop_front();
                }
                match now {
                    Now::Answer(answer) => {
                        if let Some(wish) = self.waiting.remove(&id) {
                            self.take(id, wish.path, &answer);
                            answered.push((id, answer));
                        }
                    }
                    Now::WaitAt(other) => {
                        self.accounts.entry(other).or_default().queue(opens).push_back(id);
                    }
                }
            }
        }
        answered
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::id::BatchId;

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
        let spent =
            Standing { cap: Some(NanoUsd::new(100)), spent: NanoUsd::new(60), reserved: NanoUsd::new(0) };
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
    fn no_work_is_begun_in_a_budget_that_something_did_not_fit_in_until_it_is_raised() {
        let mut ledger = capped(&[(Node::Process, 100)]);
        let begins = |amount| Wish { opens: true, ..wish(&[Node::Process], amount, amount) };
        let refused = Some(Answer::Refused(Node::Process));
        assert_eq!(ledger.reserve(Reservation(1), wish(&[Node::Process], 200, 200)), refused);
        assert_eq!(ledger.reserve(Reservation(2), begins(1)), refused);
        assert_eq!(ledger.reserve(Reservation(3), wish(&[Node::Process], 50, 50)), Some(granted(50)));
        assert_eq!(ledger.set_cap(Node::Process, Some(NanoUsd::new(200))), []);
        assert_eq!(ledger.reserve(Reservation(4), begins(1)), Some(granted(1)));
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
        let cap =
            (0..3_usize, prop::option::of(0..1_000_u64)).prop_map(|(node, cap)| Step::Cap { node, cap });
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
                let reserved: u64 = open.iter().map(|(_, amount)| amount).sum();
                let process = ledger.standing(&Node::Process);
                prop_assert_eq!((process.spent.get(), process.reserved.get()), (spent, reserved));
            }
            prop_assert!(waiting.is_empty() && open.is_empty(), "{waiting:?}");
        }
    }
}
