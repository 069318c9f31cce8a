//! Layers, places and keys of the configuration.

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("written");
    path
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// The error for a `--config` file with this text, without the file's folder.
fn refusal(text: &str) -> String {
    let folder = folder();
    let file = write(&folder, "h.toml", text);
    let error = load(&Sources { file: Some(file), ..Sources::default() }).expect_err("refused").to_string();
    error.replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn the_built_in_layer_says_every_default() {
    let (config, _) = load(&Sources::default()).expect("loads");
    assert_eq!(config.supervisor.max_live_runs.most().get(), 100);
    assert_eq!(config.defaults.limits.max_turns, Some(crate::domain::usage::Limits::DEFAULT_MAX_TURNS));
    assert_eq!(config.defaults.policy, "edit-workspace");
    assert_eq!(config.timeouts.stall().as_secs(), 300);
    assert_eq!(config.store.durability, Durability::Power);
}

#[test]
fn a_later_layer_replaces_single_values_and_each_keeps_its_source() {
    let folder = folder();
    let user =
        write(&folder, "user.toml", "[supervisor]\nmax_live_runs = 1\ngrace_s = 1\n[timeouts]\ntool_s = 1\n");
    let named = write(&folder, "named.toml", "\n[supervisor]\nmax_live_runs = 2\ngrace_s = 2\n");
    let (config, effective) = load(&Sources {
        user_file: Some(user.clone()),
        file: Some(named.clone()),
        environment: environment(&[("HERDER_SUPERVISOR__MAX_LIVE_RUNS", "3"), ("HERDER_LOG", "debug")]),
        flags: vec![Flag::new("-j", &["supervisor", "max_live_runs"], 4)],
    })
    .expect("loads");
    assert_eq!(config.supervisor.max_live_runs.most().get(), 4);
    assert_eq!(config.supervisor.grace().as_secs(), 2);
    assert_eq!(config.timeouts.tool().as_secs(), 1);
    assert_eq!(config.supervisor.drain().as_secs(), 25);
    let sources = &effective.to_json()["sources"];
    assert_eq!(sources["supervisor.max_live_runs"], "-j");
    assert_eq!(sources["supervisor.grace_s"], format!("{}:4", named.display()));
    assert_eq!(sources["timeouts.tool_s"], format!("{}:5", user.display()));
    assert_eq!(sources["supervisor.drain_s"], "built in");
}

#[test]
fn an_error_names_file_line_and_field_and_what_would_be_right() {
    assert_eq!(
        refusal("[supervisor]\n\nmax_live_runs = \"many\"\n"),
        "h.toml:3: supervisor.max_live_runs: invalid value: string \"many\", expected a whole number, 1 or more, or \"auto\", or \"MIN-START-MAX\" as \"2-20-200\""
    );
    assert_eq!(
        refusal("[store]\ndurability = \"disk\"\n"),
        "h.toml:2: store.durability: unknown variant 'disk', expected 'power' or 'process'"
    );
    assert_eq!(
        refusal("[store]\ndurable = true\n"),
        "h.toml:2: store.durable: unknown field 'durable', expected 'durability'"
    );
    assert_eq!(refusal("[models.m]\nmodel = \"x\"\n"), "h.toml:1: models.m: missing field 'provider'");
    assert_eq!(
        refusal("[models.m]\nprovider = \"openai\"\nfree = true\noutput_usd_per_mtok = 1\n"),
        "h.toml:4: models.m.output_usd_per_mtok: stands beside free = true; keep one of the two"
    );
    assert_eq!(
        refusal("[timeouts]\nstall_warn_s = 301\n"),
        "h.toml:2: timeouts.stall_warn_s: must not be more than timeouts.stall_s, which is 300"
    );
    assert!(refusal("[store]\ndurability = \n").starts_with("h.toml:2: "));
}

#[test]
fn a_table_of_a_model_that_could_never_be_asked_is_refused() {
    let told = |line: &str| {
        let text = format!("[models.m]\nprovider = \"openai\"\n{line}\n");
        refusal(&text).replacen("h.toml:3: models.m.", "", 1)
    };
    for (line, what) in [
        ("model = \"\"", "model: is empty; "),
        ("context_window = 0", "context_window: must be a number of tokens, 1 or more"),
        ("max_output_tokens = 0", "max_output_tokens: must be a number of tokens, 1 or more"),
        (
            "max_output_tokens = 9\ncontext_window = 8",
            "max_output_tokens: must not be more than context_window, which is 8",
        ),
        ("input_usd_per_mtok = 1", "input_usd_per_mtok: stands without output_usd_per_mtok; "),
        ("cached_usd_per_mtok = 1", "cached_usd_per_mtok: stands without input_usd_per_mtok; "),
        ("base_url = \"127.0.0.1:8000/v1\"", "base_url: is no http or https URL; "),
        ("base_url = \"file:///v1\"", "base_url: is no http or https URL; "),
        ("headers = { \"a b\" = \"1\" }", "headers.a b: is no name that HTTP can carry; "),
        ("headers = { a = \"1\\n2\" }", "headers.a: has a value that HTTP cannot carry; "),
        ("api_key_env = \"\"", "api_key_env: is empty; "),
        ("api_key = \"sk-1\"", "api_key: unknown field 'api_key'; did you mean api_key_env, "),
        (
            "input_usd_per_mtok = \"a\"",
            "input_usd_per_mtok: invalid type: string \"a\", expected a number of US dollars",
        ),
    ] {
        assert!(told(line).starts_with(what), "{line}: {}", told(line));
    }
    let other = refusal("[models.\"openai:gpt-5\"]\nprovider = \"anthropic\"\n");
    assert!(
        other.starts_with("h.toml:2: models.openai:gpt-5.provider: is anthropic, yet openai: "),
        "{other}"
    );
    assert_eq!(refusal("[models.m]\nprovider = 5\n"), "h.toml:2: models.m.provider: expected a string");
    assert_eq!(
        refusal("[store]\ndurability = \"power\"\ndurability = \"process\"\n"),
        "h.toml:3: durability: is there twice; keep one of the two"
    );
}

#[test]
fn a_key_in_the_place_of_a_variables_name_is_told_without_it() {
    for key in ["sk-proj-hush", "gsk_hush1hush2hush3hush4hush5hush6hush", "7hush", "hush hush"] {
        let told = refusal(&format!("[models.m]\nprovider = \"openai\"\napi_key_env = \"{key}\"\n"));
        assert!(told.starts_with("h.toml:3: models.m.api_key_env: is no name of a variable; "), "{told}");
        assert!(!told.contains("hush"), "{told}");
    }
}

#[test]
fn a_file_of_a_key_that_is_not_there_is_told_with_its_line_once_the_model_is_asked() {
    let folder = folder();
    let file = write(&folder, "h.toml", "[models.m]\nprovider = \"openai\"\napi_key_file = \"none.key\"\n");
    let sources = Sources { file: Some(file.clone()), ..Sources::default() };
    let told = || load(&sources).expect("loads").0.model("m").expect_err("no key").to_string();
    let place =
        format!("{}:3: models.m.api_key_file: {}", file.display(), folder.path().join("none.key").display());
    assert!(told().starts_with(&format!("{place} cannot be read: ")), "{}", told());
    write(&folder, "none.key", " \n");
    assert_eq!(told(), format!("{place} is empty; put the key there"));
}

#[test]
fn an_error_in_a_variable_or_a_flag_names_it() {
    let refused = |sources: Sources| load(&sources).expect_err("refused").to_string();
    let environment = environment(&[("HERDER_STORE__DURABILITY", "7")]);
    assert_eq!(
        refused(Sources { environment, ..Sources::default() }),
        "HERDER_STORE__DURABILITY: store.durability: unknown variant '7', expected 'power' or 'process'"
    );
    let environment = [("HERDER_SHOP__OPEN".to_owned(), "1".to_owned())].into_iter().collect();
    let unknown = refused(Sources { environment, ..Sources::default() });
    assert!(
        unknown.starts_with("HERDER_SHOP__OPEN: shop.open: unknown field 'shop', expected one of"),
        "{unknown}"
    );
    let flags = vec![Flag::new("-j", &["supervisor", "max_live_runs"], 0)];
    assert_eq!(
        refused(Sources { flags, ..Sources::default() }),
        "-j: supervisor.max_live_runs: invalid value: integer '0', expected a whole number, 1 or more, or \"auto\", or \"MIN-START-MAX\" as \"2-20-200\""
    );
}

#[test]
fn a_named_file_must_exist_and_the_users_need_not() {
    let missing = Some(PathBuf::from("/nowhere/herder.toml"));
    assert!(load(&Sources { user_file: missing.clone(), ..Sources::default() }).is_ok());
    let error = load(&Sources { file: missing, ..Sources::default() }).expect_err("refused");
    assert_eq!(error.to_string(), "/nowhere/herder.toml: cannot be read");
}

#[test]
fn a_path_in_a_file_is_relative_to_the_file_and_a_policys_name_is_no_path() {
    let folder = folder();
    let text =
        "[defaults]\nworkspace = \"ws\"\npolicy = \"trusted\"\n[tools]\nread_roots = [\"cache\", \"/abs\"]\n";
    let file = write(&folder, "h.toml", text);
    let (config, _) = load(&Sources { file: Some(file), ..Sources::default() }).expect("loads");
    assert_eq!(config.defaults.workspace, Some(folder.path().join("ws")));
    assert_eq!(config.defaults.policy, "trusted");
    assert_eq!(config.tools.read_roots, [folder.path().join("cache"), PathBuf::from("/abs")]);
}

#[test]
fn a_variable_is_text_or_a_list_where_one_is_wanted() {
    let environment = environment(&[
        ("HERDER_TOOLS__ENV_PASS", "PATH, HOME"),
        ("HERDER_DEFAULTS__POLICY", "true"),
        ("HERDER_DEFAULTS__SYSTEM", ""),
        ("HERDER_DEFAULTS__MODEL", "openai:m"),
    ]);
    let flags = vec![Flag::new("--label", &["defaults", "labels", "team"], "7")];
    let (config, _) = load(&Sources { environment, flags, ..Sources::default() }).expect("loads");
    assert_eq!(config.defaults.labels["team"], "7");
    assert_eq!(config.tools.env_pass, ["PATH", "HOME"]);
    assert_eq!(config.defaults.policy, "true");
    assert_eq!(config.defaults.system, None);
    assert_eq!(config.defaults.model.as_deref(), Some("openai:m"));
}

#[test]
fn secrets_are_shown_nowhere() {
    let folder = folder();
    let text = "[models.m]\nprovider = \"openai\"\napi_key_env = \"K\"\nheaders = { authorization = \"hush\" }\n\
         [[notify]]\non = [\"batch-end\"]\nurl = \"http://h/hush\"\n";
    let file = write(&folder, "h.toml", text);
    let environment = environment(&[("K", "hush")]);
    let (config, effective) =
        load(&Sources { file: Some(file), environment, ..Sources::default() }).expect("loads");
    let model = config.model("m").expect("found");
    assert_eq!(model.key, Key::Found(Secret::new("hush")));
    let shown = format!("{config:?} {model:?} {} {}", effective.to_toml(), effective.to_json());
    assert!(!shown.contains("hush"), "{shown}");

    let text = "[models.m]\nprovider = \"openai\"\nbase_url = \"http://me:hush@h/v1?key=hush\"\n";
    let file = write(&folder, "h.toml", text);
    let (_, effective) = load(&Sources { file: Some(file), ..Sources::default() }).expect("loads");
    let shown = format!("{} {}", effective.to_toml(), effective.to_json());
    assert!(shown.contains("http://h/v1") && !shown.contains("hush"), "{shown}");
}

#[test]
fn the_configuration_in_force_can_be_read_back() {
    let (_, effective) = load(&Sources::default()).expect("loads");
    let folder = folder();
    let file = write(&folder, "h.toml", effective.to_toml());
    let (_, again) = load(&Sources { file: Some(file), ..Sources::default() }).expect("loads");
    assert_eq!(effective.to_json()["config"], again.to_json()["config"]);
}

#[test]
fn every_key_that_has_no_default_is_shown_as_it_would_be_read() {
    // An example is a comment that would be TOML without its mark.
    let is_key = |text: &str| text.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
    let is_table = |text: &str| text.starts_with('[') && text.ends_with(']');
    let uncommented: Vec<_> = BUILT_IN
        .lines()
        .map(|line| line.strip_prefix("# ").filter(|text| is_key(text) || is_table(text)).unwrap_or(line))
        .collect();
    let folder = folder();
    let file = write(&folder, "h.toml", &uncommented.join("\n").replace("free = true ", "# "));
    let (config, _) = load(&Sources { file: Some(file), ..Sources::default() }).expect("loads");
    assert_eq!(
        config.describe("local").expect("known").price,
        Price::PerMtok { input: 0.1, output: 0.4, cached: 0.01, cache_write: 0.1 }
    );
    assert_eq!(config.command_tools["ticket"].timeout().map(|time| time.as_secs()), Some(30));
    assert_eq!(config.defaults.params.seed, Some(1));
    assert_eq!(config.tools.process.memory_mib, Some(4096));
}

#[test]
fn a_tools_schema_stands_in_place_or_in_a_file_beside() {
    let folder = folder();
    let tool = |schema: &str| {
        let text = format!("[command_tools.t]\ndescription = \"d\"\ncommand = [\"c\"]\nschema = {schema}\n");
        let file = write(&folder, "h.toml", &text);
        let (config, _) = load(&Sources { file: Some(file), ..Sources::default() }).expect("loads");
        config.command_tools["t"].schema.read()
    };
    write(&folder, "s.json", "{\"type\": \"object\"}");
    write(&folder, "bad.json", "\n[]");
    assert_eq!(tool("{ type = \"object\" }").expect("read"), tool("\"s.json\"").expect("read"));
    let error = tool("\"bad.json\"").expect_err("refused").to_string();
    assert!(error.starts_with(&format!("{}:2: ", folder.path().join("bad.json").display())), "{error}");
    assert!(tool("\"none.json\"").is_err());
}
