//! The root's accounts: whatever costs money asks here first, and says here what it has come to.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use tokio::sync::oneshot;

use super::{
    notice::{Notice, Notices},
    root::{Root, Tree},
};
use crate::{
    actor::Services,
    domain::{
        budget::{Answer, Ledger, Node, Reservation, Standing, Sum, UserBudget, Wish, nodes_of},
        task::TaskSpec,
        time::Timestamp,
        usage::NanoUsd,
    },
    telemetry::metric,
};

/// A request that is to be paid for.
#[derive(Debug)]
pub struct Reserve {
    /// Names the reservation.
    pub id: Reservation,
    /// The task that it is for: says whose budgets it counts for.
    pub spec: Arc<TaskSpec>,
    /// The most that it can cost.
    pub amount: NanoUsd,
    /// What would do.
    pub least: NanoUsd,
    /// Nothing was spent on the run yet.
    pub opens: bool,
    /// Told once there is an answer. Whoever does not wait for it any more settles.
    pub reply: oneshot::Sender<Answer>,
}

/// The accounts, and who waits for an answer.
pub(super) struct Accounts {
    ledger: Ledger,
    budgets: Vec<UserBudget>,
    asking: HashMap<Reservation, oneshot::Sender<Answer>>,
    notices: Notices,
    /// Budgets of which it was told that most is spent.
    told: BTreeSet<Node>,
}

impl Accounts {
    pub(super) fn new(services: &Services, notices: Notices) -> Self {
        let mut ledger = Ledger::default();
        if let Some(cap) = services.settings.max_cost {
            // Nobody waits yet.
            let _ = ledger.set_cap(Node::Process, Some(cap));
        }
        Self {
            ledger,
            budgets: services.settings.budgets.clone(),
            asking: HashMap::new(),
            notices,
            told: BTreeSet::new(),
        }
    }

    fn tell(&mut self, answers: Vec<(Reservation, Answer)>) {
        for (id, answer) in answers {
            if let Some(reply) = self.asking.remove(&id) {
                // Whoever asked and has gone settles.
                let _ = reply.send(answer);
            }
        }
    }

    /// Says it once of each of these that most of it is spent.
    fn warn(&mut self, nodes: &[Node]) {
        for node in nodes {
            let standing = self.ledger.standing(node);
            if standing.is_near_cap() && self.told.insert(node.clone()) {
                self.notices.tell(Notice::NearCap(node.clone(), standing));
            }
        }
    }

    fn show(&self) {
        let usd = |nano: u128| NanoUsd::new(u64::try_from(nano).unwrap_or(u64::MAX)).usd();
        for (kind, Sum { caps, spent, reserved }) in self.ledger.sums() {
            metrics::gauge!(metric::BUDGET_SPENT, "kind" => kind).set(usd(spent));
            metrics::gauge!(metric::BUDGET_RESERVED, "kind" => kind).set(usd(reserved));
            metrics::gauge!(metric::BUDGET_CAP, "kind" => kind).set(usd(caps));
        }
    }
}

impl Root {
    pub(super) fn reserve(&self, tree: &mut Tree, reserve: Reserve) {
        let Reserve { id, spec, amount, least, opens, reply } = reserve;
        let accounts = &mut tree.accounts;
        let mut path = nodes_of(&spec);
        let now = self.services.clock.now();
        for (node, cap) in accounts.of_user(&spec, now) {
            if !accounts.ledger.knows(&node) {
                accounts.ledger.forget_periods(now);
            }
            let answers = accounts.ledger.set_cap(node.clone(), Some(cap));
            accounts.tell(answers);
            path.push(node);
        }
        match accounts.ledger.reserve(id, Wish { path, amount, least, opens }) {
            // Whoever asked and has gone settles.
            Some(answer) => drop(reply.send(answer)),
            None => drop(accounts.asking.insert(id, reply)),
        }
    }
}

impl Accounts {
    fn of_user(&self, spec: &TaskSpec, now: Timestamp) -> Vec<(Node, NanoUsd)> {
        spec.owner.as_ref().map(|owner| UserBudget::of(&self.budgets, owner, now)).unwrap_or_default()
    }

    pub(super) fn settle(&mut self, id: Reservation, actual: Option<NanoUsd>) {
        self.asking.remove(&id);
        let path = self.ledger.path(id).to_vec();
        let answers = self.ledger.settle(id, actual);
        self.tell(answers);
        self.warn(&path);
        self.show();
    }

    pub(super) fn set_cap(&mut self, node: Node, cap: Option<NanoUsd>) {
        let answers = self.ledger.set_cap(node.clone(), cap);
        self.tell(answers);
        self.warn(&[node]);
        self.show();
    }

    pub(super) fn spent(&mut self, node: Node, amount: NanoUsd) {
        self.ledger.spend(node.clone(), amount);
        self.warn(&[node]);
        self.show();
    }

    pub(super) fn forget(&mut self, node: &Node) {
        self.ledger.forget(node);
        self.show();
    }

    pub(super) fn set_budgets(&mut self, budgets: Vec<UserBudget>) {
        self.budgets = budgets;
    }

    pub(super) fn standings(&self) -> Vec<(Node, Standing)> {
        self.ledger.nodes().map(|(node, standing)| (node.clone(), standing)).collect()
    }
}
