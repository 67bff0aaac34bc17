// A shop made with version 2 of the TypeScript SDK, both eras in one process:
// node server_v2.mjs [NAME pipe|http]. What a shop offers is said in shop.py.
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  McpServer,
  createMcpHandler,
  fromJsonSchema,
  inputRequired,
  inputResponse,
} from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [name = "version-two", road = "pipe"] = process.argv.slice(2);
const BOOK = `shop://${name}/book`;
const cancelled = new Set();
const learned = new Set();
const string = { type: "string" };
const number = { type: "number" };
const text = (said) => ({ content: [{ type: "text", text: said }] });
const form = (properties = {}) => fromJsonSchema({ type: "object", properties });
const newlyLearned = [{ inputSchema: form() }, async () => text("newly learned")];

async function tell(context, progress) {
  const progressToken = context.mcpReq._meta?.progressToken;
  if (progressToken === undefined) return;
  const params = { progressToken, ...progress };
  await context.mcpReq.notify({ method: "notifications/progress", params });
}

// An SDK of both eras: the question is the result, and where need be it is asked in the old way.
const asks = (question, read) => async (_, context) => {
  const answer = inputResponse(context.mcpReq.inputResponses, "who");
  return answer.kind === "missing"
    ? inputRequired({ inputRequests: { who: question } })
    : text(read(answer));
};
const whoAreYou = inputRequired.elicit({
  message: "Who?",
  requestedSchema: { type: "object", properties: { name: string } },
});
const sayYes = inputRequired.createMessage({
  messages: [{ role: "user", content: { type: "text", text: "Say yes" } }],
  maxTokens: 5,
});

function shop(changes) {
  const capabilities = {
    tools: { listChanged: true },
    resources: { subscribe: true },
    logging: {},
  };
  const server = new McpServer({ name, version: "1.0.0" }, { capabilities });
  const tool = (called, properties, doer, more = {}) =>
    server.registerTool(
      called,
      { description: `Does ${called}.`, inputSchema: form(properties), ...more },
      doer,
    );
  const sum = { type: "object", properties: { sum: number }, required: ["sum"] };
  tool("echo", { text: string }, async ({ text: said }) => text(said));
  tool(
    "add",
    { a: number, b: number },
    async ({ a, b }) => ({ ...text(`${a + b}`), structuredContent: { sum: a + b } }),
    { title: "Add", outputSchema: fromJsonSchema(sum) },
  );
  tool("fail", { reason: string }, async ({ reason }) => ({ ...text(reason), isError: true }));
  tool("count", { steps: number, pause: number }, async ({ steps, pause = 0 }, context) => {
    for (let progress = 1; progress <= steps; progress++) {
      await tell(context, { progress, total: steps });
      if (pause) await setTimeout(pause);
    }
    return text(`${steps} steps`);
  });
  tool("wait", { key: string }, async ({ key }, context) => {
    context.mcpReq.signal.addEventListener("abort", () => cancelled.add(key));
    await tell(context, { progress: 0 });
    return new Promise(() => {});
  });
  tool("was_cancelled", { key: string }, async ({ key }) => {
    for (let tries = 0; tries < 500 && !cancelled.has(key); tries++) await setTimeout(20);
    return text(cancelled.has(key) ? "yes" : "no");
  });
  tool("ask", {}, asks(whoAreYou, ({ action, content }) => `${action} ${content?.name}`));
  tool("sample", {}, asks(sayYes, ({ result }) => result.content.text));
  tool("log", { text: string }, async ({ text: said }, context) => {
    await context.mcpReq.log("info", said);
    return text("logged");
  });
  tool("touch", {}, async () => {
    changes(server).touched();
    return text("touched");
  });
  tool("learn", { name: string }, async ({ name: newly }) => {
    learned.add(newly);
    changes(server).learned(newly);
    return text("learned");
  });
  for (const newly of learned) server.registerTool(newly, ...newlyLearned);
  server.registerPrompt("greet", { argsSchema: form({ who: string }) }, async ({ who }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Hello ${who}` } }],
  }));
  server.registerResource("book", BOOK, {}, async (uri) => ({
    contents: [{ uri: uri.href, text: `This is ${uri.href}` }],
  }));
  // A legacy host subscribes; a modern one listens, which the SDK sees to.
  for (const method of ["resources/subscribe", "resources/unsubscribe"])
    server.server.setRequestHandler(method, async () => ({}));
  return server;
}

if (road === "pipe") {
  // One host, so whatever changes is told to it.
  const changes = (server) => ({
    touched: () => server.server.sendResourceUpdated({ uri: BOOK }),
    learned: (newly) => server.registerTool(newly, ...newlyLearned),
  });
  serveStdio(() => shop(changes));
} else {
  const handler = createMcpHandler(() => shop(changes));
  const changes = () => ({
    touched: () => handler.notify.resourceUpdated(BOOK),
    learned: () => handler.notify.toolsChanged(),
  });
  const server = createServer(toNodeHandler(handler));
  server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}
