//! A run's limits of time: wall time, the time in which it was at work, and the time that people have to answer it.

use ractor::ActorRef;

use super::{RunActor, RunMsg, RunState};
use crate::{
    domain::{
        outcome::{Limit, Outcome},
        run::Input,
    },
    store::StoreError,
};

impl RunActor {
    /// Sets the timer to when the next limit of time could be reached; a run without such limits has none.
    pub(super) fn arm_timer(&self, me: &ActorRef<RunMsg>, state: &mut RunState) {
        let limits = state.run.spec().map(|spec| spec.limits).unwrap_or_default();
        let asks = state.run.asks_people();
        if limits.wall_time_s.is_none() && limits.active_time_s.is_none() && !asks {
            return;
        }
        let now = self.services.clock.now();
        let answer = state.run.open_approvals().filter_map(|asked| asked.expires_at).min();
        let answer = answer.map(|at| at.since(now));
        let wall = limits.wall_time().map(|limit| limit.saturating_sub(state.run.wall(now)));
        let active = limits.active_time().map(|limit| limit.saturating_sub(state.active(now)));
        let Some(due) = [wall, active, answer].into_iter().flatten().min() else { return };
        let me = me.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(due).await;
            // The run may have ended meanwhile.
            let _ = me.cast(RunMsg::CheckTime);
        });
        if let Some(old) = state.progress.timer.replace(timer.abort_handle()) {
            old.abort();
        }
    }

    /// Ends the run if a limit of time is reached, and waits on otherwise.
    pub(super) fn check_time(&self, me: &ActorRef<RunMsg>, state: &mut RunState) -> Result<(), StoreError> {
        let now = self.services.clock.now();
        let limits = state.run.spec().map(|spec| spec.limits).unwrap_or_default();
        if limits.wall_time().is_some_and(|limit| state.run.wall(now) >= limit) {
            return self.end_early(me, state, Outcome::Budget(Limit::WallTime));
        }
        if limits.active_time().is_some_and(|limit| state.active(now) >= limit) {
            return self.end_early(me, state, Outcome::Budget(Limit::ActiveTime));
        }
        if state.run.open_approvals().any(|asked| asked.expires_at.is_some_and(|at| at <= now)) {
            self.report(me, state, Input::Expire)?;
        }
        self.arm_timer(me, state);
        Ok(())
    }
}
