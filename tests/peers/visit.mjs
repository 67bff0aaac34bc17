// What every TypeScript host does with the workbench, and what it saw.
const inProxyMode = (server, tool, toolArguments) => [
  "use_tool",
  { tool: { toolbox: "peers", server, tool }, arguments: toolArguments },
];
const inDynamicMode = (server, tool, toolArguments) => [
  `peers__${server}__${tool}`,
  toolArguments,
];

const settled = async (promise) => {
  try {
    return { result: await promise };
  } catch (error) {
    return { error: { code: error.code, message: error.message } };
  }
};

export async function visit(client, call, style) {
  const named = style === "dynamic" ? inDynamicMode : inProxyMode;
  const names = async () => (await client.listTools()).tools.map((tool) => tool.name);
  const before = await names();
  const opened = await call("open_toolbox", { toolbox_name: "peers" });
  const after = await names();
  const progress = [];
  // With pauses: this SDK's clients drop notices that they read together with the result.
  const counted = await call(...named("typescript", "count", { steps: 5, pause: 50 }), {
    onprogress: (notice) => progress.push(notice.progress),
  });
  return {
    server: client.getServerVersion(),
    before,
    opened: JSON.parse(opened.content[0].text),
    after,
    echo: await call(...named("everything", "echo", { message: "Grüße 🙂" })),
    sum: await call(...named("typescript", "add", { a: 2, b: 3 })),
    counted,
    progress,
    unknown: await settled(call(...named("everything", "ecco", {}))),
  };
}
