// Version 1 of the TypeScript SDK as a host: node host_v1.mjs dynamic|proxy legacy COMMAND...|URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";
import { visit } from "./visit.mjs";

const [style, , command, ...args] = process.argv.slice(2);
const transport = command.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env });
const client = new Client({ name: "typescript-1", version: "1.0.0" });
let heard = 0;
client.setNotificationHandler(ToolListChangedNotificationSchema, () => {
  heard += 1;
});
let revision;
const told = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  revision = version;
  told?.(version);
};
await client.connect(transport);
const call = (name, toolArguments, options) =>
  client.callTool({ name, arguments: toolArguments }, undefined, options);
const seen = await visit(client, call, style);
console.log(JSON.stringify({ revision, heard, ...seen }));
await transport.terminateSession?.();
await client.close();
