// What every TypeScript host does with the workbench, and what it saw; visit.py is the same in Python.
import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";

const PATIENCE = 10_000; // milliseconds that an event may take
const inProxyMode = (server, tool, toolArguments) => [
  "use_tool",
  { tool: { toolbox: "peers", server, tool }, arguments: toolArguments },
];
const inDynamicMode = (server, tool, toolArguments) => [
  `peers__${server}__${tool}`,
  toolArguments,
];

// What reached a host unasked.
export const ear = () => ({ lists: 0, updated: [], logged: [], asked: [] });
export const answers = {
  elicitation: { action: "accept", content: { name: "Ada" } },
  sampling: { role: "assistant", model: "m", content: { type: "text", text: "yes" } },
};

const way = (style) => (style === "dynamic" ? inDynamicMode : inProxyMode);

// What came of the same at each server, all at once.
const each = async (servers, run) =>
  Object.fromEntries(
    await Promise.all(servers.map(async (server) => [server, await run(server)])),
  );

const until = async (isTrue) => {
  for (const end = Date.now() + PATIENCE; !isTrue(); await setTimeout(10))
    if (Date.now() > end) return false;
  return true;
};

const settled = async (errand) => {
  try {
    return await errand();
  } catch (error) {
    return { trouble: `${error.name}: ${error.message}` };
  }
};

// The host: {client, call(name, arguments, options), listen(uris)}
export async function visit(host, heard, style, servers) {
  const names = async () => (await host.client.listTools()).tools.map((tool) => tool.name);
  const before = await names();
  const opened = await host.call("open_toolbox", { toolbox_name: "peers" });
  const after = await names();
  await host.listen(servers.map((server) => `shop://${server}/book`));
  const shops = {};
  for (const server of servers) shops[server] = await errands(host, heard, style, server);
  const learned = await settled(() => learnEverywhere(host, heard, style, servers, names));
  return {
    server: host.client.getServerVersion()?.name,
    before,
    opened: JSON.parse(opened.content[0].text),
    after,
    shops,
    learned,
  };
}

async function errands(host, heard, style, server) {
  const named = way(style);
  const use = (tool, toolArguments = {}, options = undefined) =>
    host.call(...named(server, tool, toolArguments), options);
  const said = async (...wish) => (await use(...wish)).content[0].text;
  const book = `shop://${server}/book`;
  const everyErrand = {
    echo: () => use("echo", { text: "Grüße 🙂" }),
    add: () => use("add", { a: 2, b: 3 }),
    fail: () => use("fail", { reason: "no paper" }),
    unknown: () => use("ecco"),
    async count() {
      const progress = [];
      // With pauses: this SDK's clients drop notices that they read together with the result.
      const result = await use("count", { steps: 5, pause: 20 }, {
        onprogress: (notice) => progress.push(notice.progress),
      });
      return { text: result.content[0].text, progress };
    },
    async cancelled() {
      const key = randomUUID();
      const giveUp = new AbortController();
      const call = use("wait", { key }, {
        signal: giveUp.signal,
        onprogress: () => giveUp.abort("enough"),
      });
      await call.then(
        () => Promise.reject(new Error("answered")),
        () => {},
      );
      return said("was_cancelled", { key });
    },
    async prompt() {
      const wish = { name: `peers__${server}__greet`, arguments: { who: "Ada" } };
      return (await host.client.getPrompt(wish)).messages[0].content.text;
    },
    resource: async () => (await host.client.readResource({ uri: book })).contents[0].text,
    async ask() {
      const text = await said("ask");
      return { text, asked: heard.asked.filter((one) => one.includes(`/${server}]`)) };
    },
    sample: () => said("sample"),
    async logged() {
      await use("log", { text: `from ${server}` });
      return until(() => heard.logged.includes(`from ${server}`));
    },
    async updated() {
      await use("touch");
      return until(() => heard.updated.includes(book));
    },
  };
  const seen = {};
  for (const [errand, run] of Object.entries(everyErrand)) seen[errand] = await settled(run);
  return seen;
}

// Every shop has a new tool: what it says, and whether a host saw it that lists when told to.
async function learnEverywhere(host, heard, style, servers, names) {
  const named = way(style);
  const news = servers.map((server) => [server, `new_${randomUUID().slice(0, 8)}`]);
  const flat = news.map(([server, tool]) => `peers__${server}__${tool}`);
  let known = heard.lists;
  await Promise.all(
    news.map(([server, name]) => host.call(...named(server, "learn", { name }))),
  );
  let unseen = style === "dynamic" ? flat : [];
  while (unseen.length > 0 && (await until(() => heard.lists > known))) {
    known = heard.lists;
    const listed = await names();
    unseen = flat.filter((tool) => !listed.includes(tool));
  }
  const tools = Object.fromEntries(news);
  const said = await each(servers, (server) => found(host, named(server, tools[server], {})));
  return { said, unseen };
}

// Where a call's answer and the notice of a change take two roads, the answer may come first.
async function found(host, wish) {
  for (const end = Date.now() + PATIENCE; ; await setTimeout(100)) {
    const text = (await host.call(...wish)).content[0].text;
    if (!text.includes("not found") || Date.now() > end) return text;
  }
}
