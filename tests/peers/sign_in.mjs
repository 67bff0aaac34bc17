// Both versions of the TypeScript SDK as a host that signs in:
// node sign_in.mjs 1|2 MODE URL PERSON LOGIN
// PERSON is the command of tests/kit that stands for a browser. It writes what `use_tool` said.
import { execFile } from "node:child_process";
import { createServer } from "node:http";

const [version, mode, url, person, login] = process.argv.slice(2);
const sdk =
  version === "1"
    ? {
        ...(await import("@modelcontextprotocol/sdk/client/index.js")),
        ...(await import("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      }
    : await import("@modelcontextprotocol/client");

const kept = {};
let came;
const redirected = new Promise((resolve) => {
  came = resolve;
});
const callback = createServer((request, response) => {
  response.end("signed in");
  came(new URL(request.url, "http://127.0.0.1").searchParams);
});
await new Promise((resolve) => callback.listen(0, "127.0.0.1", resolve));
const redirectUrl = `http://127.0.0.1:${callback.address().port}/callback`;

const authProvider = {
  redirectUrl,
  clientMetadata: {
    client_name: "typescript",
    redirect_uris: [redirectUrl],
    grant_types: ["authorization_code", "refresh_token"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  codeVerifier: () => kept.verifier,
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  redirectToAuthorization: (address) =>
    void execFile(person, [address.href], { env: { ...process.env, PERSON: login } }),
};

function host() {
  const options = version === "2" && { versionNegotiation: { mode: mode.startsWith("2") ? { pin: mode } : mode } };
  return new sdk.Client({ name: "typescript", version: "1.0.0" }, { capabilities: {}, ...options });
}

const transport = () => new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider });
const first = transport();
try {
  await host().connect(first);
  throw new Error("let in without a token");
} catch (error) {
  if (error.constructor.name !== "UnauthorizedError") throw error;
}
const answer = await redirected;
await (version === "1" ? first.finishAuth(answer.get("code")) : first.finishAuth(answer));
const client = host();
await client.connect(transport());
const tool = { toolbox: "dev", server: "fixture", tool: "echo" };
const result = await client.callTool({ name: "use_tool", arguments: { tool, arguments: { text: "hi" } } });
console.log(result.content[0].text);
await client.close();
callback.closeAllConnections();
callback.close();
