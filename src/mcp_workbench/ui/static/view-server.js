// One server: why it is in its state, what happened, what it writes, what it is.
import {html, useState, useEffect, useRef} from "./vendor/view.js";
import {act, api, clock, copy, duration, follow, plural, Card, Copy, Empty, Icon, Problem, Restart, State, to, Why} from "./app.js";

export default function Server({path: [toolbox, server]}) {
  const [it, set] = useState(null);
  const [error, fail] = useState(null);
  useEffect(() => {
    set(null);
    fail(null);
    api("server", {toolbox, server}).then(set, fail);
    return follow("server", {toolbox, server}, set);
  }, [toolbox, server]);
  if (error) return html`<${Problem} text=${error.message} hint=${error.hint} /><p><a href=${to()}>All servers</a></p>`;
  if (!it) return html`<p class="boot">Loading …</p>`;
  const {line} = it;
  return html`
    <div class="title">
      <p class="faint"><a href=${to()}>Servers</a> / ${toolbox}</p>
      <h1>${server} <${State} it=${line} /> <${Restart} it=${line} /></h1>
      <p class="sub">${it.name && html`<span>${it.name} ${it.version}</span>`}${it.age !== null && html`<span>as it was ${duration(it.age)} ago: it is not connected now</span>`}</p>
    </div>
    ${line.reason && html`<section class="ill"><${Why} it=${line} />${it.signIn && html`<${SignIn} it=${it} />`}</section>`}
    ${!it.signIn && it.signingIn && html`<section><${SignInState} it=${it.signingIn} /></section>`}
    ${it.complaints.map(text => html`<${Problem} kind="doubtful" text=${text} />`)}
    <div class="columns">
      <div>
        <${Card} title="What happened" note="since the page is served">
          ${it.timeline.length ? html`<ol class="times" tabindex="0" aria-label="States, the newest first">${it.timeline.toReversed().map(one => html`<li>
            <time class="faint">${clock(one.time)}</time><${State} it=${{...one, nextTry: 0}} /><span class="faint">${one.reason}</span></li>`)}</ol>` : html`<p class="faint">Nothing yet.</p>`}
        <//>
        <${Card} title="stderr" note="live; secrets are masked"><${Log} lines=${it.stderr} /><//>
        ${it.instructions && html`<${Card} title="Instructions for the model" note="text of the server"><pre>${it.instructions}</pre><//>`}
      </div>
      <div>
        <${Card} title="Facts"><${Facts} it=${it} /><//>
        <${Card} title="Entry" note="values are hidden">
          <pre tabindex="0">${JSON.stringify(it.entry, null, 2)}</pre>
          <p class="faint">${it.place ? `${it.place} in the configuration file. ` : ""}It is changed there, never from here.</p>
        <//>
      </div>
    </div>`;
}

function Facts({it}) {
  const {line} = it;
  const names = it.capabilities;
  return html`<dl class="facts">
    <dt>Tools</dt><dd>${line.tools === null ? "not read yet" : html`<a href=${to("toolboxes", line.toolbox, line.server)}>${plural(line.tools, "tool")}</a>${line.hidden ? `, ${line.hidden} switched off` : ""}`}</dd>
    <dt>Protocol</dt><dd>${it.revision || "not known yet"}${line.era && ` (${line.era})`}</dd>
    <dt>Capabilities</dt><dd>${names.length ? names.map(name => html`<span class="chip">${name}</span>`) : "none known"}</dd>
    <dt>Connections</dt><dd>${it.connections}${it.scope && it.scope !== "auto" ? ` (scope: ${it.scope})` : ""}</dd>
    ${line.kind === "stdio" && html`<dt>Process</dt><dd>${it.pids.length ? it.pids.map(pid => `pid ${pid}`).join(", ") : "none"}</dd>
      <dt>Sandbox</dt><dd>${line.box && line.box !== "none" ? line.box : "none"}</dd>`}
    ${it.seconds > 0 && html`<dt>Start</dt><dd>took ${it.seconds < 1 ? `${Math.round(it.seconds * 1000)} ms` : `${it.seconds.toFixed(1)} s`}</dd>`}
    ${it.lock && html`<dt>Lock</dt><dd>${it.lock}</dd>`}
    ${it.skipped > 0 && html`<dt>Stray lines</dt><dd>${plural(it.skipped, "line")} on its stdout ${it.skipped === 1 ? "was no message" : "were no messages"}</dd>`}
    ${it.signIn && html`<dt>Sign-in</dt><dd><${Copy} text=${it.signIn} /></dd>`}
  </dl>`;
}

function Log({lines}) {
  const box = useRef(null);
  const end = useRef(true);
  useEffect(() => {
    if (box.current && end.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines.length && lines.at(-1).number]);
  if (!lines.length) return html`<p class="faint">It has written nothing since the page is served.</p>`;
  const moved = event => { const {scrollTop, clientHeight, scrollHeight} = event.target; end.current = scrollHeight - scrollTop - clientHeight < 8; };
  return html`<pre class="log" tabindex="0" role="log" aria-label="stderr" ref=${box} onScroll=${moved}>${lines.map(one => html`<span class=${one.ours ? "ours" : ""}>${clock(one.time)}  ${one.text}${"\n"}</span>`)}</pre>
    <button type="button" class="quiet" onClick=${() => copy(lines.map(one => one.text).join("\n"))}><${Icon} name="copy" /> Copy all</button>`;
}

// The same as the command, where the browser is on the machine to which it has to come back.
const LOCAL = /^(localhost|127(\.\d+){3}|\[::1\])$/;
const OPENABLE = /^(https:\/\/|http:\/\/(localhost|127(\.\d+){3}|\[::1\])[:/])/;

function SignIn({it}) {
  const [state, set] = useState("");
  const {toolbox, server} = it.line;
  async function press() {
    set("…");
    try { await act("sign-in", {toolbox, server}); set(""); } catch (error) { set(error.message); }
  }
  if (!it.canSignIn || !LOCAL.test(location.hostname)) return null;
  return html`<div class="signing">
    ${it.signingIn && html`<${SignInState} it=${it.signingIn} />`}
    ${it.signingIn?.state !== "waiting" && html`<p><button type="button" class="main" onClick=${press} disabled=${state === "…"}>${state === "…" ? "Asking the server …" : "Sign in"}</button> <span class="faint">shows the address first; nothing is opened yet</span></p>`}
    ${state.length > 1 && html`<${Problem} text=${state} />`}
  </div>`;
}

function SignInState({it}) {
  if (it.state === "done") return html`<p role="status"><span class="state good"><${Icon} name="tick" /> Signed in at ${it.issuer}</span></p>`;
  if (it.state === "failed") return html`<${Problem} text=${`The sign-in failed: ${it.reason}`} />`;
  return html`<div role="status">
    <p>Sign in at <strong>${it.issuer}</strong>. It opens in a new tab, which then comes back to this machine:</p>
    <pre class="address" dir="ltr">${it.url}</pre>
    ${OPENABLE.test(it.url) && html`<p><a class="button" href=${it.url} target="_blank" rel="noopener noreferrer">Open this address</a></p>`}
    <p class="faint"><${Icon} name="start" /> Waiting for you, ten minutes at most.</p>
  </div>`;
}
