//! The command line: what is asked, handed to the part that does it, and shown.
//!
//! Stdout carries data alone; progress, warnings and mistakes go to stderr. An error is one sentence, with its causes
//! behind colons, and the exit code says what kind it is.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    time::Duration,
};

use clap::{Parser, Subcommand};
use indicatif::{MultiProgress, ProgressDrawTarget};

use crate::{
    app::state::{State, StateError},
    config::{self, Config, Effective, Flag, LogFormat, Sources},
    daemon::client::{Client, ClientError},
    store::folder::FolderError,
    telemetry::log,
    tool::process::raise_open_files,
};

pub mod args;
pub mod batch;
pub mod completions;
pub mod config_command;
pub mod demo;
pub mod events;
pub mod exit;
#[cfg(test)]
mod fake;
pub mod ls;
pub mod mcp;
pub mod progress;
pub mod render;
pub mod run;
pub mod show;
mod signals;
mod standing;
mod start;
pub mod stdout;
pub mod table;
#[cfg(test)]
mod tests;
mod told;
pub mod top;

pub use exit::{Exit, UsageError};

const ABOUT: &str = "Run many LLM agents at once under one supervisor

Each run is a task, a model and tools in a folder. Runs share one queue for changes, so edits never interleave; every \
fact is in a log, so nothing is lost when herder stops. Exit codes are listed by `herder batch --help`.";

const AFTER: &str = "EXAMPLES
  herder demo try                            fifty tasks that need no model
  herder ls --state try/results.jsonl.state
  herder batch tasks.jsonl -o out.jsonl -j 50 --model openai:gpt-5
  herder run \"Explain src/main.rs\" --model openai:gpt-5";

/// What was asked on the command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "herder", version, long_about = ABOUT, about = short(ABOUT), after_long_help = AFTER)]
#[command(max_term_width = 100, disable_help_subcommand = true)]
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
    #[command(about = short(ls::ABOUT), long_about = ls::ABOUT, after_long_help = ls::AFTER)]
    Ls(ls::LsArgs),
    #[command(about = short(show::ABOUT), long_about = show::ABOUT, after_long_help = show::AFTER)]
    Show(show::ShowArgs),
    #[command(about = short(events::ABOUT), long_about = events::ABOUT, after_long_help = events::AFTER)]
    Events(events::EventsArgs),
    #[command(about = short(top::ABOUT), long_about = top::ABOUT, after_long_help = top::AFTER)]
    Top(top::TopArgs),
    #[command(about = short(mcp::ABOUT), long_about = mcp::ABOUT, after_long_help = mcp::AFTER)]
    Mcp(mcp::McpArgs),
    #[command(about = short(config_command::ABOUT), long_about = config_command::ABOUT)]
    #[command(after_long_help = config_command::AFTER)]
    Config(config_command::ConfigArgs),
    #[command(about = short(demo::ABOUT), long_about = demo::ABOUT, after_long_help = demo::AFTER)]
    Demo(demo::DemoArgs),
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

    /// Opens that folder to read.
    fn open_state(&self) -> anyhow::Result<State> {
        match State::to_read(&self.state_folder()?) {
            Err(StateError::Folder(FolderError::Missing { path })) if self.state.is_none() => {
                let path = path.display();
                Err(UsageError(format!(
                    "{path}: `herder run` has kept nothing here yet; a batch keeps its runs beside its results: --state OUT.state"
                ))
                .into())
            }
            state => Ok(state?),
        }
    }
}

impl Cli {
    /// Does what was asked.
    pub fn run(self) -> Exit {
        self.dispatch().unwrap_or_else(|error| {
            for line in format!("{error:#}").lines() {
                start::say(line);
            }
            Exit::of(&error)
        })
    }

    fn dispatch(self) -> anyhow::Result<Exit> {
        let (config, effective) = config::load(&Sources {
            user_file: config::user_file(),
            file: self.global.config.clone(),
            environment: std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            flags: self.flags(),
        })?;
        let screen = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        start_log(&config, screen.clone())?;
        let context = Context { config, effective, state: self.global.state, screen };
        if matches!(self.command, Command::Run(_) | Command::Batch(_) | Command::Demo(_)) {
            raise_open_files();
        }
        match self.command {
            Command::Config(args) => config_command::main(&args, &context),
            Command::Completions(args) => completions::main(&args),
            Command::Demo(args) => block_on(demo::main(args, context)),
            Command::Run(args) => block_on(run::main(*args, context)),
            Command::Batch(args) => block_on(batch::main(*args, context)),
            Command::Ls(args) => block_on(ls::main(args, context)),
            Command::Show(args) => block_on(show::main(args, context)),
            Command::Events(args) => block_on(events::main(args, context)),
            Command::Top(args) => block_on(top::main(args, context, client()?)),
            Command::Mcp(args) => block_on(mcp::main(args, context, client()?)),
        }
    }

    /// The flags that stand for keys of the configuration.
    fn flags(&self) -> Vec<Flag> {
        let mut flags = match &self.command {
            Command::Run(args) => args.flags(),
            Command::Batch(args) => args.flags(),
            Command::Ls(_)
            | Command::Show(_)
            | Command::Events(_)
            | Command::Top(_)
            | Command::Mcp(_)
            | Command::Config(_)
            | Command::Completions(_) => Vec::new(),
            Command::Demo(_) => vec![Flag::new("--policy", &["defaults", "policy"], "trusted")],
        };
        self.global.flags(&mut flags);
        flags
    }
}

/// Asks the daemon at its usual place.
fn client() -> Result<Client, ClientError> {
    let socket = std::env::var_os("HERDER_SOCKET").map_or_else(
        || PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap_or_default()).join("herder/herder.sock"),
        PathBuf::from,
    );
    Client::at_socket(&socket)
}

/// How long what still blocks a thread may go on once a command is over: a file system that does not answer would keep
/// the process for ever.
const LINGER: Duration = Duration::from_secs(3);

/// Threads for work on files: a few for each call that may hold a permit by default. More only fight over the processors.
const BLOCKING_THREADS: usize = 128;

fn block_on(work: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
    let exit = runtime.block_on(work);
    runtime.shutdown_timeout(LINGER);
    exit
}

fn start_log(config: &Config, screen: MultiProgress) -> Result<(), log::LogError> {
    let directives = std::env::var(log::VARIABLE).unwrap_or_else(|_| config.telemetry.log.clone());
    let format = match config.telemetry.log_format {
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
