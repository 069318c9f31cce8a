//! Approvals: what people are asked about calls, and what they answer.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    clock::rfc3339,
    domain::{
        event::{ApprovalRequested, ApprovalResolved, Envelope, Event, Resolution},
        message::Message,
        run::{Approval, Run},
        task::TaskSpec,
        time::Timestamp,
    },
};

/// What became of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolutionKind {
    /// The call runs, once.
    Approved,
    /// It does not run.
    Rejected,
    /// It would do something else by now, and was asked about again.
    Superseded,
    /// Nobody answered in time: it does not run.
    Expired,
    /// The call or its run was ended before anybody answered.
    Withdrawn,
}

impl From<Resolution> for ResolutionKind {
    fn from(resolution: Resolution) -> Self {
        match resolution {
            Resolution::Approved => Self::Approved,
            Resolution::Rejected => Self::Rejected,
            Resolution::Superseded => Self::Superseded,
            Resolution::Expired => Self::Expired,
            Resolution::Withdrawn => Self::Withdrawn,
        }
    }
}

/// How an approval was resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResolutionView {
    /// What became of it.
    pub how: ResolutionKind,
    /// When.
    #[schema(format = DateTime)]
    pub at: String,
    /// Who answered.
    pub by: Option<String>,
    /// What they called their answer.
    pub command_id: Option<String>,
    /// What they said about it.
    pub reason: Option<String>,
    /// What else of the run they approved: calls of the same tool that fit this pattern.
    pub for_run: Option<String>,
}

/// A call that people decide about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalView {
    /// Its name: the run's id and the approval's number.
    #[schema(example = "0198c2a1-7d4e-7c3a-9b1f-2f6d8e4a5b6c.1")]
    pub id: String,
    /// A shorter name for people, by which it is found for now: with the task's id, or the beginning of the run's.
    #[serde(default)]
    #[schema(example = "task-17.1")]
    pub name: String,
    /// The run.
    #[schema(format = "uuid")]
    pub run: String,
    /// The id of its task.
    pub task_id: Option<String>,
    /// The batch that it belongs to.
    #[schema(format = "uuid")]
    pub batch: Option<String>,
    /// Its number in the run; the first is 1.
    pub number: u32,
    /// The call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// What it is about in short: a path within the workspace, or the first line of a command.
    pub what: String,
    /// The rule that wants people to decide.
    pub rule: String,
    /// When they were asked.
    #[schema(format = DateTime)]
    pub asked_at: String,
    /// When the call is denied by itself. `null`: it waits for as long as it takes.
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
    /// How it was resolved. `null`: it is open.
    pub resolution: Option<ResolutionView>,
}

/// An approval with exactly what is approved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDetail {
    #[serde(flatten)]
    pub approval: ApprovalView,
    /// The folder that the run's tools work in.
    pub workspace: String,
    /// What the call was asked for with.
    #[schema(value_type = Object)]
    pub arguments: Value,
    /// What it touches, as `exclusive file /w/a.txt`.
    pub access: Vec<String>,
    /// SHA-256 of the file's content that it starts from, in hex; `null` where it makes the file or changes none.
    pub before: Option<String>,
    /// SHA-256 of the content that it leads to.
    pub after: Option<String>,
    /// The change as a unified diff, or the command.
    pub preview: Option<String>,
    /// The number of the approval of the same call that this one came after, as what the call would do had changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<u32>,
}

/// A page of approvals, the newest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalList {
    /// The page.
    pub approvals: Vec<ApprovalView>,
    /// Where the page before this one begins: give it as `before`. `null`: there is none.
    #[schema(format = "uuid")]
    pub next: Option<String>,
    /// Runs whose logs are damaged: what they ask is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

/// Whether a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Reject,
}

/// An answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"answer": "approve", "command_id": "review-7", "for_run": "src/**"}))]
#[serde(deny_unknown_fields)]
pub struct AnswerBody {
    pub answer: Verdict,
    /// What you call this answer: given again by the same name it is the same answer, and changes nothing.
    #[schema(min_length = 1, max_length = 256)]
    pub command_id: String,
    /// With `reject`: what the model is told about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// With `approve`: further calls of the same tool in this run are approved that fit this pattern, of commands or paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_run: Option<String>,
}

/// That an answer is of record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Answered {
    /// The approval.
    pub id: String,
    /// What it was answered with.
    pub answer: Verdict,
    /// What the answer is called.
    pub command_id: String,
    /// False: it was of record already.
    pub changed: bool,
    /// The place in the run's log of what was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

/// What people were asked about a run's calls, by its log, the first ones first; `name` is what people call the run.
pub fn approvals(run: &Run, name: &str, log: &[Envelope]) -> Vec<ApprovalDetail> {
    let Some(spec) = run.spec() else { return Vec::new() };
    run.approvals().iter().map(|approval| detail((run, name), spec, approval, log)).collect()
}

fn detail(
    (run, name): (&Run, &str),
    spec: &TaskSpec,
    approval: &Approval,
    log: &[Envelope],
) -> ApprovalDetail {
    let request = &*approval.request;
    let calls = run.history().iter().flat_map(|message| match message {
        Message::Assistant(reply) => reply.calls.as_slice(),
        Message::System(_) | Message::User(_) | Message::Tool(_) => &[],
    });
    let call = calls.into_iter().find(|call| call.id == request.call);
    let arguments = call.map_or("null", |call| call.arguments.as_str());
    let number = request.approval;
    ApprovalDetail {
        approval: ApprovalView {
            id: format!("{}.{number}", run.id()),
            name: format!("{name}.{number}"),
            run: run.id().to_string(),
            task_id: spec.task_id.as_deref().map(str::to_owned),
            batch: spec.batch.map(|batch| batch.to_string()),
            number,
            call: request.call.to_string(),
            tool: call.map(|call| call.name.to_string()).unwrap_or_default(),
            what: what(request, &spec.workspace, arguments),
            rule: request.rule.clone(),
            asked_at: rfc3339(approval.at),
            expires_at: request.expires_at.map(rfc3339),
            resolution: resolutions(log)
                .find(|(resolved, _)| resolved.approval == number)
                .map(|(resolved, at)| resolution(resolved, at)),
        },
        workspace: spec.workspace.to_string(),
        arguments: serde_json::from_str(arguments).unwrap_or_default(),
        access: request.access.iter().map(ToString::to_string).collect(),
        before: request.change.as_ref().and_then(|change| change.before.clone()),
        after: request.change.as_ref().map(|change| change.after.clone()),
        preview: request.preview.as_deref().map(str::to_owned),
        supersedes: resolutions(log)
            .filter(|(resolved, _)| resolved.call == request.call && resolved.approval < number)
            .find_map(|(resolved, _)| {
                (resolved.resolution == Resolution::Superseded).then_some(resolved.approval)
            }),
    }
}

/// What became of approvals and when, the last first.
fn resolutions(log: &[Envelope]) -> impl Iterator<Item = (&ApprovalResolved, Timestamp)> {
    log.iter().rev().filter_map(|Envelope { fact, .. }| {
        let Event::ApprovalResolved(resolved) = &fact.event else { return None };
        Some((&**resolved, fact.at))
    })
}

fn resolution(resolved: &ApprovalResolved, at: Timestamp) -> ResolutionView {
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
    ResolutionView {
        how: resolved.resolution.into(),
        at: rfc3339(at),
        by: text(&resolved.by),
        command_id: text(&resolved.command),
        reason: text(&resolved.reason),
        for_run: resolved.grant.as_ref().map(|grant| grant.pattern.to_string()),
    }
}

/// What a call is about in short.
fn what(request: &ApprovalRequested, workspace: &str, arguments: &str) -> String {
    if let Some(change) = &request.change {
        let path = Path::new(&*change.path);
        return path.strip_prefix(workspace).unwrap_or(path).display().to_string();
    }
    let shown = request.preview.as_deref().unwrap_or(arguments);
    let mut lines = shown.trim().lines();
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}
