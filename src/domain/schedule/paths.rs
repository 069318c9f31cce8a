//! The paths that are touched, as a tree of their components, and who claims what at each.
//!
//! A claim is barred if the first job in the queue of a kind that bars it is an earlier one. Tickets only grow, so
//! a queue's first job only moves back: a claim once free stays free, and each barrier is lifted exactly once,
//! when that first job moves past it. A path that nothing claims is forgotten.

use std::{collections::BTreeMap, iter, sync::Arc};

use super::{Ticket, claim::Claim, jobs::Jobs, queue::Queue, slab::Slab};
use crate::domain::call::Access;

/// A job's claim at the path of one of its accesses; those above follow from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    node: usize,
    claim: Claim,
}

#[derive(Debug, Default)]
struct Node {
    /// The folder that it is in, and its name there; the root has none.
    place: Option<(usize, Arc<str>)>,
    children: BTreeMap<Arc<str>, usize>,
    queues: [Queue; Claim::COUNT],
    claims: usize,
}

impl Node {
    /// Adds a claim of the latest job and returns how many kinds of earlier claims bar it.
    fn enter(&mut self, claim: Claim, ticket: Ticket) -> usize {
        self.queues[claim as usize].push(ticket);
        self.claims += 1;
        self.barriers(claim, ticket).count()
    }

    /// Gives up a claim and lifts the barriers that only it was.
    fn leave(&mut self, claim: Claim, ticket: Ticket, jobs: &mut Jobs) {
        self.claims -= 1;
        let queue = &mut self.queues[claim as usize];
        if !queue.leave(ticket, |ticket| jobs.has(ticket)) {
            return;
        }
        let next = queue.first();
        for &barred in claim.bars() {
            for waiting in self.queues[barred as usize].between(ticket, next) {
                jobs.lift_barrier(waiting);
            }
        }
    }

    /// Returns the first job of each kind of claim that bars this one, where that job is an earlier one.
    fn barriers(&self, claim: Claim, ticket: Ticket) -> impl Iterator<Item = Ticket> {
        let first = move |&kind: &Claim| self.queues[kind as usize].first();
        claim.bars().iter().filter_map(first).filter(move |&first| first < ticket)
    }
}

#[derive(Debug, Default)]
pub(super) struct Paths {
    nodes: Slab<Node>,
    root: Option<usize>,
}

impl Paths {
    /// Adds the claims of one access of the latest job, and returns how many barriers they found.
    pub(super) fn enter(&mut self, access: &Access, ticket: Ticket) -> (Hold, usize) {
        let claim = Claim::at(access);
        let mut barriers = 0;
        let mut node = *self.root.get_or_insert_with(|| self.nodes.insert(Node::default()));
        for name in access.path.split('/').filter(|name| !name.is_empty()) {
            barriers += self.nodes[node].enter(claim.above(), ticket);
            node = self.child(node, name);
        }
        barriers += self.nodes[node].enter(claim, ticket);
        (Hold { node, claim }, barriers)
    }

    /// Gives up the claims of one access of a job that is gone by now.
    pub(super) fn leave(&mut self, hold: Hold, ticket: Ticket, jobs: &mut Jobs) {
        let mut next = Some(hold);
        while let Some(hold @ Hold { node, claim }) = next {
            next = self.above(hold);
            self.nodes[node].leave(claim, ticket, jobs);
            if self.nodes[node].claims == 0 {
                self.forget(node);
            }
        }
    }

    /// Returns the earliest job that bars a claim or one of those above it.
    pub(super) fn first_barrier(&self, hold: Hold, ticket: Ticket) -> Option<Ticket> {
        iter::successors(Some(hold), |&hold| self.above(hold))
            .flat_map(|hold| self.nodes[hold.node].barriers(hold.claim, ticket))
            .min()
    }

    /// Returns what a claim means for the folder that its node is in.
    fn above(&self, hold: Hold) -> Option<Hold> {
        let (folder, _) = self.nodes[hold.node].place.as_ref()?;
        Some(Hold { node: *folder, claim: hold.claim.above() })
    }

    fn child(&mut self, folder: usize, name: &str) -> usize {
        if let Some(&child) = self.nodes[folder].children.get(name) {
            return child;
        }
        let name: Arc<str> = name.into();
        let child = self.nodes.insert(Node { place: Some((folder, Arc::clone(&name))), ..Node::default() });
        self.nodes[folder].children.insert(name, child);
        child
    }

    /// Drops a node without claims. Nothing is below it, as that would have left a claim here.
    fn forget(&mut self, node: usize) {
        match self.nodes.take(node).place {
            Some((folder, name)) => {
                self.nodes[folder].children.remove(&name);
            }
            None => self.root = None,
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.nodes.capacity()
    }

    #[cfg(test)]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The entries of all queues, tombstones included.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.nodes.iter().flat_map(|node| &node.queues).map(Queue::len).sum()
    }
}
