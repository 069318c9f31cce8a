//! The list of models.

use serde_json::{Value, json};

use crate::place::Place;

fn named<'a>(rows: &'a [Value], name: &str) -> &'a Value {
    rows.iter().find(|row| row["name"] == name).unwrap()
}

#[tokio::test]
async fn the_list_has_the_tables_and_the_catalogue_and_no_key() {
    let place = Place::new(
        "[models.local]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"MINE\"\n\
         requests_per_minute = 60\nmax_concurrency = 8\nfallbacks = [\"openai:gpt-5\"]\n",
    );
    place.write_users("models.toml", "[models.\"openai:gpt-5\"]\ninput_usd_per_mtok = 3\n");
    let variables = [("MINE", "hush-hush")];
    let listed = place.herder(&variables, &["models", "--json"]).await.expect(0);
    let rows = listed.json();
    let local = named(&rows, "local");
    for (key, value) in [
        ("server", json!("http://127.0.0.1:1/v1")),
        ("key", json!("found")),
        ("account", json!("127.0.0.1:1/v1 (MINE)")),
        ("requests_per_minute", json!(60)),
        ("max_concurrency", json!(8)),
        ("fallbacks", json!(["openai:gpt-5"])),
        ("input_usd_per_mtok", Value::Null),
    ] {
        assert_eq!(local[key], value, "{key}");
    }
    assert_eq!(rows[0]["name"], "local");
    let known = named(&rows, "openai:gpt-5");
    assert_eq!((&known["key"], &known["input_usd_per_mtok"]), (&json!("missing"), &json!(3.0)));
    assert_eq!((&known["context_window"], &known["output_usd_per_mtok"]), (&json!(400_000), &json!(10.0)));

    let table = place.herder(&variables, &["models"]).await.expect(0);
    assert!(table.out.starts_with("MODEL ") && table.err.is_empty(), "{table:?}");
    assert!(table.out.contains("60 requests/min, 8 at once, then openai:gpt-5"), "{}", table.out);
    assert!(!table.out.contains("hush") && !listed.out.contains("hush"));
}

#[tokio::test]
async fn a_filter_finds_names_providers_and_addresses() {
    let place = Place::new("");
    let names = |filter: &'static str| {
        let place = &place;
        async move {
            let rows = place.herder(&[], &["models", filter, "--json"]).await.expect(0).json();
            rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        }
    };
    let anthropic = names("Anthropic").await;
    assert!(
        !anthropic.is_empty() && anthropic.iter().all(|name| name.starts_with("anthropic:")),
        "{anthropic:?}"
    );
    assert_eq!(names("api.deepseek.com").await, ["deepseek:deepseek-chat", "deepseek:deepseek-reasoner"]);
    let none = place.herder(&[], &["models", "nothing-like-it"]).await.expect(0);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", "herder: no model fits\n"));
}

#[tokio::test]
async fn a_mistake_in_the_users_catalogue_ends_any_command_with_its_line() {
    let place = Place::new("");
    place.write_users("models.toml", "\n[models.\"openai:gpt-5\"]\ncontext_window = \"big\"\n");
    let refused = place.herder(&[], &["models"]).await.expect(2);
    assert!(
        refused.err.contains(
            "herder/models.toml:3: models.openai:gpt-5.context_window: invalid type: string \"big\""
        ),
        "{}",
        refused.err
    );
}

#[tokio::test]
async fn with_a_daemon_there_is_as_much_to_see_as_without() {
    let place = Place::new(
        "[models.local]\nprovider = \"openai\"\nbase_url = \"http://me:hush@127.0.0.1:1/v1?key=hush\"\napi_key_env = \"MINE\"\n\
         max_output_tokens = 9\nrequests_per_minute = 60\nfallbacks = [\"openai:gpt-5\"]\n",
    );
    let variables = [("MINE", "hush-hush")];
    let alone = place.herder(&variables, &["models", "--json"]).await.expect(0).json();
    place.herder(&variables, &["serve", "--detach"]).await.expect(0);
    // The key is the daemon's: who looks need not have it.
    let listed = place.herder(&[], &["models", "--json"]).await;
    let stopped = place.herder(&[], &["stop", "--wait"]).await;
    let live = listed.expect(0);
    stopped.expect(0);
    assert!(!live.out.contains("hush"), "{}", live.out);
    let live = live.json();
    let (alone, live) = (named(&alone, "local"), named(&live, "local"));
    for (key, value) in alone.as_object().unwrap() {
        assert_eq!(&live[key], value, "{key}");
    }
    assert_eq!((&live["open_runs"], &live["key"]), (&json!(0), &json!("found")));
}

#[tokio::test]
async fn what_is_wrong_with_a_fallback_is_told_as_such() {
    let price = "input_usd_per_mtok = 1\noutput_usd_per_mtok = 1";
    for (fallback, told) in [
        (
            "api_key_env = \"NONE\"",
            "a fallback of model \"m\": model \"b\": the variable NONE of api_key_env",
        ),
        ("", "a fallback of model \"m\": model \"b\" has no known price"),
    ] {
        let place = Place::new(&format!(
            "[models.m]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n{price}\nfallbacks = [\"b\"]\n\
             [models.b]\nprovider = \"openai\"\nbase_url = \"http://h/v1\"\n{fallback}\n"
        ));
        let args = ["--state", "s", "run", "x", "--model", "m", "--run-max-cost", "1"];
        let refused = place.herder(&[], &args).await.expect(2);
        assert!(refused.err.contains(told), "{}", refused.err);
    }
}
