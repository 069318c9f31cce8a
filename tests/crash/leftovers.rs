//! Processes that outlive herder and their guard, and strangers that have their numbers.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use herder::{
    domain::{
        event::{CommandGroup, Event},
        id::Seq,
        run::{Input, Run},
        time::Timestamp,
    },
    store::{
        EventStore as _, RunFilter,
        folder::StateFolder,
        sqlite::{Options, SqliteStore},
    },
};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    process::{House, PATIENCE, runs},
    record::{Record, STATE},
    work::reaching_out,
};

/// Points of a start that finds what an earlier one has left running.
pub(crate) const POINTS: &[&str] = &["leftovers.before", "leftovers.after"];

const BATCH: [&str; 8] =
    ["batch", "../in.jsonl", "-o", "../out.jsonl", "--policy", "trusted", "--durability", "process"];

fn house_with(command: &str) -> House {
    let house = House::new();
    house.configure(&reaching_out("", &house));
    fs::write(house.path("in.jsonl"), format!("{}\n", runs(&house, "one", command))).unwrap();
    house
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_has_escaped_from_a_dead_herder_and_its_dead_guard_ends_at_the_next_start() {
    let escapes = "setsid sh -c 'trap : TERM; while :; do sleep 240; done' & (setsid sleep 240 &); sleep 240 & \
                   echo $PPID > ../outside/guard; wait";
    let house = house_with(escapes);
    let mut herder = house.command(&BATCH).spawn().unwrap();
    until("the command's processes are of record", || {
        house.path(STATE).join("log.db").exists()
            && house
                .herder(&["events", "--all", "--json", "--state", "../out.jsonl.state"])
                .out
                .contains("command_group")
    });
    let guard = || fs::read_to_string(house.path("outside/guard")).unwrap_or_default();
    until("the command has begun", || guard().ends_with('\n'));
    let guard = guard().trim().parse().ok().and_then(Pid::from_raw).unwrap();
    // Stopped, it does not see herder go, and so ends nothing.
    kill_process(guard, Signal::STOP).unwrap();
    herder.kill().unwrap();
    herder.wait().unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    until("the guard is gone", || {
        !house.processes().iter().any(|stat| stat.starts_with(&format!("{guard} ")))
    });
    until("what has escaped is seen", || house.processes().len() >= 3);

    house.herder(&BATCH).expect(0);
    assert_eq!(house.processes(), Vec::<String>::new());
    let record = Record::of(&house, STATE);
    assert_eq!(record.in_doubt.len(), 1, "it was not run again");
}

#[test]
fn a_guard_that_has_not_noticed_is_ended_with_its_command() {
    let house = house_with("echo $PPID > ../outside/guard; sleep 240");
    let mut herder = house.command(&BATCH).spawn().unwrap();
    let guard = || fs::read_to_string(house.path("outside/guard")).unwrap_or_default();
    until("the command has begun", || guard().ends_with('\n'));
    until("its processes are of record", || {
        house
            .herder(&["events", "--all", "--json", "--state", "../out.jsonl.state"])
            .out
            .contains("command_group")
    });
    let guard = guard().trim().parse().ok().and_then(Pid::from_raw).unwrap();
    kill_process(guard, Signal::STOP).unwrap();
    herder.kill().unwrap();
    herder.wait().unwrap();
    until("the guard and its command are seen", || house.processes().len() >= 2);
    house.herder(&BATCH).expect(0);
    assert_eq!(house.processes(), Vec::<String>::new());
}

#[test]
fn a_second_death_over_what_the_first_left_running_repeats_nothing() {
    for point in POINTS {
        let house = house_with("echo begun >> ../outside/witness; sleep 240");
        // The command has no end of its own, so that the log can't know one.
        for fatal in ["command_group.after", point] {
            let mut dying = house.command(&BATCH);
            let status = dying.env("FAILPOINTS", format!("{fatal}=return")).status().unwrap();
            assert_eq!(status.signal(), Some(9), "{fatal} is not reached");
            house.assert_nothing_runs();
        }
        house.herder(&BATCH).expect(0);
        let record = Record::of(&house, STATE);
        assert_eq!(record.in_doubt.len(), 1, "{point}");
        let witness = fs::read_to_string(house.path("outside/witness")).unwrap_or_default();
        assert!(witness.lines().count() <= 1, "{point}: {witness}");
    }
}

#[test]
fn a_process_that_only_has_the_number_of_one_that_was_left_is_spared() {
    let house = house_with("sleep 240");
    let mut dying = house.command(&BATCH);
    assert_eq!(dying.env("FAILPOINTS", "command_group.after=return").status().unwrap().code(), None);
    house.assert_nothing_runs();
    let mut stranger = Leader::start();
    let own = stranger.group();
    record(&house, |group| CommandGroup { started: own.started + 1, ..own.clone_for(group) });
    record(&house, |group| CommandGroup { boot: "another".into(), ..own.clone_for(group) });
    house.herder(&BATCH).expect(0);
    assert!(stranger.lives());
}

#[test]
fn a_process_that_leads_what_was_left_is_ended() {
    let house = house_with("sleep 240");
    let mut dying = house.command(&BATCH);
    assert_eq!(dying.env("FAILPOINTS", "command_group.after=return").status().unwrap().code(), None);
    house.assert_nothing_runs();
    let mut leader = Leader::start();
    let own = leader.group();
    record(&house, |group| own.clone_for(group));
    house.herder(&BATCH).expect(0);
    assert!(!leader.lives());
}

/// Puts another leader of the open call's processes on record, made from the one that is.
fn record(house: &House, change: impl Fn(&CommandGroup) -> CommandGroup) {
    let folder = StateFolder::open_for_writing(&house.path(STATE)).unwrap();
    let store = SqliteStore::open(&folder.log(), Options::default()).unwrap();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let run = store.runs(RunFilter::default()).await.unwrap().pop().unwrap().run;
        let log = store.read(run, Seq::START).await.unwrap();
        let state = Run::replay(run, log.iter().map(|one| &one.fact));
        let known = log.iter().find_map(|one| {
            if let Event::CommandGroup(group) = &one.fact.event { Some(group.clone()) } else { None }
        });
        let facts = state.decide(Input::Grouped(change(&known.unwrap())), Timestamp::default()).unwrap();
        store.durable(store.append(run, state.seq(), &facts).unwrap()).await.unwrap();
    });
    store.close();
}

/// A process of the test's own that leads a session.
struct Leader(Child);

/// How the kernel knows it.
struct Known {
    pid: u32,
    started: u64,
}

impl Known {
    fn clone_for(&self, group: &CommandGroup) -> CommandGroup {
        CommandGroup { pid: self.pid, started: self.started, ..group.clone() }
    }
}

impl Leader {
    fn start() -> Self {
        let child = Command::new("setsid").args(["sleep", "240"]).stdin(Stdio::null()).spawn().unwrap();
        let leader = Self(child);
        until("it leads a session", || {
            leader.fields().get(3).is_some_and(|session| *session == leader.0.id().to_string())
        });
        leader
    }

    /// What the kernel tells of it, from its state on.
    fn fields(&self) -> Vec<String> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').map(str::to_owned).collect()
    }

    fn group(&self) -> Known {
        Known { pid: self.0.id(), started: self.fields()[19].parse().unwrap() }
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
