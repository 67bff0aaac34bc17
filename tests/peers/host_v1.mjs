// Version 1 of the TypeScript SDK as a host:
// node host_v1.mjs dynamic|proxy legacy SERVERS COMMAND...|URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import * as types from "@modelcontextprotocol/sdk/types.js";
import { answers, ear, visit } from "./visit.mjs";

const [style, , servers, command, ...args] = process.argv.slice(2);
const transport = command.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env });
const client = new Client(
  { name: "typescript-1", version: "1.0.0" },
  { capabilities: { elicitation: {}, sampling: {} } },
);
const heard = ear();
client.setNotificationHandler(types.ToolListChangedNotificationSchema, () => {
  heard.lists += 1;
});
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, ({ params }) => {
  heard.updated.push(params.uri);
});
client.setNotificationHandler(types.LoggingMessageNotificationSchema, ({ params }) => {
  heard.logged.push(params.data);
});
client.setRequestHandler(types.ElicitRequestSchema, ({ params }) => {
  heard.asked.push(params.message);
  return answers.elicitation;
});
client.setRequestHandler(types.CreateMessageRequestSchema, () => answers.sampling);
let revision;
const told = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  revision = version;
  told?.(version);
};
await client.connect(transport);
const host = {
  client,
  call: (name, toolArguments, options) =>
    client.callTool({ name, arguments: toolArguments }, undefined, options),
  async listen(uris) {
    await client.setLoggingLevel("info");
    for (const uri of uris) await client.subscribeResource({ uri });
  },
};
const seen = await visit(host, heard, style, servers.split(","));
console.log(JSON.stringify({ revision, ...seen }));
await transport.terminateSession?.();
await client.close();
