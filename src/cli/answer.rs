//! `herder approve` and `herder reject`: what people say of calls that wait for them.

use std::sync::Arc;

use clap::Args;
use serde_json::json;

use super::{
    Context, Exit, UsageError,
    approvals::{at_daemon, in_folder, shown},
    args::OriginArgs,
    asking::{Source, source},
    start::{answerer, say},
    stdout::Output,
};
use crate::{
    app::approvals::Said,
    daemon::{
        client::{Client, ClientError, Route},
        wire::{AnswerBody, Answered, ApprovalDetail, ApprovalView, Code, Verdict},
    },
};

mod folder;

use folder::Folder;

pub(super) const APPROVE: &str = "Let calls run that wait for somebody to decide

What is approved is that call alone, once, on what it touched and changed when it was asked about: if that has changed by the \
time that it starts, it is asked about again. --for-run approves further calls of the same tool in its run; its pattern has to fit the call itself.

Several names are looked up first: if one is no approval's, nothing is answered. An answer is taken once. Given again by its \
--command-id it is the same answer; any other is refused, and told of the first, which keeps no other name back.";

pub(super) const APPROVE_AFTER: &str = "EXAMPLES
  herder approve task-17.1 task-18.1
  herder approve task-17.1 --for-run 'src/**'
  herder approve --batch tasks.jsonl --dry-run
  herder approve --all --state out.jsonl.state

EXIT CODES
  0  all of them are answered so, or nothing waits for an answer
  1  one could not be, as it has another answer or its run has ended; the others are answered
  2  bad usage, or a name that is no approval's; nothing was answered
  5  no daemon answers";

pub(super) const REJECT: &str = "Have calls not run that wait for somebody to decide

The model is told, with the reason, and the run goes on. Several names are looked up first: if one is no approval's, nothing is \
answered. An answer is taken once.";

pub(super) const REJECT_AFTER: &str = "EXAMPLES
  herder reject task-17.1 --reason \"Leave the tests as they are.\"
  herder reject -l team=search

EXIT CODES
  0  all of them are answered so, or nothing waits for an answer
  1  one could not be, as it has another answer or its run has ended; the others are answered
  2  bad usage, or a name that is no approval's; nothing was answered
  5  no daemon answers";

/// Which approvals, and how it is told what became of it.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// The approvals, as task-17.1
    #[arg(value_name = "RUN.N")]
    names: Vec<String>,
    #[command(flatten)]
    origin: OriginArgs,
    /// Every one that is open
    #[arg(long)]
    all: bool,
    /// What this answer is called; given again by the same name it is the same answer [default: a new one]
    #[arg(long, value_name = "ID")]
    command_id: Option<String>,
    /// Say what would be answered, and answer nothing
    #[arg(long)]
    dry_run: bool,
    /// Print JSON, a line for each that was answered or could not be
    #[arg(long)]
    json: bool,
}

/// Flags of `herder approve`.
#[derive(Clone, Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Further calls of the same tool in this run may run too that fit this pattern, of paths or commands
    #[arg(long, value_name = "PATTERN")]
    for_run: Option<String>,
}

/// Flags of `herder reject`.
#[derive(Clone, Debug, Args)]
pub struct RejectArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// What the model is told about it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// An answer that is to be given, perhaps to many.
struct Answering {
    said: Said,
    command: Arc<str>,
}

impl Answering {
    const fn verdict(&self) -> Verdict {
        match self.said {
            Said::Approve { .. } => Verdict::Approve,
            Said::Reject { .. } => Verdict::Reject,
        }
    }

    fn body(&self) -> AnswerBody {
        let (reason, for_run) = match &self.said {
            Said::Approve { for_run } => (None, for_run.clone()),
            Said::Reject { reason } => (reason.clone(), None),
        };
        AnswerBody { answer: self.verdict(), command_id: self.command.to_string(), reason, for_run }
    }

    const fn past(&self) -> &'static str {
        match self.said {
            Said::Approve { .. } => "approved",
            Said::Reject { .. } => "rejected",
        }
    }
}

pub(crate) async fn approve(args: ApproveArgs, context: Context) -> anyhow::Result<Exit> {
    main(args.target, Said::Approve { for_run: args.for_run }, &context).await
}

pub(crate) async fn reject(args: RejectArgs, context: Context) -> anyhow::Result<Exit> {
    main(args.target, Said::Reject { reason: args.reason }, &context).await
}

/// Who has the runs.
enum Place {
    Daemon(Client),
    Folder(Box<Folder>),
}

impl Place {
    async fn of(context: &Context) -> anyhow::Result<Self> {
        Ok(match source(context).await? {
            Source::Daemon(client, _) => Self::Daemon(client),
            Source::Folder(state) => Self::Folder(Box::new(Folder::new(state, context).await?)),
        })
    }

    async fn matching(&self, origin: &OriginArgs) -> anyhow::Result<Vec<ApprovalView>> {
        match self {
            Self::Daemon(client) => at_daemon(client, origin, false).await,
            Self::Folder(folder) => in_folder(&*folder.state().store, origin, false).await,
        }
    }

    async fn detail(&self, name: &str) -> anyhow::Result<ApprovalDetail> {
        match self {
            Self::Daemon(client) => Ok(client.get(&Route::to(["v1", "approvals", name])).await?),
            Self::Folder(folder) => folder.detail(name).await,
        }
    }

    async fn answer(&mut self, name: &str, answering: &Answering) -> anyhow::Result<Answered> {
        match self {
            Self::Daemon(client) => {
                Ok(client.post(&Route::to(["v1", "approvals", name]), &answering.body()).await?)
            }
            Self::Folder(folder) => folder.answer(name, answering, answerer()).await,
        }
    }
}

async fn main(target: TargetArgs, said: Said, context: &Context) -> anyhow::Result<Exit> {
    let TargetArgs { names, origin, all, command_id, dry_run, json } = target;
    let by_name = match (names.is_empty(), origin.is_empty(), all) {
        (false, true, false) => true,
        (true, false, false) | (true, true, true) => false,
        (true, true, false) => {
            let what = "name approvals, as task-17.1, narrow them by flags, as --batch or -l, or say --all";
            return Err(UsageError(what.to_owned()).into());
        }
        (false, false, _) | (false, _, true) | (_, false, true) => {
            let what = "name approvals, narrow them by flags or say --all: one of the three";
            return Err(UsageError(what.to_owned()).into());
        }
    };
    let command = command_id.unwrap_or_else(|| uuid::Uuid::now_v7().to_string()).into();
    let answering = Answering { said, command };
    let mut place = Place::of(context).await?;
    let mut tally = Tally { json, by_name, out: Output::stdout(), exit: Exit::Done };
    // Of one name alone it is told when it is answered.
    let is_looked_up = by_name && (dry_run || names.len() > 1);
    let known = if is_looked_up { tally.look_up(&place, &names, &answering).await? } else { Vec::new() };
    if is_looked_up && known.len() < names.len() {
        if !json {
            say("nothing was answered");
        }
    } else if dry_run {
        let meant = if by_name { known } else { place.matching(&origin).await? };
        tally.would(&answering, &meant)?;
    } else {
        let meant = if by_name {
            names
        } else {
            place.matching(&origin).await?.into_iter().map(|approval| approval.id).collect()
        };
        if meant.is_empty() && !json {
            say("nothing waits for an answer");
        }
        for name in meant {
            let answered = place.answer(&name, &answering).await;
            tally.count(&name, answered, &answering)?;
            // What was answered is told though this should end before the rest is.
            let _open = tally.out.flush()?;
        }
    }
    if let Place::Folder(folder) = &place {
        folder.state().close().await;
    }
    let _open = tally.out.flush()?;
    Ok(tally.exit)
}

/// What became of it so far.
struct Tally {
    json: bool,
    by_name: bool,
    out: Output,
    exit: Exit,
}

impl Tally {
    /// The approvals that these names stand for; what is wrong with others is told.
    async fn look_up(
        &mut self,
        place: &Place,
        names: &[String],
        answering: &Answering,
    ) -> anyhow::Result<Vec<ApprovalView>> {
        let mut known = Vec::new();
        for name in names {
            match place.detail(name).await {
                Ok(detail) => known.push(detail.approval),
                Err(error) => self.count(name, Err(error), answering)?,
            }
        }
        Ok(known)
    }

    fn would(&mut self, answering: &Answering, meant: &[ApprovalView]) -> std::io::Result<()> {
        for approval in meant {
            let _open = if self.json {
                self.out.json(approval)?
            } else {
                let how = match &approval.resolution {
                    None => format!("would be {}", answering.past()),
                    Some(resolved) => format!("is {} already", super::table::word(&resolved.how)),
                };
                self.out.line(&format!(
                    "{} {how}: {} {}",
                    shown::name(approval),
                    approval.tool,
                    approval.what
                ))?
            };
        }
        Ok(())
    }

    fn count(
        &mut self,
        name: &str,
        answered: anyhow::Result<Answered>,
        answering: &Answering,
    ) -> anyhow::Result<()> {
        let error = match answered {
            Ok(answered) if self.json => {
                let _open = self.out.json(&answered)?;
                return Ok(());
            }
            Ok(Answered { changed, .. }) => {
                let already = if changed { "" } else { " already; nothing has changed" };
                let _open = self.out.line(&format!("{name} {}{already}", answering.past()))?;
                return Ok(());
            }
            Err(error) => error,
        };
        let refusal = match error.downcast_ref() {
            Some(ClientError::Refused(refusal)) => Some(refusal),
            Some(_) | None => None,
        };
        let message = refusal.map_or_else(|| format!("{error:#}"), |refusal| refusal.message.clone());
        if self.json {
            let mut told = refusal.map_or_else(|| Ok(json!({ "message": message })), serde_json::to_value)?;
            told["id"] = name.into();
            let _open = self.out.json(&told)?;
        } else {
            say(&format!("{name}: {message}"));
        }
        // What matched a moment ago may have been answered meanwhile.
        let is_late = refusal
            .is_some_and(|refusal| matches!(refusal.code, Code::Resolved | Code::Ended | Code::Ending));
        if self.exit == Exit::Done && (self.by_name || !is_late) {
            self.exit = Exit::of(&error);
        }
        Ok(())
    }
}
