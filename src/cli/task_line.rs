//! Tasks for the daemon: read and completed here as far as it can be told here, and written as the lines that it takes.
//!
//! What flags say is filled in, paths are absolute, scripts stand in the line. Which models and tools there are, and what a task
//! has that neither it nor a flag says, is for the daemon to know: the configuration of this command is not asked.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use super::{Context, UsageError, args::TaskArgs};
use crate::{
    app::input::Rules,
    config::Defaults,
    domain::{
        json::RawJson,
        script::Script,
        task::{Isolate, OnTruncated, Params, ResponseFormat, TaskSpec},
        usage::Limits,
    },
};

/// What stands for the model of a task that names none. It is not written.
const UNNAMED: &str = "";

/// Lends what tasks are completed with: flags, and nothing else.
pub(super) fn with_flags<T>(args: &TaskArgs, work: impl FnOnce(Rules<'_>) -> T) -> T {
    let wall_time_s = args.timeout.map(|time| time.as_secs());
    let defaults = Defaults {
        model: Some(args.model.clone().unwrap_or_else(|| UNNAMED.to_owned())),
        system: args.system.clone(),
        workspace: args.workspace.clone(),
        isolate: args.isolate.map(Into::into).unwrap_or_default(),
        tools: args.tools.clone(),
        policy: String::new(),
        priority: args.priority.unwrap_or_default(),
        labels: args.labels.iter().cloned().collect(),
        facts: BTreeMap::new(),
        limits: Limits {
            max_turns: args.max_turns,
            wall_time_s,
            max_cost_usd: args.run_max_cost,
            ..Limits::default()
        },
        params: Params::default(),
        response_format: args.schema.clone(),
        on_truncated: OnTruncated::Block,
        stop_on_tool_error: false,
    };
    let any = |_: &str| Ok(());
    work(Rules { defaults: &defaults, model: &any, tool: &any })
}

/// Refuses flags that only the daemon's own configuration can stand for.
pub(super) fn refuse_settings(args: &TaskArgs, context: &Context) -> Result<(), UsageError> {
    let given = [("--stall", args.stall.is_some()), ("--policy", context.policy.is_some())];
    refuse(given, "is the daemon's own setting; leave it out, or start the daemon with it")
}

/// Refuses the first of these flags that is given.
pub(super) fn refuse<const N: usize>(given: [(&str, bool); N], what: &str) -> Result<(), UsageError> {
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(UsageError(format!("{flag}: {what}"))),
        None => Ok(()),
    }
}

/// The keys of a line, without those that are left to the daemon.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    task: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    workspace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolate: Option<Isolate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a [Arc<str>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limits: Option<Limits>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    facts: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a Params>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'a ResponseFormat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_truncated: Option<OnTruncated>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stop_on_tool_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    script: Option<&'a Script>,
}

/// The line that asks for a task, without its end.
pub(super) fn line(spec: &TaskSpec) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Line {
        id: spec.task_id.as_deref(),
        task: &spec.task,
        model: Some(&*spec.model).filter(|model| *model != UNNAMED),
        system: spec.system.as_deref(),
        workspace: &spec.workspace,
        isolate: Some(spec.isolate).filter(|how| !how.is_none()),
        tools: spec.tools.as_deref(),
        limits: Some(spec.limits).filter(|limits| *limits != Limits::default()),
        facts: &spec.facts,
        priority: Some(spec.priority).filter(|priority| *priority != 0),
        labels: &spec.labels,
        meta: spec.meta.as_ref(),
        params: Some(&spec.params).filter(|params| **params != Params::default()),
        response_format: spec.response_format.as_ref(),
        on_truncated: Some(spec.on_truncated).filter(|what| *what != OnTruncated::default()),
        stop_on_tool_error: spec.stop_on_tool_error,
        script: spec.script.as_ref(),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};

    use super::*;
    use crate::app::input::{self, Source};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        task: TaskArgs,
    }

    fn lines(input: &str, flags: &str) -> Vec<Value> {
        let flags =
            Flags::try_parse_from(std::iter::once("x").chain(flags.split_whitespace())).expect("flags");
        let read = |rules: Rules<'_>| input::read_from(input.as_bytes(), &Source::Stdin, rules);
        let tasks = with_flags(&flags.task, read).expect("tasks");
        let lines = tasks.iter().map(|task| line(&task.spec).expect("JSON"));
        lines.map(|line| serde_json::from_slice(&line).expect("JSON")).collect()
    }

    #[test]
    fn what_nobody_says_is_left_to_the_daemon() {
        let here = std::env::current_dir().expect("a folder").canonicalize().expect("real");
        assert_eq!(lines(r#"{"task": "t"}"#, ""), [json!({"id": "line-1", "task": "t", "workspace": here})]);
    }

    #[test]
    fn flags_fill_in_what_a_line_does_not_say() {
        let input =
            r#"{"id": "a", "task": "t", "model": "own", "limits": {"max_turns": 3}, "labels": {"k": "own"},
            "meta": {"z": 1}, "workspace": "/", "script": [{"text": "x"}]}"#
                .replace('\n', " ");
        let flags =
            "--model flag --tools read,made-up --max-turns 9 --timeout 60 -l k=flag -l team=x --priority 2";
        let line = &lines(&input, flags)[0];
        assert_eq!(
            (&line["model"], &line["tools"], &line["limits"], &line["labels"], &line["priority"]),
            (
                &json!("own"),
                &json!(["read", "made-up"]),
                &json!({"max_turns": 3, "wall_time_s": 60}),
                &json!({"k": "own", "team": "x"}),
                &json!(2)
            )
        );
        assert_eq!((&line["meta"], &line["workspace"]), (&json!({"z": 1}), &json!("/")));
        assert_eq!(line["script"][0]["text"], "x");
    }
}
