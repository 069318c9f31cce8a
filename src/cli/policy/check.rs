//! `herder policy check`: how a call would be judged, command by command.

use std::{borrow::Cow, io, path::Path};

use clap::Args;
use serde::Serialize;

use crate::{
    app::tools,
    cli::{
        Context, Exit, UsageError,
        approvals::shown::exact,
        render::one_line,
        stdout::Output,
        table::{Side, table},
    },
    config::policies,
    domain::{
        call::EffectClass,
        policy::{Judged, Subject, Verdict},
    },
    tool::workspace::{Intent, Told, Workspace},
};

pub(super) const ABOUT: &str = "Say how a call would be judged, and by which rule

Each command of the line has a row, the whole line's verdict is last. One word behind -- is a command line as it is; of \
several, each is one word of it, but those that are operators of a shell, as && or |. - reads the line from stdin. Nothing is run.

A path is looked up in the workspace that the configuration names, else in this folder, as the tool would: one that leads out of \
it is denied whatever the policy says, since the tool refuses it.";

pub(super) const AFTER: &str = "EXAMPLES
  herder policy check mine.toml -- 'git status && rm -rf d'
  herder policy check mine.toml -- cargo test --all
  herder policy check mine.toml --json -- - < script.sh | jq -r .verdict
  herder policy check edit-workspace --tool write --path .env

EXIT CODES
  0  it is allowed
  1  it is asked about or denied, or the tool refuses it
  2  bad usage, or a file that is no policy";

/// Characters of a command that a row shows.
const WIDTH: usize = 60;

/// What joins commands in a shell, and is so no word.
const OPERATORS: [&str; 10] = ["&&", "||", "|", ";", "&", "|&", "(", ")", ">", "<"];

/// Flags of `herder policy check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// A built-in policy's name, or a file
    #[arg(value_name = "NAME|FILE")]
    pub policy: String,
    /// The tool that is called
    #[arg(long, value_name = "NAME", default_value = "bash")]
    pub tool: String,
    /// A path that it touches, relative to the workspace; may be given more than once
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// The command line, or - for stdin
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Answer<'a> {
    verdict: Verdict,
    reason: &'a str,
    commands: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    command: &'a str,
    verdict: Verdict,
    /// The rule's place in the policy; the first is 1.
    rule: Option<usize>,
    remark: Option<String>,
    reason: &'a str,
}

/// Runs the command.
pub(super) fn main(args: &CheckArgs, context: &Context) -> anyhow::Result<Exit> {
    let toolbox = tools::toolbox(&context.config, None)?;
    let names: Vec<&str> = toolbox.names().map(|name| &**name).collect();
    let policy = policies::load_for(&args.policy, &names)?;
    let tool = toolbox.get(&args.tool).ok_or_else(|| {
        UsageError(format!("there is no tool {:?}; the tools are: {}", args.tool, names.join(", ")))
    })?;
    let line = line(&args.command)?;
    if line.is_some() && tool.command(&serde_json::json!({ "command": "" })).is_none() {
        return Err(UsageError(format!("the tool {} runs no command line", args.tool)).into());
    }
    if line.is_none() && args.paths.is_empty() {
        let what = "there is nothing to judge: want a command behind --, or a path with --path";
        return Err(UsageError(what.to_owned()).into());
    }
    let named = match named(args, tool.effect(), context)? {
        Ok(named) => named,
        Err(refused) => return refuse(args, &refused),
    };
    // A command line touches the workspace as a whole.
    let workspace = [""];
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    let arguments = line.as_ref().map(|line| serde_json::json!({ "command": line }));
    let subject = Subject {
        tool: &args.tool,
        effect: tool.effect(),
        paths: if named.is_empty() { &workspace } else { &named },
        command: line.as_deref(),
        arguments: arguments.as_ref(),
    };
    let (verdict, reason) = policy.judge(&subject);
    let judged = policy.judge_parts(&subject);
    let mut out = Output::stdout();
    let _open = if args.json {
        out.json(&Answer { verdict, reason: &reason, commands: judged.iter().map(row).collect() })?
    } else {
        if !judged.is_empty() {
            let _open = out.line(&shown(&judged))?;
        }
        out.line(&format!("{}: {}", verdict.as_str(), one_line(&exact(&reason), usize::MAX)))?
    };
    let _open = out.flush()?;
    Ok(if verdict == Verdict::Allow { Exit::Done } else { Exit::NotDone })
}

/// What policies call the paths; or why the tool refuses one of them.
fn named(
    args: &CheckArgs,
    effect: EffectClass,
    context: &Context,
) -> Result<Result<Vec<String>, String>, UsageError> {
    let intent = match effect {
        EffectClass::Read => Intent::Read,
        EffectClass::Write => Intent::Write,
        EffectClass::Outside => return Ok(Ok(args.paths.clone())),
    };
    if args.paths.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    let folder = context.config.defaults.workspace.as_deref().unwrap_or(Path::new("."));
    let workspace = Workspace::open(folder, &context.config.tools.read_roots)
        .map_err(|error| UsageError(Told(&error).to_string()))?;
    let named = args.paths.iter().map(|path| match workspace.resolve(path, intent) {
        // Policies call the workspace itself so.
        Ok(resolved) if resolved.shown() == "." => Ok(String::new()),
        Ok(resolved) => Ok(resolved.shown().to_owned()),
        Err(error) => Err(format!("the tool {} refuses it: {}", args.tool, Told(&error))),
    });
    Ok(named.collect())
}

/// Says that policy is not even asked.
fn refuse(args: &CheckArgs, reason: &str) -> anyhow::Result<Exit> {
    let verdict = Verdict::Deny;
    let mut out = Output::stdout();
    let _open = if args.json {
        out.json(&Answer { verdict, reason, commands: Vec::new() })?
    } else {
        out.line(&format!("{}: {reason}", verdict.as_str()))?
    };
    let _open = out.flush()?;
    Ok(Exit::NotDone)
}

/// The line that the words are.
fn line(words: &[String]) -> anyhow::Result<Option<String>> {
    Ok(match words {
        [] => None,
        [word] if word == "-" => Some(io::read_to_string(io::stdin())?),
        [line] => Some(line.clone()),
        words => Some(words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")),
    })
}

/// A word as a shell would have to be told it.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if OPERATORS.contains(&word) || !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''")).into()
    }
}

fn row(judged: &Judged) -> Row<'_> {
    Row {
        command: &judged.part.text,
        verdict: judged.verdict,
        rule: judged.rule,
        remark: judged.part.remark(),
        reason: &judged.reason,
    }
}

fn shown(judged: &[Judged]) -> String {
    let heads =
        [("VERDICT", Side::Left), ("RULE", Side::Right), ("COMMAND", Side::Left), ("REMARK", Side::Left)];
    table(
        heads,
        judged.iter().map(|judged| {
            [
                judged.verdict.as_str().to_owned(),
                judged.rule.map_or_else(|| "-".to_owned(), |rule| rule.to_string()),
                one_line(&exact(&judged.part.text), WIDTH),
                judged.part.remark().map_or_else(String::new, |remark| one_line(&exact(&remark), WIDTH)),
            ]
        }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_deceive_the_eye_is_written_out_in_the_table() {
        let policy = policies::load("careful").unwrap();
        let subject = Subject {
            tool: "bash",
            effect: EffectClass::Outside,
            paths: &[""],
            command: Some("echo a\u{202e}b > c\u{200b}"),
            arguments: None,
        };
        let table = shown(&policy.judge_parts(&subject));
        assert!(table.contains(r"echo a\u{202e}b > c\u{200b}"), "{table}");
        assert!(table.contains(r"writes to c\u{200b}"), "{table}");
    }

    #[test]
    fn several_words_are_one_line_with_its_operators_and_quotes() {
        let said =
            |words: &[&str]| line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap();
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["a 'b' && c"]).as_deref(), Some("a 'b' && c"));
        assert_eq!(
            said(&["git", "log", "&&", "rm", "a b", "it's", ""]).as_deref(),
            Some(r"git log && rm 'a b' 'it'\''s' ''")
        );
        assert_eq!(said(&["echo", "$(rm d)", "*"]).as_deref(), Some("echo '$(rm d)' '*'"));
    }
}
