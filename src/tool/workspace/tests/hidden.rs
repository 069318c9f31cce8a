//! herder's own files in a workspace: no tool sees or changes them, by whatever path.

use super::*;
use crate::tool::{
    output::Limits,
    workspace::{grep::grep, hidden::Hidden, list::list, sensitive::Sensitive},
};

/// A workspace with `out`, `out.state/log` and links to them, of which herder's own files are hidden.
fn place() -> (Place, Hidden) {
    let mut place = Place::new();
    place.file("out", "needle");
    place.file("out.state/log", "needle");
    place.file("out.state/work/run/a.txt", "needle");
    place.file("src/a.txt", "needle");
    place.link("link", "out.state");
    place.link("src/deep", "../out.state/log");
    let hidden = Hidden::new(
        ["out", "out.new", "out.state"].map(|name| place.inside(name)),
        [place.inside("out.state/work")],
    );
    place.workspace = Workspace::open_without(&hidden, &place.inside(""), &[]).unwrap();
    (place, hidden)
}

#[test]
fn they_are_refused_by_any_path_for_reading_and_for_writing() {
    let (place, _) = place();
    let absolute = place.inside("out.state/log");
    for path in [
        "out",
        "out.new",
        "out.state",
        "out.state/log",
        "out.state/answers/1.json",
        "src/../out.state/new",
        "link",
        "link/answers/1.json",
        "src/deep",
        "out.state/work/run/a.txt",
        absolute.to_str().unwrap(),
    ] {
        for intent in [Intent::Read, Intent::Write] {
            let refused = place.workspace.resolve(path, intent);
            assert!(matches!(refused, Err(PathError::Hidden { .. })), "{path}: {refused:?}");
        }
    }
    for path in ["out.txt", "out.states/log", "src/a.txt"] {
        assert!(place.workspace.resolve(path, Intent::Write).is_ok(), "{path}");
    }
}

#[test]
fn what_herder_is_started_with_is_read_and_not_changed_by_any_path() {
    let mut place = Place::new();
    place.file("rules.toml", "text");
    place.link("link.toml", "rules.toml");
    let fixed = Hidden::default().fixing(["rules.toml", "new.toml"].map(|name| place.inside(name)));
    place.workspace = Workspace::open_without(&fixed, &place.inside(""), &[]).unwrap();
    for path in ["rules.toml", "link.toml", "./new.toml"] {
        let refused = place.workspace.resolve(path, Intent::Write);
        assert!(matches!(refused, Err(PathError::Fixed { .. })), "{path}: {refused:?}");
    }
    assert!(place.workspace.resolve("link.toml", Intent::Read).is_ok());
    assert!(place.workspace.resolve("rules.toml.bak", Intent::Write).is_ok());
}

#[test]
fn they_are_neither_listed_nor_searched() {
    let (place, _) = place();
    assert_eq!(list(&place.to_read("."), Limits::DEFAULT).unwrap(), "link (link)\nsrc/\n");
    let query = grep::Query {
        pattern: "needle".to_owned(),
        literal: true,
        ignore_case: false,
        glob: None,
        context: 0,
        sensitive: Sensitive::Include,
        limits: Limits::DEFAULT,
    };
    assert_eq!(grep(&place.to_read("."), &query, &|| false).unwrap().text, "src/a.txt:1:needle\n");
}

#[test]
fn a_workspace_that_herder_made_among_them_is_open_but_not_what_lies_around_it() {
    let (place, hidden) = place();
    let own = place.inside("out.state/work/run");
    let workspace = Workspace::open_without(&hidden, &own, &[place.inside("")]).unwrap();
    assert!(workspace.resolve("a.txt", Intent::Write).is_ok());
    assert!(workspace.resolve(place.inside("src/a.txt").to_str().unwrap(), Intent::Read).is_ok());
    for path in ["../../log", place.inside("out").to_str().unwrap()] {
        let refused = workspace.resolve(path, Intent::Read);
        assert!(matches!(refused, Err(PathError::Hidden { .. })), "{path}: {refused:?}");
    }
    let inside_the_log = Workspace::open_without(&hidden, &place.inside("out.state"), &[]).unwrap();
    assert!(matches!(inside_the_log.resolve("log", Intent::Read), Err(PathError::Hidden { .. })));
}
