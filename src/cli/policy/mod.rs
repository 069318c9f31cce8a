//! `herder policy`: the policies there are, what they say, and what they would say of a call.

use clap::{Args, Subcommand};

use super::{Context, Exit, stdout::Output};
use crate::{app::tools, config::policies};

mod check;

pub(super) const ABOUT: &str = "List policies, print one, or see how a call would be judged

A policy is a list of rules, built in or in a TOML file; --policy takes its name or the file. The first rule that fits a call \
decides, and what no rule fits is denied. A rule has a decision (allow, ask, deny), perhaps a reason, and what it is about; \
what it leaves out fits every call:

  tools         names of tools
  effect        read, write, outside, or a list of them
  path          patterns of paths in the workspace, for tools on files; of several paths, the strictest verdict holds
  command       patterns of commands, for tools that run a command line, as bash does
  redirections  true lets the commands of an allow rule write to files with > and its like
  args          patterns of arguments by name: args = { url = [\"https://example.org/*\"] }

A command line is split, and each command in it is judged by itself, in substitutions, functions and behind programs that \
run others (env, timeout, xargs, find -exec, sh -c and so on) too; the strictest verdict holds. A pattern is the words that a \
command begins with: \"git status\" fits `git status --short`. A * in a word stands for anything; a last word $ for the end: \
\"make test $\" fits nothing more than that. A rule that allows fits a command by its name or in /bin, /usr/bin and \
/usr/local/bin, without redirections to files, and without variables set for it, but those that only change how output looks; \
a rule that asks or denies fits it from any folder. What is known only when it runs (`$x`, `eval \"$y\"`) is allowed by no rule \
with `command`; that, and what is not looked into, is asked about at least where a rule with `command` asks or denies before one that allows \
it: what interpreters run (python, awk, sed, vim), and programs that run others (ssh, docker, flock, make, npm, cargo run). A line that cannot be parsed is never allowed past a rule with `command`. It is a filter, and no \
sandbox: a command that is allowed may start others, and write files with options of its own (`sort -o F`, `git log --output=F`).";

pub(super) const AFTER: &str = "EXAMPLES
  herder policy list
  herder policy show edit-workspace > mine.toml
  herder policy check mine.toml -- git status '&&' rm -rf d
  herder policy check mine.toml -- 'cat a | xargs rm'
  herder policy check careful --tool edit --path src/main.rs

EXIT CODES
  0  allowed, or done
  1  a call that is checked is asked about or denied
  2  bad usage, or a file that is no policy";

/// Flags of `herder policy`.
#[derive(Clone, Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    pub verb: Verb,
}

/// What can be done with policies.
#[derive(Clone, Debug, Subcommand)]
pub enum Verb {
    /// List the built-in policies
    List,
    /// Print a policy, as its file has it
    Show {
        /// A built-in policy's name, or a file
        #[arg(value_name = "NAME|FILE")]
        name: String,
    },
    #[command(about = super::short(check::ABOUT), long_about = check::ABOUT, after_long_help = check::AFTER)]
    Check(check::CheckArgs),
}

/// Runs the command.
pub(crate) fn main(args: &PolicyArgs, context: &Context) -> anyhow::Result<Exit> {
    let mut out = Output::stdout();
    let _open = match &args.verb {
        Verb::Check(check) => return check::main(check, context),
        Verb::List => {
            let width = policies::names().map(str::len).max().unwrap_or_default();
            let line = |name| format!("{name:width$}  {}", policies::about(name));
            out.line(&policies::names().map(line).collect::<Vec<_>>().join("\n"))?
        }
        Verb::Show { name } => {
            let toolbox = tools::toolbox(&context.config, None)?;
            let tools: Vec<&str> = toolbox.names().map(|name| &**name).collect();
            // A file that is no policy is told as that, and not printed.
            policies::load_for(name, &tools)?;
            out.text(&policies::text(name)?)?
        }
    };
    let _open = out.flush()?;
    Ok(Exit::Done)
}
