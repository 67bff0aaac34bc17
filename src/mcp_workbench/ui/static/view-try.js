// Try it: find a tool, fill in its form or its JSON, call it, look at what it returns. Results are text, never markup.
import {html, useState, useEffect} from "./vendor/view.js";
import {act, api, bytes, command, Copy, Empty, home, Icon, ms, Problem, Tabs, to} from "./app.js";
import {Field, initial} from "./form.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const LONGEST = 200000; // characters that are shown of one text

export default function Try({path: [toolbox = "", server = "", tool = ""]}) {
  return html`<div class="title"><h1>Try it</h1><p class="sub">Calls are real: they reach the server, and are recorded like those of a host.</p></div>
    <div class="trying"><${Find} current=${[toolbox, server, tool].join("\n")} />
    ${tool ? html`<${Tool} key=${`${toolbox}\n${server}\n${tool}`} toolbox=${toolbox} server=${server} tool=${tool} />`
      : html`<${Empty} icon="play" title="Choose a tool" text="Search ranks tools exactly as an agent gets them." />`}</div>`;
}

function Find({current}) {
  const [words, search] = useState("");
  const [rows, set] = useState(null);
  const [error, fail] = useState("");
  const boxes = home.value?.toolboxes ?? [];
  useEffect(() => {
    const timer = setTimeout(async () => {
      try {
        if (words.trim()) set((await api("search", {words})).rows);
        else set((await Promise.all(boxes.slice(0, 20).map(box => api("tools", {toolbox: box.name, most: 50})))).flatMap(one => one.rows).filter(one => one.isShown));
        fail("");
      } catch (problem) { fail(problem.message); }
    }, words ? 200 : 0);
    return () => clearTimeout(timer);
  }, [words, boxes.length, boxes.reduce((sum, one) => sum + one.tools, 0)]);
  return html`<section aria-label="Find a tool">
    <label class="search tools"><${Icon} name="search" /><input type="search" value=${words} onInput=${event => search(event.target.value)} placeholder="What should it do? (press /)" aria-label="Search tools as an agent does" /></label>
    ${error && html`<${Problem} text=${error} />`}
    ${rows && !rows.length && html`<p class="faint">${words ? "Nothing fits." : "No tool is known yet: start the servers on the first view."}</p>`}
    <ul class="found">${(rows ?? []).map(one => html`<li key=${`${one.toolbox}\n${one.server}\n${one.name}`}><a href=${to("try", one.toolbox, one.server, one.name)} aria-current=${[one.toolbox, one.server, one.name].join("\n") === current ? "true" : undefined}>
      ${one.name}<small>${one.toolbox}/${one.server}${one.about && ` · ${one.about}`}</small></a></li>`)}</ul></section>`;
}

function Tool({toolbox, server, tool}) {
  const [it, set] = useState(null);
  const [error, fail] = useState(null);
  const [value, change] = useState({});
  const [text, write] = useState("{}");
  const [tab, show] = useState("form");
  const [state, move] = useState("");
  const [result, take] = useState(null);
  useEffect(() => {
    api("tool", {toolbox, server, tool}).then(found => {
      set(found);
      put(initial(found.inputSchema ?? {}, found.inputSchema ?? {}));
    }, fail);
  }, []);
  function put(next) {
    const whole = next ?? {};
    change(whole);
    write(JSON.stringify(whole, null, 2));
  }
  function edit(event) {
    write(event.target.value);
    try { const next = JSON.parse(event.target.value); if (typeof next === "object" && next !== null && !Array.isArray(next)) change(next); } catch { /* until it is complete */ }
  }
  let wrong = "";
  try { const whole = JSON.parse(text); if (typeof whole !== "object" || whole === null || Array.isArray(whole)) wrong = "arguments must be an object"; } catch (problem) { wrong = problem.message; }
  async function run(event) {
    event.preventDefault();
    if (wrong) return;
    move("running");
    take(null);
    const names = [["toolbox", toolbox], ["server", server], ["tool", tool]].map(([name, word]) => `${JSON.stringify(name)}:${JSON.stringify(word)}`);
    // Numbers are sent as they were typed: a number of many digits would be rounded.
    try { take(await act("call", `{${names.join(",")},"arguments":${text}}`)); } catch (problem) { take({error: problem.message, code: problem.code, hint: problem.hint, milliseconds: 0}); }
    move("");
  }
  if (error) return html`<${Problem} text=${error.message} hint=${error.hint} />`;
  if (!it) return html`<p class="boot">Loading …</p>`;
  const schema = it.inputSchema ?? {};
  const compact = wrong ? "{}" : onOneLine(text);
  return html`<section aria-label="The tool">
    <h2 class="mono">${toolbox}/${server}/${tool}</h2>
    ${typeof it.description === "string" && html`<details open=${it.description.length < 300}><summary class="faint">Description, by the server</summary><pre>${it.description.slice(0, LONGEST)}</pre></details>`}
    <form onSubmit=${run} novalidate>
      <${Tabs} label="Arguments" names=${[["form", "Form"], ["json", "JSON"]]} chosen=${tab} choose=${show} />
      ${tab === "form" ? html`<${Field} schema=${schema} root=${schema} value=${value} change=${put} />`
        : html`<label class="label" for="json">Arguments</label><textarea id="json" class="mono" rows=${Math.min(Math.max(text.split("\n").length + 1, 6), 24)} spellcheck="false" value=${text} onInput=${edit}></textarea>`}
      ${wrong && html`<p class="bad" role="alert">${wrong}</p>`}
      <div class="actions"><button type="submit" class="main" disabled=${state || wrong}><${Icon} name="play" /> ${state ? "Calling …" : "Call"}</button></div>
    </form>
    <p><${Copy} text=${command("call", `${toolbox}/${server}/${tool}`, "--input", compact)} label="the same as a command" /></p>
    ${result && html`<${Result} it=${result} />`}
  </section>`;
}

// Numbers stay as they were typed.
function onOneLine(text) {
  return text.replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, word) => word ?? "");
}

function Result({it}) {
  const result = it.result ?? null;
  const content = Array.isArray(result?.content) ? result.content : [];
  const images = content.filter(one => one?.type === "image" && IMAGES.has(one.mimeType) && typeof one.data === "string");
  const texts = content.filter(one => typeof one?.text === "string");
  const others = content.filter(one => !images.includes(one) && !texts.includes(one));
  const names = [];
  if (texts.length || others.length) names.push(["text", "Text"]);
  if (images.length) names.push(["image", `Image${images.length > 1 ? "s" : ""}`]);
  if (result?.structuredContent !== undefined) names.push(["structured", "Structured"]);
  names.push(["raw", "Raw"]);
  const [tab, show] = useState(names[0][0]);
  const ill = Boolean(it.error) || result?.isError === true;
  return html`<div class="result" aria-live="polite">
    <p><span class="state ${ill ? "bad" : "good"}"><${Icon} name=${ill ? "cross" : "tick"} /> ${it.error ? it.code || "Failed" : ill ? "The tool reports an error" : "Done"}</span> <span class="faint">${ms(it.milliseconds)}${it.bytes ? `, ${bytes(it.bytes)}` : ""}</span></p>
    ${it.error && html`<pre>${it.error}</pre>${it.hint && html`<p class="faint">${it.hint}</p>`}`}
    ${it.isCut && html`<p>The result is too long to be shown here.</p>`}
    ${result && html`<${Tabs} label="Result" names=${names} chosen=${tab} choose=${show} />
      ${tab === "text" && html`${texts.map(one => html`<pre tabindex="0">${one.text.slice(0, LONGEST)}</pre>`)}${others.map(one => html`<p class="faint">${String(one?.type ?? "content")} (see Raw)</p>`)}`}
      ${tab === "image" && images.map(one => html`<img src=${`data:${one.mimeType};base64,${one.data}`} alt="Image in the result" />`)}
      ${tab === "structured" && html`<pre tabindex="0">${JSON.stringify(result.structuredContent, null, 2).slice(0, LONGEST)}</pre>`}
      ${tab === "raw" && html`<pre tabindex="0">${JSON.stringify(result, null, 2).slice(0, LONGEST)}</pre>`}`}
  </div>`;
}
