//! Runs that have ended and whose workspaces are put away: they have no slot any more, and are not over yet for those who
//! wait for them.

use std::collections::HashMap;

use ractor::ActorRef;

use super::{
    message::{RootMsg, ShardMsg},
    over::{Ended, Waiters},
    root::{Root, Tree},
    workspace,
};
use crate::domain::id::RunId;

/// By run: who waits for it, and what they are told.
#[derive(Debug, Default)]
pub(super) struct Closing(HashMap<RunId, (Waiters, Ended)>);

impl Closing {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn waiters(&mut self, run: RunId) -> Option<&mut Waiters> {
        self.0.get_mut(&run).map(|(done, _)| done)
    }
}

impl Root {
    /// A run has ended, or is left. That of one whose workspace is being put away is old news, by a shard that took it over
    /// from one that died.
    pub(super) fn ended(&self, me: &ActorRef<RootMsg>, tree: &mut Tree, ended: Ended) {
        let run = ended.run;
        if tree.closing.0.contains_key(&run) {
            return;
        }
        self.services.toolbox.forget(run);
        let is_closing = workspace::close(&self.services, me, &ended);
        let done = tree.forget(run);
        if is_closing {
            tree.closing.0.insert(run, (done, ended));
        } else {
            done.tell(&ended);
        }
    }
}

impl Tree {
    /// A run's slot is given back.
    fn forget(&mut self, run: RunId) -> Waiters {
        self.to_shard(run, ShardMsg::Forget(run));
        self.live.remove(&run).map(|live| live.done).unwrap_or_default()
    }

    /// The workspace of a run is put away.
    pub(super) fn closed(&mut self, run: RunId) {
        if let Some((done, ended)) = self.closing.0.remove(&run) {
            done.tell(&ended);
        }
    }

    /// Whoever waits is let go. The end of a run whose workspace is still being put away is of record all the same.
    pub(super) fn leave_behind(&mut self) {
        self.live.drain().for_each(|(run, live)| live.done.stop(run));
        self.closing.0.drain().for_each(|(_, (done, ended))| done.tell(&ended));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn whoever_joins_while_a_workspace_is_put_away_is_told_the_end() {
        let run = RunId::from_bytes([1; 16]);
        let ended = Ended { run, end: Err(super::super::Unended::Left) };
        let mut closing = Closing::default();
        closing.0.insert(run, (Waiters::default(), ended));
        let (tell, mut told) = oneshot::channel();
        closing.waiters(run).unwrap().join(Waiters::from_iter([tell]));
        let (done, ended) = closing.0.remove(&run).unwrap();
        done.tell(&ended);
        assert_eq!(told.try_recv().unwrap().run, run);
        assert!(closing.is_empty());
    }
}
