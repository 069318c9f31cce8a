//! What a path resolves to, and what is refused.

use super::*;

#[test]
fn every_spelling_of_a_file_is_one_key() {
    let place = Place::new();
    place.file("sub/a.txt", "");
    place.link("link.txt", "sub/a.txt");
    place.link("folder", "sub");
    place.link("absolute", place.inside("sub"));
    fs::create_dir(place.outside("deep")).unwrap();
    symlink(place.inside("sub"), place.outside("deep/back")).unwrap();
    let absolute = place.inside("sub/a.txt");
    let spellings = [
        "sub/a.txt",
        "./sub/a.txt",
        "sub/../sub//a.txt",
        "sub/./a.txt",
        "missing/../sub/a.txt",
        "link.txt",
        "folder/a.txt",
        "absolute/a.txt",
        "folder/../link.txt",
        "../ws/sub/a.txt",
        "../outside/deep/back/a.txt",
        absolute.to_str().unwrap(),
    ];
    for spelling in spellings {
        for intent in [Intent::Read, Intent::Write] {
            let resolved = place.workspace.resolve(spelling, intent).unwrap();
            assert_eq!(&**resolved.key(), absolute.canonicalize().unwrap().to_str().unwrap(), "{spelling}");
            assert_eq!((resolved.relative(), resolved.shown()), ("sub/a.txt", "sub/a.txt"));
        }
    }
}

#[test]
fn a_file_that_does_not_exist_has_the_real_path_of_its_nearest_ancestor_plus_the_rest() {
    let place = Place::new();
    fs::create_dir(place.inside("sub")).unwrap();
    place.link("folder", "sub");
    place.link("dangling", "sub/new/file");
    for spelling in ["folder/new/file", "sub/new/./file", "dangling", "sub/x/../new/file"] {
        assert_eq!(place.to_write(spelling).relative(), "sub/new/file", "{spelling}");
        assert_eq!(place.to_read(spelling).key(), place.to_write("sub/new/file").key());
    }
}

#[test]
fn what_ends_outside_is_refused_whatever_leads_there() {
    let place = Place::new();
    fs::write(place.outside("target.txt"), "keep").unwrap();
    fs::create_dir(place.inside("sub")).unwrap();
    place.link("todo.md", place.outside("target.txt"));
    place.link("new.txt", place.outside("missing.txt"));
    place.link("out", "../outside");
    place.link("sub/chain", "../out");
    let prefix = format!("{}-other/a", place.inside("").to_str().unwrap().trim_end_matches('/'));
    for path in [
        "..",
        "../outside/target.txt",
        "sub/../../outside",
        "todo.md",
        "new.txt",
        "out/target.txt",
        "out/new",
        "sub/chain/target.txt",
        "sub/chain",
        "/etc/passwd",
        "/usr",
        "/proc/self/fd/0",
        "/no/such/thing",
        &prefix,
    ] {
        for intent in [Intent::Read, Intent::Write] {
            let refused = place.workspace.resolve(path, intent);
            assert!(matches!(refused, Err(PathError::Outside { .. })), "{path}: {refused:?}");
        }
    }
}

#[test]
fn a_path_that_names_nothing_possible_is_refused_with_its_reason() {
    let place = Place::new();
    place.file("file", "");
    place.link("loop", "loop");
    let long = "x".repeat(5000);
    let name = "x".repeat(300);
    for (path, reason) in [
        ("", "the path is empty"),
        ("a\0b", "the path contains a NUL character"),
        ("sub/", "the path ends with a slash, so it names a folder, not a file"),
        ("loop", "loop goes through too many symbolic links"),
        ("file/x", "file/x is not a folder, or a part of it is a file"),
        (&long, "the path is longer than 4,096 bytes"),
        (&name, &format!("cannot open {name}: File name too long (os error 36)")),
    ] {
        let refused = place.workspace.resolve(path, Intent::Write).unwrap_err();
        assert_eq!(Told(&refused).to_string(), reason);
    }
}

#[test]
fn the_root_itself_is_a_folder_and_never_a_file() {
    let place = Place::new();
    for path in [".", "./", "sub/..", place.inside("").to_str().unwrap()] {
        let root = place.to_read(path);
        assert_eq!((root.relative(), root.key()), (".", place.workspace.key()), "{path}");
        assert!(root.open_folder().is_ok());
        assert!(matches!(root.open_file(), Err(PathError::NotAFile { kind: FileKind::Folder, .. })));
    }
}

#[test]
fn a_read_root_may_be_read_and_not_written() {
    let place = Place::new();
    fs::write(place.outside("lib.rs"), "code").unwrap();
    place.link("cache", place.outside(""));
    let workspace = Workspace::open(&place.inside(""), &[place.outside("")]).unwrap();
    for path in ["cache/lib.rs", "../outside/lib.rs", place.outside("lib.rs").to_str().unwrap()] {
        let readable = workspace.resolve(path, Intent::Read).unwrap();
        assert_eq!(readable.shown(), &**readable.key());
        assert_eq!(read::read(&readable, read::Window::default(), Limits::DEFAULT).unwrap(), "code\n");
        let refused = workspace.resolve(path, Intent::Write).unwrap_err();
        assert_eq!(refused.to_string(), format!("{path} is in a folder that may only be read"));
    }
    assert!(matches!(workspace.resolve("/etc/passwd", Intent::Read), Err(PathError::Outside { .. })));
}

#[test]
fn a_workspace_must_be_an_existing_folder() {
    let place = Place::new();
    let file = place.file("file", "");
    assert!(matches!(Workspace::open(&file, &[]), Err(WorkspaceError::NotAFolder { .. })));
    let missing = place.inside("missing");
    assert!(matches!(Workspace::open(&missing, &[]), Err(WorkspaceError::Unusable { .. })));
    assert!(matches!(Workspace::open(&place.inside(""), &[missing]), Err(WorkspaceError::Unusable { .. })));
}

#[test]
fn the_whole_file_system_can_be_a_workspace() {
    let workspace = Workspace::open(Path::new("/"), &[]).unwrap();
    let resolved = workspace.resolve("/etc/../proc", Intent::Read).unwrap();
    assert_eq!((&**resolved.key(), resolved.relative()), ("/proc", "proc"));
    assert_eq!(workspace.resolve("..", Intent::Read).unwrap().relative(), ".");
}

#[test]
fn a_link_slipped_in_after_resolving_is_noticed_when_opening() {
    let place = Place::new();
    place.file("sub/a.txt", "inside");
    fs::write(place.outside("a.txt"), "secret").unwrap();
    let resolved = place.to_read("sub/a.txt");
    assert!(resolved.open_file().is_ok());
    fs::rename(place.inside("sub"), place.inside("was")).unwrap();
    for target in ["../outside", "was"] {
        place.link("sub", target);
        assert!(matches!(resolved.open_file(), Err(PathError::Moved { .. })), "{target}");
        fs::remove_file(place.inside("sub")).unwrap();
    }
    assert!(matches!(resolved.open_file(), Err(PathError::NotFound { .. })));
}

#[test]
fn what_is_not_a_regular_file_is_refused_by_its_kind_at_once() {
    let place = Place::new();
    for (path, kind) in special_files(&place, "logs") {
        let resolved = place.to_read(&path);
        let refused = resolved.open_file().unwrap_err();
        assert_eq!(refused.to_string(), format!("{path} is {kind}, not a regular file"));
        assert!(read::read(&resolved, read::Window::default(), Limits::DEFAULT).is_err());
        assert!(mutate::write(&resolved, "x").is_err());
        assert!(matches!(resolved.open_folder(), Err(PathError::NotAFolder { .. })));
    }
}
