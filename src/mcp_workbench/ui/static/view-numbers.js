// Numbers: how long calls take, how many fail, what they weigh, which tools are used and which never.
import {html, useState, useEffect, useRef} from "./vendor/view.js";
import {api, Card, clock, Empty, ms, number, plural, Problem, to} from "./app.js";

const EVERY = 2000; // milliseconds between two looks
const NAMES = {queue: "Queue", start: "Start of the server", server: "Server", us: "Workbench"};

export default function Numbers() {
  const [it, set] = useState(null);
  const [error, fail] = useState(null);
  useEffect(() => {
    let on = true;
    async function look() {
      try { const found = await api("numbers"); if (on) { set(found); fail(null); } } catch (problem) { if (on) fail(problem); }
      if (on) setTimeout(look, EVERY);
    }
    look();
    return () => { on = false; };
  }, []);
  if (error && !it) return html`<${Problem} text=${error.message} />`;
  if (!it) return html`<p class="boot">Loading …</p>`;
  return html`
    <div class="title"><h1>Numbers</h1><p class="sub">measured while a page is open and ten minutes after</p></div>
    ${it.calls === 0 ? html`<${Empty} icon="chart" title="Nothing was measured yet" text="Figures appear with the first call of a host, or of this page." />` : html`
    <div class="cards">
      <${Card} title="Calls"><p class="figure">${number(it.calls)}</p><p class="faint">${Object.entries(it.outcomes).sort((a, b) => b[1] - a[1]).slice(0, 6).map(([word, count]) => `${word} ${number(count)}`).join(", ")}</p><//>
      <${Card} title="Errors"><p class="figure">${(it.errors / it.calls * 100).toFixed(1)} % <small>${plural(it.errors, "call")}</small></p><p class="faint">of tools, servers and the workbench</p><//>
      <${Card} title="Tokens of results"><p class="figure">${number(it.tokens)}</p><p class="faint">an estimate: bytes divided by four</p><//>
    </div>
    <section class="card"><h2>Calls and errors <small>per ten seconds</small></h2><${Chart} points=${it.curve} /></section>
    <section><h2>Time <small>where calls spend it</small></h2><div class="scroll" tabindex="0" role="region" aria-label="Time"><table class="rows">
      <thead><tr><th>Part</th><th class="n">p50</th><th class="n">p95</th><th class="n">p99</th></tr></thead>
      <tbody><${Quantiles} name="Whole call" it=${it.total} />${Object.entries(it.phases).map(([name, one]) => html`<${Quantiles} name=${NAMES[name]} it=${one} />`)}</tbody></table></div></section>
    <section><h2>Servers</h2><div class="scroll" tabindex="0" role="region" aria-label="Servers"><table class="rows">
      <thead><tr><th>Server</th><th class="n">Calls</th><th class="n">Errors</th><th class="n">p50</th><th class="n">p95</th><th class="n">p99</th><th class="n">Tokens</th></tr></thead>
      <tbody>${it.servers.map(one => html`<tr><td><a href=${to("server", one.toolbox, one.server)}>${one.toolbox}/${one.server}</a></td><td class="n">${number(one.calls)}</td><td class="n ${one.errors ? "bad" : ""}">${number(one.errors)}</td><td class="n">${ms(one.total.p50)}</td><td class="n">${ms(one.total.p95)}</td><td class="n">${ms(one.total.p99)}</td><td class="n">${number(one.tokens)}</td></tr>`)}</tbody></table></div></section>
    <section><h2>Most used tools</h2><div class="scroll" tabindex="0" role="region" aria-label="Most used tools"><table class="rows">
      <thead><tr><th>Tool</th><th class="n">Calls</th><th class="n">Errors</th><th class="n">Mean</th><th class="n">Tokens</th></tr></thead>
      <tbody>${it.top.map(one => html`<tr><td><a href=${to("try", one.toolbox, one.server, one.tool)}>${one.toolbox}/${one.server}/${one.tool}</a></td><td class="n">${number(one.calls)}</td><td class="n ${one.errors ? "bad" : ""}">${number(one.errors)}</td><td class="n">${ms(one.mean)}</td><td class="n">${number(one.tokens)}</td></tr>`)}</tbody></table></div></section>`}
    ${it.unusedCount > 0 && html`<section><h2>Never used <small>${plural(it.unusedCount, "tool")} that ${it.unusedCount === 1 ? "is" : "are"} shown and ${it.unusedCount === 1 ? "was" : "were"} not called while measured, the heaviest first</small></h2>
      <details><summary>Show ${Math.min(it.unusedCount, it.unused.length)}</summary><div class="scroll" tabindex="0" role="region" aria-label="Tools that were never used"><table class="rows"><thead><tr><th>Tool</th><th class="n">Tokens</th></tr></thead>
      <tbody>${it.unused.map(one => html`<tr><td><a href=${to("toolboxes", one.toolbox, one.server)}>${one.toolbox}/${one.server}/${one.tool}</a></td><td class="n">${number(one.tokens)}</td></tr>`)}</tbody></table></div></details></section>`}`;
}

const Quantiles = ({name, it}) => html`<tr><td>${name}</td><td class="n">${ms(it.p50)}</td><td class="n">${ms(it.p95)}</td><td class="n">${ms(it.p99)}</td></tr>`;

// The library for charts is loaded with the first chart. Its place has its height before (.chart), so that nothing moves.
function Chart({points}) {
  const box = useRef(null);
  const plot = useRef(null);
  const [lib, set] = useState(null);
  useEffect(() => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("./vendor/uplot.css", import.meta.url).href;
    document.head.append(style);
    import("./vendor/uplot.js").then(module => set(() => module.default));
    return () => { plot.current?.destroy(); plot.current = null; style.remove(); };
  }, []);
  useEffect(() => {
    if (!lib || !box.current) return;
    const data = series(points);
    if (plot.current) { plot.current.setData(data); return; }
    const ink = name => getComputedStyle(document.documentElement).getPropertyValue(name) && resolved(box.current, name);
    const axis = {stroke: ink("--faint"), grid: {stroke: ink("--line"), width: 1}, ticks: {show: false}, font: "12px system-ui"};
    plot.current = new lib({
      width: box.current.clientWidth, height: 220, cursor: {y: false}, legend: {show: false},
      scales: {y: {range: (u, low, high) => [0, Math.max(high, 1) * 1.1]}},
      axes: [{...axis, values: (_, ticks) => ticks.map(at => clock(at).slice(0, at % 60 ? 8 : 5))}, {...axis, size: 44}],
      series: [{}, {label: "Calls", stroke: ink("--accent"), fill: `${ink("--accent")}22`, width: 2, points: {show: false}}, {label: "Errors", stroke: ink("--bad"), width: 2, points: {show: false}}],
    }, data, box.current);
    const resize = () => plot.current?.setSize({width: box.current.clientWidth, height: 220});
    addEventListener("resize", resize);
    return () => removeEventListener("resize", resize);
  }, [lib, points]);
  const calls = points.reduce((sum, one) => sum + one.calls, 0);
  return html`<div ref=${box} class="chart" role="img" aria-label=${`${plural(calls, "call")} in the last hour`}></div><p class="legend"><span><i class="ours"></i>Calls</span><span><i class="bad"></i>Errors</span></p>`;
}

// A colour as the canvas understands it: light-dark() is resolved by the style of an element.
function resolved(element, name) {
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const [r, g, b] = getComputedStyle(probe).color.match(/\d+/g).map(Number);
  probe.remove();
  return `#${[r, g, b].map(part => part.toString(16).padStart(2, "0")).join("")}`;
}

// Every ten seconds of the time that was measured, with zeros where nothing was called.
function series(points) {
  const step = 10;
  const now = Math.floor(Date.now() / 1000 / step) * step;
  const first = Math.max(now - 3600, Math.min(points[0]?.time ?? now, now - 120));
  const [times, calls, errors] = [[], [], []];
  const found = new Map(points.map(one => [Math.round((one.time - first) / step), one]));
  for (let slot = 0; first + slot * step <= now; slot++) {
    times.push(first + slot * step);
    calls.push(found.get(slot)?.calls ?? 0);
    errors.push(found.get(slot)?.errors ?? 0);
  }
  return [times, calls, errors];
}
