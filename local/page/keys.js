// The store: every key with its value and how long it lives.
import { $, SLOW, el, frame, runDown, span, tick } from "./dom.js";
import { keys, now, on } from "./live.js";
import { onLanguage, say, word } from "./words.js";
import { Rows } from "./rows.js";

/** What is looked at first comes first: locks, users, jobs' states, then what only remembers. */
const KINDS = [
  ["lock", /^processing:/],
  ["user", /^user:/],
  ["state", /^[a-z0-9_-]+:state:/],
  ["log", /^[a-z0-9_-]+:(events|job):/],
  ["weather", /^weather:/],
  ["idem", /^idem:/],
  ["mark", /^(router:)?published:/],
];

/** A user's id fills the column, and its end says who it is. */
const USER = /\b(U[0-9a-f]{3})[0-9a-f]{24}([0-9a-f]{5})\b/;

let shown = [];
let reorder = false;
let filter = "";
let rows = null;

export function start() {
  rows = new Rows($("keys"), make, fill);
  on("keys", ({ set, gone }) => {
    reorder ||= gone.length > 0;
    for (const entry of set) {
      reorder ||= entry.fresh;
      entry.rank = rank(entry.key);
    }
    frame(draw);
  });
  $("filter").addEventListener("input", () => {
    filter = $("filter").value.trim().toLowerCase();
    reorder = true;
    $("keys").scrollTop = 0;
    frame(draw);
  });
  onLanguage(draw);
  tick(() => rows.draw(), 500);
  draw();
}

function rank(key) {
  const kind = KINDS.findIndex(([, form]) => form.test(key));
  return kind < 0 ? KINDS.length : kind;
}

function draw() {
  if (reorder) {
    reorder = false;
    const wanted = ({ key, value }) => key.toLowerCase().includes(filter) || value.toLowerCase().includes(filter);
    const all = [...keys.values()];
    // Plain strings, which sort ten times as fast as anything that has to be asked.
    const order = (filter ? all.filter(wanted) : all).map(({ rank, key }) => rank + key).sort();
    shown = order.map((text) => text.slice(1));
  }
  if (keys.size === 0) say($("store-note"), "keys_none");
  else if (filter) say($("store-note"), "keys_found", shown.length, keys.size);
  else say($("store-note"), "keys_count", keys.size);
  $("keys").setAttribute("aria-rowcount", shown.length);
  rows.count = shown.length;
}

function make() {
  const row = el("div.key");
  row.parts = { kind: el("i.kind"), name: el("span.name"), value: el("span.value"), left: el("span.left"), bar: el("i") };
  const { kind, name, value, left, bar } = row.parts;
  row.append(kind, name, value, left, el("span.bar", bar));
  row.setAttribute("role", "row");
  for (const cell of [name, value, left]) cell.setAttribute("role", "cell");
  return row;
}

function fill(row, index) {
  const entry = keys.get(shown[index]);
  if (!entry) return;
  const { kind, name, value, left, bar } = row.parts;
  if (row.key !== entry.key) {
    row.setAttribute("aria-rowindex", index + 1);
    kind.className = `kind k-${KINDS[entry.rank]?.[0] ?? "other"}`;
    name.textContent = entry.key.replace(USER, "$1…$2");
    name.title = entry.key;
  }
  if (row.key !== entry.key || row.value !== entry.value) {
    value.textContent = entry.value;
    value.title = entry.value;
    if (row.key === entry.key) row.animate([{ background: "var(--flash)" }, { background: "transparent" }], 600);
  }
  const life = entry.expires_at ? entry.expires_at - now() : 0;
  const text = entry.expires_at ? span(life) : word("expires_never");
  const counted = left.textContent !== text;
  if (counted) left.textContent = text;
  if (row.key !== entry.key || row.expires !== entry.expires_at || (counted && life > SLOW - 10_000)) {
    runDown(bar, life, entry.full ?? 1);
  }
  Object.assign(row, { key: entry.key, value: entry.value, expires: entry.expires_at });
}
