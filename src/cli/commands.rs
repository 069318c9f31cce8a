//! The list of commands in `herder --help`: in groups, those first that a newcomer looks for.

/// Each command, by what it is for.
const GROUPS: [(&str, &[(&str, &str)]); 6] = [
    (
        "Start here",
        &[("demo", super::demo::ABOUT), ("run", super::run::ABOUT), ("batch", super::batch::ABOUT)],
    ),
    (
        "The daemon, for runs that outlive the terminal",
        &[
            ("serve", super::serve::ABOUT),
            ("submit", super::submit::ABOUT),
            ("status", super::status::STATUS),
            ("stop", super::status::STOP),
            ("reload", super::status::RELOAD),
        ],
    ),
    (
        "Look at runs",
        &[
            ("top", super::top::ABOUT),
            ("ls", super::ls::ABOUT),
            ("show", super::show::ABOUT),
            ("diff", super::diff::ABOUT),
            ("logs", super::logs::ABOUT),
            ("events", super::events::ABOUT),
            ("wait", super::wait::ABOUT),
            ("batches", super::overview::BATCHES),
            ("models", super::models::ABOUT),
            ("stats", super::overview::STATS),
            ("audit", super::overview::AUDIT),
        ],
    ),
    (
        "Change what they do",
        &[
            ("steer", super::say::STEER),
            ("follow-up", super::say::FOLLOW_UP),
            ("continue", super::continue_command::ABOUT),
            ("cancel", super::bulk::CANCEL),
            ("pause", super::bulk::PAUSE),
            ("resume", super::bulk::RESUME),
            ("requeue", super::bulk::REQUEUE),
            ("set", super::set::ABOUT),
            ("apply", super::apply::ABOUT),
        ],
    ),
    (
        "Decide about their calls",
        &[
            ("approvals", super::approvals::ABOUT),
            ("approve", super::answer::APPROVE),
            ("reject", super::answer::REJECT),
        ],
    ),
    (
        "Besides",
        &[
            ("config", super::config_command::ABOUT),
            ("policy", super::policy::ABOUT),
            ("doctor", super::doctor::ABOUT),
            ("export", super::export::EXPORT),
            ("import", super::export::IMPORT),
            ("prune", super::prune::ABOUT),
            ("mcp", super::mcp::ABOUT),
            ("completions", super::completions::ABOUT),
            ("help", "Print the help of a command, as its --help does"),
        ],
    ),
];

/// The template of `herder --help`.
pub(super) fn help() -> String {
    let width = names().map(str::len).max().unwrap_or_default();
    let mut commands = String::new();
    for (title, group) in GROUPS {
        commands.push_str(&format!("\n{title}:\n"));
        for (name, about) in group {
            commands.push_str(&format!("  {name:width$}  {}\n", super::short(about)));
        }
    }
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{commands}\nOptions:\n{{options}}{{after-help}}"
    )
}

/// Every command, in the order of the help.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|(_, group)| group.iter().map(|(name, _)| *name))
}
