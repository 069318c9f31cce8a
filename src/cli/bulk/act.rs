//! Does one thing to many, and tells what became of it.

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use super::Verb;
use crate::{
    cli::{Exit, start::say, stdout::Output},
    daemon::{
        client::{Client, ClientError, Route},
        wire::{ApiError, Code},
    },
};

/// Requests that are under way at once.
const AT_ONCE: usize = 16;

/// What became of it so far.
pub(super) struct Tally {
    verb: Verb,
    json: bool,
    out: Output,
    changed: usize,
    unchanged: usize,
    /// Runs that had ended, or had not: too late or too early for it.
    missed: usize,
    exit: Exit,
}

/// Whether runs were named, or found to match a moment ago.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chosen {
    ByName,
    ByMatch,
}

impl Tally {
    pub(super) fn new(verb: Verb, json: bool) -> Self {
        Self { verb, json, out: Output::stdout(), changed: 0, unchanged: 0, missed: 0, exit: Exit::Done }
    }

    /// Does it to runs that were named. A run that it cannot be done to is a mistake.
    pub(super) async fn runs(&mut self, client: &Client, names: &[String]) -> anyhow::Result<()> {
        self.each(client, names, Chosen::ByName).await
    }

    /// Does it to runs that matched. Some may have ended meanwhile, which is no mistake.
    pub(super) async fn matching(&mut self, client: &Client, ids: &[String]) -> anyhow::Result<()> {
        self.each(client, ids, Chosen::ByMatch).await
    }

    async fn each(&mut self, client: &Client, names: &[String], chosen: Chosen) -> anyhow::Result<()> {
        let verb = self.verb.as_str();
        let mut asked = stream::iter(names)
            .map(
                |name| async move { (name, self::ask(client, &["v1", "runs", name, verb], json!({})).await) },
            )
            .buffered(AT_ONCE);
        while let Some((name, answer)) = asked.next().await {
            self.count(name, answer, chosen)?;
        }
        Ok(())
    }

    /// Does it to a batch, a model or everything.
    pub(super) async fn whole(&mut self, client: &Client, path: &[&str], name: &str) -> anyhow::Result<()> {
        let body = serde_json::to_value(self.verb.body()).unwrap_or_default();
        let answer = ask(client, path, body).await;
        self.count(name, answer, Chosen::ByName)
    }

    fn count(
        &mut self,
        name: &str,
        answer: Result<Value, ClientError>,
        chosen: Chosen,
    ) -> anyhow::Result<()> {
        match answer {
            Ok(mut answer) => {
                let changed = answer["changed"].as_bool().unwrap_or(true);
                *if changed { &mut self.changed } else { &mut self.unchanged } += 1;
                if self.json {
                    answer["target"] = name.into();
                    let _open = self.out.json(&answer)?;
                }
                Ok(())
            }
            Err(ClientError::Refused(refusal)) => self.refused(name, refusal, chosen),
            Err(error) => Err(error.into()),
        }
    }

    fn refused(&mut self, name: &str, refusal: ApiError, chosen: Chosen) -> anyhow::Result<()> {
        if self.json {
            let mut told = serde_json::to_value(&refusal)?;
            told["target"] = name.into();
            let _open = self.out.json(&told)?;
        }
        let missed = matches!(refusal.code, Code::Ended | Code::Ending | Code::NotEnded);
        self.missed += usize::from(missed);
        if missed && chosen == Chosen::ByMatch {
            return Ok(());
        }
        let error = ClientError::Refused(refusal).into();
        // The first mistake says how the command ends.
        if self.exit == Exit::Done {
            self.exit = Exit::of(&error);
        }
        if !self.json {
            say(&format!("{name}: {error}"));
        }
        Ok(())
    }

    /// Says in one line what became of it.
    pub(super) fn finish(mut self) -> std::io::Result<Exit> {
        if !self.json {
            let line = self.line();
            let _open = self.out.line(&line)?;
        }
        let _open = self.out.flush()?;
        Ok(self.exit)
    }

    fn line(&self) -> String {
        let had = match self.verb {
            Verb::Requeue => "had not ended",
            Verb::Cancel | Verb::Pause(_) | Verb::Resume => "had ended",
        };
        let already = match (self.verb, self.unchanged) {
            (Verb::Requeue, _) => "had another attempt already",
            (Verb::Cancel, _) => "had ended or was ending already",
            (_, 1) => "was so already",
            _ => "were so already",
        };
        let more = [(self.unchanged, already), (self.missed, had)];
        let more = more.iter().filter(|(count, _)| *count > 0).map(|(count, how)| format!(", {count} {how}"));
        format!("{} {}{}", self.verb.past(), self.changed, more.collect::<String>())
    }
}

async fn ask(client: &Client, path: &[&str], body: Value) -> Result<Value, ClientError> {
    client.post(&Route::to(path.iter().copied()), &body).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: Code) -> Result<Value, ClientError> {
        Err(ClientError::Refused(ApiError::new(code, "no")))
    }

    fn tally(chosen: Chosen, answers: Vec<Result<Value, ClientError>>) -> (String, Exit) {
        let mut tally = Tally::new(Verb::Cancel, false);
        for answer in answers {
            tally.count("r", answer, chosen).expect("counted");
        }
        (tally.line(), tally.exit)
    }

    #[test]
    fn what_matched_and_ended_meanwhile_is_counted_and_no_mistake() {
        let answers =
            || vec![Ok(json!({"changed": true})), Ok(json!({"changed": false})), refusal(Code::Ended)];
        let line = "cancelled 1, 1 had ended or was ending already, 1 had ended".to_owned();
        assert_eq!(tally(Chosen::ByMatch, answers()), (line.clone(), Exit::Done));
        assert_eq!(tally(Chosen::ByName, answers()), (line, Exit::NotDone));
    }

    #[test]
    fn a_name_that_stands_for_nothing_is_bad_usage() {
        let answers = vec![refusal(Code::UnknownRun), Ok(json!({"changed": true}))];
        assert_eq!(tally(Chosen::ByName, answers), ("cancelled 1".to_owned(), Exit::Usage));
    }
}
