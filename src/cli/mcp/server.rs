//! The server around the tools: who it is, and that each call is answered, in time, whatever becomes of it.

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    handler::server::{router::tool::ToolRouter, tool::ToolCallContext},
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
    },
    service::RequestContext,
};

use crate::daemon::client::Client;

/// How long a call may take: longer than the longest wait, shorter than clients have patience.
const LONGEST: Duration = Duration::from_secs(55);

const INSTRUCTIONS: &str = "herder runs LLM agents in folders of this machine, many at once, under one supervisor. \
    herder_submit starts one on a task and gives its run; herder_wait waits for runs, again and again until they have ended; \
    herder_result gives what one came to. A run may be steered, paused and cancelled while it works. Agents that work in one \
    folder share a queue for changes, so their edits do not interleave.";

/// Serves herder's tools.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) client: Client,
    pub(super) router: ToolRouter<Self>,
}

impl Server {
    pub(super) fn new(client: Client) -> Self {
        Self { client, router: Self::tools() }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.router.list_all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.router.get(name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = request.name.clone();
        let given_up = context.ct.clone();
        let call = self.router.call(ToolCallContext::new(self, request, context));
        // What a handler leaves behind when it panics is dropped with it.
        let call = AssertUnwindSafe(tokio::time::timeout(LONGEST, call)).catch_unwind();
        tokio::select! {
            answer = call => match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(_)) => Ok(refused(format!("{tool} took longer than {} s", LONGEST.as_secs()))),
                Err(_) => {
                    tracing::error!(%tool, "a tool's handler panicked");
                    Ok(refused(format!("{tool} failed in a way that herder did not expect; its log on stderr says more")))
                }
            },
            () = given_up.cancelled() => Ok(refused(format!("{tool} was given up"))),
        }
    }
}

fn refused(why: String) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(why)]).into()
}
