// Calls to the runner. What goes wrong is told on the page, never swallowed.
import { $, el, button } from "./dom.js";
import { word } from "./words.js";

/** What the runner said it is; filled before anything else starts. */
export const config = {};

export async function load() {
  Object.assign(config, await call("GET", "/playground/config"));
}

/** A JSON call to the runner's own controls. Throws, after telling, on anything but success. */
export async function call(method, path, body) {
  const { ok, status, json } = await send(method, path, body === undefined ? undefined : JSON.stringify(body));
  if (ok) return json;
  const problem = json?.error ?? json?.message ?? `HTTP ${status}`;
  if (status) notice(`${method} ${path}: ${problem}`);
  throw new Error(problem);
}

/** Any call. A refusal is an answer; none at all is told, and has status 0. Numbers in `json` stay as they were written. */
export async function send(method, path, body, headers = {}) {
  const type = body === undefined ? {} : { "content-type": "application/json" };
  let response, text;
  try {
    response = await fetch(path, { method, body, headers: { ...type, ...headers }, cache: "no-store" });
    text = await response.text();
  } catch {
    const message = word("unreachable");
    notice(message);
    return { ok: false, status: 0, json: { message } };
  }
  return { ok: response.ok, status: response.status, etag: response.headers.get("etag"), json: parse(text), text };
}

/** Amounts are exact decimals: a number that a float would write otherwise (100.10, twenty digits) stays text. */
function parse(text) {
  const digits = (_, value, context) =>
    typeof value === "number" && context?.source && context.source !== String(value) ? context.source : value;
  try {
    return JSON.parse(text, digits);
  } catch {
    return null;
  }
}

/** What shows that a call is the playground's own. */
export const bearer = () => ({ authorization: `Bearer ${config.edit_token}` });

/** Saves an answer as the file `name`, byte for byte: read as text it would lose its byte order mark. */
export async function save(path, headers, name) {
  let response, file;
  try {
    response = await fetch(path, { headers, cache: "no-store" });
    file = await response.blob();
  } catch {
    return notice(word("unreachable"));
  }
  if (!response.ok) return notice(`GET ${path}: HTTP ${response.status}`);
  const link = el("a");
  link.href = URL.createObjectURL(file);
  link.download = name;
  link.click();
  // The browser reads it after the click.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** A small notice at the foot of the page, until it is read or ten seconds old. */
export function notice(text) {
  const shown = $("notices");
  if ([...shown.children].some((other) => other.dataset.text === text)) return;
  const close = button("quiet", "close", () => note.remove());
  const note = el("div.notice", el("span", text), close);
  note.dataset.text = text;
  shown.append(note);
  while (shown.children.length > 4) shown.firstChild.remove();
  setTimeout(() => note.remove(), 10_000);
}
