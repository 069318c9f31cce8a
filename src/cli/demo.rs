//! `herder demo`: lays out a small workspace and fifty tasks that need no model, no key and no network.
//!
//! The tasks work on the same files at once. Whatever order their edits come in, each of them fits: it changes text
//! that no other task changes, or adds a line before a mark that stays.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Parser};

use super::{Cli, Command, Context, Exit, UsageError, start::say};

pub(super) const ABOUT: &str = "Try herder: a small workspace, fifty tasks, no model needed

Lays out a small project and fifty tasks in DIR, prints the `herder batch` command for them and runs it. The tasks bring \
their model's replies along, so no key and no network are needed. They read, search, edit, write and run commands, many of \
them in the same files. Results are in DIR/results.jsonl.";

pub(super) const AFTER: &str = "EXAMPLES
  herder demo try
  cat try/workspace/CHANGELOG.md
  herder ls --state try/results.jsonl.state
  herder show todo-01 --messages --state try/results.jsonl.state";

/// Flags of `herder demo`.
#[derive(Clone, Debug, Args)]
pub struct DemoArgs {
    /// A folder that is empty or does not exist yet
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_str!(concat!("../../config/demo/", $path)))),+]
    };
}

const FILES: &[(&str, &str)] = files![
    "tasks.jsonl",
    "workspace/README.md",
    "workspace/CHANGELOG.md",
    "workspace/TODO.md",
    "workspace/check.sh",
    "workspace/data/items.csv",
    "workspace/inventory/report.py",
    "workspace/inventory/stock.py",
];

/// Runs the command.
pub(crate) async fn main(args: DemoArgs, context: Context) -> anyhow::Result<Exit> {
    lay_out(&args.dir)?;
    let dir = args.dir.display();
    say(&format!("{} files are in {dir}; now: {}", FILES.len(), command(&args.dir).join(" ")));
    let Command::Batch(batch) = Cli::try_parse_from(command(&args.dir))?.command else {
        anyhow::bail!("the demo is no batch");
    };
    let exit = super::batch::main(*batch, context).await?;
    if exit == Exit::Done {
        say(&format!(
            "results are in {dir}/results.jsonl, the journal beside it; the same command again has nothing to do"
        ));
    }
    Ok(exit)
}

/// The command that runs the demo.
fn command(dir: &Path) -> [String; 7] {
    let within = |name| dir.join(name).display().to_string();
    let words = ["herder", "batch", "", "-o", "", "--policy", "trusted"].map(str::to_owned);
    let [herder, batch, _, output, _, policy, trusted] = words;
    [herder, batch, within("tasks.jsonl"), output, within("results.jsonl"), policy, trusted]
}

fn lay_out(dir: &Path) -> anyhow::Result<()> {
    let taken = match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(UsageError(format!("{} is no folder; name a new one", dir.display())).into());
        }
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", dir.display())),
    };
    if taken {
        return Err(UsageError(format!("{} is not empty; name a new folder", dir.display())).into());
    }
    for (name, content) in FILES {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()))?;
        fs::write(&path, content).with_context(|| format!("{}: cannot be written", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::{
        batch::{ScriptSource, TaskLine},
        script::ScriptedCall,
    };

    #[derive(serde::Deserialize)]
    struct Edit {
        path: String,
        old_text: String,
        new_text: String,
    }

    #[derive(serde::Deserialize)]
    struct Write {
        path: String,
        content: String,
    }

    /// Each task's calls, in its order.
    fn scripts() -> Vec<(TaskLine, Vec<ScriptedCall>)> {
        let lines = FILES[0].1.lines().zip(1..);
        let read = |(line, number)| {
            let task = TaskLine::parse(line, number).expect("a task");
            let Some(ScriptSource::Inline(script)) = &task.script else { panic!("{}: no script", task.id) };
            let calls = script.0.iter().flat_map(|reply| reply.calls.clone()).collect();
            (task, calls)
        };
        lines.map(read).collect()
    }

    fn apply(files: &mut BTreeMap<String, String>, call: &ScriptedCall) {
        let arguments = call.arguments.get();
        if &*call.name == "edit" {
            let edit: Edit = serde_json::from_str(arguments).expect("an edit");
            let text = files.get_mut(&edit.path).expect("the file is there");
            assert_eq!(text.matches(&edit.old_text).count(), 1, "{} in {}", edit.old_text, edit.path);
            *text = text.replacen(&edit.old_text, &edit.new_text, 1);
        } else if &*call.name == "write" {
            let write: Write = serde_json::from_str(arguments).expect("a write");
            files.insert(write.path, write.content);
        }
    }

    #[test]
    fn fifty_tasks_have_fifty_ids_and_use_every_tool() {
        let scripts = scripts();
        let ids: std::collections::BTreeSet<_> = scripts.iter().map(|(task, _)| task.id.clone()).collect();
        assert_eq!(ids.len(), 50);
        let tools: std::collections::BTreeSet<_> =
            scripts.iter().flat_map(|(_, calls)| calls.iter().map(|call| &*call.name)).collect();
        assert_eq!(tools.into_iter().collect::<Vec<_>>(), ["bash", "edit", "grep", "list", "read", "write"]);
    }

    #[test]
    fn every_edit_matches_once_in_whatever_order_the_tasks_come() {
        let mut ends = std::collections::BTreeSet::new();
        for seed in 1..=10_usize {
            let mut files: BTreeMap<String, String> = FILES
                .iter()
                .filter_map(|(name, text)| {
                    Some((name.strip_prefix("workspace/")?.to_owned(), (*text).to_owned()))
                })
                .collect();
            let mut queues: Vec<_> = scripts().into_iter().map(|(_, calls)| calls.into_iter()).collect();
            let mut draw = seed;
            while !queues.is_empty() {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (draw >> 33) % queues.len();
                match queues[place].next() {
                    Some(call) => apply(&mut files, &call),
                    None => drop(queues.swap_remove(place)),
                }
            }
            let log = &files["CHANGELOG.md"];
            assert_eq!(log.lines().filter(|line| line.starts_with("- ")).count(), 44, "{log}");
            assert!(!files["TODO.md"].contains("[ ]"));
            files.remove("CHANGELOG.md");
            ends.insert(format!("{files:?}"));
        }
        assert_eq!(ends.len(), 1, "the order shows in no file but the changelog");
    }
}
