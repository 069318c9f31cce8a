//! The ledger: what is spent and reserved in each budget, and who waits for room.
//!
//! Amounts are whole numbers, so totals are exact. No reservation that is granted takes what is spent and reserved
//! together above a cap; only an estimate that turns out too low can, and it is counted. Whoever waits for the same room
//! gets it in the order of arrival, work that was begun before work that was not, and has an answer at the latest when
//! nothing is in flight there.

use std::collections::{BTreeMap, VecDeque};

use super::Node;
use crate::domain::{time::Timestamp, usage::NanoUsd};

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
    /// Whether more than four fifths of the most that may be spent are.
    pub fn is_near_cap(&self) -> bool {
        self.cap.is_some_and(|cap| u128::from(self.spent.get()) * 5 > u128::from(cap.get()) * 4)
    }

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
    /// Nothing more is to come: it goes as soon as nothing is open there.
    is_over: bool,
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

/// How all accounts of a kind stand together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The caps of those that have one.
    pub caps: u128,
    /// What was spent.
    pub spent: u128,
    /// What is reserved.
    pub reserved: u128,
}

impl Sum {
    /// Of one account.
    fn of(Standing { cap, spent, reserved }: Standing) -> Self {
        let [caps, spent, reserved] =
            [cap.unwrap_or_default(), spent, reserved].map(|usd| u128::from(usd.get()));
        Self { caps, spent, reserved }
    }

    /// With one that was `before` as it is `now`.
    const fn replaced(self, before: Self, now: Self) -> Self {
        Self {
            caps: self.caps + now.caps - before.caps,
            spent: self.spent + now.spent - before.spent,
            reserved: self.reserved + now.reserved - before.reserved,
        }
    }
}

/// All accounts of a process.
#[derive(Debug, Default)]
pub struct Ledger {
    sums: BTreeMap<&'static str, Sum>,
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

    /// Sums of the accounts of each kind, by its name.
    pub fn sums(&self) -> impl Iterator<Item = (&'static str, Sum)> {
        self.sums.iter().map(|(kind, sum)| (*kind, *sum))
    }

    /// Whether anything is known of a node.
    pub fn knows(&self, node: &Node) -> bool {
        self.accounts.contains_key(node)
    }

    /// Whether somebody has yet to hear of this wish.
    pub fn is_waiting(&self, id: Reservation) -> bool {
        self.waiting.contains_key(&id)
    }

    /// Counts what was spent before.
    pub fn spend(&mut self, node: Node, amount: NanoUsd) {
        self.change(&node, |account| {
            if std::mem::take(&mut account.is_over) {
                // What was counted there is in what is counted now.
                account.standing.spent = NanoUsd::default();
            }
            account.standing.spent += amount;
        });
    }

    /// Nothing more is to come there, or it is counted anew.
    pub fn forget(&mut self, node: &Node) {
        if let Some(account) = self.accounts.get_mut(node) {
            account.is_over = true;
            self.drop_over(std::slice::from_ref(node));
        }
    }

    /// Nothing more is to come for periods that were over by `now`.
    pub fn forget_periods(&mut self, now: Timestamp) {
        let is_over = |node: &&Node| node.until().is_some_and(|until| until <= now);
        let over: Vec<Node> = self.accounts.keys().filter(is_over).cloned().collect();
        over.iter().for_each(|node| self.forget(node));
    }

    fn drop_over(&mut self, nodes: &[Node]) {
        for node in nodes {
            let goes =
                |account: &Account| account.is_over && account.in_flight == 0 && account.first().is_none();
            if self.accounts.get(node).is_some_and(goes) {
                self.change(node, |account| account.standing = Standing::default());
                self.accounts.remove(node);
            }
        }
    }

    /// Changes an account, and the sum that it is in.
    fn change(&mut self, node: &Node, change: impl FnOnce(&mut Account)) {
        let account = self.accounts.entry(node.clone()).or_default();
        let before = Sum::of(account.standing);
        change(account);
        let sum = self.sums.entry(node.kind()).or_default();
        *sum = sum.replaced(before, Sum::of(account.standing));
    }

    /// Sets how much may be spent in all. Returns who has an answer by that.
    #[must_use]
    pub fn set_cap(&mut self, node: Node, cap: Option<NanoUsd>) -> Vec<(Reservation, Answer)> {
        self.change(&node, |account| {
            if account.standing.cap != cap {
                account.standing.cap = cap;
                account.is_used_up = false;
            }
        });
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

    /// The nodes of a reservation that is open.
    pub fn path(&self, id: Reservation) -> &[Node] {
        self.open.get(&id).map(|(path, _)| path.as_slice()).unwrap_or_default()
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
            let answers = self.wake(&wish.path);
            self.drop_over(&wish.path);
            return answers;
        }
        let Some((path, amount)) = self.open.remove(&id) else { return Vec::new() };
        for node in &path {
            self.change(node, |account| {
                let reserved = &mut account.standing.reserved;
                *reserved = NanoUsd::new(reserved.get().saturating_sub(amount.get()));
                account.standing.spent += actual.unwrap_or(amount);
                account.in_flight = account.in_flight.saturating_sub(1);
            });
        }
        let answers = self.wake(&path);
        self.drop_over(&path);
        answers
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
                    self.change(node, |account| {
                        account.standing.reserved += *amount;
                        account.in_flight += 1;
                    });
                }
                self.open.insert(id, (path, *amount));
            }
            // What others share may yet do for something cheaper.
            Answer::Refused(node @ Node::Batch(_)) => self.change(node, |account| account.is_used_up = true),
            Answer::Refused(Node::Process | Node::User { .. }) => {}
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
mod tests;
