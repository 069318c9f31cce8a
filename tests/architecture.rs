//! The shape of the source tree: which module may name which, how long a file is, what lies beside it.
//!
//! Test code keeps to the floors like any other; only it may name concrete adapters, to have something to test with.

#[cfg(test)]
#[path = "architecture/source.rs"]
mod source;

use std::{collections::BTreeSet, fs, process::Command};

use source::{Names, files, is_source, names, read, root, shown};

/// From the ground up. A module names what stands on lower floors, and itself.
const FLOORS: &[&[&str]] = &[
    &["domain"],
    &["clock", "config", "crash", "telemetry"],
    &["store", "model", "tool"],
    &["actor"],
    &["app"],
    &["daemon"],
    &["eval"],
    &["cli"],
    &["main"],
];

/// What stands behind a trait: only `app` and the floor's own module know which one it is.
const ADAPTERS: &[&[&str]] = &[
    &["store", "sqlite"],
    &["store", "memory"],
    &["model", "anthropic"],
    &["model", "openai"],
    &["model", "responses"],
    &["model", "scripted"],
    &["tool", "builtin"],
    &["tool", "command"],
];

/// What the domain may use, and why it stays pure with it.
const PURE_CRATES: &[(&str, &str)] = &[
    ("serde", "events are data; derives only"),
    ("serde_json", "arguments and results are JSON"),
    ("thiserror", "derives only"),
    ("uuid", "the type of ids; they are minted elsewhere"),
    ("globset", "patterns of a policy; compiled and matched in memory"),
];

/// What the domain's tests may use beside that.
const PURE_TEST_CRATES: &[&str] = &["proptest"];

/// Parts of std that reach outside, or give another order each time.
const IMPURE_STD: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];
const IMPURE_WORDS: &[&str] =
    &["Instant", "SystemTime", "HashMap", "HashSet", "RandomState", "async", "await"];

const TOP_LEVEL: &[&str] = &[
    "Cargo.toml",
    "Cargo.lock",
    "src",
    "config",
    "tests",
    "benches",
    "README.md",
    "LICENSE-MIT",
    "LICENSE-APACHE",
];

const MAX_LINES: usize = 400;

#[test]
fn a_module_names_only_floors_below_its_own() {
    let floor = |module: &str| FLOORS.iter().position(|floor| floor.contains(&module));
    assert_none(names().iter().filter_map(|name| {
        let (own, other) = (name.module.first()?, name.inside()?.first()?);
        let below = floor(other).zip(floor(own)).is_some_and(|(other, own)| other < own);
        (own != other && !below).then(|| format!("{} names {other}", name.place))
    }));
}

#[test]
fn only_app_names_a_concrete_store_provider_or_tool_set() {
    assert_none(names().iter().filter_map(|name| {
        let (own, path) = (name.module.first()?, name.inside()?);
        let adapter = ADAPTERS.iter().find(|adapter| starts_with(path, adapter))?;
        (!name.in_test && own != "app" && own != adapter[0])
            .then(|| format!("{} names {}", name.place, adapter.join("::")))
    }));
}

#[test]
fn the_domain_is_pure() {
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().unwrap();
    let crates: BTreeSet<String> = ["dependencies", "dev-dependencies"]
        .iter()
        .flat_map(|table| manifest[*table].as_table().unwrap().keys())
        .map(|name| name.replace('-', "_"))
        .collect();
    let names = names();
    let domain = names.iter().filter(|name| name.module.first().is_some_and(|first| first == "domain"));
    assert_none(domain.filter_map(|name| {
        let path = &name.path;
        let pure = PURE_CRATES.iter().any(|(pure, _)| path[0] == *pure)
            || name.in_test && PURE_TEST_CRATES.contains(&path[0].as_str());
        let impure = crates.contains(&path[0]) && !pure
            || path[0] == "std" && path.get(1).is_some_and(|part| IMPURE_STD.contains(&part.as_str()))
            || path.iter().any(|part| IMPURE_WORDS.contains(&part.as_str()));
        impure.then(|| format!("{} names {}", name.place, path.join("::")))
    }));
}

/// What is under version control at the top level: what a person tries out there is their own. Without Git, all of it.
fn top_level() -> BTreeSet<String> {
    let git = Command::new("git").arg("-C").arg(root()).arg("ls-files").output();
    match git.ok().filter(|listed| listed.status.success()) {
        Some(listed) => {
            let listed = String::from_utf8_lossy(&listed.stdout);
            listed.lines().filter_map(|path| path.split('/').next()).map(str::to_owned).collect()
        }
        None => {
            let entries = fs::read_dir(root()).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        }
    }
}

#[test]
fn the_top_level_holds_only_what_belongs_there() {
    let names = top_level();
    assert!(names.contains("Cargo.toml"), "{names:?}");
    let stray =
        |name: &String| !name.starts_with('.') && name != "target" && !TOP_LEVEL.contains(&name.as_str());
    assert_none(names.into_iter().filter(stray));
}

#[test]
fn no_file_is_longer_than_400_lines() {
    let files = files(&["src", "tests", "benches"]);
    assert_none(files.iter().filter_map(|file| {
        let lines = read(file).lines().count();
        (lines > MAX_LINES).then(|| format!("{} has {lines} lines", shown(file)))
    }));
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let files = files(&["src", "tests", "benches"]);
    let sources = files.iter().filter(|file| is_source(file));
    assert_none(sources.filter(|file| !read(file).starts_with("//! ")).map(|file| shown(file)));
}

#[test]
fn every_metric_and_span_that_there_is_is_recorded_somewhere() {
    let (telemetry, others): (Vec<_>, Vec<_>) =
        files(&["src"]).into_iter().partition(|file| shown(file).starts_with("src/telemetry/"));
    let others: String = others.iter().map(|file| read(file)).collect();
    let mut names = Vec::new();
    for line in telemetry.iter().flat_map(|file| read(file).lines().map(str::to_owned).collect::<Vec<_>>()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let ["Counter" | "Gauge" | "Histogram", _, name, "=", ..] = words.as_slice() {
            names.push(format!("metric::{name}"));
        } else if let Some(name) = line.strip_prefix("pub fn ").filter(|_| line.ends_with("-> Span {")) {
            names.push(format!("span::{}(", name.split('(').next().unwrap()));
        }
    }
    assert!(names.len() > 20, "{names:?}");
    assert_none(names.into_iter().filter(|name| !others.contains(name.as_str())));
}

#[test]
fn names_are_found_in_any_form() {
    let text = r##"
        //! [`crate::cli::a`]
        use crate::{actor::{self, run::Run}, store::*};
        use super::super::model::{openai as o, http};
        #[cfg(test)]
        mod tests {
            use super::super::clock;
            fn f() { g!(crate::tool::bash("crate::x", r#"crate::y"#)) }
        }
        fn f(a: &'static str) -> crate::config::Config { /* crate::z */ ::std::mem::take::<crate::app::A>() }
    "##;
    let mut names = Names::new("sample", &["domain", "run"]);
    names.walk(text.parse().unwrap(), false);
    let inside = |in_test| {
        let wanted = names.found.iter().filter(move |name| name.in_test == in_test);
        wanted.filter_map(|name| Some(name.inside()?.join("::"))).collect::<Vec<_>>()
    };
    let code =
        ["actor", "actor::run::Run", "store", "model::openai", "model::http", "config::Config", "app::A"];
    assert_eq!(inside(false), code);
    assert_eq!(inside(true), ["domain::clock", "tool::bash"]);
}

fn starts_with(path: &[String], prefix: &[&str]) -> bool {
    path.len() >= prefix.len() && path.iter().zip(prefix).all(|(part, wanted)| part == wanted)
}

#[track_caller]
fn assert_none(violations: impl Iterator<Item = String>) {
    let violations: Vec<String> = violations.collect();
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}
