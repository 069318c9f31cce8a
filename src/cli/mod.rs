//! The command line: what is asked, handed to the part that does it, and shown.
//!
//! Stdout carries data alone; progress, warnings and mistakes go to stderr. An error is one sentence, with its causes
//! behind colons, and the exit code says what kind it is.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
};

use clap::{Parser, Subcommand};
use indicatif::{MultiProgress, ProgressDrawTarget};

use crate::{
    config::{self, Config, Effective, Flag, LogFormat, Sources},
    daemon::server::systemd::{self, Inherited},
    telemetry::log,
    tool::process::raise_open_files,
};

pub mod answer;
pub mod apply;
pub mod approvals;
pub mod args;
mod asking;
mod attach;
pub mod batch;
pub mod bulk;
mod commands;
pub mod completions;
pub mod config_command;
pub mod continue_command;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod exit;
pub mod export;
#[cfg(test)]
mod fake;
mod folder;
mod live;
pub mod logs;
pub mod ls;
pub mod mcp;
pub mod models;
pub mod overview;
mod patches;
pub mod policy;
pub mod progress;
pub mod prune;
pub mod render;
pub mod run;
mod runtime;
pub mod say;
pub mod serve;
pub mod set;
pub mod show;
mod signals;
mod start;
pub mod status;
pub mod stdout;
pub mod submit;
mod table;
mod talk;
mod task_line;
#[cfg(test)]
mod tests;
mod told;
pub mod top;
pub mod wait;
mod waits;

pub use exit::{Exit, MisfitError, UsageError};
use runtime::block_on;

const ABOUT: &str = "Run many LLM agents at once under one supervisor

Each run is a task, a model and tools in a folder. Runs share one queue for changes, so edits never interleave; every \
fact is in a log, so nothing is lost when herder stops.

`run` and `batch` do their work themselves. A daemon (`herder serve`) has runs that outlive the terminal: submit them, look \
at them, steer and end them.";

const AFTER: &str = "EXAMPLES
  herder demo try                            fifty tasks that need no model
  herder ls --state try/results.jsonl.state
  herder batch tasks.jsonl -o out.jsonl -j 50 --model openai:gpt-5
  herder run \"Explain src/main.rs\" --model openai:gpt-5
  herder serve --detach && herder submit \"Fix the failing test\" --model openai:gpt-5 --follow

EXIT CODES, of every command
  0  done
  1  something is not done, or was refused, as to a run that has ended
  2  bad usage, configuration or input; an unknown run, batch or model
  3  a batch was halted by --halt
  4  a batch does not fit what is of record
  5  no daemon answers
  6  another version: of the daemon, or of what wrote the log
  130, 143  ended by SIGINT or SIGTERM";

/// What was asked on the command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "herder", version, long_about = ABOUT, about = short(ABOUT), after_long_help = AFTER)]
#[command(max_term_width = 100, help_template = commands::help())]
pub struct Cli {
    #[command(flatten)]
    global: args::GlobalArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Debug, Subcommand)]
enum Command {
    #[command(about = short(run::ABOUT), long_about = run::ABOUT, after_long_help = run::AFTER)]
    Run(Box<run::RunArgs>),
    #[command(about = short(batch::ABOUT), long_about = batch::ABOUT, after_long_help = batch::AFTER)]
    Batch(Box<batch::BatchArgs>),
    #[command(about = short(submit::ABOUT), long_about = submit::ABOUT, after_long_help = submit::AFTER)]
    Submit(Box<submit::SubmitArgs>),
    #[command(about = short(continue_command::ABOUT), long_about = continue_command::ABOUT)]
    #[command(after_long_help = continue_command::AFTER)]
    Continue(continue_command::ContinueArgs),
    #[command(about = short(serve::ABOUT), long_about = serve::ABOUT, after_long_help = serve::AFTER)]
    Serve(serve::ServeArgs),
    #[command(about = short(ls::ABOUT), long_about = ls::ABOUT, after_long_help = ls::AFTER)]
    Ls(ls::LsArgs),
    #[command(about = short(show::ABOUT), long_about = show::ABOUT, after_long_help = show::AFTER)]
    Show(show::ShowArgs),
    #[command(about = short(diff::ABOUT), long_about = diff::ABOUT, after_long_help = diff::AFTER)]
    Diff(diff::DiffArgs),
    #[command(about = short(apply::ABOUT), long_about = apply::ABOUT, after_long_help = apply::AFTER)]
    Apply(apply::ApplyArgs),
    #[command(about = short(events::ABOUT), long_about = events::ABOUT, after_long_help = events::AFTER)]
    Events(events::EventsArgs),
    #[command(about = short(logs::ABOUT), long_about = logs::ABOUT, after_long_help = logs::AFTER)]
    Logs(logs::LogsArgs),
    #[command(about = short(wait::ABOUT), long_about = wait::ABOUT, after_long_help = wait::AFTER)]
    Wait(wait::WaitArgs),
    #[command(about = short(say::STEER), long_about = say::STEER, after_long_help = say::STEER_AFTER)]
    Steer(say::SayArgs),
    #[command(about = short(say::FOLLOW_UP), long_about = say::FOLLOW_UP)]
    #[command(after_long_help = say::FOLLOW_UP_AFTER)]
    FollowUp(say::SayArgs),
    #[command(about = short(bulk::CANCEL), long_about = bulk::CANCEL, after_long_help = bulk::CANCEL_AFTER)]
    Cancel(bulk::CancelArgs),
    #[command(about = short(bulk::PAUSE), long_about = bulk::PAUSE, after_long_help = bulk::PAUSE_AFTER)]
    Pause(bulk::PauseArgs),
    #[command(about = short(bulk::RESUME), long_about = bulk::RESUME, after_long_help = bulk::RESUME_AFTER)]
    Resume(bulk::ResumeArgs),
    #[command(about = short(bulk::REQUEUE), long_about = bulk::REQUEUE, after_long_help = bulk::REQUEUE_AFTER)]
    Requeue(bulk::RequeueArgs),
    #[command(about = short(approvals::ABOUT), long_about = approvals::ABOUT)]
    #[command(after_long_help = approvals::AFTER)]
    Approvals(approvals::ApprovalsArgs),
    #[command(about = short(answer::APPROVE), long_about = answer::APPROVE)]
    #[command(after_long_help = answer::APPROVE_AFTER)]
    Approve(answer::ApproveArgs),
    #[command(about = short(answer::REJECT), long_about = answer::REJECT, after_long_help = answer::REJECT_AFTER)]
    Reject(answer::RejectArgs),
    #[command(about = short(set::ABOUT), long_about = set::ABOUT, after_long_help = set::AFTER)]
    #[command(override_usage = set::USAGE)]
    Set(set::SetArgs),
    #[command(about = short(overview::BATCHES), long_about = overview::BATCHES)]
    #[command(after_long_help = overview::BATCHES_AFTER)]
    Batches(overview::ListArgs),
    #[command(about = short(models::ABOUT), long_about = models::ABOUT, after_long_help = models::AFTER)]
    Models(models::ModelsArgs),
    #[command(about = short(overview::STATS), long_about = overview::STATS)]
    #[command(after_long_help = overview::STATS_AFTER)]
    Stats(overview::StatsArgs),
    #[command(about = short(overview::AUDIT), long_about = overview::AUDIT)]
    #[command(after_long_help = overview::AUDIT_AFTER)]
    Audit(overview::AuditArgs),
    #[command(about = short(status::STATUS), long_about = status::STATUS, after_long_help = status::STATUS_AFTER)]
    Status(status::PlainArgs),
    #[command(about = short(status::STOP), long_about = status::STOP, after_long_help = status::STOP_AFTER)]
    Stop(status::StopArgs),
    #[command(about = short(status::RELOAD), long_about = status::RELOAD, after_long_help = status::RELOAD_AFTER)]
    Reload(status::PlainArgs),
    #[command(about = short(top::ABOUT), long_about = top::ABOUT, after_long_help = top::AFTER)]
    Top(top::TopArgs),
    #[command(about = short(mcp::ABOUT), long_about = mcp::ABOUT, after_long_help = mcp::AFTER)]
    Mcp(mcp::McpArgs),
    #[command(about = short(config_command::ABOUT), long_about = config_command::ABOUT)]
    #[command(after_long_help = config_command::AFTER)]
    Config(config_command::ConfigArgs),
    #[command(about = short(policy::ABOUT), long_about = policy::ABOUT, after_long_help = policy::AFTER)]
    Policy(policy::PolicyArgs),
    #[command(about = short(demo::ABOUT), long_about = demo::ABOUT, after_long_help = demo::AFTER)]
    Demo(demo::DemoArgs),
    #[command(about = short(export::EXPORT), long_about = export::EXPORT, after_long_help = export::EXPORT_AFTER)]
    Export(export::ExportArgs),
    #[command(about = short(export::IMPORT), long_about = export::IMPORT, after_long_help = export::IMPORT_AFTER)]
    Import(export::ImportArgs),
    #[command(about = short(doctor::ABOUT), long_about = doctor::ABOUT, after_long_help = doctor::AFTER)]
    Doctor(doctor::DoctorArgs),
    #[command(about = short(prune::ABOUT), long_about = prune::ABOUT, after_long_help = prune::AFTER)]
    Prune(prune::PruneArgs),
    #[command(about = short(completions::ABOUT), long_about = completions::ABOUT)]
    #[command(after_long_help = completions::AFTER)]
    Completions(completions::CompletionsArgs),
}

/// The first line, for the list of commands.
fn short(about: &'static str) -> &'static str {
    about.split_once('\n').map_or(about, |(first, _)| first)
}

/// What every command has at hand.
#[derive(Debug)]
pub struct Context {
    pub config: Config,
    pub effective: Effective,
    /// The state folder that was named, if one was.
    pub state: Option<PathBuf>,
    /// The daemon's socket, if one was named.
    pub socket: Option<PathBuf>,
    /// The policy, if one was named on the command line.
    pub policy: Option<String>,
    /// What draws on stderr; log lines step round it.
    pub screen: MultiProgress,
}

impl Context {
    /// The state folder that was named, or the one that `run` uses.
    fn state_folder(&self) -> Result<PathBuf, UsageError> {
        let named = self.state.clone().or_else(crate::app::state::default_folder);
        named.ok_or_else(|| {
            UsageError("there is no home folder to keep runs in; name one with --state".to_owned())
        })
    }
}

impl Cli {
    /// Does what was asked.
    pub fn run(self) -> Exit {
        self.dispatch().unwrap_or_else(|error| {
            let told = match error.downcast_ref() {
                Some(error) => asking::told(error),
                None => format!("{error:#}"),
            };
            for line in told.lines() {
                start::say(line);
            }
            Exit::of(&error)
        })
    }

    fn dispatch(self) -> anyhow::Result<Exit> {
        // Before there are threads: it changes the environment.
        let mut inherited = Inherited::default();
        if let Command::Serve(args) = &self.command {
            inherited = systemd::inherited()?;
            if args.detached {
                // Fails only for the leader of a group, which a process that was just started is not.
                let _ = rustix::process::setsid();
            }
        }
        let sources = Sources {
            user_file: config::user_file(),
            file: self.global.config.clone(),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: self.flags(),
        };
        let (config, effective) = config::load(&sources)?;
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        start_log(&config, &self.command, screen.clone())?;
        let socket = self.global.socket();
        let args::GlobalArgs { state, policy, .. } = self.global;
        let context = Context { config, effective, state, socket, policy, screen };
        if matches!(
            self.command,
            Command::Run(_) | Command::Batch(_) | Command::Continue(_) | Command::Demo(_) | Command::Serve(_)
        ) {
            raise_open_files();
        }
        match self.command {
            Command::Config(args) => config_command::main(&args, &context),
            Command::Policy(args) => policy::main(&args, &context),
            Command::Completions(args) => completions::main(&args),
            Command::Doctor(args) => doctor::main(&args, &context),
            Command::Export(args) => block_on(export::export_main(args, context)),
            Command::Import(args) => block_on(export::import_main(args, context)),
            Command::Prune(args) => block_on(prune::main(args, context)),
            Command::Demo(args) => block_on(demo::main(args, context)),
            Command::Run(args) => block_on(run::main(*args, context)),
            Command::Batch(args) => block_on(batch::main(*args, context)),
            Command::Serve(args) => block_on(serve::main(args, context, sources, inherited)),
            Command::Ls(args) => block_on(ls::main(args, context)),
            Command::Show(args) => block_on(show::main(args, context)),
            Command::Diff(args) => block_on(diff::main(args, context)),
            Command::Apply(args) => block_on(apply::main(args, context)),
            Command::Events(args) => block_on(events::main(args, context)),
            Command::Submit(args) => block_on(submit::main(*args, context)),
            Command::Continue(args) => block_on(continue_command::main(args, context)),
            Command::Logs(args) => block_on(logs::main(args, context)),
            Command::Wait(args) => block_on(wait::main(args, context)),
            Command::Steer(args) => block_on(say::main(args, say::When::Steer, context)),
            Command::FollowUp(args) => block_on(say::main(args, say::When::FollowUp, context)),
            Command::Cancel(args) => block_on(bulk::cancel(args, context)),
            Command::Pause(args) => block_on(bulk::pause(args, context)),
            Command::Resume(args) => block_on(bulk::resume(args, context)),
            Command::Requeue(args) => block_on(bulk::requeue(args, context)),
            Command::Approvals(args) => block_on(approvals::main(args, context)),
            Command::Approve(args) => block_on(answer::approve(args, context)),
            Command::Reject(args) => block_on(answer::reject(args, context)),
            Command::Set(args) => block_on(set::main(args, context)),
            Command::Batches(args) => block_on(overview::batches(args, context)),
            Command::Models(args) => block_on(models::main(args, context)),
            Command::Stats(args) => block_on(overview::stats(args, context)),
            Command::Audit(args) => block_on(overview::audit(args, context)),
            Command::Status(args) => block_on(status::main(args, context)),
            Command::Stop(args) => block_on(status::stop(args, context)),
            Command::Reload(args) => block_on(status::reload(args, context)),
            Command::Top(args) => {
                let client = asking::client(&context)?;
                block_on(top::main(args, context, client))
            }
            Command::Mcp(args) => {
                let client = asking::client(&context)?;
                block_on(mcp::main(args, context, client))
            }
        }
    }

    /// The flags that stand for keys of the configuration.
    fn flags(&self) -> Vec<Flag> {
        let mut flags = match &self.command {
            Command::Run(args) => args.flags(),
            Command::Batch(args) => args.flags(),
            Command::Serve(args) => args.flags(),
            Command::Continue(args) => args.flags(),
            // A task that goes to the daemon has the daemon's defaults: its flags go with it.
            Command::Submit(_)
            | Command::Ls(_)
            | Command::Show(_)
            | Command::Diff(_)
            | Command::Apply(_)
            | Command::Events(_)
            | Command::Logs(_)
            | Command::Wait(_)
            | Command::Steer(_)
            | Command::FollowUp(_)
            | Command::Cancel(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Requeue(_)
            | Command::Approvals(_)
            | Command::Approve(_)
            | Command::Reject(_)
            | Command::Set(_)
            | Command::Batches(_)
            | Command::Models(_)
            | Command::Stats(_)
            | Command::Audit(_)
            | Command::Status(_)
            | Command::Stop(_)
            | Command::Reload(_)
            | Command::Top(_)
            | Command::Mcp(_)
            | Command::Config(_)
            | Command::Policy(_)
            | Command::Doctor(_)
            | Command::Export(_)
            | Command::Import(_)
            | Command::Prune(_)
            | Command::Completions(_) => Vec::new(),
            Command::Demo(_) => vec![Flag::new("--policy", &["defaults", "policy"], "trusted")],
        };
        self.global.flags(&mut flags);
        flags
    }
}

fn start_log(config: &Config, command: &Command, screen: MultiProgress) -> Result<(), log::LogError> {
    let named = std::env::var(log::VARIABLE).ok();
    let is_serve = matches!(command, Command::Serve(_));
    let is_asked_for = is_serve || named.is_some() || config.telemetry.log != log::UNASKED;
    let directives = named.unwrap_or_else(|| config.telemetry.log.clone());
    let format = match config.telemetry.log_format {
        LogFormat::Text if !is_asked_for => log::Format::Sentences,
        LogFormat::Text => log::Format::Text { color: colored(&io::stderr()) },
        LogFormat::Json => log::Format::Json,
    };
    log::start(&directives, format, screen)
}

/// Whether to write in colour: on a terminal whose owner does not mind.
pub fn colored(stream: &impl IsTerminal) -> bool {
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    stream.is_terminal() && !unwanted
}

/// How lines are written to a stream.
fn paint(stream: &impl IsTerminal) -> render::Paint {
    if colored(stream) { render::Paint::Colored } else { render::Paint::Plain }
}
