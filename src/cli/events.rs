//! `herder events`: the events of record, of one run or of all.

use std::{io, ops::ControlFlow};

use clap::Args;

use super::{
    Context, Exit,
    asking::{Source, source},
    folder, paint,
    render::{Paint, line, one_line, read_event},
    stdout::Output,
};
use crate::{
    app::state::State,
    daemon::{
        client::{self, Client, Route},
        hub::EventJson,
        wire::RunDetail,
    },
    domain::{
        event::{Envelope, Event},
        id::{Pos, RunId, Seq},
    },
    store::{EventStore, feed::Feed},
};

pub(super) const ABOUT: &str = "Print the events of a run, or of all runs, in the order of the log

They are the daemon's, or with --state those of a folder. With --json an event is one line: v, pos, run, seq, at, turn, kind, \
data.";

pub(super) const AFTER: &str = "EXAMPLES
  herder events task-17 --follow
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
    /// Only those after this one: its seq or, with --all, its pos
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub after: u64,
    /// Print JSON, one event a line
    #[arg(long)]
    pub json: bool,
    /// Go on as more events come; of one run, until it ends
    #[arg(long, short)]
    pub follow: bool,
}

/// Runs the command.
pub(crate) async fn main(args: EventsArgs, context: Context) -> anyhow::Result<Exit> {
    let mut lines = Lines { out: Output::stdout(), json: args.json, paint: paint(&io::stdout()) };
    match (source(&context).await?, &args.run) {
        (Source::Folder(state), _) => of_folder(state, &args, &mut lines).await,
        (Source::Daemon(client, _), Some(run)) => of_daemon(&client, Some(run), &args, &mut lines).await,
        (Source::Daemon(client, _), None) if args.follow => of_daemon(&client, None, &args, &mut lines).await,
        // Its stream of all runs has no end, and its folder may be read beside it.
        (Source::Daemon(_, status), None) => {
            of_folder(State::to_read(status.state.as_ref())?, &args, &mut lines).await
        }
    }
}

async fn of_daemon(
    client: &Client,
    run: Option<&str>,
    args: &EventsArgs,
    lines: &mut Lines,
) -> anyhow::Result<Exit> {
    let (route, last) = match run {
        Some(name) => {
            let run: RunDetail = client.get(&Route::to(["v1", "runs", name])).await?;
            (Route::to(["v1", "runs", &run.run.id, "events"]), Some(run.events).filter(|_| !args.follow))
        }
        None => (Route::to(["v1", "events"]), None),
    };
    if last.is_some_and(|last| last <= args.after) {
        return Ok(Exit::Done);
    }
    let mut follower = client.follow(route, Some(args.after));
    let mut signal = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let event = tokio::select! {
            event = follower.next() => event?,
            _ = &mut signal => return Ok(Exit::Interrupted),
        };
        let Some(event) = event else { break };
        if lines.told(&event)?.is_break() || (args.follow && lines.out.flush()?.is_break()) {
            return Ok(Exit::Done);
        }
        if last.is_some_and(|last| event.id.is_some_and(|id| id >= last)) {
            break;
        }
    }
    let _open = lines.out.flush()?;
    Ok(Exit::Done)
}

async fn of_folder(state: State, args: &EventsArgs, lines: &mut Lines) -> anyhow::Result<Exit> {
    let run = folder::named(&*state.store, args.run.as_deref()).await?.map(|record| record.run);
    if !args.follow {
        let shown = lines.replay(&*state.store, run, args.after).await?;
        if shown.is_continue() {
            let _open = lines.out.flush()?;
        }
        state.close().await;
        return Ok(Exit::Done);
    }
    let mut feed = match run {
        Some(run) => Feed::run(state.store.clone(), run, Seq::new(args.after)),
        None => Feed::all(state.store.clone(), Pos::new(args.after)),
    };
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
        after: u64,
    ) -> anyhow::Result<ControlFlow<()>> {
        if let Some(run) = run {
            return Ok(self.show(&store.read(run, Seq::new(after)).await?)?);
        }
        let mut after = Pos::new(after);
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

    /// What the daemon told, which may be of a later version and have kinds that are not known here.
    fn told(&mut self, event: &client::Event) -> io::Result<ControlFlow<()>> {
        if self.json {
            return self.out.line(&event.data);
        }
        match read_event(&event.data) {
            Some(envelope) => self.out.line(&line(&envelope, self.paint)),
            None => self.out.line(&format!("{}: {}", event.name, one_line(&event.data, UNKNOWN))),
        }
    }
}

/// Events that are read at once.
const PAGE: usize = 1_000;

/// Characters that are shown of an event of an unknown kind.
const UNKNOWN: usize = 200;
