//! Any server that speaks Chat Completions, named by a variable: a model that runs on the machine, say.

use std::env;

use herder::{
    domain::outcome::Stop,
    model::{
        Secret, http,
        openai::{OpenAi, Settings},
    },
};
use serde_json::Value;

use crate::conversation::{ask, go_on, request};

#[tokio::test]
#[ignore = "needs a model: HERDER_TEST_MODEL_URL=http://host/v1 HERDER_TEST_MODEL=name cargo nextest run --run-ignored only --test aimock named"]
async fn a_model_answers_asks_for_a_tool_and_reads_what_came_of_it() {
    let url = env::var("HERDER_TEST_MODEL_URL").expect("HERDER_TEST_MODEL_URL is not set");
    let model = env::var("HERDER_TEST_MODEL").unwrap_or_else(|_| "default".to_owned());
    let api_key = Secret::new(env::var("HERDER_TEST_MODEL_KEY").unwrap_or_default());
    let settings = Settings { base_url: url, api_key, ..Settings::default() };
    let provider = OpenAi::new(http::client().unwrap(), settings).unwrap();

    let mut words = request(&model, "Say hello.");
    words.tools = [].into();
    let said = ask(&provider, &words).await;
    assert_eq!((said.error, said.stop), (None, Some(Stop::EndTurn)));
    assert!(!said.text.trim().is_empty());

    let mut weather = request(&model, "What is the weather in Paris? Use the tool, don't guess.");
    let said = ask(&provider, &weather).await;
    assert_eq!((said.error.as_ref(), said.stop), (None, Some(Stop::ToolCalls)), "{said:?}");
    assert_eq!(said.calls[0].1, "get_weather");
    let arguments: Value = serde_json::from_str(&said.calls[0].2).unwrap();
    assert!(arguments["city"].as_str().unwrap().contains("Paris"), "{arguments}");
    go_on(&mut weather, &said, "31 degrees and sunny");
    let said = ask(&provider, &weather).await;
    assert_eq!(said.error, None);
    assert!(said.text.contains("31"), "{}", said.text);
}
