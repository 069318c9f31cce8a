//! Inputs as people write them, and the sentences about their mistakes.

use super::*;
use crate::config::{Sources, load};

fn defaults() -> Defaults {
    load(&Sources::default()).expect("loads").0.defaults
}

fn read_with(defaults: &Defaults, folder: &Path, text: &[u8]) -> Result<Vec<InputTask>, InputError> {
    let model =
        |name: &str| if name == "gone" { Err("no model is called \"gone\"".to_owned()) } else { Ok(()) };
    let tool = |name: &str| if name == "fly" { Err("no tool is called \"fly\"".to_owned()) } else { Ok(()) };
    let rules = Rules { defaults, model: &model, tool: &tool };
    read_from(text, &Source::File(folder.join("in.jsonl")), rules)
}

/// Reads with a default model, and names the folder of the input `F` in errors.
fn read_text(text: impl AsRef<[u8]>) -> Result<Vec<InputTask>, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let defaults = Defaults { model: Some("openai:m".to_owned()), ..defaults() };
    std::fs::create_dir(folder.path().join("ws")).expect("made");
    std::fs::write(folder.path().join("good.json"), r#"[{"text": "hi"}]"#).expect("written");
    std::fs::write(folder.path().join("bad.json"), "[\n{\"txt\": 1}]").expect("written");
    read_with(&defaults, folder.path(), text.as_ref())
        .map_err(|error| error.to_string().replace(&folder.path().display().to_string(), "F"))
}

fn ids(tasks: &[InputTask]) -> Vec<(usize, &str)> {
    tasks.iter().map(|task| (task.line, &*task.id)).collect()
}

#[test]
fn a_byte_order_mark_blank_lines_and_any_line_end_are_fine() {
    let text = "\u{feff}{\"id\":\"a\",\"prompt\":\"1\"}\r\n\n   \r\n{\"id\":\"b\",\"prompt\":\"2\"}";
    assert_eq!(ids(&read_text(text).expect("read")), [(1, "a"), (4, "b")]);
}

#[test]
fn duplicate_empty_and_numeric_ids_are_refused_with_their_lines() {
    let text = r#"{"id":"a","prompt":"1"}
{"id":"b","prompt":"2"}
{"id":"a","prompt":"3"}
{"id":"","prompt":"4"}
{"prompt":"5"}
{"id":7,"prompt":"6"}
"#;
    assert_eq!(
        read_text(text).expect_err("refused"),
        "F/in.jsonl:3: id: \"a\" is the id of line 1 too; give each task an id of its own\n\
         F/in.jsonl:4: id: is empty; want text that names the task, or no id at all\n\
         F/in.jsonl:6: id: is a number; want text, as \"7\""
    );
}

#[test]
fn broken_json_and_broken_text_are_named_by_line() {
    let text = b"{\"id\":\"a\",\"prompt\":\"1\"}\n\n{\"id\":\"b\",\"prompt\":\n{\"id\":\"c\xff\"}\n";
    let told = read_text(text).expect_err("refused");
    assert!(told.starts_with("F/in.jsonl:3: not JSON at column 19: EOF"), "{told}");
    assert!(
        told.ends_with("F/in.jsonl:4: not UTF-8 at byte 9 of the line; save the input as UTF-8"),
        "{told}"
    );
}

#[test]
fn twenty_mistakes_are_told_and_the_rest_is_counted() {
    let told = read_text("{}\n".repeat(23)).expect_err("refused");
    assert_eq!(told.lines().count(), 21);
    assert_eq!(told.lines().last(), Some("and 3 more"));
}

#[test]
fn what_a_line_names_is_looked_up() {
    let text = r#"{"task":"1","workspace":"nowhere"}
{"task":"2","workspace":"good.json"}
{"task":"3","model":"gone","tools":["read","fly"]}
{"task":"4","script":"none.json"}
{"task":"5","script":"bad.json"}
"#;
    assert_eq!(
        read_text(text).expect_err("refused"),
        "F/in.jsonl:1: workspace: F/nowhere does not exist; create the folder, or name another\n\
         F/in.jsonl:2: workspace: F/good.json is no folder; name the folder that tools work in\n\
         F/in.jsonl:3: model: no model is called \"gone\"\n\
         F/in.jsonl:3: tools: no tool is called \"fly\"\n\
         F/in.jsonl:4: script: F/none.json cannot be read: No such file or directory (os error 2)\n\
         F/in.jsonl:5: script: F/bad.json:2:6: unknown field 'txt', expected one of 'content', 'text', 'reasoning', \
         'calls', 'toolCalls', 'stop', 'usage', 'delay_ms', 'chunks', 'fault'; want a JSON list of replies"
    );
}

#[test]
fn a_schema_that_is_none_is_refused_by_its_field() {
    let form = |schema: &str| {
        format!(
            r#"{{"task":"1","script":[],"response_format":{{"type":"json_schema","json_schema":{{"schema":{schema}}}}}}}"#
        )
    };
    let text = format!("{}\n{}\n", form(r#"{"type":"object"}"#), form(r#"{"type":"objekt"}"#));
    let told = read_text(text).expect_err("refused");
    let expected = "F/in.jsonl:2: response_format.json_schema.schema: not a JSON Schema: ";
    assert!(told.starts_with(expected) && told.ends_with("; want a JSON Schema"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn a_line_goes_before_the_defaults_and_a_script_needs_no_model() {
    let folder = tempfile::tempdir().expect("a folder");
    let label = |value: &str| BTreeMap::from([("team".to_owned(), value.to_owned())]);
    let mut defaults = Defaults { model: Some("openai:m".to_owned()), labels: label("all"), ..defaults() };
    defaults.workspace = Some(folder.path().to_path_buf());
    defaults.params.seed = Some(1);
    let text = br#"{"task":"1","labels":{"team":"own"},"limits":{"max_tool_calls":2},"params":{"top_p":0.5}}
{"task":"2","script":[{"text":"hi"}]}
"#;
    let tasks = read_with(&defaults, folder.path(), text).expect("read");
    let spec = &tasks[0].spec;
    assert_eq!((&*spec.model, spec.task_id.as_deref()), ("openai:m", Some("line-1")));
    assert_eq!((spec.limits.max_turns, spec.limits.max_tool_calls), (Some(50), Some(2)));
    assert_eq!((spec.params.seed, spec.params.top_p), (Some(1), Some(0.5)));
    assert_eq!(spec.labels, label("own"));
    assert_eq!((&*tasks[1].spec.model, &tasks[1].spec.labels), (SCRIPTED, &label("all")));
    let real = folder.path().canonicalize().expect("real");
    assert_eq!(Path::new(&*spec.workspace), real);
}

#[test]
fn a_default_at_fault_is_told_once() {
    let tools = Some(vec!["fly".to_owned()]);
    let workspace = Some(PathBuf::from("/nowhere"));
    let defaults = Defaults { model: Some("gone".to_owned()), tools, workspace, ..defaults() };
    let text = b"{\"task\":\"1\"}\n{\"task\":\"2\"}\n";
    let error = read_with(&defaults, Path::new("/"), text).expect_err("refused").to_string();
    assert_eq!(
        error,
        "workspace: /nowhere does not exist; create the folder, or name another (a default, of --workspace or \
         [defaults])\n\
         model: no model is called \"gone\" (a default, of --model or [defaults])\n\
         tools: no tool is called \"fly\" (a default, of --tools or [defaults])"
    );
}

#[test]
fn without_a_model_anywhere_the_line_is_refused() {
    let error = read_with(&defaults(), Path::new("/"), b"{\"task\":\"1\"}").expect_err("refused").to_string();
    assert_eq!(error, "/in.jsonl:1: model: is missing; name one here, by --model or in [defaults]");
}

#[test]
fn the_hash_is_of_the_content_and_not_of_its_spelling() {
    let hash = |text: &str| read_text(text).expect("read")[0].hash.clone();
    let one = hash("{\"id\":\"a\",\"task\":\"x\"}");
    assert_eq!(one.len(), 64);
    assert_eq!(one, hash("\n { \"task\": \"\\u0078\", \"id\":\"a\"}"));
    assert_ne!(one, hash("{\"id\":\"a\",\"task\":\"y\"}"));
    let deep =
        |leaf: &str| format!("{{\"task\":\"x\",\"meta\":{}{leaf}{}}}", "[".repeat(500), "]".repeat(500));
    assert_ne!(hash(&deep("1")), hash(&deep("2")));
}

#[test]
fn half_a_surrogate_pair_is_repaired_and_a_very_long_line_is_read() {
    let tasks = read_text("{\"task\":\"a\\ud83d\"}").expect("read");
    assert_eq!(&*tasks[0].spec.task, "a\u{fffd}");
    let long = "x".repeat(20 << 20);
    let tasks = read_text(format!("{{\"task\":\"{long}\"}}\n{{\"task\":\"y\"}}")).expect("read");
    assert_eq!((tasks[0].spec.task.len(), tasks.len()), (long.len(), 2));
}

#[test]
fn tasks_are_chosen_by_id_count_and_seed() {
    let text: String = "abcdefgh".chars().map(|id| format!("{{\"id\":\"{id}\",\"task\":\"x\"}}\n")).collect();
    let tasks = read_text(text).expect("read");
    let choose = |selection: Selection| selection.choose(&tasks);
    let only = vec!["c".to_owned(), "a".to_owned()];
    assert_eq!(choose(Selection { only, ..Selection::default() }), Ok(vec![0, 2]));
    assert_eq!(choose(Selection { first: Some(3), ..Selection::default() }), Ok(vec![0, 1, 2]));
    let shuffled = |seed| choose(Selection { shuffle: Some(seed), ..Selection::default() }).expect("chosen");
    assert_eq!(shuffled(1), shuffled(1));
    assert_ne!(shuffled(1), shuffled(2));
    let mut sorted = shuffled(1);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..8).collect::<Vec<_>>());
    let unknown = choose(Selection { only: vec!["z".to_owned()], ..Selection::default() });
    assert_eq!(unknown, Err("--only: no task has the id \"z\"; want an id of the input".to_owned()));
}

#[test]
fn a_repeated_task_has_numbered_copies() {
    let tasks = repeated(read_text("{\"id\":\"a\",\"task\":\"x\"}").expect("read"), 2);
    assert_eq!(ids(&tasks), [(1, "a#1"), (1, "a#2")]);
    assert_eq!(tasks[1].spec.task_id.as_deref(), Some("a#2"));
    assert_eq!(tasks[0].hash, tasks[1].hash);
}

#[test]
fn what_was_sent_here_names_absolute_paths_alone() {
    let defaults = Defaults { model: Some("openai:m".to_owned()), ..defaults() };
    let read = |defaults: &Defaults, text: &str| {
        let rules = Rules { defaults, model: &|_| Ok(()), tool: &|_| Ok(()) };
        read_from(text.as_bytes(), &Source::Submission, rules)
    };
    let text = r#"{"task":"1","workspace":"ws"}
{"task":"2"}
{"task":"3","workspace":"/","script":"replies.json"}
"#;
    assert_eq!(
        read(&defaults, text).expect_err("refused").to_string(),
        "line 1: workspace: ws is relative; want an absolute path\n\
         line 2: workspace: is missing; want an absolute path, here or in [defaults]\n\
         line 3: script: want the replies themselves, not a file"
    );
    let defaults = Defaults { workspace: Some(PathBuf::from("/")), ..defaults };
    assert_eq!(ids(&read(&defaults, "{\"task\":\"1\"}").expect("read")), [(1, "line-1")]);
}

#[test]
fn replies_are_read_from_regular_files_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    for path in [Path::new("/dev/zero"), folder.path()] {
        let told = read_script(path).expect_err("refused");
        assert_eq!(told, format!("{} is no regular file; name a file of replies", path.display()));
    }
    let huge = folder.path().join("huge.json");
    File::create(&huge).and_then(|file| file.set_len(65 << 20)).expect("made");
    let told = read_script(&huge).expect_err("refused");
    assert_eq!(told, format!("{} is larger than 64 MiB; shorten it", huge.display()));
}

#[test]
fn a_line_without_end_is_refused_by_its_number_and_the_next_is_read() {
    let line = |text: &'static str| io::Cursor::new(text);
    let endless = io::repeat(b'x').take(MAX_LINE + 5);
    let input = line("{\"task\":\"1\"}\n").chain(endless).chain(line("\n{}\n"));
    let defaults = Defaults { model: Some("openai:m".to_owned()), ..defaults() };
    let rules = Rules { defaults: &defaults, model: &|_| Ok(()), tool: &|_| Ok(()) };
    let told = read_from(BufReader::new(input), &Source::Stdin, rules).expect_err("refused").to_string();
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[0], "stdin:2: is longer than 128 MiB; shorten it, or split the task");
    assert!(told[1].starts_with("stdin:3: task: "), "{told:?}");
    assert_eq!(told.len(), 2);
}
