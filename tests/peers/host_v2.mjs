// Version 2 of the TypeScript SDK as a host: node host_v2.mjs dynamic|proxy MODE COMMAND...|URL
// MODE is legacy, auto, or a revision to insist on.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { visit } from "./visit.mjs";

const [style, wish, command, ...args] = process.argv.slice(2);
const mode = wish === "legacy" || wish === "auto" ? wish : { pin: wish };
const transport = command.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env });
const client = new Client(
  { name: "typescript-2", version: "1.0.0" },
  { versionNegotiation: { mode } },
);
let heard = 0;
client.setNotificationHandler("notifications/tools/list_changed", () => {
  heard += 1;
});
await client.connect(transport);
const call = (name, toolArguments, options) =>
  client.callTool({ name, arguments: toolArguments }, options);
const seen = await visit(client, call, style);
console.log(JSON.stringify({ revision: client.getNegotiatedProtocolVersion(), heard, ...seen }));
await transport.terminateSession?.();
await client.close();
