// A real authorization server for tests: provider.mjs '{"packages": …, "events": …}'
//
// `packages` is a node_modules with oidc-provider, `events` the file to which every event is appended as
// a line of JSON. The other settings, with their defaults, are in DEFAULTS. It writes its port when it is ready.
// POST /__bench changes its behaviour: {"faults": {"/token": {"status": 503, "delay": 1}}},
// {"documents": {URL: client metadata}}, {"forget": client ID}.
import { generateKeyPairSync } from 'node:crypto';
import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const DEFAULTS = {
  port: 0,
  path: '', // of the issuer: '/tenant'
  accessTokenSeconds: 3600,
  opaque: false, // access tokens: something to introspect instead of a JWT
  alg: 'RS256',
  scopes: ['mcp', 'admin'], // that every resource has
  defaultResource: null, // of requests that name none
  registration: true,
  documents: {}, // client ID metadata documents, by URL; nothing is fetched
  claims: {}, // further claims in access tokens, by login
  clients: [],
};
const settings = { ...DEFAULTS, ...JSON.parse(process.argv[2]) };

const documents = { ...settings.documents };
let faults = {};

function record(event, more = {}) {
  appendFileSync(settings.events, `${JSON.stringify({ event, at: Date.now() / 1000, ...more })}\n`);
}

function key(kid, type, options, alg) {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: 'jwk' }), kid, alg, use: 'sig' };
}

function configuration() {
  return {
    clients: settings.clients,
    jwks: {
      keys: [
        key(`rsa-${process.pid}`, 'rsa', { modulusLength: 2048 }, 'RS256'),
        key(`ec-${process.pid}`, 'ec', { namedCurve: 'P-256' }, 'ES256'),
      ],
    },
    cookies: { keys: ['of the tests'] },
    pkce: { required: () => true },
    scopes: ['openid', 'offline_access', ...settings.scopes],
    clientDefaults: { grant_types: ['authorization_code', 'refresh_token'] },
    rotateRefreshToken: true, // one that is used twice revokes its whole grant
    issueRefreshToken: (ctx, client) => client.grantTypeAllowed('refresh_token'),
    expiresWithSession: () => false,
    findAccount: (ctx, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (ctx, token) => settings.claims[token.accountId],
    ttl: { AccessToken: settings.accessTokenSeconds, ClientCredentials: settings.accessTokenSeconds },
    fetch: (url) => {
      const document = documents[url];
      const headers = { 'content-type': 'application/json' };
      return new Response(JSON.stringify(document ?? {}), { status: document ? 200 : 404, headers });
    },
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: settings.registration },
      registrationManagement: { enabled: settings.registration },
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      introspection: { enabled: true },
      clientCredentials: { enabled: true },
      clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => settings.defaultResource ?? undefined,
        useGrantedResource: () => true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: settings.scopes.join(' '),
          audience: resource,
          accessTokenTTL: settings.accessTokenSeconds,
          accessTokenFormat: settings.opaque ? 'opaque' : 'jwt',
          jwt: { sign: { alg: settings.alg } },
        }),
      },
    },
  };
}

function follow(provider) {
  const about = (ctx) => ({ client: ctx.oidc?.client?.clientId, grant: ctx.oidc?.params?.grant_type });
  provider.on('grant.success', (ctx) => record('token', about(ctx)));
  provider.on('grant.error', (ctx, error) => {
    const reason = error.error_detail ?? error.error_description;
    record('refused', { ...about(ctx), error: error.error, reason });
    if (about(ctx).grant === 'refresh_token' && /already used/.test(reason)) record('reused', about(ctx));
  });
  provider.on('grant.revoked', (ctx, id) => record('revoked', { ...about(ctx), id }));
  provider.on('authorization.success', (ctx) => record('authorized', about(ctx)));
  provider.on('authorization.error', (ctx, error) => record('denied', { ...about(ctx), error: error.error }));
  provider.on('registration_create.success', (ctx, client) => record('registered', { client: client.clientId }));
  provider.on('interaction.ended', (ctx) => {
    if (ctx.oidc.result?.consent) record('consent', about(ctx));
  });
  provider.on('server_error', (ctx, error) => record('fault', { message: String(error.stack ?? error) }));
  provider.use(async (ctx, next) => {
    await next();
    record('request', { method: ctx.method, path: ctx.path, status: ctx.status });
  });
}

function body(request) {
  return new Promise((resolve, reject) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => resolve(Buffer.concat(chunks).toString()));
    request.on('error', reject);
  });
}

async function change(provider, request, response) {
  const wanted = JSON.parse(await body(request));
  faults = wanted.faults ?? faults;
  Object.assign(documents, wanted.documents);
  if (wanted.forget) await provider.Client.adapter.destroy(wanted.forget);
  response.end('{}');
}

// The provider itself knows nothing of its path. Metadata stands at both places that it may be looked for.
function mounted(request) {
  if (!settings.path) return true;
  const { url } = request;
  if (url.startsWith('/.well-known/') && url.endsWith(settings.path)) {
    request.url = url.slice(0, -settings.path.length);
  } else if (url.startsWith(`${settings.path}/`)) {
    request.url = url.slice(settings.path.length);
  } else {
    return false;
  }
  request.baseUrl = settings.path;
  return true;
}

async function answer(provider, request, response) {
  if (request.url === '/__bench') return change(provider, request, response);
  if (!mounted(request)) return response.writeHead(404).end();
  const fault = faults[request.url.split('?')[0]];
  if (fault?.delay) await new Promise((resolve) => setTimeout(resolve, fault.delay * 1000));
  if (!fault?.status) return provider.callback()(request, response);
  record('request', { method: request.method, path: request.url.split('?')[0], status: fault.status });
  response.writeHead(fault.status, { 'content-type': 'text/plain' });
  return response.end('a fault that the test asked for');
}

const { Provider } = await import(pathToFileURL(join(settings.packages, 'oidc-provider', 'lib', 'index.js')));
const server = createServer();
server.listen(settings.port, '127.0.0.1', () => {
  const { port } = server.address();
  const provider = new Provider(`http://127.0.0.1:${port}${settings.path}`, configuration());
  follow(provider);
  server.on('request', (request, response) => {
    answer(provider, request, response).catch((error) => {
      record('fault', { message: String(error.stack) });
      response.destroy();
    });
  });
  process.stdout.write(`${port}\n`);
});
