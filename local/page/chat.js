// The chat: a log for each user, bubbles, and what became of every tap.
import { $, badge, el, frame, source, told } from "./dom.js";

/** So many bubbles of a user are kept; LINE itself remembers more, but nobody scrolls that far in a demonstration. */
const KEPT = 120;

/** Another user's log waits outside the document. */
const logs = new Map();
let shown = null;
let atEnd = true;

export function open(user) {
  shown = user;
  $("chat").replaceChildren(log(user));
  atEnd = true;
  frame(settle);
}

function log(user) {
  if (!logs.has(user)) {
    const made = el("div.log", told("p.hint", "chat_empty"));
    logs.set(user, made);
  }
  return logs.get(user);
}

function add(user, item) {
  const into = log(user);
  into.querySelector(":scope > .hint")?.remove();
  // As in LINE, an offer stands only under the newest message.
  into.querySelector(".offers")?.remove();
  if (user === shown) {
    const chat = $("chat");
    atEnd ||= chat.scrollHeight - chat.scrollTop - chat.clientHeight < 80;
  }
  into.append(item);
  while (into.children.length > KEPT) into.firstChild.remove();
  frame(settle);
  return item;
}

function settle() {
  if (!atEnd) return;
  atEnd = false;
  $("chat").scrollTop = $("chat").scrollHeight;
}

const clock = (at) => new Date(at).toTimeString().slice(0, 5);

/** The user's own bubble. `mark` it with its path once that is known. */
export function tapped(user, text, times, kind = "") {
  const marks = el("div.marks", el("span.dots", "•••"));
  const count = times > 1 ? el("span.times", `×${times}`) : null;
  const item = el("div.from-user", marks, el(`div.bubble${kind && `.${kind}`}`, text, count));
  add(user, item);
  return marks;
}

/** A line between the bubbles, for what the user did not do. */
export function noted(user, key) {
  const marks = el("div.marks", el("span.dots", "•••"));
  add(user, el("div.note", told("span", key), marks));
  return marks;
}

/** Shows on `marks` how often each path was taken. */
export function mark(marks, paths, open, ms) {
  const tally = new Map();
  for (const path of paths) tally.set(path, (tally.get(path) ?? 0) + 1);
  const shown = [...tally].map(([path, count]) => {
    const made = badge(path);
    return count > 1 ? el("span.counted", made, el("b", `×${count}`)) : made;
  });
  if (open) shown.push(badge("open"));
  if (ms !== undefined) shown.push(el("span.ms", `${Math.round(ms)} ms`));
  marks.dataset.paths = paths.join(" ");
  marks.replaceChildren(...shown);
}

/** The bot's bubble. `offer` makes a chip of a quick reply. */
export function replied(reply, open, offer) {
  const into = log(reply.user);
  const last = into.lastElementChild;
  // Twenty taps get nineteen times the same answer: one bubble that counts says more.
  if (reply.path === "busy" && last?.dataset.busy === reply.text) {
    const count = Number(last.dataset.count ?? 1) + 1;
    last.dataset.count = count;
    last.querySelector(".times")?.remove();
    last.querySelector(".bubble").append(el("span.times", `×${count}`));
    return;
  }
  const from = reply.forecast ? source(reply.forecast) : null;
  const marks = el("div.marks", badge(reply.path), from, open ? badge("open") : null, el("span.ms", clock(reply.at)));
  const item = el("div.from-bot", el("div.bot"), el("div.said", el("div.bubble", reply.text), marks));
  item.dataset.path = reply.path;
  item.dataset.event = `${reply.delivery} ${reply.event}`;
  if (reply.path === "busy") item.dataset.busy = reply.text;
  const chips = (reply.quick_replies ?? []).map(offer);
  add(reply.user, item);
  if (chips.length) item.querySelector(".said").append(el("div.offers", ...chips));
}

/** Where the forecast of a bubble came from: it is known a moment after the bubble is there. */
export function sourced({ delivery, event, forecast }) {
  for (const each of logs.values()) {
    const item = [...each.children].findLast((item) => item.dataset.event === `${delivery} ${event}`);
    if (item && !item.querySelector(".source")) item.querySelector(".badge").after(source(forecast));
  }
}
