//! Asks whoever sits at the terminal about a call, and has the run hear what they say.
//!
//! The question tells exactly what would be done. Only a whole line that says so is an answer, and the end of the input is
//! none: then the run is left waiting. Nothing is read but while a question is open.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd as _,
    sync::Arc,
};

use futures_util::{FutureExt as _, future::BoxFuture};
use rustix::termios::{QueueSelector, tcflush};
use tokio::{net::unix::pipe::Receiver, sync::oneshot};

use crate::{
    actor::{Supervisor, supervisor::AskError},
    app::{
        approvals::{self, Found, Said},
        batch::Stopper,
    },
    cli::{
        approvals::shown::{self, Extent},
        paint,
        start::{answerer, say},
    },
    domain::{
        id::RunId,
        run::{Answer, Input},
    },
};

/// Lines of a change that are shown before somebody wants all of it.
const LINES: usize = 40;

const QUESTION: &str = "[y]es, [n]o, [a]lways for this run, [s]how all, [q]uit? ";

/// Asks about the approval of this number, and gives its answer by this name. Dropped, it asks no more.
pub(super) type Ask = Box<dyn Fn(u32, Arc<str>) -> BoxFuture<'static, Asked> + Send + Sync>;

/// See the module.
#[derive(Clone)]
pub(super) struct Prompt {
    supervisor: Supervisor,
    run: RunId,
    stopper: Stopper,
}

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// It is open no more.
    Over,
    /// The person wants no more of it, and the run is left where it is.
    Left,
}

/// What a line of the person means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Yes,
    No,
    Always,
    ShowAll,
    Quit,
}

impl Choice {
    fn read(line: &str) -> Option<Self> {
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Some(Self::Yes),
            "n" | "no" => Some(Self::No),
            "a" | "always" => Some(Self::Always),
            "s" | "show" => Some(Self::ShowAll),
            "q" | "quit" => Some(Self::Quit),
            _ => None,
        }
    }
}

impl Prompt {
    pub(super) const fn new(supervisor: Supervisor, run: RunId, stopper: Stopper) -> Self {
        Self { supervisor, run, stopper }
    }

    /// Asks about calls, each until it is decided or the person wants no more of it.
    pub(super) fn asks(self) -> Ask {
        Box::new(move |approval, command| {
            let prompt = self.clone();
            async move { prompt.ask(approval, command).await }.boxed()
        })
    }

    async fn ask(&self, approval: u32, command: Arc<str>) -> Asked {
        let store = self.supervisor.services().store.clone();
        match approvals::find(&*store, &format!("{}.{approval}", self.run)).await {
            Ok(found) if found.resolution().is_none() => self.question(&found, command).await,
            Ok(_) => Asked::Over,
            Err(error) => {
                say(&format!("{error}"));
                Asked::Left
            }
        }
    }

    async fn question(&self, found: &Found, command: Arc<str>) -> Asked {
        // What was typed before the question is no answer to it. Without a terminal there is no such thing.
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
        show(found, Extent::Lines(LINES));
        let services = self.supervisor.services();
        loop {
            tell(QUESTION);
            let Some(line) = next_line().await else { return self.quit() };
            let said = match Choice::read(&line) {
                Some(Choice::Yes) => Said::Approve { for_run: None },
                Some(Choice::Always) => {
                    match found.exact_pattern(&services.toolbox, &services.workspaces).await {
                        Some(pattern) => Said::Approve { for_run: Some(pattern) },
                        None => {
                            say("no pattern fits just this call; want one of the others");
                            continue;
                        }
                    }
                }
                Some(Choice::No) => {
                    tell("why (the model is told; may be empty)? ");
                    let Some(line) = next_line().await else { return self.quit() };
                    Said::Reject { reason: Some(line.trim().to_owned()).filter(|reason| !reason.is_empty()) }
                }
                Some(Choice::ShowAll) => {
                    show(found, Extent::Whole);
                    continue;
                }
                Some(Choice::Quit) => return self.quit(),
                None => continue,
            };
            match found.answer(&said, Some(&services.toolbox)) {
                Ok(answer) => {
                    self.resolve(found, answer, command).await;
                    return Asked::Over;
                }
                Err(error) => say(&format!("{error}")),
            }
        }
    }

    async fn resolve(&self, found: &Found, answer: Answer, command: Arc<str>) {
        let input = Input::Resolve { approval: found.number, answer, command, by: answerer() };
        match self.supervisor.ask(self.run, input).await {
            Ok(_) => {}
            Err(AskError::Refused(refused)) => say(&format!("too late: {refused}")),
            Err(error @ (AskError::NotLive | AskError::Store(_) | AskError::NoSuchRun)) => {
                say(&format!("the answer was not taken: {error}"));
            }
        }
    }

    fn quit(&self) -> Asked {
        let _ = self.stopper.stop();
        Asked::Left
    }
}

fn show(found: &Found, extent: Extent) {
    if let Some(detail) = shown::detail_of(found, &found.run.id().to_string()) {
        tell(&format!("\n{}\n", shown::whole(&detail, paint(&io::stderr()), extent)));
    }
}

fn tell(text: &str) {
    let mut stderr = io::stderr();
    // Who cannot see the question gives no answer.
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// The next line of the terminal; nothing at its end. A thread of its own reads it, but not before it is there: who waits no
/// longer takes nothing from whoever asks next.
async fn next_line() -> Option<String> {
    // Of a pipe nothing is needed but that it tells when something is there, as a terminal does.
    let terminal = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
    Receiver::from_file_unchecked(terminal).ok()?.readable().await.ok()?;
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0);
        // The question may be over.
        let _ = tell.send(read.then_some(line));
    });
    told.await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_line_that_says_so_is_an_answer() {
        for (line, choice) in [
            ("y\n", Some(Choice::Yes)),
            (" YES \n", Some(Choice::Yes)),
            ("n", Some(Choice::No)),
            ("a\n", Some(Choice::Always)),
            ("s\n", Some(Choice::ShowAll)),
            ("q\n", Some(Choice::Quit)),
            ("\n", None),
            ("yep\n", None),
            ("1\n", None),
        ] {
            assert_eq!(Choice::read(line), choice, "{line:?}");
        }
    }
}
