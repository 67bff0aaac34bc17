// Version 2 of the TypeScript SDK as a host:
// node host_v2.mjs dynamic|proxy MODE SERVERS COMMAND...|URL
// MODE is legacy, auto, or a revision to insist on.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answers, ear, visit } from "./visit.mjs";

const LEVEL = "io.modelcontextprotocol/logLevel";
const [style, wish, servers, command, ...args] = process.argv.slice(2);
const mode = wish === "legacy" || wish === "auto" ? wish : { pin: wish };
const transport = command.startsWith("http:")
  ? new StreamableHTTPClientTransport(new URL(command))
  : new StdioClientTransport({ command, args, env: process.env });
const client = new Client(
  { name: "typescript-2", version: "1.0.0" },
  { capabilities: { elicitation: {}, sampling: {} }, versionNegotiation: { mode } },
);
const heard = ear();
client.setNotificationHandler("notifications/tools/list_changed", () => {
  heard.lists += 1;
});
client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
  heard.updated.push(params.uri);
});
client.setNotificationHandler("notifications/message", ({ params }) => {
  heard.logged.push(params.data);
});
client.setRequestHandler("elicitation/create", ({ params }) => {
  heard.asked.push(params.message);
  return answers.elicitation;
});
client.setRequestHandler("sampling/createMessage", () => answers.sampling);
await client.connect(transport);
const revision = client.getNegotiatedProtocolVersion();
const modern = wish !== "legacy";
const _meta = modern ? { [LEVEL]: "info" } : undefined;
const host = {
  client,
  call: (name, toolArguments, options) =>
    client.callTool({ name, arguments: toolArguments, _meta }, options),
  async listen(uris) {
    if (modern) {
      host.listening = await client.listen({ toolsListChanged: true, resourceSubscriptions: uris });
    } else {
      await client.setLoggingLevel("info");
      for (const uri of uris) await client.subscribeResource({ uri });
    }
  },
};
const seen = await visit(host, heard, style, servers.split(","));
console.log(JSON.stringify({ revision, ...seen }));
await host.listening?.close();
await transport.terminateSession?.();
await client.close();
