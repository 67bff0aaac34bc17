// Calls: live, filtered, with the time of each split into its parts. Only the rows in sight are in the document.
import {html, useState, useEffect, useRef} from "./vendor/view.js";
import {api, bytes, clock, Copy, Empty, follow, Icon, ms, number, plural, Problem, to} from "./app.js";

const MOST = 10000;
const ROW = 38;
const AROUND = 10; // rows beyond the visible ones
const SLOW = 1000; // milliseconds
const PARTS = [["queue", "queue", "Queue"], ["start", "begin", "Start of the server"], ["upstream", "upstream", "Server"], ["us", "us", "Workbench"]];

export default function Calls() {
  const [calls, set] = useState(null);
  const [error, fail] = useState(null);
  const [words, filter] = useState("");
  const [kind, only] = useState("all");
  const [paused, pause] = useState(false);
  const [chosen, choose] = useState(null);
  const [fresh, count] = useState(0); // calls that wait while the list is held
  const waiting = useRef([]);
  const held = useRef(false);
  useEffect(() => {
    let last = "";
    api("calls", {most: MOST}).then(found => { last = `${found.run}.${found.total}`; set(named(found)); start(); }, fail);
    let end = () => {};
    const start = () => { end = follow("calls", {after: last}, take); };
    function take(message) {
      const rows = named(message);
      if (held.current) { waiting.current = [...rows, ...waiting.current].slice(0, MOST); count(waiting.current.length); return; }
      set(before => merged(rows, before));
    }
    return () => end();
  }, []);
  function hold() {
    held.current = !paused;
    if (paused) { const rows = waiting.current; waiting.current = []; count(0); set(before => merged(rows, before)); }
    pause(!paused);
  }
  if (error) return html`<${Problem} text=${error.message} />`;
  const text = words.trim().toLowerCase();
  const fits = one => (kind === "all" || (kind === "errors" ? one.isError : one.total >= SLOW))
    && (!text || `${one.toolbox}/${one.server}/${one.tool} ${one.host} ${one.outcome}`.toLowerCase().includes(text));
  const rows = (calls ?? []).filter(fits);
  return html`
    <div class="title"><h1>Calls</h1><p class="sub"><span>the last ${number(MOST)}, measured while a page is open and ten minutes after</span><span>press one to see its parts, and its arguments where the audit keeps them</span></p></div>
    <div class="tools">
      <label class="search"><${Icon} name="search" /><input type="search" value=${words} onInput=${event => filter(event.target.value)} placeholder="Tool, server, host or outcome (press /)" aria-label="Filter calls" /></label>
      <label>Show <select value=${kind} onChange=${event => only(event.target.value)}><option value="all">all</option><option value="errors">errors</option><option value="slow">slower than 1 s</option></select></label>
      <button type="button" aria-pressed=${paused} onClick=${hold}>${paused ? "Go on" : "Pause"}</button>
      <span class="faint" role="status">${plural(rows.length, "call")}${fresh ? `, ${number(fresh)} new` : ""}</span>
    </div>
    ${calls === null ? html`<p class="boot">Loading …</p>` : !rows.length ? html`<${Empty} icon="list" title=${calls.length ? "No call fits" : "No call yet"} text=${calls.length ? "Other words, or all calls, may show more." : "Calls of hosts appear here as they end."} />` : html`<${Rows} rows=${rows} chosen=${chosen} choose=${choose} />`}
    ${chosen && html`<${Detail} it=${chosen} close=${() => choose(null)} />`}`;
}

// Numbers of calls arrive as doubles, names once for all calls that share them. Times become milliseconds.
function named({run, first, offset, names, kinds, numbers, fields, name_fields}) {
  const [at, by] = [fields, name_fields].map(words => Object.fromEntries(words.map((name, index) => [name, index])));
  const table = new Float64Array(decoded(numbers)), kind = new Uint16Array(decoded(kinds));
  return Array.from(kind, (place, index) => {
    const value = name => name in at ? table[at[name] * kind.length + index] : 0, text = name => names[place][by[name]];
    const [queue, start, upstream, us] = ["queue", "start", "at_server", "workbench"].map(name => value(name) * 1000);
    return {
      run, number: first + index, ended: value("ended"), time: value("ended") + offset, host: text("host"), door: text("door"), toolbox: text("toolbox"), server: text("server"),
      tool: text("tool"), outcome: text("outcome"), isError: text("is_error"), sent: value("arguments_bytes"), received: value("result_bytes"),
      isResent: value("is_resent") > 0, queue, start, upstream, us, total: queue + start + upstream + us,
    };
  }).reverse();
}

function decoded(text) {
  return Uint8Array.from(atob(text), one => one.charCodeAt(0)).buffer;
}

// After a restart of the workbench the numbers begin again: they say nothing about the calls from before.
function merged(rows, before) {
  const newest = before?.[0];
  return [...rows.filter(one => one.run !== newest?.run || one.number > newest.number), ...(before ?? [])].slice(0, MOST);
}

function same(one, other) {
  return one.number === other?.number && one.run === other.run;
}

function Rows({rows, chosen, choose}) {
  const box = useRef(null);
  const [at, move] = useState(0);
  const [height, size] = useState(600);
  useEffect(() => { size(Math.max(box.current.clientHeight, innerHeight)); }, []);
  const first = Math.max(0, Math.floor(at / ROW) - AROUND);
  const end = Math.min(rows.length, Math.ceil((at + height) / ROW) + AROUND);
  function keys(event) {
    const step = {ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10}[event.key];
    if (!step) return;
    event.preventDefault();
    const index = rows.findIndex(one => same(one, chosen));
    const next = Math.min(Math.max(index + step, 0), rows.length - 1);
    choose(rows[next]);
    const top = next * ROW;
    if (top < box.current.scrollTop) box.current.scrollTop = top;
    else if (top > box.current.scrollTop + box.current.clientHeight - 3 * ROW) box.current.scrollTop = top - box.current.clientHeight + 3 * ROW;
  }
  return html`<div class="window" ref=${box} tabindex="0" role="region" aria-label="Calls, the newest first; the arrow keys choose one" onScroll=${event => move(event.target.scrollTop)} onKeyDown=${keys}>
    <table class="rows" aria-rowcount=${rows.length}>
      <thead><tr><th class="w1">Time</th><th class="w2">Outcome</th><th>Tool</th><th class="w4">Host</th><th class="n w3">Took</th><th class="w2">Where</th></tr></thead>
      <tbody>
        ${first > 0 && html`<tr class="gap" aria-hidden="true"><td colspan="6" style=${{height: `${first * ROW}px`}}></td></tr>`}
        ${rows.slice(first, end).map(one => html`<tr key=${`${one.run}.${one.number}`} class=${same(one, chosen) ? "chosen" : ""} onClick=${() => choose(one)}>
          <td class="faint">${clock(one.time)}</td>
          <td><span class="state ${one.isError ? "bad" : "good"}"><${Icon} name=${one.isError ? "cross" : "tick"} /> ${one.outcome}</span></td>
          <td title=${`${one.toolbox}/${one.server}/${one.tool}`}><span class="faint">${one.toolbox}/${one.server}/</span>${one.tool}</td>
          <td class="faint">${one.host || one.door}</td>
          <td class="n">${ms(one.total)}</td>
          <td><${Split} it=${one} /></td></tr>`)}
        ${end < rows.length && html`<tr class="gap" aria-hidden="true"><td colspan="6" style=${{height: `${(rows.length - end) * ROW}px`}}></td></tr>`}
      </tbody></table></div>`;
}

function Split({it}) {
  const text = PARTS.map(([name, , title]) => `${title} ${ms(it[name])}`).join(", ");
  return html`<span class="split" role="img" aria-label=${text} title=${text}>${PARTS.map(([name, style]) => html`<i class=${style} style=${{width: `${it.total ? it[name] / it.total * 100 : 0}%`}}></i>`)}</span>`;
}

function Detail({it, close}) {
  return html`<section class="card detail" aria-label="The chosen call">
    <h2><span>${it.toolbox}/${it.server}/${it.tool}</span><button type="button" class="quiet" onClick=${close}>Close</button></h2>
    <${Split} it=${it} />
    <p class="legend">${PARTS.map(([name, style, title]) => html`<span><i class=${style}></i>${title} ${ms(it[name])}</span>`)}</p>
    <dl class="facts">
      <dt>Outcome</dt><dd>${it.outcome}${it.isResent ? ", sent twice" : ""}</dd>
      <dt>Ended</dt><dd>${clock(it.time)}</dd>
      <dt>From</dt><dd>${it.host || "a host without a name"} (${it.door})</dd>
      <dt>Size</dt><dd>${bytes(it.sent)} sent, ${bytes(it.received)} received</dd>
      <dt>Arguments</dt><dd><${Arguments} key=${`${it.run}.${it.number}`} number=${it.number} ended=${it.ended} /></dd>
    </dl>
    <p><a href=${to("try", it.toolbox, it.server, it.tool)}>Try this tool</a> · <a href=${to("server", it.toolbox, it.server)}>Its server</a></p>
  </section>`;
}

// Read from the audit when a call is opened; nothing of it is kept here. The text may be anything.
function Arguments({number, ended}) {
  const [it, set] = useState(null);
  useEffect(() => { api("arguments", {number, ended}).then(set, error => set({reason: error.message})); }, []);
  if (it === null) return html`<span class="faint">Reading the audit …</span>`;
  if (it.text !== undefined) return html`<pre class="arguments" tabindex="0" dir="ltr">${it.text}</pre>${it.isCut && html`<span class="faint">cut to what fits into a line of the audit</span>`}`;
  return html`<span class="faint">${it.reason}</span>${it.key && html`<p class="keep">To keep them: <${Copy} text=${it.key} label=${`in ${it.place}`} /></p>`}`;
}
