// A server made with version 2 of the TypeScript SDK: both eras in one process.
import { setTimeout } from "node:timers/promises";
import { McpServer, fromJsonSchema } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const numbers = fromJsonSchema({
  type: "object",
  properties: { a: { type: "number" }, b: { type: "number" } },
  required: ["a", "b"],
});
const total = fromJsonSchema({
  type: "object",
  properties: { sum: { type: "number" } },
  required: ["sum"],
});
const steps = fromJsonSchema({
  type: "object",
  properties: { steps: { type: "integer" }, pause: { type: "integer", default: 0 } },
  required: ["steps"],
});

serveStdio(() => {
  const server = new McpServer({ name: "version-two", version: "1.0.0" });
  server.registerTool(
    "add",
    { title: "Add", description: "Adds.", inputSchema: numbers, outputSchema: total },
    async ({ a, b }) => ({
      content: [{ type: "text", text: `${a + b}` }],
      structuredContent: { sum: a + b },
    }),
  );
  server.registerTool(
    "count",
    { description: "Counts aloud, with a pause in milliseconds.", inputSchema: steps },
    async ({ steps, pause = 0 }, context) => {
      const progressToken = context.mcpReq._meta?.progressToken;
      for (let progress = 1; progress <= steps; progress++) {
        await context.mcpReq.notify({
          method: "notifications/progress",
          params: { progressToken, progress, total: steps },
        });
        if (pause) await setTimeout(pause);
      }
      return { content: [{ type: "text", text: `${steps} steps` }] };
    },
  );
  return server;
});
