// Toolboxes: what each tool weighs, search as an agent searches, switching tools on and off, differences from the lock file.
import {html, useState, useEffect, useRef} from "./vendor/view.js";
import {act, api, command, Copy, Dialog, Diff, Empty, go, home, Icon, number, plural, Problem, say, to} from "./app.js";

const PAGE = 200;
const key = one => `${one.toolbox}\n${one.server}\n${one.name}`;

export default function Toolboxes({path: [toolbox = "", server = ""]}) {
  const boxes = home.value?.toolboxes ?? [];
  const name = toolbox || boxes[0]?.name || "";
  const box = boxes.find(one => one.name === name);
  if (!home.value) return html`<p class="boot">Loading …</p>`;
  if (!boxes.length) return html`<${Empty} icon="box" title="There is no toolbox" text="Write one, or copy the servers of your hosts into one."><${Copy} text="mcp-workbench init" /><//>`;
  return html`
    <div class="title"><h1>Toolboxes</h1>
      <p class="sub">${box?.description || "no description: agents choose a toolbox by its description"}</p></div>
    <div class="tools">
      <label>Toolbox <select value=${name} onChange=${event => go("toolboxes", event.target.value)}>${boxes.map(one => html`<option value=${one.name}>${one.name} (${plural(one.tools, "tool")})</option>`)}</select></label>
      <${Meter} />
    </div>
    <${Locks} toolbox=${name} />
    <${Tools} key=${`${name}/${server}`} toolbox=${name} server=${server} />`;
}

function Meter() {
  const shown = home.value.tokens.instructionCharacters;
  return html`<div class="end faint">Instructions ${number(shown)} of 2,000 characters
    <div class="meter" role="meter" aria-label="Length of the instructions" aria-valuemin="0" aria-valuemax="2000" aria-valuenow=${shown}><i style=${{width: `${Math.min(shown / 20, 100)}%`}}></i></div></div>`;
}

function Locks({toolbox}) {
  const [found, set] = useState([]);
  useEffect(() => { api("locks").then(set, () => set([])); }, [toolbox]);
  const mine = found.filter(one => one.toolbox === toolbox);
  return mine.map(one => html`<section class="ill">
    <div class="head"><span class="state doubtful"><${Icon} name="lock" /> ${one.isHidden ? "Hidden until approved" : "Changed since recorded"}</span>
      <a class="name" href=${to("server", one.toolbox, one.server)}>${one.toolbox}/${one.server}</a><span class="faint">lock: ${one.level}</span></div>
    ${one.changes.map(change => html`<details><summary>${change.what}: ${change.state} <code>${change.hash}</code></summary>
      ${change.warnings.map(text => html`<${Problem} kind="doubtful" text=${text} />`)}
      ${change.lines.length ? html`<${Diff} lines=${change.lines} />` : html`<p class="faint">the command below shows it</p>`}</details>`)}
    <p class="faint">A person at a terminal looks at it and approves it; this page can't.</p>
    <${Copy} text=${one.approve} />
  </section>`);
}

function Tools({toolbox, server}) {
  const [rows, set] = useState(null);
  const [total, count] = useState(0);
  const [words, search] = useState("");
  const [chosen, choose] = useState(new Set());
  const [error, fail] = useState(null);
  const [asked, ask] = useState(null);
  const last = useRef(-1);
  const load = async (start = 0) => {
    try {
      const found = words.trim() ? await api("search", {words, toolbox}) : await api("tools", {toolbox, server, start, most: PAGE});
      set(before => start ? [...before, ...found.rows] : found.rows);
      count(found.total);
      fail(null);
    } catch (problem) { fail(problem); }
  };
  useEffect(() => {
    const timer = setTimeout(load, words ? 200 : 0);
    return () => clearTimeout(timer);
  }, [words, toolbox, server, home.value.toolboxes.find(one => one.name === toolbox)?.hidden, home.value.toolboxes.find(one => one.name === toolbox)?.tools]);
  // Shift extends the choice from the last row that was clicked.
  function pick(event, index) {
    const next = new Set(chosen);
    const on = !chosen.has(key(rows[index]));
    const [from, to] = event.shiftKey && last.current >= 0 ? [Math.min(last.current, index), Math.max(last.current, index)] : [index, index];
    for (const row of rows.slice(from, to + 1)) on ? next.add(key(row)) : next.delete(key(row));
    last.current = index;
    choose(next);
  }
  const all = rows?.length > 0 && rows.every(row => chosen.has(key(row)));
  const picked = (rows ?? []).filter(row => chosen.has(key(row)));
  async function preview(on) {
    const groups = new Map();
    for (const row of picked) {
      const group = groups.get(row.server) ?? {toolbox, server: row.server, on: [], off: []};
      group[on ? "on" : "off"].push(row.name);
      groups.set(row.server, group);
    }
    const switches = [...groups.values()];
    try { ask({switches, on, ...await act("switch/preview", {switches})}); fail(null); } catch (problem) { fail(problem); }
  }
  return html`<section aria-label="Tools">
    <div class="tools">
      <label class="search"><${Icon} name="search" /><input type="search" value=${words} onInput=${event => search(event.target.value)} placeholder="Search as an agent does (press /)" aria-label="Search tools as an agent does" /></label>
      ${server && html`<span class="chip">server ${server}</span><a href=${to("toolboxes", toolbox)}>all servers</a>`}
      <span class="faint" role="status">${rows && `${plural(total, "tool")}${picked.length ? `, ${picked.length} chosen` : ""}`}</span>
      <button type="button" disabled=${!picked.length} onClick=${() => preview(false)}><${Icon} name="off" /> Switch off</button>
      <button type="button" disabled=${!picked.length} onClick=${() => preview(true)}><${Icon} name="eye" /> Switch on</button>
    </div>
    ${error && html`<${Problem} text=${error.message} hint=${error.hint} />`}
    ${rows === null ? html`<p class="boot">Loading …</p>` : !rows.length ? html`<${Nothing} words=${words} />` : html`
    <div class="scroll" tabindex="0" role="region" aria-label="Tools"><table class="rows">
      <thead><tr><th class="tight"><input type="checkbox" checked=${all} aria-label="Choose all that are listed" onClick=${() => choose(all ? new Set() : new Set(rows.map(key)))} /></th><th>Tool</th><th>What it does</th><th class="n">Tokens</th><th>State</th></tr></thead>
      <tbody>${rows.map((row, index) => html`<tr key=${key(row)} class="${chosen.has(key(row)) ? "chosen" : ""} ${row.isShown ? "" : "dim"}">
        <td class="tight"><input type="checkbox" checked=${chosen.has(key(row))} onClick=${event => pick(event, index)} aria-label=${`Choose ${row.name}`} /></td>
        <td><a href=${to("try", row.toolbox, row.server, row.name)}>${row.name}</a><br /><span class="faint">${row.server}</span></td>
        <td>${row.about || html`<span class="faint">no description</span>`}${row.hint === "destroys" && html` <span class="chip">may destroy</span>`}${row.hint === "reads" && html` <span class="chip">reads only</span>`}</td>
        <td class="n">${number(row.tokens)}</td>
        <td>${row.isShown ? html`<span class="state good"><${Icon} name="eye" /> On</span>` : html`<span class="state rest"><${Icon} name="off" /> Off</span>`}</td>
      </tr>`)}</tbody></table></div>
    ${!words.trim() && rows.length < total && html`<p><button type="button" onClick=${() => load(rows.length)}>Show ${number(Math.min(PAGE, total - rows.length))} more of ${number(total)}</button></p>`}`}
    ${asked && html`<${Ask} it=${asked} close=${() => ask(null)} done=${() => { ask(null); choose(new Set()); load(); }} />`}
  </section>`;
}

function Nothing({words}) {
  return words.trim() ? html`<${Empty} icon="search" title="Nothing fits" text="An agent would find nothing with these words either." />`
    : html`<${Empty} icon="box" title="No tool is known yet" text="The tools of a server are known once it was started: on the first view you can start all." />`;
}

function Ask({it, close, done}) {
  const [error, fail] = useState(null);
  const [undo, set] = useState(0);
  async function write() {
    try {
      const {undo} = await act("switch/apply", {switches: it.switches, digest: it.digest});
      set(undo);
      fail(null);
      say("Written");
    } catch (problem) { fail(problem); }
  }
  async function revert() {
    try { await act("undo", {id: undo}); say("Undone"); done(); } catch (problem) { fail(problem); }
  }
  const tools = it.switches.reduce((sum, one) => sum + one.on.length + one.off.length, 0);
  return html`<${Dialog} title=${undo ? "Written" : `Switch ${plural(tools, "tool")} ${it.on ? "on" : "off"}?`} close=${undo ? done : close}>
    ${error && html`<${Problem} text=${error.message} hint=${error.hint} />`}
    <p class="mono">${it.file}</p>
    ${it.isNeeded ? html`<${Diff} lines=${it.lines} />` : html`<p>Nothing would change.</p>`}
    ${undo > 0 && html`<p>Hosts see it with their next request. <${Copy} text=${command("undo", String(undo))} label="undoes it later" /></p>`}
    <div class="actions">${undo ? html`<button type="button" onClick=${revert}>Undo</button><button type="button" class="main" onClick=${done}>Done</button>`
      : html`<button type="button" onClick=${close}>Cancel</button><button type="button" class="main" disabled=${!it.isNeeded} onClick=${write}>Write this</button>`}</div>
  <//>`;
}
