//! `herder events`: the events of record, of one run or of all.

use std::{io, ops::ControlFlow};

use clap::Args;

use super::{
    Context, Exit, paint,
    render::{EventJson, Paint, line},
    stdout::Output,
};
use crate::{
    app::state::find,
    domain::{
        event::{Envelope, Event},
        id::{Pos, RunId, Seq},
    },
    store::{EventStore, feed::Feed},
};

pub(super) const ABOUT: &str = "Print the events of a run, or of all runs, in the order of the log

With --json an event is one line: v, pos, run, seq, at, turn, kind, data.";

pub(super) const AFTER: &str = "EXAMPLES
  herder events task-17 --state out.jsonl.state
  herder events --all --follow --json | jq -c 'select(.kind == \"run_end\")'";

/// Flags of `herder events`.
#[derive(Clone, Debug, Args)]
pub struct EventsArgs {
    /// The run: its id, the beginning of one, or a task's id
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    pub run: Option<String>,
    /// Those of all runs
    #[arg(long)]
    pub all: bool,
    /// Print JSON, one event a line
    #[arg(long)]
    pub json: bool,
    /// Go on as more events come; of one run, until it ends
    #[arg(long, short)]
    pub follow: bool,
}

/// Runs the command.
pub(crate) async fn main(args: EventsArgs, context: Context) -> anyhow::Result<Exit> {
    let state = context.open_state()?;
    let run = match &args.run {
        Some(name) => Some(find(&*state.store, name).await?.run),
        None => None,
    };
    let mut feed = match run {
        Some(run) => Feed::run(state.store.clone(), run, Seq::START),
        None => Feed::all(state.store.clone(), Pos::START),
    };
    let mut lines = Lines { out: Output::stdout(), json: args.json, paint: paint(&io::stdout()) };
    if !args.follow {
        let shown = lines.replay(&*state.store, run).await?;
        if shown.is_continue() {
            let _open = lines.out.flush()?;
        }
        state.close().await;
        return Ok(Exit::Done);
    }
    let mut signal = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let page = tokio::select! {
            page = feed.next() => page?,
            _ = &mut signal => return Ok(Exit::Interrupted),
        };
        let ends =
            run.is_some() && page.iter().any(|envelope| matches!(envelope.fact.event, Event::RunEnd(_)));
        if lines.show(&page)?.is_break() || lines.out.flush()?.is_break() || ends {
            return Ok(Exit::Done);
        }
    }
}

/// Events as lines on stdout.
struct Lines {
    out: Output,
    json: bool,
    paint: Paint,
}

impl Lines {
    /// What is of record now, of one run or of all.
    async fn replay(
        &mut self,
        store: &dyn EventStore,
        run: Option<RunId>,
    ) -> anyhow::Result<ControlFlow<()>> {
        if let Some(run) = run {
            return Ok(self.show(&store.read(run, Seq::START).await?)?);
        }
        let mut after = Pos::START;
        loop {
            let page = store.read_all(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(ControlFlow::Continue(())) };
            after = last.pos;
            if self.show(&page)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn show(&mut self, events: &[Envelope]) -> io::Result<ControlFlow<()>> {
        for envelope in events {
            let open = match self.json {
                true => self.out.json(&EventJson(envelope))?,
                false => self.out.line(&line(envelope, self.paint))?,
            };
            if open.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// Events that are read at once.
const PAGE: usize = 1_000;
