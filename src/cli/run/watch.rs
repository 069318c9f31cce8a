//! Shows one run as it goes on, and has a person decide about its calls where one is there.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    pin::pin,
    sync::Arc,
};

use tokio::sync::broadcast;

use super::prompt::{Asked, Prompt};
use crate::{
    actor::{Live, LiveDelta},
    cli::{live::Ahead, paint, render::line, start::say, stdout::Output},
    daemon::hub::EventJson,
    domain::{
        event::{Envelope, Event, RunEnd},
        id::{RunId, Seq},
        outcome::Outcome,
    },
    store::{EventStore, feed::Feed},
};

/// Shows one run as it goes on.
pub(super) struct Watch {
    json: bool,
    quiet: bool,
    out: Output,
    /// Whether anybody still reads stdout.
    is_read: bool,
    /// Whether the model's words on stderr have not ended their line.
    midline: bool,
    ahead: Ahead<Arc<str>>,
    /// Approvals that are open.
    open: BTreeSet<u32>,
    /// Who asks about them.
    pub(super) prompt: Option<Prompt>,
}

impl Watch {
    pub(super) fn new(json: bool, quiet: bool) -> Self {
        Self {
            json,
            quiet,
            out: Output::stdout(),
            is_read: true,
            midline: false,
            ahead: Ahead::new(),
            open: BTreeSet::new(),
            prompt: None,
        }
    }

    /// Shows what happens until the run ends, or until it is `over` without an end.
    pub(super) async fn follow(
        &mut self,
        store: Arc<dyn EventStore>,
        mut live: broadcast::Receiver<Live>,
        run: RunId,
        over: impl Future<Output = ()>,
    ) -> anyhow::Result<Option<RunEnd>> {
        let mut feed = Feed::run(store.clone(), run, Seq::START);
        let mut shown = Seq::START;
        let mut over = pin!(over);
        loop {
            if let Some(prompt) = &self.prompt
                && let Some(approval) = self.open.pop_first()
            {
                // Nothing else is shown meanwhile.
                tokio::select! {
                    biased;
                    () = &mut over => {
                        self.open.insert(approval);
                        return self.show_all(store.read(run, shown).await?);
                    }
                    asked = prompt.ask(&*store, approval) => {
                        if asked == Asked::Left {
                            self.open.insert(approval);
                            self.prompt = None;
                        }
                        continue;
                    }
                }
            }
            let page = tokio::select! {
                biased;
                delta = live.recv(), if !self.quiet && !self.json => {
                    match delta {
                        Ok(Live { run: of, turn, what: LiveDelta::Text(text) | LiveDelta::Reasoning(text) }) if of == run => {
                            if let Some(text) = self.ahead.hear(turn, text) {
                                self.hear(&text);
                            }
                        }
                        Ok(_) | Err(_) => {}
                    }
                    continue;
                }
                page = feed.next() => page?,
                () = &mut over => return self.show_all(store.read(run, shown).await?),
            };
            shown = page.last().map_or(shown, |envelope| envelope.seq);
            if let Some(end) = self.show_all(page)? {
                return Ok(Some(end));
            }
        }
    }

    /// Whether people are to decide about calls of it.
    pub(super) fn is_asking(&self) -> bool {
        !self.open.is_empty()
    }

    fn show_all(&mut self, page: Vec<Envelope>) -> anyhow::Result<Option<RunEnd>> {
        for envelope in page {
            self.show(&envelope)?;
            if let Event::RunEnd(end) = envelope.fact.event {
                return Ok(Some(*end));
            }
        }
        Ok(None)
    }

    /// The model's words, as they come.
    fn hear(&mut self, text: &str) {
        self.midline = !text.ends_with('\n');
        let mut stderr = io::stderr();
        // The run goes on though nobody watches it.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn show(&mut self, envelope: &Envelope) -> io::Result<()> {
        if let Event::ApprovalRequested(request) = &envelope.fact.event {
            self.open.insert(request.approval);
        }
        if let Event::ApprovalResolved(resolved) = &envelope.fact.event {
            self.open.remove(&resolved.approval);
        }
        if self.json && self.is_read {
            self.is_read =
                self.out.json(&EventJson(envelope))?.is_continue() && self.out.flush()?.is_continue();
        }
        if !self.json && !self.quiet {
            let newline = if std::mem::take(&mut self.midline) { "\n" } else { "" };
            let _ = writeln!(io::stderr(), "{newline}{}", line(envelope, paint(&io::stderr())));
            let is_message = matches!(envelope.fact.event, Event::Message(_));
            for text in self.ahead.reach(envelope.fact.turn, is_message) {
                self.hear(&text);
            }
        }
        Ok(())
    }

    /// Prints what came of it.
    pub(super) fn finish(&mut self, end: &RunEnd) -> io::Result<()> {
        if !self.json {
            if !end.text.is_empty() {
                let _open = self.out.line(&end.text)?;
            }
            if end.outcome != Outcome::Done {
                let why = end.error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
                say(&format!("the run ended as {}{why}", end.outcome));
            }
        }
        let _open = self.out.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        app::state::new_run,
        domain::{run::Run, task::TaskSpec, time::Timestamp},
        store::memory::MemoryStore,
    };

    #[tokio::test]
    async fn a_run_that_is_over_without_an_end_is_not_waited_for() {
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w"}"#;
        let spec: TaskSpec = serde_json::from_str(spec).expect("a spec");
        let run = new_run();
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
        let input = crate::domain::run::Input::Submit(Arc::new(spec));
        let facts = Run::new(run).decide(input, Timestamp::default()).expect("taken on");
        store.append(run, Seq::START, &facts).expect("stored");
        let mut watch = Watch::new(false, true);
        let followed = watch.follow(store, broadcast::channel(1).1, run, std::future::ready(()));
        let end = tokio::time::timeout(Duration::from_secs(30), followed).await.expect("does not hang");
        assert_eq!(end.expect("readable"), None);
    }
}
