//! What names of models stand for.

use std::path::Path;

use super::*;
use crate::config::{Environment, Sources, load};

/// The configuration of this text, in an environment, with the user's `models.toml` if there is one in the folder.
fn config_in(folder: &Path, text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    let file = folder.join("h.toml");
    std::fs::write(&file, text).expect("written");
    let environment: Environment =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let user_file = Some(folder.join("config.toml"));
    let sources = Sources { user_file, file: Some(file), environment, ..Sources::default() };
    let shown = |error: ConfigError| error.to_string().replace(&format!("{}/", folder.display()), "");
    load(&sources).map(|(config, _)| config).map_err(shown)
}

fn config(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
    config_in(tempfile::tempdir().expect("a folder").path(), text, variables)
}

fn refusal(text: &str) -> String {
    config(text, &[]).expect_err("refused")
}

/// Address, key and account.
fn asked(config: &Config, name: &str) -> (String, Option<String>, String) {
    let model = config.describe(name).expect("known");
    let key = match model.key {
        Key::Found(key) => Some(key.expose().to_owned()),
        Key::None | Key::Missing(_) => None,
    };
    (model.base_url.unwrap_or_default(), key, model.account)
}

#[test]
fn the_customary_key_goes_to_the_customary_address_alone() {
    let text = "[models.other]\nprovider = \"openai\"\nbase_url = \"http://other/v1\"\n\
         [models.same]\nprovider = \"openai\"\nbase_url = \"https://api.openai.com/v1/\"\n";
    let variables =
        [("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a"), ("ANTHROPIC_BASE_URL", "http://mine")];
    let known = config(text, &variables).expect("loads");
    let of = |name: &str| asked(&known, name);
    let is = |address: &str, key: Option<&str>, account: &str| {
        (address.to_owned(), key.map(str::to_owned), account.to_owned())
    };
    assert_eq!(of("openai:gpt-5"), is("https://api.openai.com/v1", Some("o"), "openai"));
    assert_eq!(of("responses:gpt-5"), is("https://api.openai.com/v1", Some("o"), "openai"));
    assert_eq!(of("same"), is("https://api.openai.com/v1/", Some("o"), "openai"));
    assert_eq!(of("other"), is("http://other/v1", None, "other/v1"));
    assert_eq!(of("anthropic:x"), is("http://mine", Some("a"), "mine"));
    assert_eq!(of("scripted:x"), is("", None, "scripted"));
    let moved = config("", &[("OPENAI_BASE_URL", "http://mine/v1")]).expect("loads");
    assert_eq!(moved.model("openai:x").map(|model| model.key).expect("needs no key"), Key::None);
}

#[test]
fn ids_of_calls_are_short_where_the_catalogue_or_the_table_says_so() {
    let text = "[models.mine]\nprovider = \"openai\"\nbase_url = \"http://h\"\ncall_ids = \"short\"\n\
         [models.same]\nprovider = \"openai\"\nbase_url = \"https://api.mistral.ai/v1\"\n";
    let known = config(text, &[]).expect("loads");
    let ids = |name: &str| known.describe(name).expect("known").call_ids;
    for (name, short) in [("mine", true), ("same", true), ("mistral:x", true), ("openai:x", false)] {
        assert_eq!(ids(name) == CallIds::Short, short, "{name}");
    }
}

#[test]
fn one_account_has_one_key() {
    let table = |name: &str, more: &str| {
        format!("[models.{name}]\nprovider = \"openai\"\nbase_url = \"http://h\"\naccount = \"us\"\n{more}\n")
    };
    let (one, other) = ("api_key_env = \"A\"", "api_key_file = \"A\"");
    let same = table("a", one) + &table("b", one) + &table("c", "");
    assert_eq!(config(&same, &[]).map(drop), Ok(()));
    assert_eq!(
        refusal(&(table("a", one) + &table("b", "api_key_env = \"B\""))),
        "h.toml:9: models.b.account: is that of \"a\" too, which has another key; give each key its own account"
    );
    assert_eq!(config(&table("a", other), &[]).map(drop), Ok(()));
}

#[test]
fn what_is_secret_in_an_address_is_in_no_name_and_no_error() {
    let known = config(
        "[models.m]\nprovider = \"openai\"\nbase_url = \"https://me:pw@h/v1/?key=k\"\n",
        &[("ANTHROPIC_BASE_URL", "http://me:pw@mine")],
    )
    .expect("loads");
    let account = |name: &str| known.describe(name).expect("known").account;
    assert_eq!((account("m").as_str(), account("anthropic:x").as_str()), ("h/v1", "mine"));
}

#[test]
fn a_key_that_is_not_there_is_told_with_what_to_do() {
    let text = "[models.a]\nprovider = \"openai\"\napi_key_env = \"MINE\"\n\
         [models.b]\nprovider = \"openai\"\nheaders = { Authorization = \"Bearer x\" }\n";
    let config = config(text, &[]).expect("loads");
    let told = |name: &str| config.model(name).map(drop).map_err(|error| error.to_string());
    assert_eq!(
        told("anthropic:x"),
        Err("model \"anthropic:x\": there is no key for https://api.anthropic.com; set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL if \
             another server is meant"
            .to_owned())
    );
    assert_eq!(
        told("groq:x"),
        Err("model \"groq:x\": there is no key for https://api.groq.com/openai/v1; set GROQ_API_KEY"
            .to_owned())
    );
    assert_eq!(
        told("a"),
        Err("model \"a\": the variable MINE of api_key_env is not set; set it to the key".to_owned())
    );
    assert_eq!(told("b"), Ok(()));
}

#[test]
fn a_table_comes_before_the_users_file_and_that_before_the_catalogue() {
    let folder = tempfile::tempdir().expect("a folder");
    let user = "[models.\"openai:gpt-5\"]\ninput_usd_per_mtok = 7\ncontext_window = 1000\n\
         [servers.team]\nprovider = \"openai\"\nbase_url = \"http://team/v1\"\n";
    std::fs::write(folder.path().join("models.toml"), user).expect("written");
    let text = "[models.\"openai:gpt-5\"]\ncontext_window = 500\n[models.elsewhere]\nprovider = \"openai\"\n\
         model = \"gpt-5\"\nbase_url = \"http://h/v1\"\n";
    let config = config_in(folder.path(), text, &[]).expect("loads");
    let model = config.describe("openai:gpt-5").expect("known");
    let price = Price::PerMtok { input: 7.0, output: 10.0, cached: 0.125, cache_write: 7.0 };
    assert_eq!(
        (model.context_window, model.max_output_tokens, model.price),
        (Some(500), Some(128_000), price)
    );
    assert_eq!((model.model.as_str(), model.token_limit), ("gpt-5", TokenLimit::MaxCompletionTokens));
    let dated = config.describe("openai:gpt-5-2025-08-07").expect("known");
    assert_eq!((dated.context_window, dated.price), (Some(1000), price));
    // Nobody knows what another server takes for a model of the same name.
    let elsewhere = config.describe("elsewhere").expect("known");
    assert_eq!((elsewhere.price, elsewhere.token_limit), (Price::Unknown, TokenLimit::MaxTokens));
    assert_eq!(asked(&config, "team:any").0, "http://team/v1");

    std::fs::write(folder.path().join("models.toml"), "\n[models.\"openai:gpt-5\"]\ninput = 7\n")
        .expect("written");
    let refused = config_in(folder.path(), "", &[]).expect_err("refused");
    assert!(
        refused.starts_with("models.toml:3: models.openai:gpt-5.input: unknown field 'input'"),
        "{refused}"
    );
}

#[test]
fn fallbacks_must_be_models_and_lead_nowhere_back() {
    let table = |name: &str, more: &str| format!("[models.{name}]\nprovider = \"scripted\"\n{more}\n");
    let text =
        table("a", "fallbacks = [\"b\", \"openai:gpt-5\"]") + &table("b", "fallbacks = [\"scripted:x\"]");
    assert_eq!(
        config(&text, &[]).expect("loads").describe("a").expect("known").fallbacks,
        ["b", "openai:gpt-5"]
    );
    let unknown = refusal(&table("a", "fallbacks = [\"b\"]"));
    assert!(
        unknown.starts_with("h.toml:3: models.a.fallbacks: no model is called \"b\"; want "),
        "{unknown}"
    );
    let text = table("a", "fallbacks = [\"b\"]")
        + &table("b", "fallbacks = [\"scripted:x\", \"c\"]")
        + &table("c", "fallbacks = [\"a\"]");
    assert_eq!(
        refusal(&text),
        "h.toml:3: models.a.fallbacks: leads back to the model itself (a > b > c > a); take one out"
    );
}

#[test]
fn a_key_that_the_provider_has_no_use_for_is_refused() {
    let table = |more: &str| refusal(&format!("[models.m]\nprovider = \"openai\"\n{more}\n"));
    assert_eq!(
        table("prompt_cache = false"),
        "h.toml:3: models.m.prompt_cache: means nothing to the provider openai; leave it out"
    );
    assert_eq!(
        table("reasoning = \"always\""),
        "h.toml:3: models.m.reasoning: unknown variant 'always', expected one of 'never', 'reasoning_content', 'reasoning'"
    );
    assert!(table("tokens_per_minute = 0").ends_with("expected a whole number, 1 or more"));
    assert!(table("account = \" \"").starts_with("h.toml:3: models.m.account: is empty"));
    assert!(
        table("cache_write_usd_per_mtok = -1")
            .starts_with("h.toml:3: models.m.cache_write_usd_per_mtok: must be")
    );
}

#[test]
fn a_models_name_that_stands_for_nothing_is_refused_with_what_would_be_right() {
    let config = config("", &[]).expect("loads");
    let want = "want scripted:NAME, anthropic:NAME, deepseek:NAME, groq:NAME, mistral:NAME, openai:NAME, openrouter:NAME, \
                responses:NAME, or a [models.NAME] table of the configuration (there are none)";
    assert_eq!(config.check_model("gpt"), Err(format!("no model is called \"gpt\"; {want}")));
    assert_eq!(config.check_model("acme:x"), Err(format!("no provider is called \"acme\"; {want}")));
    assert_eq!(config.check_model("scripted:any"), Ok(()));
}

#[test]
fn what_anthropic_puts_into_its_cache_costs_a_quarter_more_than_what_is_sent_unless_somebody_says_otherwise()
{
    let written = |provider: &str, more: &str| {
        let text = format!(
            "[models.m]\nprovider = \"{provider}\"\nbase_url = \"http://h/v1\"\ninput_usd_per_mtok = 4\n\
             output_usd_per_mtok = 8\n{more}"
        );
        config(&text, &[]).expect("loads").describe("m").expect("known").price
    };
    let price = |cache_write| Price::PerMtok { input: 4.0, output: 8.0, cached: 4.0, cache_write };
    assert_eq!([written("anthropic", ""), written("openai", "")], [price(5.0), price(4.0)]);
    assert_eq!(written("anthropic", "cache_write_usd_per_mtok = 4.5\n"), price(4.5));
}

#[test]
fn what_would_go_past_a_reservation_is_refused_by_name() {
    for (key, says) in [
        ("max_tokens", "set max_output_tokens of the model"),
        ("max_completion_tokens", "set max_output_tokens of the model"),
        ("max_output_tokens", "set max_output_tokens of the model"),
        ("n", "one answer is heard"),
    ] {
        let text = format!(
            "[models.m]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n[models.m.extra_body]\n{key} = 9\n"
        );
        let refused = config(&text, &[]).expect_err("refused");
        assert!(
            refused.contains(&format!("models.m.extra_body.{key}: ")) && refused.contains(says),
            "{refused}"
        );
    }
}
