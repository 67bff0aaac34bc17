// The official package for tasks (@modelcontextprotocol/ext-tasks) as a host of either era over HTTP:
// node tasks_host.mjs legacy|modern URL TOOL ARGUMENTS
// Prints the result of the tool, what was asked, whether it ran as a task, and the states that were announced.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  createTaskSessionFromClient,
  resultFromTaskOutcome,
  toolDeclarationFromMcpTool,
} from "@modelcontextprotocol/ext-tasks/client";

const REVISION = "2026-07-28";
const [era, url, name, written] = process.argv.slice(2);
const modern = era === "modern";
const clientInfo = { name: "tasks", version: "1.0.0" };
const capabilities = { elicitation: {} };
const mode = modern ? { pin: REVISION } : "legacy";
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode } });
const announced = [];
client.fallbackNotificationHandler = async ({ method, params }) => {
  if (method.startsWith("notifications/tasks")) announced.push(params.status);
};
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);

// The SDK does not send requests of the extension itself.
let count = 0;
async function rawDispatch({ method, params }) {
  const headers = {
    accept: "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": REVISION,
    "mcp-method": method,
    "mcp-name": params.name ?? params.taskId,
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: `raw-${(count += 1)}`, method, params });
  const response = await fetch(url, { method: "POST", headers, body });
  const message = await response.json();
  return "error" in message
    ? { kind: "error", error: message.error }
    : { kind: "result", result: message.result };
}

const { tools } = await client.listTools();
const known = new Map(tools.map((tool) => [tool.name, toolDeclarationFromMcpTool(tool)]));
const asked = [];
const framing = { protocolVersion: REVISION, clientInfo, clientCapabilities: capabilities };
const session = createTaskSessionFromClient(client, {
  endpointId: "workbench",
  tools: { currentTool: (tool) => known.get(tool) },
  onInputRequest: async ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: { interpretation: "snake" } };
  },
  ...(modern ? { rawDispatch, v2RequestFraming: framing } : {}),
});
const preference = { task: { preference: "prefer" } };
const execution = await session.callTool(name, JSON.parse(written), preference);
const { outcome } = await execution.settle();
const result = resultFromTaskOutcome(outcome);
console.log(JSON.stringify({ result, asked, outcome: Object.keys(outcome), announced }));
await session.close();
await transport.terminateSession?.();
await client.close();
