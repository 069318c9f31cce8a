//! What the pure core costs: a turn decided and folded, a log written and read back, a conversation projected, a call
//! judged. No disk, no network, no runtime.

use std::{hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use herder::{
    config::policies,
    domain::{
        call::{Arguments, EffectClass, ToolResult},
        context,
        event::{self, Fact},
        id::{CallId, Pos, RunId},
        message::Message,
        outcome::Stop,
        policy::{Subject, Verdict},
        run::{Effect, Input, Judgement, Proposal, ProposedCall, Run},
        task::TaskSpec,
        time::Timestamp,
        usage::Usage,
    },
};

criterion_group!(benches, turns, log, projection, policy);
criterion_main!(benches);

const TURNS: u32 = 5;

fn turns(c: &mut Criterion) {
    let spec = spec();
    let mut group = c.benchmark_group("run");
    group.throughput(Throughput::Elements(u64::from(TURNS)));
    group.bench_function("5 turns with 4 calls", |b| b.iter(|| Player::new(&spec).play(TURNS).run));
    group.finish();
}

fn log(c: &mut Criterion) {
    let id = RunId::from_bytes([7; 16]);
    let mut player = Player::new(&spec());
    // Six facts a turn; the last turn has none but its end.
    player = player.play(1_000 / 6 + 1);
    let facts: u64 = player.appends.iter().map(|append| append.len() as u64).sum();
    let bodies: Vec<_> = player.appends.iter().filter_map(|append| event::encode(append).ok()).collect();
    let bytes: usize = bodies.iter().map(Vec::len).sum();
    assert_eq!(replay(id, &bodies), player.run);

    let mut group = c.benchmark_group(format!("log of {facts} events, {bytes} bytes"));
    group.throughput(Throughput::Elements(facts));
    group.bench_function("encode", |b| {
        b.iter(|| {
            player.appends.iter().map(|append| event::encode(black_box(append))).filter(Result::is_ok).count()
        });
    });
    group.bench_function("decode and fold", |b| b.iter(|| replay(id, black_box(&bodies))));
    group.bench_function("fold", |b| b.iter(|| Run::replay(id, black_box(&player.appends).iter().flatten())));
    group.finish();
}

fn replay(id: RunId, bodies: &[Vec<u8>]) -> Run {
    let mut run = Run::new(id);
    for body in bodies {
        for envelope in event::decode(body, id, Pos::START, run.next_seq()).into_iter().flatten() {
            run.evolve(&envelope.fact);
        }
    }
    run
}

fn projection(c: &mut Criterion) {
    let spec = spec();
    let history = Player::new(&spec).play(501).run.history().to_vec();
    let bytes = history.iter().map(Message::bytes).sum();
    let mut group = c.benchmark_group(format!("projection of {} messages", history.len()));
    for (name, budget) in [("all fit", None), ("half fits", Some(bytes as u64 / 8)), ("ten fit", Some(1_000))]
    {
        let project = || context::project(&spec, black_box(&history), bytes, budget);
        group.bench_function(name, |b| b.iter_batched(|| (), |()| project(), BatchSize::SmallInput));
    }
    group.finish();
}

fn policy(c: &mut Criterion) {
    let Ok(policy) = policies::load(policies::DEFAULT) else { return };
    let paths = ["src/domain/policy/mod.rs"];
    let subject =
        Subject { tool: "read", effect: EffectClass::Read, paths: &paths, command: None, arguments: None };
    c.bench_function("policy verdict", |b| b.iter(|| policy.verdict(black_box(&subject))));
}

/// Plays a run: a read call a turn, and an answer in the last.
struct Player {
    run: Run,
    appends: Vec<Vec<Fact>>,
    now: i64,
}

impl Player {
    fn new(spec: &Arc<TaskSpec>) -> Self {
        let mut player = Self { run: Run::new(RunId::from_bytes([7; 16])), appends: Vec::new(), now: 0 };
        player.tell(Input::Submit(spec.clone()));
        player.tell(Input::Start { model: "scripted:m".into(), tools: vec!["read".into()] });
        player
    }

    fn play(mut self, turns: u32) -> Self {
        while let Some(effect) = self.run.owed().pop() {
            match effect {
                Effect::AskModel { turn, attempt, .. } => {
                    let proposal = Box::new(proposal(turn < turns));
                    self.tell(Input::Replied { turn, attempt, proposal });
                }
                Effect::RunCall { call, .. } => {
                    self.tell(Input::Granted { call: call.id.clone(), change: None });
                    self.tell(Input::CallEnded(result(call.id)));
                }
            }
        }
        self
    }

    fn tell(&mut self, input: Input) {
        self.now += 1_000;
        let Ok(facts) = self.run.decide(input, Timestamp::from_micros(self.now)) else { return };
        for fact in &facts {
            self.run.evolve(fact);
        }
        self.appends.push(facts);
    }
}

fn proposal(asks: bool) -> Proposal {
    let judgement = Judgement::Judged {
        verdict: Verdict::Allow,
        rule: "rule 3 of policy edit-workspace says allow".to_owned(),
        effect: EffectClass::Read,
        access: Vec::new(),
        ask: None,
    };
    let call = ProposedCall { id: None, name: "read".into(), arguments: Arguments::empty(), judgement };
    Proposal {
        text: "Let me look at the file first.".into(),
        calls: if asks { vec![call] } else { Vec::new() },
        usage: Some(Usage { input: 1_000, output: 50, ..Usage::default() }),
        duration: Duration::from_millis(200),
        ..Proposal::new(if asks { Stop::ToolCalls } else { Stop::EndTurn })
    }
}

fn result(call: CallId) -> ToolResult {
    let output = "a line of a file that was read\n".repeat(12).into();
    ToolResult { call, ok: true, output, failure: None, terminate: false, timing: None }
}

fn spec() -> Arc<TaskSpec> {
    let limits = serde_json::json!({"max_turns": 10_000});
    let spec = serde_json::json!({
        "task": "Rename the function and its callers.", "system": "Be brief.", "attempt": 1, "model": "m",
        "workspace": "/w", "limits": limits,
    });
    let spec: Result<TaskSpec, _> = serde_json::from_value(spec);
    Arc::new(spec.unwrap_or_else(|error| panic!("{error}")))
}
