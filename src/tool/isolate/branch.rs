//! The name of a run's branch: a template filled in so that git takes it.

use crate::domain::{id::RunId, task::TaskSpec};

/// Fills a template in. Whatever a task is called, the name is one that git takes.
pub(super) fn name(template: &str, run: RunId, spec: &TaskSpec) -> String {
    let run = run.to_string();
    let task = spec.task_id.as_deref().map_or("run", |id| id);
    let filled = template
        .replace("{task_id}", &part(task))
        .replace("{run}", &run)
        .replace("{attempt}", &spec.attempt.to_string());
    let parts: Vec<String> = filled.split('/').map(part).filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { format!("herder/{run}") } else { parts.join("/") }
}

/// One part of a name, without what git forbids in it.
fn part(text: &str) -> String {
    const LONGEST: usize = 100;
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let mut name: String = text.chars().map(plain).take(LONGEST).collect();
    while name.contains("..") {
        name = name.replace("..", ".");
    }
    let name = name.trim_start_matches(['.', '-']).trim_end_matches('.');
    let name = name.strip_suffix(".lock").unwrap_or(name);
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(template: &str, task_id: Option<&str>) -> String {
        let spec = serde_json::json!({"task": "t", "task_id": task_id, "attempt": 2, "model": "m", "workspace": "/"});
        name(template, RunId::from_bytes([1; 16]), &serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_template_is_filled_in() {
        let run = RunId::from_bytes([1; 16]);
        assert_eq!(named("herder/{task_id}-{run}", Some("a")), format!("herder/a-{run}"));
        assert_eq!(named("{task_id}.{attempt}", Some("a")), "a.2");
        assert_eq!(named("herder/{task_id}", None), "herder/run");
    }

    #[test]
    fn whatever_a_task_is_called_git_takes_the_name() {
        for (id, want) in [
            ("a b~c^d:e?f*g[h\\i", "a-b-c-d-e-f-g-h-i"),
            ("../../etc", "etc"),
            (".hidden", "hidden"),
            ("--force", "force"),
            ("x.lock", "x"),
            ("fix/one", "fix-one"),
            ("ü@{1}", "1-"),
        ] {
            assert_eq!(named("h/{task_id}", Some(id)), format!("h/{want}"), "{id}");
        }
        assert!(named("//", None).starts_with("herder/"));
    }
}
