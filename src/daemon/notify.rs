//! Tells somebody when something happens: starts a command, or posts JSON. Whoever is slow to hear holds nothing up.

use std::{process::Stdio, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{
    io::AsyncWriteExt as _,
    process::Command,
    sync::{
        Semaphore,
        broadcast::{Receiver, error::RecvError},
    },
};

use tokio_util::task::TaskTracker;

use super::desk::Desk;
use crate::{
    actor::supervisor::Notice,
    config::{Notify, Occasion},
    domain::outcome::Outcome,
    model::http,
};

/// How long one telling may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tellings at once, of each occasion: many failures do not keep the end of their batch from being told. News that comes
/// while so many are under way is dropped, and that is logged.
const AT_ONCE: usize = 16;

/// Who tells.
#[derive(Clone)]
pub(super) struct Teller {
    http: Option<reqwest::Client>,
    batch_ends: Arc<Semaphore>,
    failures: Arc<Semaphore>,
    latches: Arc<Semaphore>,
    caps: Arc<Semaphore>,
    approvals: Arc<Semaphore>,
    work: TaskTracker,
}

impl Teller {
    pub(super) fn new() -> Self {
        let http = http::client().inspect_err(|error| tracing::warn!(%error, "no news can be posted")).ok();
        let places = || Arc::new(Semaphore::new(AT_ONCE));
        Self {
            http,
            batch_ends: places(),
            failures: places(),
            latches: places(),
            caps: places(),
            approvals: places(),
            work: TaskTracker::new(),
        }
    }

    /// What is being told.
    pub(super) const fn work(&self) -> &TaskTracker {
        &self.work
    }

    /// Tells all who want to hear of it. Returns at once.
    pub(super) fn tell(&self, who: &[Notify], occasion: Occasion, news: &Value) {
        let places = match occasion {
            Occasion::BatchEnd => &self.batch_ends,
            Occasion::RunFailed => &self.failures,
            Occasion::LatchClosed => &self.latches,
            Occasion::Cap80 => &self.caps,
            Occasion::ApprovalWanted => &self.approvals,
        };
        for notify in who.iter().filter(|notify| notify.on.contains(&occasion)) {
            let Ok(place) = places.clone().try_acquire_owned() else {
                tracing::warn!(occasion = occasion.as_str(), "news dropped: too many are being told");
                continue;
            };
            let news = serde_json::json!({ "occasion": occasion.as_str(), "news": news }).to_string();
            let (notify, http) = (notify.clone(), self.http.clone());
            self.work.spawn(async move {
                let told = tokio::time::timeout(PATIENCE, told(&notify, http.as_ref(), news)).await;
                match told.unwrap_or_else(|_| Err("it took too long".to_owned())) {
                    Ok(()) => {}
                    Err(why) => tracing::warn!(occasion = occasion.as_str(), why, "news not told"),
                }
                drop(place);
            });
        }
    }
}

/// Tells of runs that ended otherwise than done, for as long as the daemon lives.
pub(super) async fn tell_of_failures(desk: Arc<Desk>) {
    let mut ends = desk.hub().ends();
    loop {
        let Some(end) = desk.until_over(ends.recv()).await else { return };
        let (run, end) = match end {
            Ok(end) => end,
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "runs ended faster than they could be looked at");
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        if end.outcome != Outcome::Done {
            let news = serde_json::json!({ "run": run.to_string(), "end": end });
            desk.teller.tell(&desk.config().notify, Occasion::RunFailed, &news);
        }
    }
}

/// Tells of calls that people are asked about, for as long as the daemon lives.
pub(super) async fn tell_of_approvals(desk: Arc<Desk>) {
    let mut asked = desk.hub().asked();
    loop {
        let Some(asked) = desk.until_over(asked.recv()).await else { return };
        match asked {
            Ok((run, approval)) => {
                // One that cannot be read is told of without what it is about.
                let name = format!("{run}.{approval}");
                let news = desk.approval(&name).await.map_or_else(
                    |_| serde_json::json!({ "id": name }),
                    |detail| serde_json::json!(detail.approval),
                );
                desk.teller.tell(&desk.config().notify, Occasion::ApprovalWanted, &news);
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "approvals were asked for faster than they were told of");
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Tells of what comes up beside runs and batches, for as long as the daemon lives.
pub(super) async fn tell_of_notices(desk: Arc<Desk>, mut notices: Receiver<Notice>) {
    loop {
        let Some(notice) = desk.until_over(notices.recv()).await else { return };
        match notice {
            Ok(notice) => {
                let (occasion, news) = desk.news(notice);
                desk.teller.tell(&desk.config().notify, occasion, &news);
            }
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "notices came faster than they were told")
            }
            Err(RecvError::Closed) => return,
        }
    }
}

async fn told(notify: &Notify, http: Option<&reqwest::Client>, news: String) -> Result<(), String> {
    match (&notify.url, http) {
        (Some(url), Some(http)) => {
            let request = http.post(url.expose()).header("content-type", "application/json").body(news);
            let answer = request.send().await.map_err(|error| error.to_string())?;
            answer.error_for_status().map(drop).map_err(|error| error.to_string())
        }
        (Some(_), None) => Err("there is no HTTP client".to_owned()),
        (None, _) => run(&notify.command, &news).await,
    }
}

async fn run(command: &[String], news: &str) -> Result<(), String> {
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    let failed = |error: std::io::Error| format!("{program}: {error}");
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command need not read what it is given.
        let _ = stdin.write_all(news.as_bytes()).await;
    }
    let status = child.wait().await.map_err(failed)?;
    if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notify(on: &str, command: &[&str]) -> Notify {
        let table = serde_json::json!({ "on": [on], "command": command });
        serde_json::from_value(table).expect("a notify table")
    }

    #[tokio::test]
    async fn a_command_gets_the_news_of_its_occasion_on_its_stdin_and_of_no_other() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |name: &str| folder.path().join(name).display().to_string();
        let script = |name: &str| format!("cat > {0}.part && mv {0}.part {0}", place(name));
        let who = [
            notify("batch-end", &["sh", "-c", &script("batch")]),
            notify("run-failed", &["sh", "-c", &script("run")]),
        ];
        let teller = Teller::new();
        teller.tell(&who, Occasion::BatchEnd, &serde_json::json!({ "id": "b" }));
        let all = u32::try_from(AT_ONCE).expect("a small number");
        let _done = teller.batch_ends.acquire_many(all).await.expect("open");
        let told = std::fs::read_to_string(place("batch")).expect("told");
        assert_eq!(told, r#"{"news":{"id":"b"},"occasion":"batch-end"}"#);
        assert!(!folder.path().join("run").exists());
    }

    #[tokio::test]
    async fn a_command_that_is_not_there_or_fails_is_told_as_that() {
        let absent = run(&["/no/such/program".to_owned()], "{}").await;
        assert!(absent.is_err_and(|why| why.starts_with("/no/such/program: ")));
        assert!(run(&["false".to_owned()], "{}").await.is_err_and(|why| why.contains("exit status: 1")));
        assert_eq!(run(&["true".to_owned()], "{}").await, Ok(()));
    }
}
