// A shop made with version 1 of the TypeScript SDK: node server_v1.mjs NAME pipe|http|sse
// What a shop offers is said in shop.py. Over HTTP the number of the port is its first line.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { SSEServerTransport } from "@modelcontextprotocol/sdk/server/sse.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

const [name, road] = process.argv.slice(2);
const BOOK = `shop://${name}/book`;
const cancelled = new Set();
const servers = new Set(); // one for each session
const subscribed = new Set();
const text = (said) => ({ content: [{ type: "text", text: said }] });
const tool = (name, properties = {}, more = {}) => ({
  name,
  description: `Does ${name}.`,
  inputSchema: { type: "object", properties },
  ...more,
});
const string = { type: "string" };
const number = { type: "number" };
const tools = [
  tool("echo", { text: string }),
  tool(
    "add",
    { a: number, b: number },
    { outputSchema: { type: "object", properties: { sum: number }, required: ["sum"] } },
  ),
  tool("fail", { reason: string }),
  tool("count", { steps: number, pause: number }),
  tool("wait", { key: string }),
  tool("was_cancelled", { key: string }),
  tool("ask"),
  tool("sample"),
  tool("log", { text: string }),
  tool("touch"),
  tool("learn", { name: string }),
];

const doers = {
  echo: ({ text: said }) => text(said),
  add: ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }),
  fail: ({ reason }) => ({ ...text(reason), isError: true }),
  async count({ steps, pause = 0 }, extra) {
    for (let progress = 1; progress <= steps; progress++) {
      await tell(extra, { progress, total: steps });
      if (pause) await setTimeout(pause);
    }
    return text(`${steps} steps`);
  },
  async wait({ key }, extra) {
    extra.signal.addEventListener("abort", () => cancelled.add(key));
    await tell(extra, { progress: 0 });
    return new Promise(() => {});
  },
  async was_cancelled({ key }) {
    for (let tries = 0; tries < 500 && !cancelled.has(key); tries++) await setTimeout(20);
    return text(cancelled.has(key) ? "yes" : "no");
  },
  async ask(_, extra) {
    const form = { type: "object", properties: { name: string } };
    const params = { message: "Who?", requestedSchema: form };
    const request = { method: "elicitation/create", params };
    const answer = await extra.sendRequest(request, types.ElicitResultSchema);
    return text(`${answer.action} ${answer.content?.name}`);
  },
  async sample(_, extra) {
    const messages = [{ role: "user", content: { type: "text", text: "Say yes" } }];
    const request = { method: "sampling/createMessage", params: { messages, maxTokens: 5 } };
    const answer = await extra.sendRequest(request, types.CreateMessageResultSchema);
    return text(answer.content.text);
  },
  async log({ text: said }, extra) {
    const params = { level: "info", data: said };
    await extra.sendNotification({ method: "notifications/message", params });
    return text("logged");
  },
  async touch() {
    for (const server of subscribed) await server.sendResourceUpdated({ uri: BOOK });
    return text("touched");
  },
  async learn({ name: newly }) {
    tools.push(tool(newly));
    for (const server of servers) await server.sendToolListChanged();
    return text("learned");
  },
};

async function tell(extra, progress) {
  const progressToken = extra._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, ...progress };
  await extra.sendNotification({ method: "notifications/progress", params });
}

function shop() {
  const capabilities = {
    tools: { listChanged: true },
    prompts: {},
    resources: { subscribe: true },
    logging: {},
  };
  const server = new Server({ name, version: "1.0.0" }, { capabilities });
  servers.add(server);
  server.onclose = () => {
    servers.delete(server);
    subscribed.delete(server);
  };
  const on = (schema, answer) => server.setRequestHandler(schema, answer);
  on(types.ListToolsRequestSchema, () => ({ tools }));
  on(types.CallToolRequestSchema, ({ params }, extra) => {
    const known = tools.some((one) => one.name === params.name);
    if (!known) throw new types.McpError(types.ErrorCode.InvalidParams, "no such tool");
    return doers[params.name]?.(params.arguments ?? {}, extra) ?? text("newly learned");
  });
  on(types.ListPromptsRequestSchema, () => ({
    prompts: [{ name: "greet", arguments: [{ name: "who" }] }],
  }));
  on(types.GetPromptRequestSchema, ({ params }) => ({
    messages: [
      { role: "user", content: { type: "text", text: `Hello ${params.arguments?.who}` } },
    ],
  }));
  on(types.ListResourcesRequestSchema, () => ({ resources: [{ name: "book", uri: BOOK }] }));
  on(types.ReadResourceRequestSchema, ({ params }) => ({
    contents: [{ uri: params.uri, text: `This is ${params.uri}` }],
  }));
  on(types.SubscribeRequestSchema, () => {
    subscribed.add(server);
    return {};
  });
  on(types.UnsubscribeRequestSchema, () => {
    subscribed.delete(server);
    return {};
  });
  return server;
}

const sessions = new Map();

async function streamable(request, response) {
  const id = request.headers["mcp-session-id"];
  if (id && !sessions.has(id)) return response.writeHead(404).end();
  let transport = sessions.get(id);
  if (!transport) {
    transport = new StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (fresh) => sessions.set(fresh, transport),
      onsessionclosed: (old) => sessions.delete(old),
    });
    await shop().connect(transport);
  }
  await transport.handleRequest(request, response);
}

async function oldTransport(request, response) {
  const url = new URL(request.url, "http://localhost");
  if (request.method === "GET") {
    const transport = new SSEServerTransport("/messages", response);
    sessions.set(transport.sessionId, transport);
    await shop().connect(transport);
  } else if (url.pathname === "/messages") {
    await sessions.get(url.searchParams.get("sessionId")).handlePostMessage(request, response);
  } else {
    response.writeHead(405).end();
  }
}

if (road === "pipe") {
  await shop().connect(new StdioServerTransport());
} else {
  const server = createServer(road === "sse" ? oldTransport : streamable);
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}
