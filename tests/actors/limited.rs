//! Hundreds of runs that share a server which allows few of them at once, and fails now and then.
//!
//! They go by a clock that stands still while there is anything to do, however long that takes the machine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use herder::{
    domain::{event::Event, id::RunId, outcome::FaultClass},
    model::{
        governor::Rates,
        http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    doubles::Double,
    stage::{PATIENCE, Plan, Stage},
    support::limited::{Limited, Limits},
};

const RUNS: usize = 500;
const TURNS: usize = 3;
const AT_ONCE: usize = 50;
const HORIZON: Duration = Duration::from_millis(300);

/// In the time of the test a minute is a second.
fn limits(tells: bool) -> Limits {
    Limits {
        seed: 7,
        at_once: AT_ONCE,
        rate: (400, Duration::from_secs(1)),
        tells,
        latency: (Duration::from_millis(20), Duration::from_millis(80)),
        faults: 0.06,
        retry_after: vec![None, Some(("retry-after-ms", "120")), None, Some(("retry-after", "1"))],
        turns: TURNS,
        tool: ("look", json!({})),
    }
}

async fn stage(server: &Limited) -> Stage {
    let settings = Settings { base_url: server.base_url(), ..Settings::default() };
    let provider = Arc::new(OpenAi::new(http::client().unwrap(), settings).unwrap());
    let rates = Rates { horizon: HORIZON, ..Rates::default() };
    let plan = Plan { provider, rates, ..Plan::paused() }.tool(Double::quick("look"));
    plan.settings(|settings| {
        settings.max_live_runs = RUNS;
        settings.follow_models = true;
        settings.stall = Duration::from_secs(2);
    })
    .start()
    .await
}

/// What is seen of the governor while runs are at work.
#[derive(Default)]
struct Seen {
    most_live: usize,
    highest: u32,
    /// The count of cuts, and when the last of them was.
    cuts: Vec<(u64, Instant)>,
}

impl Seen {
    async fn watch(&mut self, stage: &Stage) -> ! {
        loop {
            let view = stage.governor().view();
            self.highest = self.highest.max(view.limit.unwrap());
            self.most_live = self.most_live.max(stage.supervisor.load().await.live);
            if let Some(at) = view.last_cut
                && self.cuts.last().is_none_or(|(count, _)| *count < view.cuts)
            {
                self.cuts.push((view.cuts, at));
            }
            sleep(HORIZON / 30).await;
        }
    }

    fn never_cut_twice_in_a_horizon(&self) -> bool {
        self.cuts.windows(2).all(|cuts| {
            let ((before, since), (after, until)) = (cuts[0], cuts[1]);
            until - since >= HORIZON * u32::try_from(after - before).unwrap()
        })
    }
}

/// Which failures of each turn's requests were followed by another one.
async fn retried(stage: &Stage, run: RunId) -> BTreeMap<usize, Vec<FaultClass>> {
    let mut retried = BTreeMap::<usize, Vec<_>>::new();
    for one in stage.log(run).await {
        if let Event::ModelRetry(retry) = one.fact.event {
            retried.entry(one.fact.turn as usize).or_default().push(retry.class);
        }
    }
    retried
}

async fn all_are_done(limits: Limits) {
    let server = Limited::start(limits).await;
    let stage = stage(&server).await;
    let task = |n| json!({ "script": null, "task": format!("task {n}") });
    let runs: Vec<_> = (0..RUNS).map(|n| stage.submit("ws", &Value::Null, &task(n))).collect();
    let mut seen = Seen::default();
    let ends = timeout(PATIENCE, async {
        let mut retries = Vec::new();
        for submitted in runs {
            let run = submitted.run;
            let end = stage.end(submitted).await;
            let how = (end.outcome.to_string(), &*end.text, end.turns as usize, end.calls as usize);
            assert_eq!(how, ("done".to_owned(), "done", TURNS, TURNS - 1));
            retries.push(retried(&stage, run).await);
        }
        retries
    });
    let retries = tokio::select! { ends = ends => ends.unwrap(), never = seen.watch(&stage) => never };

    let account = server.account();
    assert_eq!(account.wrong, Vec::<String>::new());
    assert_eq!(account.turns.len(), RUNS * TURNS);
    for (n, retries) in retries.iter().enumerate() {
        for turn in 0..TURNS {
            let came = account.turns[&(format!("task {n}"), turn)];
            let retried = retries.get(&(turn + 1)).map(Vec::as_slice).unwrap_or_default();
            let blamed = retried.iter().filter(|class| **class != FaultClass::Stall).count();
            // What is given up as stalled may still be on its way, and then be served or never get there.
            assert!(
                came.served >= 1 && came.asked <= 1 + retried.len(),
                "{n}, {turn}: {came:?}, {retried:?}"
            );
            assert!(
                blamed <= came.refused + came.failed,
                "{n}, {turn} was asked again for nothing: {came:?}, {retried:?}"
            );
        }
    }
    assert_eq!(account.faults.keys().collect::<Vec<_>>(), [&"503", &"529", &"drop", &"stall"]);
    assert!(!seen.cuts.is_empty() && seen.never_cut_twice_in_a_horizon(), "{:?}", seen.cuts);
    // Runs whose tools are at work, and those that a cut leaves behind, come on top of the limit.
    let most = 2 * seen.highest as usize;
    assert!(seen.most_live <= most && most < RUNS, "{} live, limit up to {}", seen.most_live, seen.highest);
    let view = stage.governor().view();
    assert_eq!((view.in_flight, view.out, view.waiting, view.held_back, view.pledged), (0, 0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_allows_fifty_at_once_and_says_no_more_serves_five_hundred_runs() {
    all_are_done(limits(false)).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_tells_its_limits_serves_five_hundred_runs() {
    all_are_done(limits(true)).await;
}
