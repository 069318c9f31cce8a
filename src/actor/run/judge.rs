//! Whether a call that the model asks for may run: the tool and its schema, then what it touches, then policy.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, OnceLock},
};

use serde_json::{Map, Value};

use super::Form;
use crate::{
    actor::{Services, judge_by},
    domain::{
        call::{Access, Arguments, Failure, ToolSpec},
        event::Grant,
        policy::{Policy, Verdict},
        run::{self, Judgement},
        task::TaskSpec,
        text,
    },
    model::ProposedCall,
    tool::{self, Tool, digest::digest, workspace::Workspace},
};

/// Bytes of arguments beyond which judging a call, which may split a command line, takes long for an async thread.
const LONG: usize = 4 * 1024;

/// Judges the calls of one answer.
#[derive(Clone)]
pub(super) struct Judge {
    pub(super) services: Arc<Services>,
    pub(super) workspace: Arc<Workspace>,
    pub(super) offered: Arc<[Arc<str>]>,
    pub(super) form: Option<Arc<Form>>,
    /// What people have approved beforehand.
    pub(super) grants: Vec<Grant>,
}

/// The tools that a run is offered.
#[derive(Clone)]
pub struct Offer {
    /// Their names.
    pub names: Arc<[Arc<str>]>,
    /// What the model is told of them.
    pub specs: Arc<[ToolSpec]>,
    /// Both are reckoned when they are first asked for.
    digest: Arc<OnceLock<Arc<str>>>,
    bytes: Arc<OnceLock<usize>>,
}

impl Offer {
    /// The tools that a task names, or else all; never one that policy lets do nothing.
    pub fn of(services: &Services, spec: &TaskSpec) -> Self {
        let usable = |name: &&Arc<str>| {
            let tool = services.toolbox.get(name);
            let best = if services.settings.approvals.is_some() { Verdict::Ask } else { Verdict::Allow };
            tool.is_some_and(|tool| services.policy.could_allow(name, tool.effect()) <= best)
        };
        let names: Arc<[Arc<str>]> = match &spec.tools {
            Some(names) => names.iter().filter(usable).cloned().collect(),
            None => services.toolbox.names().filter(usable).cloned().collect(),
        };
        let specs = names
            .iter()
            .filter_map(|name| services.toolbox.get(name))
            .map(|tool| tool.spec().clone())
            .collect();
        Self { names, specs, digest: Arc::default(), bytes: Arc::default() }
    }

    /// Bytes of what the model is told of them, and of what stands around that.
    pub(super) fn bytes(&self) -> usize {
        const AROUND: usize = 64;
        let of = |tool: &ToolSpec| {
            tool.name.len() + tool.description.len() + tool.schema.to_string().len() + AROUND
        };
        *self.bytes.get_or_init(|| self.specs.iter().map(of).sum())
    }

    /// SHA-256 of what the model is told of them, in hex; nothing, if there are none.
    pub(super) fn digest(&self) -> Option<Arc<str>> {
        let reckoned = || {
            let told = self.specs.iter().flat_map(|tool| {
                [tool.name.to_string(), tool.description.to_string(), tool.schema.to_string()]
            });
            let told: Vec<String> = told.collect();
            digest(&told.iter().map(String::as_str).collect::<Vec<_>>()).into()
        };
        (!self.specs.is_empty()).then(|| self.digest.get_or_init(reckoned).clone())
    }
}

impl Judge {
    /// Judges calls in their order, and says what people are asked about those that are left to them.
    pub(super) async fn judge_all(&self, calls: Vec<ProposedCall>) -> Vec<run::ProposedCall> {
        let mut judged = self.by_policy(calls).await;
        for call in &mut judged {
            self.ask_people(call).await;
        }
        judged
    }

    /// Judges calls; where that has to look at the file system or may take long, on a thread that may block.
    async fn by_policy(&self, calls: Vec<ProposedCall>) -> Vec<run::ProposedCall> {
        let blocks = |call: &ProposedCall| {
            call.arguments.len() > LONG
                || self
                    .services
                    .toolbox
                    .get(&call.name)
                    .is_some_and(|tool| tool.access_blocks(&self.workspace))
        };
        if !calls.iter().any(blocks) {
            return calls.into_iter().map(|call| self.judge(call)).collect();
        }
        let judge = self.clone();
        let judged = move || calls.into_iter().map(|call| judge.judge(call)).collect();
        match tokio::task::spawn_blocking(judged).await {
            Ok(judged) => judged,
            // A panic goes on as one; without it, the runtime is going down, and this task with it.
            Err(error) => resume_unwind(error.try_into_panic().unwrap_or_else(|error| Box::new(error))),
        }
    }

    fn judge(&self, call: ProposedCall) -> run::ProposedCall {
        let ProposedCall { id, name, arguments } = call;
        let (arguments, judgement) = match read(&arguments) {
            Ok(read) => {
                // A tool that panics while it is asked what it touches fails this call, and nothing else.
                let judged = catch_unwind(AssertUnwindSafe(|| self.judge_call(&name, &read)));
                let judgement = judged.unwrap_or_else(|_| Judgement::Refused {
                    failure: Failure::Failed,
                    why: tool::PANICKED.to_owned(),
                });
                (read.arguments, judgement)
            }
            Err((arguments, why)) => {
                (arguments, Judgement::Refused { failure: Failure::InvalidArguments, why })
            }
        };
        run::ProposedCall { id, name, arguments, judgement }
    }

    fn judge_call(&self, name: &str, read: &Read) -> Judgement {
        let tool = match self.services.toolbox.check(&self.offered, name, &read.value) {
            Ok(tool) => tool,
            Err((failure, why)) => return Judgement::Refused { failure, why },
        };
        let effect = tool.effect();
        let access = match tool.access(&self.workspace, &read.value) {
            Ok(access) => access,
            Err(why) => return Judgement::Refused { failure: Failure::Failed, why },
        };
        let (verdict, rule) = self.services.judge(&**tool, &self.workspace, &access, &read.value);
        let granted =
            (verdict == Verdict::Ask).then(|| self.granted(&**tool, &access, &read.value)).flatten();
        let (verdict, rule) = granted.map_or((verdict, rule), |rule| (Verdict::Allow, rule));
        Judgement::Judged { verdict, rule, effect, access, ask: None }
    }

    /// What was approved beforehand that this call is part of, in words.
    fn granted(&self, tool: &dyn Tool, access: &[Access], arguments: &Value) -> Option<String> {
        let command = tool.command(arguments);
        let fits = |grant: &&Grant| {
            *grant.tool == *tool.spec().name
                && (command.is_some_and(|command| grant.is_exactly(command))
                    || Policy::granting(grant, command.is_some()).is_ok_and(|policy| {
                        judge_by(&policy, tool, &self.workspace, access, arguments).0 == Verdict::Allow
                    }))
        };
        let grant = self.grants.iter().find(fits)?;
        Some(format!("a person allowed {} {:?} for this run", grant.tool, grant.pattern))
    }

    /// If a person is to decide about the call and can be asked: what they are asked.
    async fn ask_people(&self, call: &mut run::ProposedCall) {
        let Judgement::Judged { verdict: Verdict::Ask, ask, .. } = &mut call.judgement else { return };
        let Some(approvals) = self.services.settings.approvals else { return };
        let Some(tool) = self.services.toolbox.get(&call.name).cloned() else { return };
        match self.services.preview(tool, &self.workspace, &call.arguments, approvals).await {
            Ok(asked) => *ask = Some(asked),
            Err(why) => call.judgement = Judgement::Refused { failure: Failure::Failed, why },
        }
    }
}

/// Arguments that can be worked with.
struct Read {
    arguments: Arguments,
    value: Value,
}

/// Reads whatever came as arguments. What is no object goes into history as an object that says so, never verbatim:
/// a provider would refuse the whole conversation.
fn read(raw: &str) -> Result<Read, (Arguments, String)> {
    let repaired = text::repair_surrogates(raw);
    let trimmed = repaired.trim();
    if trimmed.is_empty() || trimmed == "null" {
        return Ok(Read { arguments: Arguments::empty(), value: Value::Object(Map::new()) });
    }
    let spoiled = |why: String| (Arguments::spoiled(raw), why);
    let arguments = Arguments::parse(trimmed).map_err(&spoiled)?;
    let value = serde_json::from_str(arguments.as_str())
        .map_err(|error| spoiled(format!("arguments are not valid JSON: {error}")))?;
    Ok(Read { arguments, value })
}
