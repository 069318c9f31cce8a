//! aimock, a server that plays models from fixtures, in the protocols of several.

use std::{env, process::Stdio};

use herder::{
    domain::{
        outcome::{FaultClass, Stop},
        usage::Usage,
    },
    model::{
        ModelProvider, Secret,
        anthropic::{self, Anthropic},
        http,
        openai::{self, OpenAi, Profile, SendReasoning},
        responses::{self, Responses},
    },
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    conversation::{Said, ask, go_on, request},
    support::server::DEADLINE,
};

/// The server, in a process that ends with this.
struct Aimock {
    address: String,
    _process: Child,
    _fixtures: tempfile::TempDir,
}

impl Aimock {
    async fn start() -> Self {
        let program = env::var("HERDER_TEST_AIMOCK").expect("HERDER_TEST_AIMOCK is not set: run .ci/aimock");
        let counted = |input: u64, output: u64| json!({"prompt_tokens": input, "completion_tokens": output, "input_tokens": input, "output_tokens": output, "total_tokens": input + output});
        let call =
            |id: &str, city: &str| json!({"id": id, "name": "get_weather", "arguments": {"city": city}});
        let asks = json!({
            "reasoning": "Two cities.",
            "content": "Let me look.",
            "toolCalls": [call("call_w1", "Zürich 😀"), call("call_w2", "那覇")],
            "usage": counted(11, 7),
        });
        let knows = json!({"content": "It is 21 degrees there, 那😀é.", "usage": counted(30, 5)});
        let busy = json!({"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"});
        let fixtures = json!({"fixtures": [
            {"match": {"userMessage": "weather", "hasToolResult": false}, "response": asks},
            {"match": {"userMessage": "weather", "toolResultContains": "21 degrees"}, "response": knows},
            {"match": {"userMessage": "long"}, "response": {"content": "cut sho", "finishReason": "length"}},
            {"match": {"userMessage": "busy"}, "response": {"error": busy, "status": 429}},
            {
                "match": {"userMessage": "torn"},
                "response": {"content": "this is cut off long before it ends"},
                "truncateAfterChunks": 6,
                "chunkSize": 2,
            },
        ]});
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("fixtures.json"), fixtures.to_string()).unwrap();
        let mut process = Command::new(program)
            .args(["--port", "0", "--strict", "--validate-on-load", "--chunk-size", "5", "--fixtures"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("aimock ended before it listened");
                if let Some((_, address)) = line.split_once("listening on ") {
                    break address.trim().to_owned();
                }
            }
        };
        let address = timeout(DEADLINE, address).await.unwrap();
        // Goes on being read, so that the server never waits to be rid of its log.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Self { address, _process: process, _fixtures: folder }
    }

    fn base_url(&self) -> String {
        format!("{}/v1", self.address)
    }
}

/// What every protocol must make of the fixtures; `kept`: how many blocks the server wants back.
async fn speaks(provider: &dyn ModelProvider, model: &str, kept: usize) {
    let mut weather = request(model, "How is the weather?");
    let asked = ask(provider, &weather).await;
    let call =
        |id: &str, city: &str| (id.to_owned(), "get_weather".to_owned(), json!({"city": city}).to_string());
    let usage = |input, output| vec![Usage { input, output, ..Usage::default() }];
    let expected = Said {
        text: "Let me look.".to_owned(),
        reasoning: "Two cities.".to_owned(),
        calls: vec![call("call_w1", "Zürich 😀"), call("call_w2", "那覇")],
        usage: usage(11, 7),
        stop: Some(Stop::ToolCalls),
        ..Said::default()
    };
    assert_eq!(asked.kept.len(), kept, "{asked:?}");
    go_on(&mut weather, &asked, "21 degrees");
    assert_eq!(Said { kept: Vec::new(), ..asked }, expected);

    let known = ask(provider, &weather).await;
    let text = "It is 21 degrees there, 那😀é.".to_owned();
    let expected = Said { text, usage: usage(30, 5), stop: Some(Stop::EndTurn), ..Said::default() };
    assert_eq!(known, expected);

    let cut = ask(provider, &request(model, "something long")).await;
    assert_eq!((cut.text.as_str(), cut.stop), ("cut sho", Some(Stop::Length)));
    let busy = ask(provider, &request(model, "busy")).await;
    assert_eq!((busy.class(), busy.stop), (Some(FaultClass::RateLimit), None));
    assert!(busy.message().contains("slow down"), "{}", busy.message());
    let torn = ask(provider, &request(model, "torn")).await;
    assert_eq!((torn.class(), torn.stop), (Some(FaultClass::Transient), None));
    let unknown = ask(provider, &request(model, "what nobody has a fixture for")).await;
    assert_eq!((unknown.text.as_str(), unknown.stop), ("", None));
}

#[tokio::test]
#[ignore = "needs node and @copilotkit/aimock: .ci/aimock runs it"]
async fn chat_completions() {
    let aimock = Aimock::start().await;
    let settings = openai::Settings {
        base_url: aimock.base_url(),
        api_key: Secret::new("key"),
        profile: Profile { reasoning: SendReasoning::AsReasoningContent, ..Profile::default() },
        ..openai::Settings::default()
    };
    speaks(&OpenAi::new(http::client().unwrap(), settings).unwrap(), "gpt-5", 0).await;
}

#[tokio::test]
#[ignore = "needs node and @copilotkit/aimock: .ci/aimock runs it"]
async fn responses() {
    let aimock = Aimock::start().await;
    let settings = responses::Settings {
        base_url: aimock.base_url(),
        api_key: Secret::new("key"),
        ..responses::Settings::default()
    };
    speaks(&Responses::new(http::client().unwrap(), settings).unwrap(), "gpt-5", 1).await;
}

#[tokio::test]
#[ignore = "needs node and @copilotkit/aimock: .ci/aimock runs it"]
async fn messages() {
    let aimock = Aimock::start().await;
    let settings = anthropic::Settings {
        base_url: aimock.base_url(),
        api_key: Secret::new("key"),
        ..anthropic::Settings::default()
    };
    speaks(&Anthropic::new(http::client().unwrap(), settings).unwrap(), "claude-sonnet-4", 1).await;
}
