//! The terminal: taken over, drawn on, and given back whatever happens.

use std::{
    io::{self, stdout},
    sync::Arc,
    time::Duration,
};

use futures_util::StreamExt;
use ratatui::{
    DefaultTerminal,
    crossterm::{
        event::{DisableBracketedPaste, EnableBracketedPaste, Event, EventStream},
        execute,
        terminal::{EnterAlternateScreen, enable_raw_mode},
    },
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Notify, mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    look::keep_looking,
    state::{Effect, Message, State},
    tail::Tail,
    view,
};
use crate::{
    cli::Exit,
    clock::{Clock, SystemClock},
    daemon::client::Client,
};

/// Messages that wait to be taken in. A daemon that says more than is drawn waits.
const WAITING: usize = 1_024;

/// Between two pictures at least: what a model says comes in many small pieces.
const FRAME: Duration = Duration::from_millis(33);

/// The clock on the screen goes on in seconds.
const TICK: Duration = Duration::from_secs(1);

/// Shows the daemon until the person has seen enough.
pub(super) async fn show(mut state: State, client: Client) -> anyhow::Result<Exit> {
    let mut signals = Signals::watch()?;
    let mut terminal = Terminal::take()?;
    let shown = run(&mut state, &client, &mut terminal, &mut signals).await;
    drop(terminal);
    shown
}

async fn run(
    state: &mut State,
    client: &Client,
    terminal: &mut Terminal,
    signals: &mut Signals,
) -> anyhow::Result<Exit> {
    let (out, mut messages) = mpsc::channel(WAITING);
    let (ask, query) = watch::channel(state.query());
    let look_now = Arc::new(Notify::new());
    let _looking = AbortOnDropHandle::new(tokio::spawn(keep_looking(
        client.clone(),
        query,
        look_now.clone(),
        out.clone(),
    )));
    let mut tail = Tail::new(client.clone(), out.clone());
    let mut keys = EventStream::new();
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let size = terminal.screen.size()?;
    state.update(Message::Resized(size.width, size.height));
    let (mut stale, mut drawn) = (true, Instant::now());
    loop {
        let message = tokio::select! {
            biased;
            told = signals.next() => match told {
                Told::End(exit) => return Ok(exit),
                Told::Stop => {
                    terminal.suspend()?;
                    stale = true;
                    continue;
                }
            },
            () = sleep_until(drawn + FRAME), if stale => {
                terminal.screen.draw(|frame| view::draw(frame, state))?;
                (stale, drawn) = (false, Instant::now());
                continue;
            }
            key = keys.next() => match key {
                Some(Ok(Event::Key(key))) => Message::Key(key),
                Some(Ok(Event::Paste(text))) => Message::Pasted(text),
                Some(Ok(Event::Resize(width, height))) => Message::Resized(width, height),
                Some(Ok(Event::FocusGained | Event::FocusLost | Event::Mouse(_))) => continue,
                Some(Err(error)) => return Err(error.into()),
                // The terminal is gone.
                None => return Ok(Exit::NotDone),
            },
            _ = tick.tick() => Message::Tick(SystemClock.now()),
            Some(message) = messages.recv() => message,
        };
        stale = true;
        match state.update(message) {
            Some(Effect::Quit) => return Ok(Exit::Done),
            Some(Effect::Suspend) => terminal.suspend()?,
            Some(Effect::Do(action)) => {
                let (client, out, look_now) = (client.clone(), out.clone(), look_now.clone());
                tokio::spawn(async move {
                    let answer = action.perform(&client).await;
                    look_now.notify_one();
                    // Nobody listens once the screen is over.
                    let _ = out.send(Message::Answered(answer)).await;
                });
            }
            None => {}
        }
        tail.follow(state.followed(), state.follows);
        ask.send_if_modified(|asked| {
            let query = state.query();
            let other = *asked != query;
            *asked = query;
            other
        });
    }
}

/// The terminal while it shows herder. It is itself again once this is dropped, or after a panic.
struct Terminal {
    screen: DefaultTerminal,
}

impl Terminal {
    fn take() -> io::Result<Self> {
        let screen = ratatui::try_init()?;
        let taken = Self { screen };
        execute!(stdout(), EnableBracketedPaste)?;
        Ok(taken)
    }

    fn give_back() {
        let _ = execute!(stdout(), DisableBracketedPaste);
        // There is nobody to tell if it fails.
        let _ = ratatui::try_restore();
    }

    /// Stops this process until the shell lets it go on.
    fn suspend(&mut self) -> io::Result<()> {
        Self::give_back();
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?;
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
        self.screen.clear()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        Self::give_back();
    }
}

/// Signals that would end or stop the process with the terminal in disorder.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    stop: Signal,
}

/// What a signal asks for.
enum Told {
    End(Exit),
    /// To stop until the shell lets the process go on.
    Stop,
}

impl Signals {
    fn watch() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
            // SIGTSTP, which the runtime has no name for.
            stop: signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw()))?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::End(Exit::Interrupted),
            _ = self.terminate.recv() => Told::End(Exit::Terminated),
            _ = self.hang_up.recv() => Told::End(Exit::Terminated),
            _ = self.stop.recv() => Told::Stop,
        }
    }
}
