//! Shows one run as it goes on, and has a person decide about its calls where one is there.

use std::{
    collections::BTreeSet,
    io::{self, Write},
    pin::pin,
    sync::Arc,
};

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;

use super::prompt::{Ask, Asked};
use crate::{
    actor::{Live, LiveDelta},
    cli::{live::Ahead, paint, render::line, start::say, stdout::Output},
    daemon::hub::EventJson,
    domain::{
        event::{Envelope, Event, Resolution, RunEnd},
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
    pub(super) ask: Option<Ask>,
}

/// A question that a person has before them. Nothing is shown meanwhile, but what happens is taken note of.
struct Question {
    approval: u32,
    /// What their answer is called.
    command: Arc<str>,
    asked: BoxFuture<'static, Asked>,
}

impl Question {
    /// What has made an answer of theirs useless, if one of these facts has.
    fn overtaken(&self, facts: &[Envelope]) -> Option<String> {
        facts.iter().find_map(|envelope| {
            if let Event::RunEnd(_) = &envelope.fact.event {
                return Some("not asked any more: the run has ended".to_owned());
            }
            let Event::ApprovalResolved(resolved) = &envelope.fact.event else { return None };
            if resolved.approval != self.approval || resolved.command.as_ref() == Some(&self.command) {
                return None;
            }
            let how = resolved.resolution.as_str();
            let by = resolved.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            Some(match resolved.resolution {
                Resolution::Approved | Resolution::Rejected => format!("answered elsewhere: {how}{by}"),
                Resolution::Expired | Resolution::Superseded | Resolution::Withdrawn => {
                    format!("not asked any more: {how}")
                }
            })
        })
    }
}

/// The answer to a question, once there is one.
async fn answer_to(question: &mut Option<Question>) -> Asked {
    match question {
        Some(question) => (&mut question.asked).await,
        None => std::future::pending().await,
    }
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
            ask: None,
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
        let mut question = None;
        // What happens during a question.
        let mut unshown = Vec::new();
        loop {
            if question.is_none()
                && let (Some(ask), Some(&approval)) = (&self.ask, self.open.first())
            {
                let command: Arc<str> = uuid::Uuid::now_v7().to_string().into();
                question = Some(Question { approval, asked: ask(approval, command.clone()), command });
            }
            tokio::select! {
                biased;
                delta = live.recv(), if !self.quiet && !self.json && question.is_none() => {
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
                asked = answer_to(&mut question) => {
                    match (asked, question.take()) {
                        (Asked::Over, Some(asked)) => drop(self.open.remove(&asked.approval)),
                        (Asked::Left, _) | (_, None) => self.ask = None,
                    }
                }
                page = feed.next() => {
                    let page = page?;
                    shown = page.last().map_or(shown, |envelope| envelope.seq);
                    unshown.extend(page);
                    match question.as_ref().map(|question| question.overtaken(&unshown)) {
                        Some(None) => continue,
                        Some(Some(how)) => {
                            question = None;
                            let _ = writeln!(io::stderr());
                            say(&how);
                        }
                        None => {}
                    }
                }
                () = &mut over => {
                    unshown.extend(store.read(run, shown).await?);
                    return self.show_all(unshown);
                }
            }
            if let Some(end) = self.show_all(std::mem::take(&mut unshown))? {
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
        domain::{
            call::{Arguments, EffectClass},
            outcome::Stop,
            policy::Verdict,
            run::{Answer, Ask, Input, Judgement, Proposal, ProposedCall, Run},
            task::TaskSpec,
            time::Timestamp,
        },
        store::memory::MemoryStore,
    };

    #[tokio::test]
    async fn a_run_that_is_over_without_an_end_is_not_waited_for() {
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w"}"#;
        let spec: TaskSpec = serde_json::from_str(spec).expect("a spec");
        let run = new_run();
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
        let input = Input::Submit(Arc::new(spec));
        let facts = Run::new(run).decide(input, Timestamp::default()).expect("taken on");
        store.append(run, Seq::START, &facts).expect("stored");
        let mut watch = Watch::new(false, true);
        let followed = watch.follow(store, broadcast::channel(1).1, run, std::future::ready(()));
        let end = tokio::time::timeout(Duration::from_secs(30), followed).await.expect("does not hang");
        assert_eq!(end.expect("readable"), None);
    }

    fn call() -> ProposedCall {
        ProposedCall {
            id: Some("c".into()),
            name: "bash".into(),
            arguments: Arguments::empty(),
            judgement: Judgement::Judged {
                verdict: Verdict::Ask,
                rule: "a rule".to_owned(),
                effect: EffectClass::Outside,
                access: Vec::new(),
                ask: Some(Ask { preview: Some("ls".into()), expires_at: None, change: None }),
            },
        }
    }

    #[tokio::test]
    async fn a_question_that_was_answered_elsewhere_is_dropped_and_the_run_is_watched_on() {
        let spec = r#"{"task": "t", "attempt": 1, "model": "m", "workspace": "/w"}"#;
        let spec: TaskSpec = serde_json::from_str(spec).expect("a spec");
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::default());
        let mut run = Run::new(new_run());
        let id = run.id();
        let mut tell = |input| {
            let facts = run.decide(input, Timestamp::default()).expect("taken");
            store.append(run.id(), run.seq(), &facts).expect("stored");
            facts.iter().for_each(|fact| run.evolve(fact));
        };
        tell(Input::Submit(Arc::new(spec)));
        tell(Input::Start { model: "m".into(), tools: vec!["bash".into()] });
        let proposal = Proposal { calls: vec![call()], ..Proposal::new(Stop::ToolCalls) };
        tell(Input::Replied { turn: 1, attempt: 1, proposal: Box::new(proposal) });

        let (asked, mut is_asked) = tokio::sync::mpsc::unbounded_channel();
        let mut watch = Watch::new(false, true);
        // Somebody who never says anything.
        watch.ask = Some(Box::new(move |approval, _| {
            asked.send(approval).expect("heard");
            Box::pin(std::future::pending())
        }));
        let followed = watch.follow(store.clone(), broadcast::channel(1).1, id, std::future::pending());
        let elsewhere = async {
            assert_eq!(is_asked.recv().await, Some(1));
            let (answer, by) = (Answer::Reject(None), Some("ada".into()));
            tell(Input::Resolve { approval: 1, answer, command: "k".into(), by });
            tell(Input::End(Outcome::Cancelled));
        };
        let both = async { tokio::join!(followed, elsewhere).0 };
        let end = tokio::time::timeout(Duration::from_secs(30), both).await.expect("does not hang");
        assert!(end.expect("readable").is_some(), "the run has ended");
    }
}
