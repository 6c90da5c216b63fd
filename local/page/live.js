// What the runner tells as it happens. Data is taken at once; parts are told, and draw in their next frame.
import { $, frame } from "./dom.js";
import { say } from "./words.js";

/** Key → {key, value, expires_at, full}: everything in the store. `full` is the life it had when it was last set. */
export const keys = new Map();

const parts = {};
let offset = 0;
let source = null;

/** The runner's clock: expiries are judged by it, not by this machine's. */
export const now = () => Date.now() + offset;

/** The same as `2026-11-16T17:38:03…` on the clocks of Taipei, by which entries are dated. */
export const taipei = () => new Date(now() + 8 * 3_600_000).toISOString();

/** `hear` is called with what the runner sends as `name`: keys, reply, replies, forecast, queue, records, settings. */
export function on(name, hear) {
  (parts[name] ??= []).push(hear);
}

const tell = (name, data) => parts[name]?.forEach((hear) => hear(data));

export function connect() {
  show("connecting");
  source = new EventSource("/playground/live");
  const take = (name, then) => source.addEventListener(name, (event) => then(JSON.parse(event.data)));
  take("snapshot", (all) => {
    offset = all.now - Date.now();
    show("live");
    const there = new Set(all.keys.map((key) => key.key));
    change(all.keys, [...keys.keys()].filter((key) => !there.has(key)));
    tell("settings", all);
    tell("replies", all.replies);
    tell("queue", all.queue);
    tell("restart", all);
  });
  take("keys", ({ set = [], gone = [] }) => change(set, gone));
  for (const name of ["reply", "forecast", "queue", "records", "settings"]) take(name, (data) => tell(name, data));
  source.onerror = () => {
    show("lost");
    // The browser comes back by itself unless the answer was no stream at all.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  };
}

function change(set, gone) {
  for (const entry of set) {
    const before = keys.get(entry.key);
    const same = before && before.expires_at === entry.expires_at;
    entry.full = same ? before.full : entry.expires_at && Math.max(1, entry.expires_at - now());
    entry.fresh = !before;
    keys.set(entry.key, entry);
  }
  for (const key of gone) keys.delete(key);
  tell("keys", { set, gone });
}

function show(state) {
  frame(() => {
    $("live").className = `live ${state}`;
    say($("live"), `live_${state}`);
  });
}
