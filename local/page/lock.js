// The lock: who holds it, how long it still lives, what a tap twice did, and what happens without a store.
import { $, badge, el, frame, runDown, span, tick, told } from "./dom.js";
import { call, config } from "./api.js";
import { keys, now, on } from "./live.js";
import { say } from "./words.js";

const rows = new Map();

export function start() {
  for (const [index, user] of config.users.entries()) {
    const row = {
      who: el("span.who", "AB"[index] ?? String(index + 1)),
      holder: told("span.holder", "lock_free"),
      bar: el("i"),
      left: el("span.left"),
      key: `processing:user:${user}`,
    };
    row.box = el("div.holding", row.who, row.holder, row.left, el("span.bar", row.bar));
    rows.set(row.key, row);
    $("holders").append(row.box);
  }
  $("race").append(told("p.hint", "race_none"));
  on("keys", ({ set, gone }) => {
    for (const key of [...set.map((entry) => entry.key), ...gone]) {
      if (rows.has(key)) frame(rows.get(key).draw);
    }
  });
  for (const row of rows.values()) row.draw = () => draw(row);
  on("settings", ({ store }) => frame(() => {
    $("down").checked = store.down;
    $("open-note").hidden = !store.down;
  }));
  tick(() => rows.forEach(count), 100);
  $("down").addEventListener("change", async () => {
    const down = $("down").checked;
    await call("PUT", "/playground/store", { down }).catch(() => ($("down").checked = !down));
  });
}

function draw(row) {
  const held = keys.get(row.key);
  row.box.classList.toggle("held", Boolean(held));
  if (!held) {
    say(row.holder, "lock_free");
    runDown(row.bar, 0, 1);
  } else {
    say(row.holder, "lock_held", held.value.slice(0, 8));
    runDown(row.bar, held.expires_at - now(), config.lock_ttl_ms ?? held.full);
  }
  count(row);
}

function count(row) {
  const held = keys.get(row.key);
  const text = held ? span(held.expires_at - now()) : "";
  if (row.left.textContent !== text) row.left.textContent = text;
}

/** Deliveries that went out at the same moment, each as long as its answer took. */
export function race(deliveries, text) {
  const longest = Math.max(...deliveries.map((one) => one.ms), 1);
  const few = deliveries.length <= 4;
  const paths = deliveries.flatMap((one) => one.events.map((event) => event.path));
  const tally = [...new Set(paths)].map((path) => {
    const count = paths.filter((other) => other === path).length;
    return el("span.counted", badge(path), el("b", `×${count}`));
  });
  const lanes = deliveries.map((one) => {
    const path = one.events[0]?.path ?? "ignored";
    const bar = el(`i.${path}`);
    bar.style.width = `${Math.max(2, (100 * one.ms) / longest)}%`;
    return few ? el("div.lane", el("span.run", bar), el("span.ms", `${Math.round(one.ms)} ms`)) : el("span.run", bar);
  });
  const head = el("div.race-head", told("span", "deliveries"), el("b", `${text} ×${deliveries.length}`), ...tally);
  $("race").replaceChildren(head, el(few ? "div.lanes" : "div.lanes.many", ...lanes));
}
