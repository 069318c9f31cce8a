//! What the commands of an earlier process have left running: it ends before anything of their run goes on.

use crate::{
    crash::{self, Point},
    domain::{event, run::Run},
    tool::{launcher, process::CommandGroup},
};

/// Ends what the open calls of a run that nobody is at work on have left running.
pub async fn end_leftovers(run: &Run) {
    let leaders: Vec<CommandGroup> = run.command_groups().map(leader).collect();
    if leaders.is_empty() {
        return;
    }
    crash::point(Point::BeforeLeftovers);
    let id = run.id();
    let ended = tokio::task::spawn_blocking(move || launcher::end_remains(id, &leaders)).await;
    // It panics where a bug is; the run goes on all the same.
    let survivors = ended.unwrap_or_default();
    if !survivors.is_empty() {
        tracing::warn!(run.id = %id, processes = ?survivors, "processes of an earlier start could not be ended");
    }
    crash::point(Point::AfterLeftovers);
}

fn leader(group: &event::CommandGroup) -> CommandGroup {
    CommandGroup { pid: group.pid, start_time: group.started, boot_id: group.boot.to_string() }
}
