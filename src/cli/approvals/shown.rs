//! Approvals as people see them: a line each, or all of what is approved.

use std::time::Duration;

use crate::{
    app::approvals::Found,
    cli::{
        progress::took,
        render::{Paint, Tone, counted, one_line},
        table::{self, Side},
    },
    clock::{from_rfc3339, time_of_day},
    daemon::wire::{ApprovalDetail, ApprovalView, ResolutionView, approvals},
    domain::time::Timestamp,
};

const WHAT_WIDTH: usize = 44;
const RULE_WIDTH: usize = 60;

/// How much of a change is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum Extent {
    Whole,
    /// At most so many lines.
    Lines(usize),
}

/// What people call it.
pub(in crate::cli) fn name(approval: &ApprovalView) -> &str {
    // An older daemon has no shorter one.
    if approval.name.is_empty() { &approval.id } else { &approval.name }
}

/// Approvals, a line each; with what became of them where some are resolved.
pub(super) fn table(approvals: &[ApprovalView], with_resolved: bool, now: Timestamp) -> String {
    let last = if with_resolved { "RESOLVED" } else { "RULE" };
    let heads = [
        ("APPROVAL", Side::Left),
        ("AGE", Side::Right),
        ("EXPIRES", Side::Left),
        ("TOOL", Side::Left),
        ("WHAT", Side::Left),
        (last, Side::Left),
    ];
    let rows = approvals.iter().map(|approval| {
        let expires = approval.expires_at.as_deref().and_then(from_rfc3339);
        let resolved = approval.resolution.as_ref().map_or_else(|| "-".to_owned(), resolution);
        [
            name(approval).to_owned(),
            from_rfc3339(&approval.asked_at).map_or_else(|| "-".to_owned(), |at| age(now.since(at))),
            expires.map_or_else(|| "-".to_owned(), |at| until(at, now)),
            one_line(&approval.tool, WHAT_WIDTH),
            one_line(&exact(&approval.what), WHAT_WIDTH),
            one_line(if with_resolved { &resolved } else { &approval.rule }, RULE_WIDTH),
        ]
    });
    table::table(heads, rows)
}

/// When an answer comes too late: what is less than a minute away is told to the second.
fn until(at: Timestamp, now: Timestamp) -> String {
    const MINUTE: Duration = Duration::from_secs(60);
    match at.since(now) {
        left if left.is_zero() => "expired".to_owned(),
        left if left < MINUTE => format!("in {}", age(left)),
        _longer => time_of_day(at, now),
    }
}

/// To the second: nobody counts what is less.
fn age(age: Duration) -> String {
    took(Duration::from_secs(age.as_secs()))
}

/// What was asked and what became of it, on one line.
pub(in crate::cli) fn line(approval: &ApprovalView) -> String {
    let what = one_line(&exact(&approval.what), WHAT_WIDTH);
    let became = match &approval.resolution {
        None => "waits for an answer".to_owned(),
        Some(resolved) => {
            let command =
                resolved.command_id.as_ref().map_or_else(String::new, |id| format!(" (command {id})"));
            let for_run =
                resolved.for_run.as_ref().map_or_else(String::new, |pattern| format!(", for run {pattern}"));
            format!("{} at {}{command}{for_run}", resolution(resolved), resolved.at)
        }
    };
    format!("{} {} {what}: {became}", name(approval), approval.tool)
}

fn resolution(resolved: &ResolutionView) -> String {
    let by = resolved.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
    let reason = resolved.reason.as_ref().map_or_else(String::new, |said| format!(": {said}"));
    format!("{}{by}{reason}", table::word(&resolved.how))
}

/// What is to be shown of an approval that was found in a log; `name` is what people call its run.
pub(in crate::cli) fn detail_of(found: &Found, name: &str) -> Option<ApprovalDetail> {
    let all = approvals(&found.run, name, &found.log);
    all.into_iter().find(|detail| detail.approval.number == found.number)
}

/// All of what is approved, with nothing in it that a terminal would obey.
pub(in crate::cli) fn whole(detail: &ApprovalDetail, paint: Paint, extent: Extent) -> String {
    let approval = &detail.approval;
    let mut rows = vec![("approval", name(approval).to_owned()), ("run", approval.run.clone())];
    rows.extend(approval.task_id.clone().map(|task| ("task id", task)));
    rows.push(("tool", approval.tool.clone()));
    rows.push(("rule", approval.rule.clone()));
    rows.extend(detail.access.iter().map(|access| ("touches", exact(access))));
    rows.push(("workspace", detail.workspace.clone()));
    rows.push(("asked", approval.asked_at.clone()));
    rows.extend(approval.expires_at.clone().map(|at| ("expires", at)));
    if let Some(earlier) = detail.supersedes {
        let what = if detail.after.is_some() { "the file" } else { "what it would do" };
        rows.push(("again", format!("{what} has changed since approval {earlier}")));
    }
    if let Some(resolved) = &approval.resolution {
        rows.push(("resolved", format!("{} at {}", resolution(resolved), resolved.at)));
        rows.extend(resolved.command_id.clone().map(|command| ("command", command)));
        rows.extend(resolved.for_run.clone().map(|pattern| ("for run", pattern)));
    }
    let mut text = String::new();
    for (name, value) in rows {
        let value = one_line(&value, usize::MAX);
        text.push_str(&format!("{} {value}\n", paint.on(Tone::Dim, &format!("{name:<9}"))));
    }
    text.push('\n');
    text.push_str(&change(detail, paint, extent));
    text
}

fn change(detail: &ApprovalDetail, paint: Paint, extent: Extent) -> String {
    let is_diff = detail.after.is_some();
    let arguments = || format!("{:#}", detail.arguments);
    let preview = detail.preview.clone().unwrap_or_else(arguments);
    let preview = exact(preview.trim_end());
    let lines: Vec<&str> = preview.lines().collect();
    let most = match extent {
        Extent::Whole => lines.len(),
        Extent::Lines(most) => most,
    };
    let tone = |line: &str| match line.as_bytes().first() {
        _ if !is_diff => Tone::Usual,
        Some(b'+') => Tone::Good,
        Some(b'-') => Tone::Bad,
        Some(b'@') => Tone::Dim,
        Some(_) | None => Tone::Usual,
    };
    let mut shown: Vec<String> =
        lines.iter().take(most).map(|line| paint.on(tone(line), line).into_owned()).collect();
    if lines.len() > most {
        shown.push(format!("... {} more", counted(lines.len() - most, "line")));
    }
    shown.join("\n")
}

/// A text in which nothing is hidden: what a terminal would obey, or not show, is written out.
pub(in crate::cli) fn exact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unseen(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// Controls, marks that turn the direction of writing round, and what has no width.
fn is_unseen(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detail(more: serde_json::Value) -> ApprovalDetail {
        let mut detail = serde_json::json!({
            "id": "ab.1", "name": "a.1", "run": "ab", "task_id": "a", "number": 1, "call": "c1", "tool": "edit", "what": "src/a.rs",
            "rule": "rule 4 of policy careful: only reading is allowed without asking",
            "asked_at": "2026-11-30T12:00:00.000000Z", "workspace": "/w", "arguments": {"path": "src/a.rs"},
            "access": ["exclusive file /w/src/a.rs"], "after": "ff",
            "preview": "--- src/a.rs\n+++ src/a.rs\n@@ -1 +1 @@\n-old\n+new \u{1b}[2J\n",
        });
        if let (Some(detail), serde_json::Value::Object(more)) = (detail.as_object_mut(), more) {
            detail.extend(more);
        }
        serde_json::from_value(detail).expect("an approval")
    }

    #[test]
    fn all_of_a_change_is_shown_and_nothing_that_a_terminal_obeys() {
        insta::assert_snapshot!(whole(&detail(serde_json::json!({})), Paint::Plain, Extent::Whole), @r"
        approval  a.1
        run       ab
        task id   a
        tool      edit
        rule      rule 4 of policy careful: only reading is allowed without asking
        touches   exclusive file /w/src/a.rs
        workspace /w
        asked     2026-11-30T12:00:00.000000Z

        --- src/a.rs
        +++ src/a.rs
        @@ -1 +1 @@
        -old
        +new \u{1b}[2J
        ");
    }

    #[test]
    fn a_change_is_in_colours_and_a_command_is_not() {
        let change = whole(&detail(serde_json::json!({})), Paint::Colored, Extent::Whole);
        assert!(
            change.contains("\u{1b}[31m-old\u{1b}[0m") && change.contains("\u{1b}[32m+new"),
            "{change:?}"
        );
        let command = serde_json::json!({"after": null, "preview": "-x\n+y"});
        let command = whole(&detail(command), Paint::Colored, Extent::Whole);
        assert!(command.ends_with("\n-x\n+y"), "{command:?}");
    }

    #[test]
    fn what_would_deceive_the_eye_is_written_out() {
        let command = serde_json::json!({"after": null, "preview": "rm -rf a\u{202e}b\r\u{200b}\té"});
        let command = whole(&detail(command), Paint::Plain, Extent::Whole);
        assert!(command.ends_with("\nrm -rf a\\u{202e}b\\u{d}\\u{200b}\té"), "{command}");
    }

    #[test]
    fn who_is_asked_again_is_told_why() {
        let again = detail(serde_json::json!({"supersedes": 1}));
        let shown = whole(&again, Paint::Plain, Extent::Whole);
        assert!(shown.contains("\nagain     the file has changed since approval 1\n"), "{shown}");
    }

    #[test]
    fn time_that_is_over_or_almost_is_told() {
        let now = from_rfc3339("2026-11-30T13:00:00Z").expect("a time");
        let told = ["2026-11-30T12:59:59Z", "2026-11-30T13:00:42Z", "2026-11-30T13:05:00Z"]
            .map(|at| until(from_rfc3339(at).expect("a time"), now));
        assert_eq!(told, ["expired", "in 42s", "13:05 UTC"]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let part = whole(&detail(serde_json::json!({})), Paint::Plain, Extent::Lines(3));
        assert!(part.ends_with("@@ -1 +1 @@\n... 2 lines more"), "{part}");
    }
}
