// A form for the arguments of a tool, from its JSON Schema. Everything in a schema is text of a server: it is shown, never run.
// What a form can't express (recursion, unions of objects, patterns of names) is a field for JSON.
import {html, useState} from "./vendor/view.js";

const DEEP = 6; // levels of objects; below, a field is JSON
const MOST_FIELDS = 200; // of one object
const MOST_OPTIONS = 500;
const STEPS = 50; // references that are followed, one after the other

const isObject = value => typeof value === "object" && value !== null && !Array.isArray(value);

// The schema that a reference leads to, inside of the same document; nothing is ever fetched.
export function resolved(schema, root) {
  let at = schema;
  for (let step = 0; isObject(at) && typeof at.$ref === "string" && step < STEPS; step++) {
    if (!at.$ref.startsWith("#")) return {};
    let found = root;
    for (const part of at.$ref.slice(1).split("/").filter(Boolean)) {
      let name;
      try { name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"); } catch { return {}; }
      if (!isObject(found) && !Array.isArray(found) || !Object.hasOwn(found, name)) return {};
      found = found[name];
    }
    const {$ref, ...beside} = at;
    at = isObject(found) ? {...found, ...beside} : {};
  }
  return isObject(at) && typeof at.$ref !== "string" ? at : {};
}

// What to offer for a schema: text, number, check, choice, list, object or json; and whether null is allowed.
export function kindOf(schema, root, depth = 0) {
  const it = resolved(schema, root);
  if (Object.hasOwn(it, "const")) return {kind: "choice", options: [it.const], it};
  if (Array.isArray(it.enum)) return {kind: "choice", options: it.enum.slice(0, MOST_OPTIONS), it};
  const union = it.anyOf ?? it.oneOf;
  if (Array.isArray(union)) {
    const parts = union.map(part => resolved(part, root));
    const real = parts.filter(part => part.type !== "null");
    const nullable = real.length < parts.length;
    if (real.length === 1) return {...kindOf({...real[0], title: it.title ?? real[0].title, description: it.description ?? real[0].description}, root, depth), nullable};
    if (real.length && real.every(part => Object.hasOwn(part, "const"))) return {kind: "choice", options: real.map(part => part.const), it, nullable};
    return {kind: "json", it};
  }
  const types = Array.isArray(it.type) ? it.type : it.type === undefined ? [] : [it.type];
  const nullable = types.includes("null");
  const [type, ...others] = types.filter(name => name !== "null");
  if (others.length) return {kind: "json", it, nullable};
  switch (type) {
    case "string": return {kind: "text", it, nullable};
    case "integer": case "number": return {kind: "number", it, nullable};
    case "boolean": return {kind: "check", it, nullable};
    case "array": return depth < DEEP && isObject(it.items) ? {kind: "list", it, nullable} : {kind: "json", it, nullable};
    case "object": case undefined:
      if (isObject(it.properties) && depth < DEEP && !it.allOf) return {kind: "object", it, nullable};
      return {kind: type ? "json" : it.allOf || !Object.keys(it).length ? "json" : "json", it, nullable};
    default: return {kind: "json", it, nullable};
  }
}

// The first value of a form: what is required, and what has a default.
export function initial(schema, root, depth = 0) {
  const {kind, it, options} = kindOf(schema, root, depth);
  if (Object.hasOwn(it, "default")) return structuredClone(it.default);
  switch (kind) {
    case "text": return "";
    case "number": return typeof it.minimum === "number" ? it.minimum : 0;
    case "check": return false;
    case "choice": return options[0];
    case "list": return [];
    case "object": {
      const value = {};
      for (const [name, part] of Object.entries(it.properties).slice(0, MOST_FIELDS))
        if (required(it, name) || Object.hasOwn(resolved(part, root), "default")) value[name] = initial(part, root, depth + 1);
      return value;
    }
    default: return {};
  }
}
const required = (it, name) => Array.isArray(it.required) && it.required.includes(name);

let ids = 0;

export function Field({schema, root, value, change, name = "", need = true, depth = 0}) {
  const [id] = useState(() => `field-${++ids}`);
  const {kind, it, options, nullable} = kindOf(schema, root, depth);
  const title = String(name || it.title || "value");
  const about = typeof it.description === "string" ? it.description : "";
  const given = value !== undefined;
  const top = depth === 0;
  if (kind === "object") {
    const fields = Object.entries(it.properties).slice(0, MOST_FIELDS);
    const body = html`${fields.map(([key, part]) => html`<${Field} key=${key} name=${key} schema=${part} root=${root} depth=${depth + 1}
        value=${isObject(value) && Object.hasOwn(value, key) ? value[key] : undefined} need=${required(it, key)} change=${next => change(without(value, key, next))} />`)}
      ${!fields.length && top && html`<p class="faint">This tool takes no arguments.</p>`}`;
    if (top) return html`<div class="form">${body}</div>`;
    return html`<fieldset><legend>${title}${need && html`<span class="req" title="required"> *</span>`}</legend>${about && html`<p class="about">${about}</p>`}
      ${!given && !need ? html`<div><button type="button" onClick=${() => change(initial(schema, root, depth))}>Add</button></div>` : html`${body}${!need && html`<div><button type="button" class="quiet" onClick=${() => change(undefined)}>Leave out</button></div>`}`}</fieldset>`;
  }
  if (kind === "list") {
    const items = Array.isArray(value) ? value : [];
    const put = (index, next) => change(items.map((one, at) => at === index ? next : one));
    return html`<fieldset><legend>${title}${need && html`<span class="req" title="required"> *</span>`}</legend>${about && html`<p class="about">${about}</p>`}
      ${items.map((one, index) => html`<div class="item" key=${index}><${Field} name=${`${index + 1}`} schema=${it.items} root=${root} depth=${depth + 1} value=${one} change=${next => put(index, next)} />
        <button type="button" class="quiet" aria-label=${`Remove ${index + 1} of ${title}`} onClick=${() => change(items.filter((_, at) => at !== index))}>Remove</button></div>`)}
      <div><button type="button" onClick=${() => change([...items, initial(it.items, root, depth + 1)])}>Add one</button>${!need && given && html` <button type="button" class="quiet" onClick=${() => change(undefined)}>Leave out</button>`}</div></fieldset>`;
  }
  const props = {id, "aria-describedby": about ? `${id}-about` : undefined, required: need};
  return html`<div class="field"><label for=${id}>${title}${need && html`<span class="req" title="required"> *</span>`} <span class="faint">${hint(kind, it, nullable)}</span></label>
    ${about && html`<p class="about" id=${`${id}-about`}>${about}</p>`}
    <${Input} ...${{kind, it, options, nullable, value, change, need, props}} /></div>`;
}

function hint(kind, it, nullable) {
  const words = [];
  if (kind === "number") words.push(it.type);
  if (kind === "json") words.push("JSON");
  if (typeof it.format === "string") words.push(it.format);
  for (const [key, sign] of [["minimum", "≥"], ["maximum", "≤"], ["minLength", "at least"], ["maxLength", "at most"]])
    if (typeof it[key] === "number") words.push(`${sign} ${it[key]}`);
  if (nullable) words.push("or null");
  return words.join(", ");
}

function Input({kind, it, options, nullable, value, change, need, props}) {
  const [text, write] = useState(null);
  if (kind === "check") return html`<input type="checkbox" ...${props} required=${false} checked=${value === true} onChange=${event => change(event.target.checked || need ? event.target.checked : undefined)} />`;
  if (kind === "choice") {
    const all = nullable ? [...options, null] : options;
    const index = all.findIndex(one => JSON.stringify(one) === JSON.stringify(value));
    return html`<select ...${props} value=${index} onChange=${event => change(event.target.value === "-1" ? undefined : all[event.target.value])}>
      ${(!need || index < 0) && html`<option value="-1">${need ? "choose …" : "(left out)"}</option>`}${all.map((one, at) => html`<option value=${at}>${typeof one === "string" ? one : JSON.stringify(one)}</option>`)}</select>`;
  }
  if (kind === "number") {
    const take = event => {
      const entered = event.target.value;
      change(entered === "" ? undefined : Number(entered));
    };
    return html`<input type="number" step=${it.type === "integer" ? 1 : "any"} ...${props} value=${typeof value === "number" ? value : ""} onInput=${take} placeholder=${need ? "" : "left out"} />`;
  }
  if (kind === "text") {
    const take = event => change(event.target.value === "" && !need ? undefined : event.target.value);
    const shown = typeof value === "string" ? value : "";
    const long = shown.includes("\n") || shown.length > 80 || it.maxLength > 200;
    return long ? html`<textarea rows="4" ...${props} value=${shown} onInput=${take}></textarea>` : html`<input type="text" ...${props} value=${shown} onInput=${take} placeholder=${need ? "" : "left out"} />`;
  }
  const shown = text ?? (value === undefined ? "" : JSON.stringify(value, null, 2));
  const take = event => {
    const entered = event.target.value;
    write(entered);
    if (!entered.trim()) { change(undefined); return; }
    try { change(JSON.parse(entered)); write(null); } catch { /* until it is complete */ }
  };
  return html`<textarea class="mono" rows="3" spellcheck="false" ...${props} value=${shown} onInput=${take}></textarea>${text && html`<p class="bad">this is no JSON yet</p>`}`;
}

function without(value, name, next) {
  const {[name]: _, ...others} = isObject(value) ? value : {};
  return next === undefined ? others : {...(isObject(value) ? value : {}), [name]: next};
}
