// The page: what every view needs, its frame, its live connection, and the first view. One file, because each file of the
// first view is a request; other views are loaded when they are opened.
import {html, render, signal, computed, useState, useEffect, useRef} from "./vendor/view.js";

export class Refused extends Error {
  constructor(body, status) {
    super(body?.error ?? `the workbench answered with status ${status}`);
    this.code = body?.code ?? (status === 401 ? "closed" : "");
    this.hint = body?.hint ?? "";
  }
}

async function answer(response) {
  let body = null;
  try { body = JSON.parse(await response.text(), whole); } catch { /* no answer of the workbench */ }
  if (!response.ok) throw new Refused(body, response.status);
  return body;
}

// A whole number with more digits than a number has here is shown as it was written, in browsers that can.
function whole(key, value, context) {
  return typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source) && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

export async function api(path, query = {}) {
  const words = new URLSearchParams(query).toString();
  return answer(await fetch(`api/${path}${words && `?${words}`}`, {credentials: "same-origin"}));
}

// Does something. The header is one that no form and no other site can send.
export async function act(path, document) {
  return answer(await fetch(`api/${path}`, {
    method: "POST",
    credentials: "same-origin",
    headers: {"Content-Type": "application/json", "X-Workbench-Page": "1"},
    body: typeof document === "string" ? document : JSON.stringify(document),
  }));
}

// Routes: #/view/part/part, each part encoded.

function parts() {
  return location.hash.replace(/^#\/?/, "").split("/").map(part => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}
export const route = signal(parts());
addEventListener("hashchange", () => { route.value = parts(); });
export const to = (...names) => `#/${names.map(encodeURIComponent).join("/")}`;
export const go = (...names) => { location.hash = to(...names); };

// Words

export const copied = signal("");
let timer = 0;
export function say(text) {
  copied.value = text;
  clearTimeout(timer);
  timer = setTimeout(() => { copied.value = ""; }, 4000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // without permission, or not over a secure address
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
}

const figures = new Intl.NumberFormat("en");
export const number = value => figures.format(Math.round(value));
export const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
export const ms = value => value >= 10000 ? `${(value / 1000).toFixed(0)} s` : value >= 1000 ? `${(value / 1000).toFixed(1)} s`
  : value >= 10 ? `${value.toFixed(0)} ms` : `${value.toFixed(value >= 1 ? 1 : 2)} ms`;
export const bytes = value => value >= 1 << 20 ? `${(value / (1 << 20)).toFixed(1)} MB` : value >= 1024 ? `${(value / 1024).toFixed(1)} kB` : `${value} B`;
export const clock = seconds => new Date(seconds * 1000).toLocaleTimeString("en-GB");

export function duration(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 86400 ? `${Math.floor(seconds / 3600)} h ${Math.floor(seconds % 3600 / 60)} min` : `${Math.floor(seconds / 86400)} days`;
}
export const ago = seconds => `${duration(Math.max(Date.now() / 1000 - seconds, 0))} ago`;

// A word for a shell, quoted where needed.
export const quoted = word => /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
export const command = (...words) => ["mcp-workbench", ...words].map(quoted).join(" ");

// Parts that several views share. Text is only ever set as text.

const PATHS = {
  logo: "M3 7h10M5 7v6M11 7v6M6 4h4",
  home: "M3 7.5 8 3l5 4.5V13H9.5V9.5h-3V13H3z",
  box: "M2.5 5 8 2.5 13.5 5v6L8 13.5 2.5 11zM2.5 5 8 7.5 13.5 5M8 7.5v6",
  play: "M5 3.5v9l7-4.5z",
  list: "M3 4h10M3 8h10M3 12h6",
  chart: "M3 13V3M3 13h10M6 11V8M9 11V5M12 11V7",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  tick: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5 8.2l2.1 2.1L11 6.2",
  cross: "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
  warn: "M8 2 14.5 13.5h-13zM8 6.5v3.2M8 11.6v.1",
  moon: "M12.8 9.6A5.3 5.3 0 0 1 6.4 3.2 5.3 5.3 0 1 0 12.8 9.6z",
  start: "M8 1.5a6.5 6.5 0 1 0 6.5 6.5",
  copy: "M6 5.5h7v8H6zM3 10.5v-8h7",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2.5v3h-3",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.4 10.4l3.1 3.1",
  eye: "M1.5 8s2.4-4 6.5-4 6.5 4 6.5 4-2.4 4-6.5 4-6.5-4-6.5-4M8 6.2a1.8 1.8 0 1 0 0 3.6 1.8 1.8 0 0 0 0-3.6",
  off: "M2.5 2.5l11 11M1.5 8s2.4-4 6.5-4 6.5 4 6.5 4-2.4 4-6.5 4-6.5-4-6.5-4",
  lock: "M4 7h8v6.5H4zM5.5 7V5a2.5 2.5 0 0 1 5 0v2",
};

export const Icon = ({name}) => html`<svg class="icon i-${name}" viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;

// A state is a colour, an icon and a word.
export const TITLES = {
  ready: ["good", "tick", "Ready"],
  asleep: ["rest", "moon", "Idle"],
  starting: ["busy", "start", "Starting"],
  degraded: ["doubtful", "warn", "Degraded"],
  failed: ["bad", "cross", "Failed"],
  broken: ["bad", "cross", "Broken"],
  idle: ["bad", "cross", "Can't start"],
};
const ABOUT = {
  ready: "takes calls",
  asleep: "starts with its first call",
  degraded: "connected, but silent of late",
  failed: "tried again with the next call",
  broken: "failed so often that it is tried only now and then",
  idle: "its entry can't be used as it is",
};

export function State({it}) {
  const [kind, icon, word] = TITLES[it.state] ?? ["rest", "moon", it.state];
  const next = it.nextTry > 0 ? `; next attempt in ${duration(it.nextTry)}` : "";
  return html`<span class="state ${kind}" title=${`${ABOUT[it.state] ?? ""}${next}`}><${Icon} name=${icon} /> ${word}</span>`;
}

export function Copy({text, label = ""}) {
  return html`<span class="copy"><code>${text}</code><button type="button" class="quiet" onClick=${() => copy(text)} aria-label=${`Copy ${text}`}><${Icon} name="copy" /></button>${label && html` <span class="faint">${label}</span>`}</span>`;
}

export const Card = ({title, note, href, children}) => html`<section class="card">
  <h2>${href ? html`<a href=${href}>${title}</a>` : title}${note && html` <small>${note}</small>`}</h2>${children}</section>`;

export const Empty = ({icon, title, text, children}) => html`<div class="empty"><${Icon} name=${icon} /><h3>${title}</h3><p>${text}</p>${children}</div>`;

export const Problem = ({text, hint = "", kind = "bad"}) => html`<p class="problem ${kind}" role="alert"><${Icon} name=${kind === "bad" ? "cross" : "warn"} /> <span>${text}${hint && html`<br /><span class="faint">${hint}</span>`}</span></p>`;

// Lines of a comparison: + and - in colour, with the sign as the word.
export const Diff = ({lines}) => html`<pre class="diff" tabindex="0">${lines.map(line => html`<span class=${line[0] === "+" ? "plus" : line[0] === "-" ? "minus" : line.startsWith("@@") ? "place" : ""}>${line}${"\n"}</span>`)}</pre>`;

export function Tabs({names, chosen, choose, label}) {
  const list = useRef(null);
  function move(event) {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const keys = names.map(([key]) => key);
    const next = keys[(keys.indexOf(chosen) + step + keys.length) % keys.length];
    choose(next);
    list.current.querySelector(`[data-key="${next}"]`)?.focus();
  }
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
    ${names.map(([key, title]) => html`<button type="button" role="tab" data-key=${key} aria-selected=${key === chosen} tabindex=${key === chosen ? 0 : -1} onClick=${() => choose(key)}>${title}</button>`)}
  </div>`;
}

export function Dialog({title, close, children}) {
  const box = useRef(null);
  useEffect(() => {
    box.current.showModal();
  }, []);
  return html`<dialog ref=${box} aria-labelledby="dialog-title" onClose=${close} onCancel=${close}>
    <h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

export const home = signal(null);
export const link = signal("connecting"); // live, lost, closed
const failed = signal(null);

// Live events

let source = null;
let following = "";
const listeners = new Map();

// Follow what a view needs beside the first view: {topics, toolbox, server}. Returns what ends that.
export function follow(topic, more, listener) {
  listeners.set(topic, {more, listener});
  connect();
  return () => {
    listeners.delete(topic);
    connect();
  };
}

function connect() {
  const query = new URLSearchParams({topics: ["home", ...listeners.keys()].join(",")});
  for (const {more} of listeners.values())
    for (const [name, value] of Object.entries(more)) query.set(name, value);
  if (source !== null && following === String(query) && source.readyState !== 2) return;
  following = String(query);
  source?.close();
  source = new EventSource(`api/events?${following}`);
  source.onopen = () => { link.value = "live"; };
  source.onmessage = message => {
    link.value = "live";
    const {topic, data} = JSON.parse(message.data);
    if (topic === "home") home.value = data;
    else listeners.get(topic)?.listener(data);
  };
  source.onerror = () => {
    if (link.value !== "closed") link.value = "lost";
    if (source.readyState === 2) setTimeout(revive, 1000);
  };
}

// A browser gives up after an answer that is no stream: find out why, and try again.
async function revive() {
  try {
    home.value = await api("home");
    following = "";
    connect();
  } catch (error) {
    if (error.code === "closed") link.value = "closed";
    else setTimeout(revive, 1000);
  }
}

// Views

const VIEWS = {
  "": {title: "Home", icon: "home", load: () => ({default: Home})},
  toolboxes: {title: "Toolboxes", icon: "box", load: () => import("./view-toolboxes.js")},
  try: {title: "Try it", icon: "play", load: () => import("./view-try.js")},
  calls: {title: "Calls", icon: "list", load: () => import("./view-calls.js")},
  numbers: {title: "Numbers", icon: "chart", load: () => import("./view-numbers.js")},
  server: {title: "Server", load: () => import("./view-server.js")},
};
const views = signal({"": Home});

async function open(name) {
  if (views.value[name] || !VIEWS[name]) return;
  try {
    const module = await VIEWS[name].load();
    views.value = {...views.value, [name]: module.default};
    failed.value = null;
  } catch (error) {
    failed.value = `this view could not be loaded: ${error.message}`;
  }
}

const theme = signal(read("theme"));
function read(name) { try { return localStorage.getItem(name) ?? ""; } catch { return ""; } }
function switchTheme() {
  const dark = theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  theme.value = dark ? "light" : "dark";
  try { localStorage.setItem("theme", theme.value); } catch { /* it lasts as long as the page */ }
}

const attention = computed(() => (home.value?.servers ?? []).filter(one => BAD.has(one.state)));
const BAD = new Set(["failed", "broken", "degraded", "idle"]);

function App() {
  const name = route.value[0];
  const view = VIEWS[name] ?? VIEWS[""];
  useEffect(() => { open(name); }, [name]);
  useEffect(() => { document.documentElement.dataset.theme = theme.value; }, [theme.value]);
  const first = useRef(true);
  useEffect(() => {
    document.title = `${view.title} · MCP Workbench`;
    if (!first.current) document.getElementById("main")?.focus({preventScroll: true});
    first.current = false;
    scrollTo(0, 0);
  }, [route.value.join("/")]);
  const View = views.value[name];
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to content</a>
    <header class="bar">
      <a class="brand" href=${to()}><${Icon} name="logo" /> <span>MCP Workbench</span></a>
      <nav aria-label="Views">
        ${Object.entries(VIEWS).filter(([, one]) => one.icon).map(([key, one]) => html`
          <a key=${key} href=${to(key)} aria-current=${key === name ? "page" : undefined}>
            <${Icon} name=${one.icon} /> <span>${one.title}</span>
            ${key === "" && attention.value.length > 0 && html`
              <span class="count" aria-label=${plural(attention.value.length, "problem")}>${attention.value.length}</span>`}
          </a>`)}
      </nav>
      <div class="tail">
        <${Link} />
        <button class="quiet" type="button" onClick=${switchTheme} aria-label="Switch between light and dark">
          <${Icon} name="theme" />
        </button>
      </div>
    </header>
    <main id="main" tabindex="-1">
      ${failed.value && html`<${Problem} text=${failed.value} />`}
      ${link.value === "closed" && html`<${Closed} />`}
      ${View ? html`<${View} path=${route.value.slice(1)} />` : html`<p class="boot">Loading …</p>`}
    </main>
    <${Toast} />`;
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function Link() {
  const words = {live: "Live", connecting: "Connecting", lost: "Reconnecting", closed: "Closed"};
  return html`<span class="link ${link.value}" role="status"><i aria-hidden="true"></i>${words[link.value]}</span>`;
}

function Closed() {
  return html`<section class="shut" role="alert">
    <h2>This page is closed</h2>
    <p>Its cookie has expired, or the workbench has another key. What you see is how things were.</p>
    <${Copy} text="mcp-workbench ui" label="opens it again" />
  </section>`;
}

function Toast() {
  return html`<div class="toast" role="status" aria-live="polite" hidden=${!copied.value}>${copied.value}</div>`;
}

// The first view

function Home() {
  const it = home.value;
  if (it === null) return html`<p class="boot">Connecting to the workbench …</p>`;
  const ill = attention.value;
  const unknown = it.servers.filter(one => one.state === "asleep" && one.tools === null).length;
  const [mood, icon] = ill.length ? ["bad", "cross"] : it.servers.some(one => one.state === "starting") ? ["busy", "start"]
    : it.servers.every(one => one.state === "asleep") ? ["rest", "moon"] : ["good", "tick"];
  return html`
    <div class="title">
      <h1 class=${mood}>
        <span class="lead"><${Icon} name=${icon} />
          ${headline(it, ill)}</span>
        ${it.servers.some(one => one.state === "asleep") && html`<${StartAll} />`}
      </h1>
      <p class="sub">
        ${it.config ? html`<span class="mono" title="the configuration file">${it.config}</span>` : "the built-in demo: no configuration file was found"}
        <span>${it.mode} mode</span><span>running for ${duration(it.seconds)}</span><span>version ${it.version}</span>
      </p>
    </div>
    ${unknown > 0 && html`<p class="hint"><${Icon} name="eye" /> <span>Servers start with their first call, so it is not known yet whether ${unknown === it.servers.length ? "they work" : `${plural(unknown, "idle server")} ${unknown === 1 ? "works" : "work"}`}.${" "}
      <strong>Start all and check</strong> finds out, and shows what is broken, why, and how to repair it.</span></p>`}
    ${it.warnings.map(text => html`<${Problem} kind="doubtful" text=${text} />`)}
    ${ill.length > 0 && html`<section aria-labelledby="attention">
      <h2 id="attention">Needs attention <small>after a repair press Restart</small></h2>
      ${ill.some(one => /\bexport \w/.test(one.fix.text)) && html`<p class="hint"><${Icon} name="eye" /> <span>A variable that you <code>export</code> reaches only what is started later in the same terminal. So stop the workbench,
        and start it again in the terminal in which you typed <code>export</code>.</span></p>`}
      <ul class="ills">${ill.map(one => html`<${Ill} key=${`${one.toolbox}/${one.server}`} it=${one} />`)}</ul>
    </section>`}
    <div class="cards">
      <${Tokens} it=${it} />
      <${Rate} it=${it} />
    </div>
    <section aria-labelledby="servers">
      <h2 id="servers">Servers</h2>
      <${Servers} it=${it} />
    </section>
    <section aria-labelledby="connect">
      <h2 id="connect">Connect a host</h2>
      <${Connect} />
    </section>`;
}

function headline(it, ill) {
  const all = it.servers.length;
  const asleep = it.servers.filter(one => one.state === "asleep").length;
  if (!all) return "No server is configured yet";
  if (ill.length) return `${ill.length} of ${plural(all, "server")} ${ill.length === 1 ? "needs" : "need"} attention`;
  const starting = it.servers.filter(one => one.state === "starting").length;
  if (starting) return all === 1 ? "The server is starting" : `${starting} of ${all} servers ${starting === 1 ? "is" : "are"} starting`;
  if (asleep === all) return all === 1 ? "The server is not started yet" : `None of ${all} servers is started yet`;
  if (asleep) return `${plural(all - asleep, "server")} ready, ${asleep} idle`;
  return all === 1 ? "The server is fine" : `All ${all} servers are fine`;
}

function StartAll() {
  const [state, set] = useState("");
  async function press() {
    set("…");
    try { await act("start", {}); } catch (error) { set(error.message); return; }
    set("");
  }
  return html`<span class="end"><button type="button" class="main" onClick=${press} disabled=${state === "…"}>
    <${Icon} name="play" /> Start all and check</button>${state.length > 1 && html` <span class="bad">${state}</span>`}</span>`;
}

function Ill({it}) {
  return html`<li class="ill">
    <div class="head">
      <${State} it=${it} />
      <a class="name" href=${to("server", it.toolbox, it.server)}>${it.toolbox}/${it.server}</a>
      ${it.failures > 1 && html`<span class="faint">${it.failures} times in a row</span>`}
      <${Restart} it=${it} />
    </div>
    <${Why} it=${it} />
  </li>`;
}

export function Why({it}) {
  const login = it.fix.command.startsWith("mcp-workbench login ");
  const away = route.value[0] !== "server"; // there it is below
  return html`<dl class="why">
    <dt>Why</dt><dd class="mono">${it.reason || "it gives no reason"}</dd>
    ${(it.fix.text || it.fix.command) && html`<dt>Fix</dt><dd>${it.fix.text && html`<div>${it.fix.text}${login && away && html`: <a class="button" href=${to("server", it.toolbox, it.server)}>Sign in …</a>`}</div>`}
      ${it.fix.file && html`<div class="faint">Its entry is ${it.fix.place && html`<span class="mono">${it.fix.place}</span> in `}the configuration file <span class="mono">${it.fix.file}</span></div>`}
      ${it.fix.command && html`<${Copy} text=${it.fix.command} label=${!it.fix.text ? "" : login ? "does the same in a terminal" : it.fix.command.startsWith("mcp-workbench doctor ") ? "run in a terminal for more" : "in a terminal"} />`}</dd>`}
  </dl>`;
}

export function Restart({it}) {
  const [state, set] = useState("");
  async function press() {
    set("…");
    try {
      await act("restart", {toolbox: it.toolbox, server: it.server});
      set("");
    } catch (error) { set(error.message); }
  }
  return html`<span class="end"><button type="button" onClick=${press} disabled=${state === "…" || it.state === "starting"}>
    <${Icon} name=${it.state === "asleep" ? "play" : "again"} /> ${it.state === "asleep" ? "Start" : "Restart"}</button>${state.length > 1 && html` <span class="bad">${state}</span>`}</span>`;
}

function Tokens({it}) {
  const {direct, shown, menu, instructions} = it.tokens;
  const saved = direct > 0 ? Math.round((1 - shown / direct) * 100) : 0;
  const most = Math.max(direct, shown, 1);
  return html`<${Card} title="Tokens in every request" note=${it.unread ? `without ${plural(it.unread, "server")} that did not list tools so far` : ""}>
    <p class="figure">${saved > 0 ? html`${saved} % <small>fewer than with every tool listed</small>` : html`${number(shown)} <small>tokens</small>`}</p>
    <dl class="bars">
      <dt>Listed directly</dt><dd>${direct ? html`<i style=${{width: `${direct / most * 100}%`}}></i><span>${number(direct)}</span>` : html`<span class="faint">not known before the servers were started</span>`}</dd>
      <dt>Through the workbench</dt><dd class="ours"><i style=${{width: `${direct ? shown / most * 100 : 2}%`}}></i><span>${number(shown)}</span></dd>
    </dl>
    <p class="faint">${number(menu)} for the meta-tools, ${number(instructions)} for the instructions; estimates</p>
  <//>`;
}

function Rate({it}) {
  const minutes = perMinute(it.calls);
  const last = minutes.at(-1);
  const errors = it.calls.reduce((sum, one) => sum + one.errors, 0);
  const calls = it.calls.reduce((sum, one) => sum + one.calls, 0);
  return html`<${Card} title="Calls per minute" href=${to("calls")} note="measured while a page is open">
    <p class="figure">${number(last)} <small>in the last minute</small></p>
    <${Spark} values=${minutes} />
    <p class="faint">${plural(calls, "call")} in the last hour, ${errors ? html`<span class="bad">${plural(errors, "error")}</span>` : "no error"}</p>
  <//>`;
}

function perMinute(points) {
  const now = Date.now() / 1000;
  const minutes = new Array(60).fill(0);
  for (const one of points) {
    const at = 59 - Math.floor((now - one.time) / 60);
    if (at >= 0 && at < 60) minutes[at] += one.calls;
  }
  return minutes;
}

function Spark({values}) {
  const most = Math.max(...values, 1);
  const points = values.map((value, index) => `${index / 59 * 240},${44 - value / most * 40}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 240 46" preserveAspectRatio="none" role="img" aria-label="Calls of the last hour, at most ${most} in a minute">
    <polyline points=${`0,44 ${points} 240,44`} class="area" /><polyline points=${points} class="line" />
  </svg>`;
}

function Servers({it}) {
  if (!it.servers.length) return html`<${Empty} icon="box" title="Nothing to show yet" text="Add a server, or copy those of your hosts.">
    <${Copy} text="mcp-workbench add NAME -- COMMAND" /><${Copy} text="mcp-workbench import" /><//>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Servers"><table class="rows">
    <thead><tr><th>State</th><th>Server</th><th class="n">Tools</th><th class="n">Tokens</th><th class="n">Calls</th><th class="n">In flight</th><th>Kind</th></tr></thead>
    <tbody>${it.servers.map(one => html`<tr key=${`${one.toolbox}/${one.server}`}>
      <td><${State} it=${one} /></td>
      <td><a href=${to("server", one.toolbox, one.server)}><span class="faint">${one.toolbox}/</span>${one.server}</a></td>
      <td class="n">${one.tools === null ? html`<span class="faint">not read</span>` : number(one.tools)}${one.hidden > 0 && html` <span class="faint">+${one.hidden} off</span>`}</td>
      <td class="n">${one.tools === null ? "" : number(one.tokens)}</td>
      <td class="n">${number(one.calls)}</td>
      <td class="n">${one.inFlight || ""}</td>
      <td class="faint">${one.kind === "url" ? "URL" : "process"}${one.era && `, ${one.era}`}${one.box && one.box !== "none" && `, sandbox ${one.box}`}</td>
    </tr>`)}</tbody></table></div>`;
}

function Connect() {
  const [ways, set] = useState(null);
  const [chosen, choose] = useState("");
  const [error, fail] = useState("");
  useEffect(() => {
    if (ways === null && chosen) api("hosts").then(set, problem => fail(problem.message));
  }, [chosen]);
  const host = ways?.hosts.find(one => one.id === chosen);
  return html`<div class="connect">
    <label>Host <select value=${chosen} onFocus=${() => choose(chosen || "any")} onChange=${event => choose(event.target.value)}>
      <option value="">choose …</option>
      ${(ways?.hosts ?? []).map(one => html`<option value=${one.id}>${one.title}</option>`)}
      <option value="any">any other, over stdio</option>
      ${ways?.url && html`<option value="url">any other, over HTTP</option>`}
    </select></label>
    ${error && html`<${Problem} text=${error} />`}
    ${host && html`<${Copy} text=${host.command} />`}
    ${chosen === "any" && ways && html`<${Copy} text=${ways.stdio} />`}
    ${chosen === "url" && ways && html`<${Copy} text=${ways.url} />`}
    ${!chosen && html`<p class="faint">The command adds this workbench to the host's own file, after a preview; <code>mcp-workbench undo</code> takes it back.</p>`}
  </div>`;
}

addEventListener("keydown", event => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /INPUT|TEXTAREA|SELECT/.test(document.activeElement?.tagName)) return;
  const search = document.querySelector("input[type=search]");
  if (search) { event.preventDefault(); search.focus(); }
});

connect();
document.getElementById("app").textContent = "";
render(html`<${App} />`, document.getElementById("app"));
