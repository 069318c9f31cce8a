//! `herder steer` and `herder follow-up`: something is said to a run.

use clap::Args;
use uuid::Uuid;

use super::{
    Context, Exit,
    asking::{self, surely},
    stdout::Output,
};
use crate::daemon::{
    client::{Client, ClientError, Route},
    wire::{Changed, Say},
};

pub(super) const STEER: &str = "Say something to a run before its next turn

The model reads it with its next request. Refused, if the run has ended or is ending.";

pub(super) const STEER_AFTER: &str = "EXAMPLES
  herder steer task-17 \"Leave the tests as they are\"
  herder steer task-17 \"Try the other file\" --turn 4          only if it is still in its fourth turn";

pub(super) const FOLLOW_UP: &str = "Say something to a run once it has answered

Where the run would end, the model reads it and goes on. Refused, if the run has ended or is ending.";

pub(super) const FOLLOW_UP_AFTER: &str = "EXAMPLES
  herder follow-up task-17 \"Now write a test for it\"";

/// Flags of both commands.
#[derive(Clone, Debug, Args)]
pub struct SayArgs {
    /// The run: its id, the beginning of one, or a task's id
    #[arg(value_name = "RUN")]
    pub run: String,
    /// What is said
    #[arg(value_name = "TEXT")]
    pub text: String,
    /// Only if the run is in this turn
    #[arg(long, value_name = "N")]
    pub turn: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// When it is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before the next turn.
    Steer,
    /// Where the run would end.
    FollowUp,
}

/// Runs one of the commands.
pub(crate) async fn main(args: SayArgs, when: When, context: Context) -> anyhow::Result<Exit> {
    let say = Say { text: args.text, expected_turn: args.turn };
    let changed = tell(&asking::client(&context)?, &args.run, when, &say).await?;
    let mut out = Output::stdout();
    if args.json {
        let _open = out.json(&changed)?;
    }
    let _open = out.flush()?;
    Ok(Exit::Done)
}

/// Says something to a run. It hears it once, though the answer be lost and the daemon asked again.
pub(super) async fn tell(client: &Client, run: &str, when: When, say: &Say) -> Result<Changed, ClientError> {
    let verb = match when {
        When::Steer => "steer",
        When::FollowUp => "follow-up",
    };
    let (route, key) = (Route::to(["v1", "runs", run, verb]), Uuid::now_v7().to_string());
    surely(|| client.post_once(&route, say, &key)).await
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{Arc, Mutex},
    };

    use axum::{Router, http::HeaderMap, routing::post};

    use super::*;
    use crate::cli::fake::{Fake, parts};

    #[tokio::test]
    async fn what_is_said_is_said_again_with_its_key_if_the_answer_was_lost() {
        let keys: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = keys.clone();
        let hear = move |headers: HeaderMap| {
            let mut heard = heard.lock().expect("unpoisoned");
            heard.push(headers["idempotency-key"].to_str().expect("text").to_owned());
            let (answer, lost) = (r#"{"changed": true, "seq": 9}"#.to_owned(), heard.len() == 1);
            async move { parts(vec![answer], lost) }
        };
        let router = Router::new().route("/v1/runs/r1/steer", post(hear.clone()));
        let fake = Fake::start(router.route("/v1/runs/r1/follow-up", post(hear)));
        let say = Say { text: "x".to_owned(), expected_turn: None };
        for when in [When::Steer, When::FollowUp] {
            let changed = tell(&fake.client(), "r1", when, &say).await.expect("heard");
            assert_eq!(changed.seq, Some(9));
        }
        let keys = keys.lock().expect("unpoisoned");
        assert_eq!((keys.len(), keys.iter().collect::<BTreeSet<_>>().len()), (3, 2), "{keys:?}");
        assert_eq!(keys[0], keys[1]);
    }
}
