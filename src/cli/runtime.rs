//! The threads that a command works on, and how long it waits for them at its end.

use std::time::Duration;

use super::Exit;

/// How long what still blocks a thread may go on once a command is over: a file system that does not answer would keep
/// the process for ever.
const LINGER: Duration = Duration::from_secs(3);

/// Threads for work on files: a few for each call that may hold a permit by default. More only fight over the processors.
const BLOCKING_THREADS: usize = 128;

pub(super) fn block_on(work: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
    let exit = runtime.block_on(work);
    runtime.shutdown_timeout(LINGER);
    exit
}
