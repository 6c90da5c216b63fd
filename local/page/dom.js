// The few things every part of the page does with the document: make, say, wait for the frame.
import { say } from "./words.js";

export const $ = (id) => document.getElementById(id);

/** `el("b.big", "text", child, …)`: an element with its classes. Text is only ever text, never markup. */
export function el(what, ...children) {
  const [tag, ...classes] = what.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.join(" ");
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** An element whose words follow the language. */
export const told = (what, key, ...values) => say(el(what), key, ...values);

/** A button that says `key` and does `act`; `act`'s failure is shown by whoever it calls. */
export function button(what, key, act) {
  const made = told(`button.${what}`, key);
  made.type = "button";
  made.addEventListener("click", act);
  return made;
}

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", `#i-${name}`);
  svg.setAttribute("aria-hidden", "true");
  svg.append(use);
  return svg;
}

/** The mark of a path: handled, busy, deduped, failed, ignored, open. */
export const badge = (path, ...values) => told(`span.badge.${path}`, `path_${path}`, ...values);

/** The mark of where a forecast came from: kept, fetched, fallback, stale, failed. */
export const source = (forecast) => told(`span.badge.source.${forecast}`, `forecast_${forecast}`);

const due = new Set();

/** Runs `draw` in the next frame, once, however often it is asked for: what arrives is kept at once, drawn together. */
export function frame(draw) {
  if (due.size === 0) {
    requestAnimationFrame(() => {
      const now = [...due];
      due.clear();
      for (const draw of now) draw();
    });
  }
  due.add(draw);
}

/** Draws now and then: for countdowns, whose bars run by themselves. */
export function tick(draw, every = 200) {
  setInterval(() => frame(draw), every);
}

/** A life longer than this moves its bar by less than can be seen: it is set now and then instead of animated. */
export const SLOW = 60_000;

/** A bar at `left` of `full` milliseconds, which runs down by itself. */
export function runDown(bar, left, full) {
  for (const running of bar.getAnimations()) running.cancel();
  const share = `scaleX(${Math.max(0, Math.min(1, left / full))})`;
  const runs = left > 0 && left <= SLOW;
  bar.style.transform = runs ? "scaleX(0)" : share;
  if (runs) bar.animate([{ transform: share }, { transform: "scaleX(0)" }], left);
}

/** Milliseconds as people read them: 840 ms, 4.2 s, 59:58, 23 h 58 m, 1094 d. */
export function span(ms) {
  if (ms <= 0) return "0 s";
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 60) return `${seconds} s`;
  const two = (n) => String(n).padStart(2, "0");
  if (seconds < 36_000) return `${Math.floor(seconds / 60)}:${two(seconds % 60)}`;
  if (seconds >= 172_800) return `${Math.floor(seconds / 86_400)} d`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} m`;
}
