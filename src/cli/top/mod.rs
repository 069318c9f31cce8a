//! `herder top`: the live runs of a daemon on one screen, and the orders that a person gives them there.
//!
//! State, its changes and its drawing are apart from terminal and daemon. The daemon is asked for no more than a page of
//! runs, so ten thousand of them cost what two hundred do.

use std::io::{self, IsTerminal};

use clap::Args;

use super::{Context, Exit, UsageError, colored, stdout::Output};
use crate::{
    clock::{Clock, SystemClock},
    daemon::client::Client,
};

mod action;
mod keys;
mod log;
mod look;
mod once;
#[cfg(test)]
mod samples;
mod screen;
mod state;
mod tail;
#[cfg(test)]
mod tests;
mod view;
mod words;

use state::{Message, State};
use view::Theme;

pub(super) const ABOUT: &str = "Watch the daemon's runs on one screen, and steer them

Shows how much is going on, batches, the runs that have not ended with what each waits for, and the log of the selected one \
as it comes. ? lists the keys. What is done here is what the other commands do: closing the screen changes nothing.";

pub(super) const AFTER: &str = "EXAMPLES
  herder top
  herder top --batch nightly
  herder top --once | head                                  one plain look, for scripts";

/// Flags of `herder top`.
#[derive(Clone, Debug, Args)]
pub struct TopArgs {
    /// Only runs of this batch: its id, or its name
    #[arg(long, value_name = "BATCH")]
    pub batch: Option<String>,
    /// Print one look as plain text and end
    #[arg(long)]
    pub once: bool,
}

/// Runs the command.
pub(crate) async fn main(args: TopArgs, _context: Context, client: Client) -> anyhow::Result<Exit> {
    let theme = if colored(&io::stdout()) { Theme::COLORED } else { Theme::PLAIN };
    let mut state = State::new(theme, SystemClock.now());
    state.only = args.batch.map(|batch| (batch.clone(), batch));
    if args.once {
        let look = look::look(&client, &state.query()).await?;
        state.update(Message::Looked(Box::new(look)));
        let mut out = Output::stdout();
        let _open = out.line(&once::frame(&state))?;
        let _open = out.flush()?;
        return Ok(Exit::Done);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let told = "`herder top` draws on a terminal, and this is none; --once prints one look";
        return Err(UsageError(told.to_owned()).into());
    }
    screen::show(state, client).await
}
