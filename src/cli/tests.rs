//! The command line as it is read, and what `--help` says of it.

use std::time::Duration;

use clap::{CommandFactory, Parser};

use super::*;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())
}

#[test]
fn the_definitions_hold_together() {
    Cli::command().debug_assert();
}

#[test]
fn nobody_has_asked_for_the_log_of_the_built_in_layer() {
    let (config, _) = config::load(&Sources::default()).expect("defaults");
    assert_eq!(config.telemetry.log, log::UNASKED);
}

#[test]
fn help_of_every_command() {
    let mut whole = Cli::command().term_width(100);
    whole.build();
    insta::assert_snapshot!("herder", whole.render_long_help());
    for command in whole.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        insta::assert_snapshot!(format!("herder_{}", command.get_name()), command.render_long_help());
    }
}

#[test]
fn the_help_lists_every_command_once() {
    let mut listed: Vec<&str> = commands::names().collect();
    listed.sort_unstable();
    let mut command = Cli::command();
    command.build();
    let mut there: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    there.sort_unstable();
    assert_eq!(listed, there);
}

#[test]
fn help_of_a_command_is_what_its_flag_prints() {
    let mut whole = Cli::command();
    whole.build();
    for command in whole.get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        let nested = command.get_subcommands().map(|nested| format!("{name} {}", nested.get_name()));
        for name in nested.filter(|name| !name.ends_with(" help")).chain([name.to_owned()]) {
            let told = parse(&format!("herder help {name}")).expect_err("help");
            assert_eq!(told, parse(&format!("herder {name} --help")).expect_err("help"), "{name}");
        }
    }
}

#[test]
fn what_decides_checks_or_moves_runs_says_how_it_ends() {
    for name in
        "approvals approve reject policy doctor export import prune diff apply continue".split_whitespace()
    {
        let command = Cli::command();
        let command = command.find_subcommand(name).expect("a command");
        let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("\n\nEXIT CODES"), "{name}");
    }
}

#[test]
fn every_command_has_examples() {
    for command in Cli::command().get_subcommands() {
        let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("EXAMPLES\n  herder "), "{}", command.get_name());
    }
}

#[test]
fn flags_of_every_command_are_taken_before_and_after_its_name() {
    for line in
        ["herder --state S --policy trusted --socket K ls", "herder ls --state S --policy trusted --socket K"]
    {
        let cli = parse(line).expect("read");
        assert_eq!(cli.global.state, Some(PathBuf::from("S")));
        assert_eq!(cli.global.socket(), Some(PathBuf::from("K")));
        assert_eq!(cli.flags(), [Flag::new("--policy", &["defaults", "policy"], "trusted")]);
    }
}

#[test]
fn flags_become_keys_of_the_configuration() {
    let line = "herder batch in.jsonl -j 7 -m openai:m --tools read,edit --timeout 10m --stall 60 -l team=7 --drain 3s \
                --durability process --priority -2";
    let cli = parse(line).expect("read");
    let (config, effective) =
        config::load(&Sources { flags: cli.flags(), ..Sources::default() }).expect("loads");
    assert_eq!(config.supervisor.max_live_runs.most().get(), 7);
    assert_eq!(config.defaults.model.as_deref(), Some("openai:m"));
    assert_eq!(config.defaults.tools.as_deref(), Some(&["read".to_owned(), "edit".to_owned()][..]));
    assert_eq!(config.defaults.limits.wall_time_s, Some(600));
    assert_eq!((config.timeouts.stall().as_secs(), config.timeouts.stall_warn().as_secs()), (60, 30));
    assert_eq!(config.defaults.labels["team"], "7");
    assert_eq!(config.supervisor.drain().as_secs(), 3);
    assert_eq!(config.store.durability, config::Durability::Process);
    assert_eq!(config.defaults.priority, -2);
    assert_eq!(effective.to_json()["sources"]["defaults.model"], "--model");
}

#[test]
fn retry_failed_takes_nothing_or_a_class() {
    use crate::domain::batch::RetryFailed;
    let retry = |flag: &str| match parse(&format!("herder batch {flag} in.jsonl")).map(|cli| cli.command) {
        Ok(Command::Batch(args)) => Ok(args.retry_failed),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    assert_eq!(retry(""), Ok(None));
    assert_eq!(retry("--retry-failed"), Ok(Some(RetryFailed::All)));
    assert_eq!(retry("--retry-failed=timeout"), Ok(Some(RetryFailed::Class("timeout"))));
    assert!(retry("--retry-failed=done").expect_err("refused").contains("want nothing, or one of budget"));
}

#[test]
fn a_wrong_value_is_refused_with_what_would_be_right() {
    for (line, want) in [
        ("herder batch in.jsonl --halt never", "want soon,fail=N or now,fail=N"),
        ("herder batch in.jsonl --timeout 0", "want at least a second"),
        ("herder batch in.jsonl -l team", "want a name and a value"),
        ("herder batch in.jsonl -j 0", "want a whole number, 1 or more"),
        ("herder ls --since yesterday", "want a length of time"),
        ("herder ls --standing up", "possible values: queued, running"),
        ("herder stats --by colour", "want model, batch"),
        ("herder batch in.jsonl --detach", "--daemon"),
        ("herder events", "required"),
        ("herder events a --all", "cannot be used with"),
        ("herder ls --outcome fine", "want one of done, budget"),
    ] {
        let told = parse(line).expect_err("refused");
        assert!(told.contains(want), "{line}: {told}");
    }
}

#[test]
fn a_command_that_is_over_does_not_wait_for_a_thread_that_never_comes_back() {
    let started = std::time::Instant::now();
    let exit = block_on(async {
        let (tell, told) = tokio::sync::oneshot::channel();
        tokio::task::spawn_blocking(move || {
            tell.send(()).expect("heard");
            std::thread::sleep(Duration::from_secs(600));
        });
        told.await?;
        Ok(Exit::NotDone)
    });
    assert_eq!(exit.expect("no error"), Exit::NotDone);
    assert!(started.elapsed() < Duration::from_secs(60));
}
