//! The tools, one for each thing that can be asked of a daemon. An error is an answer that says so.

use std::time::Duration;

use rmcp::{handler::server::wrapper::Parameters, tool, tool_router};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    input,
    server::Server,
    show,
    wait::{LONGEST, Until, wait},
};
use crate::{
    cli::say::{When, tell},
    daemon::{
        client::{Follower, Route},
        wire::{Changed, Requeued, RunDetail, RunList, Say, Status, Submitted},
    },
};

/// What a tool answers: JSON, or why not.
type Answer = Result<String, String>;

/// How long events that are of record may take to come.
const EVENTS: Duration = Duration::from_secs(10);

#[tool_router(router = tools, vis = "pub(super)")]
impl Server {
    #[tool(
        description = "Start an agent on a task, in a folder, and get its run's id. It works on its own until it is done; \
            wait_s waits for its end and gives its result, if it comes in time.",
        annotations(
            title = "Start a run",
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = false
        )
    )]
    async fn herder_submit(&self, Parameters(submit): Parameters<input::Submit>) -> Answer {
        let mut line = json!({ "task": submit.task, "workspace": submit.workspace });
        let optional = [
            ("model", submit.model.map(Value::from)),
            ("system", submit.system.map(Value::from)),
            ("tools", submit.tools.map(Value::from)),
            ("labels", (!submit.labels.is_empty()).then(|| json!(submit.labels))),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                line[key] = value;
            }
        }
        let route = Route::to(["v1", "runs"]);
        let submitted =
            self.client.submit(&route, "application/json", line.to_string(), submit.key.as_deref());
        let submitted: Submitted = submitted.await.map_err(|error| error.to_string())?;
        let run = json!({ "run": submitted.id, "started": submitted.changed });
        let Some(seconds) = submit.wait_s else { return Ok(run.to_string()) };
        let waited = wait(&self.client, &[submitted.id], Duration::from_secs(seconds), Until::All).await;
        // It has been submitted, whatever becomes of the waiting.
        Ok(waited.unwrap_or_else(|error| json!({ "run": run["run"], "note": error })).to_string())
    }

    #[tool(
        description = "Show where one run stands or, without a run, how the daemon is: load, rates, totals, what is paused.",
        annotations(title = "Show status", read_only_hint = true)
    )]
    async fn herder_status(&self, Parameters(status): Parameters<input::Status>) -> Answer {
        match status.run {
            Some(run) => Ok(show::run(&self.detail(&run).await?.run).to_string()),
            None => {
                let status: Status = self.get(&Route::to(["v1", "status"])).await?;
                text(&status)
            }
        }
    }

    #[tool(
        description = "List runs, the newest last, by state, outcome, batch, model, task or labels. `matching` counts all of \
            them; `next`, if there is one, asks for older ones as `before`.",
        annotations(title = "List runs", read_only_hint = true)
    )]
    async fn herder_list(&self, Parameters(list): Parameters<input::List>) -> Answer {
        let states: Vec<_> = list.state.iter().map(|state| state.as_str()).collect();
        let mut route = Route::to(["v1", "runs"])
            .with("limit", list.limit.unwrap_or(20).clamp(1, 100))
            .with_some("state", (!states.is_empty()).then(|| states.join(",")))
            .with_some("outcome", list.outcome)
            .with_some("batch", list.batch)
            .with_some("model", list.model)
            .with_some("task_id", list.task_id)
            .with_some("before", list.before);
        for (name, value) in list.labels {
            route = route.with("label", format!("{name}={value}"));
        }
        let list: RunList = self.get(&route).await?;
        Ok(show::runs(&list).to_string())
    }

    #[tool(
        description = "Get what a run came to: its outcome, and the text that it ended with.",
        annotations(title = "Get a result", read_only_hint = true)
    )]
    async fn herder_result(&self, Parameters(input::Run { run }): Parameters<input::Run>) -> Answer {
        Ok(show::result(&self.detail(&run).await?).to_string())
    }

    #[tool(
        description = "Show what happened in a run, an event a line: number, time, turn, kind, what. The newest, or those \
            after a number.",
        annotations(title = "Show events", read_only_hint = true)
    )]
    async fn herder_events(&self, Parameters(events): Parameters<input::Events>) -> Answer {
        let last = self.detail(&events.run).await?.events;
        let limit = u64::from(events.limit.unwrap_or(50).clamp(1, 200));
        let after = events.after.unwrap_or_else(|| last.saturating_sub(limit));
        let count = last.saturating_sub(after).min(limit);
        let route = Route::to(["v1", "runs", &events.run, "events"]);
        let follower = self.client.follow(route, Some(after)).waiting(Duration::ZERO);
        let lines = timeout(EVENTS, take(follower, count))
            .await
            .map_err(|_| "the events do not come".to_owned())??;
        let rest = last.saturating_sub(after + count);
        Ok(if lines.is_empty() {
            format!("no events after {after}; the last one is {last}")
        } else if rest > 0 {
            format!("{}\n{rest} more; ask again with after {}", lines.join("\n"), after + count)
        } else {
            lines.join("\n")
        })
    }

    #[tool(
        description = "Wait until runs have ended, all or any of them. Comes back after timeout_s at the latest, with where \
            each stands; call it again as long as some have not ended. Of one run that has ended, gives its result.",
        annotations(title = "Wait for runs", read_only_hint = true)
    )]
    async fn herder_wait(&self, Parameters(waits): Parameters<input::Wait>) -> Answer {
        if waits.runs.is_empty() || waits.runs.len() > 100 {
            return Err("runs: want 1 to 100 of them".to_owned());
        }
        for run in &waits.runs {
            named(run)?;
        }
        let time = Duration::from_secs(waits.timeout_s.unwrap_or(30)).min(LONGEST);
        let until = if waits.any { Until::Any } else { Until::All };
        Ok(wait(&self.client, &waits.runs, time, until).await?.to_string())
    }

    #[tool(
        description = "Say something to a run that works, for its next turn: it reads it after the running turn's calls.",
        annotations(
            title = "Steer a run",
            read_only_hint = false,
            destructive_hint = false,
            idempotent_hint = false
        )
    )]
    async fn herder_steer(&self, Parameters(input::Say { run, text }): Parameters<input::Say>) -> Answer {
        self.say(&run, When::Steer, text).await
    }

    #[tool(
        description = "Give a run another thing to do once it would otherwise be done.",
        annotations(
            title = "Follow up",
            read_only_hint = false,
            destructive_hint = false,
            idempotent_hint = false
        )
    )]
    async fn herder_follow_up(&self, Parameters(input::Say { run, text }): Parameters<input::Say>) -> Answer {
        self.say(&run, When::FollowUp, text).await
    }

    #[tool(
        description = "End a run, or a batch with all its runs, for good. What its tools have done stays done.",
        annotations(
            title = "Cancel",
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = true
        )
    )]
    async fn herder_cancel(&self, Parameters(cancel): Parameters<input::Cancel>) -> Answer {
        self.order("cancel", &target(cancel.run, cancel.batch, None, false)?).await
    }

    #[tool(
        description = "Hold a run, a batch, a model's runs or everything: no further request is sent until it is resumed. \
            Give exactly one of run, batch, model, all.",
        annotations(
            title = "Pause",
            read_only_hint = false,
            destructive_hint = false,
            idempotent_hint = true
        )
    )]
    async fn herder_pause(&self, Parameters(hold): Parameters<input::Hold>) -> Answer {
        self.order("pause", &target(hold.run, hold.batch, hold.model, hold.all)?).await
    }

    #[tool(
        description = "Let go on what was paused. Give exactly one of run, batch, model, all.",
        annotations(
            title = "Resume",
            read_only_hint = false,
            destructive_hint = false,
            idempotent_hint = true
        )
    )]
    async fn herder_resume(&self, Parameters(hold): Parameters<input::Hold>) -> Answer {
        self.order("resume", &target(hold.run, hold.batch, hold.model, hold.all)?).await
    }

    #[tool(
        description = "Give the task of a run that has ended another attempt, as a run of its own.",
        annotations(
            title = "Requeue",
            read_only_hint = false,
            destructive_hint = true,
            idempotent_hint = true
        )
    )]
    async fn herder_requeue(&self, Parameters(input::Run { run }): Parameters<input::Run>) -> Answer {
        let route = Route::to(["v1", "runs", named(&run)?, "requeue"]);
        let requeued: Requeued = self.post(&route, &json!({})).await?;
        Ok(json!({ "run": requeued.id, "started": requeued.changed }).to_string())
    }
}

impl Server {
    async fn get<T: serde::de::DeserializeOwned>(&self, route: &Route) -> Result<T, String> {
        self.client.get(route).await.map_err(|error| error.to_string())
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &self,
        route: &Route,
        body: &impl Serialize,
    ) -> Result<T, String> {
        self.client.post(route, body).await.map_err(|error| error.to_string())
    }

    async fn detail(&self, run: &str) -> Result<RunDetail, String> {
        self.get(&Route::to(["v1", "runs", named(run)?])).await
    }

    async fn say(&self, run: &str, when: When, words: String) -> Answer {
        let say = Say { text: words, expected_turn: None };
        let changed = tell(&self.client, named(run)?, when, &say).await;
        text(&changed.map_err(|error| error.to_string())?)
    }

    async fn order(&self, verb: &str, target: &[String]) -> Answer {
        let path = ["v1"].into_iter().chain(target.iter().map(String::as_str)).chain([verb]);
        let changed: Changed = self.post(&Route::to(path), &json!({})).await?;
        text(&changed)
    }
}

/// The path of the one thing that is named.
fn target(
    run: Option<String>,
    batch: Option<String>,
    model: Option<String>,
    all: bool,
) -> Result<Vec<String>, String> {
    match (run, batch, model, all) {
        (Some(run), None, None, false) => Ok(vec!["runs".to_owned(), named(&run)?.to_owned()]),
        (None, Some(batch), None, false) => Ok(vec!["batches".to_owned(), named(&batch)?.to_owned()]),
        (None, None, Some(model), false) => Ok(vec!["models".to_owned(), named(&model)?.to_owned()]),
        (None, None, None, true) => Ok(Vec::new()),
        _ => Err("want exactly one thing to be named".to_owned()),
    }
}

/// A name that is a segment of a path, as these are not.
fn named(name: &str) -> Result<&str, String> {
    if matches!(name, "" | "." | "..") { Err(format!("{name:?} names nothing")) } else { Ok(name) }
}

fn text(value: &impl Serialize) -> Answer {
    serde_json::to_string(value).map_err(|error| error.to_string())
}

/// The next events, as lines.
async fn take(mut events: Follower, count: u64) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    while (lines.len() as u64) < count {
        match events.next().await.map_err(|error| error.to_string())? {
            Some(event) if event.id.is_some() => lines.push(show::event(&event)),
            // It is not of record.
            Some(_) => {}
            None => break,
        }
    }
    Ok(lines)
}
