// The phone: every tap is a webhook that the runner signs and delivers over HTTP.
import { $, el, icon, told } from "./dom.js";
import { call, config } from "./api.js";
import { on } from "./live.js";
import { label, onLanguage, say, word } from "./words.js";
import * as chat from "./chat.js";
import { race } from "./lock.js";
import * as last from "./last.js";
import * as ledger from "./ledger.js";
import { forget } from "./weather.js";

const MENU = {
  home: ["home", "action=weather&type=home"],
  office: ["office", "action=weather&type=office"],
  current: ["place", "action=weather&type=current"],
  recent: ["recent", "action=recent_queries"],
  settings: ["settings", "action=settings"],
  other: ["other", "action=other"],
};
const PLACES = [
  ["臺北車站", "100臺北市中正區北平西路3號", 25.0478, 121.517],
  ["駁二藝術特區", "803高雄市鹽埕區大勇路1號", 22.6203, 120.2816],
  ["花蓮港", "花蓮縣花蓮市", 23.9808, 121.6256],
  ["阿里山", "嘉義縣阿里山鄉", 23.5109, 120.8028],
  ["東京タワー", "東京都港区芝公園4丁目", 35.6586, 139.7454],
];
/** What people say. Each is sent as it stands; the bot asks for what one of them lacks. */
const EXAMPLES = [
  "午餐 120 現金", "計程車 250", "明天會下雨嗎",
  ledger.TWO, "改成150", "永和天氣",
  "薪水 50000 轉帳", "今天花多少", "刪掉剛剛那筆",
];

let user = "";
let tap = "home";
/** What was sent last: with a bot of one's own, the buttons below the phone repeat it. */
let sentLast = null;
let down = false;
/** Replies that are in the chat already: a reconnect's snapshot brings the last ones again. */
const heard = new Map();

export function start() {
  $("users").append(...config.users.map(userButton));
  if (!config.own_bot) {
    $("menu").append(...Object.keys(MENU).map(menuButton));
    $("examples").append(...EXAMPLES.map(exampleButton));
    ledger.offer(write);
  }
  $("places-list").append(...PLACES.map(placeButton));
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = $("text").value.trim();
    if (text) write(text);
    $("text").value = "";
  });
  $("place").addEventListener("click", () => $("places").showModal());
  $("double").addEventListener("click", () => repeat(2));
  $("twenty").addEventListener("click", () => repeat(20));
  $("redeliver").addEventListener("click", redeliver);
  on("settings", ({ store }) => (down = store.down));
  on("reply", (reply) => hear(reply));
  on("forecast", chat.sourced);
  on("replies", (replies) => {
    const before = new Map(heard);
    heard.clear();
    for (const reply of replies) {
      const left = before.get(name(reply)) ?? 0;
      before.set(name(reply), left - 1);
      if (left <= 0) hear(reply, false);
      else heard.set(name(reply), (heard.get(name(reply)) ?? 0) + 1);
      if (reply.forecast) chat.sourced(reply);
    }
  });
  onLanguage(aim);
  aim();
  choose(config.users[0]);
}

function userButton(id, index) {
  const made = el("button.user", "AB"[index] ?? String(index + 1));
  made.type = "button";
  made.dataset.user = id;
  made.addEventListener("click", () => choose(id));
  return made;
}

function menuButton(kind) {
  const made = el("button", icon(MENU[kind][0]), told("span", `menu_${kind}`));
  made.type = "button";
  made.dataset.tap = kind;
  made.addEventListener("click", () => {
    tap = kind;
    aim();
    press(kind, 1);
  });
  return made;
}

function exampleButton(text) {
  const made = el("button.example", text);
  made.type = "button";
  made.lang = "zh-Hant";
  made.addEventListener("click", () => write(text));
  return made;
}

function placeButton([title, address, latitude, longitude]) {
  const made = el("button.place", el("b", title), el("small", address));
  made.addEventListener("click", () => {
    const message = { type: "location", id: "1", title, address, latitude, longitude };
    deliver({ type: "message", message }, `📍 ${title}`);
  });
  return made;
}

function choose(id) {
  user = id;
  for (const made of $("users").children) {
    const chosen = made.dataset.user === id;
    made.setAttribute("aria-pressed", chosen);
    if (chosen) made.classList.remove("unread");
    label(made, made.classList.contains("unread") ? "user_unread" : "user", made.textContent);
  }
  chat.open(id);
  if (config.own_bot) return;
  last.read(id);
  ledger.read(id);
}

/** The buttons below the phone say which tap they repeat. */
function aim() {
  const what = config.own_bot ? "sent_last" : `menu_${tap}`;
  for (const id of ["double", "twenty"]) {
    say($(id).querySelector("small"), what);
    $(id).disabled = Boolean(config.own_bot && !sentLast);
  }
}

function repeat(times) {
  if (!config.own_bot) return press(tap, times);
  const { event, text, kind } = sentLast;
  return deliver(event, text, times, kind);
}

const press = (kind, times) =>
  deliver({ type: "postback", postback: { data: MENU[kind][1] } }, word(`menu_${kind}`), times, "tap");

const write = (text) => deliver({ type: "message", message: { type: "text", id: "1", text } }, text);

/**
 * `times` deliveries at once, each with its own event id, as LINE sends what was tapped so often. They would not meet over a
 * kept forecast: it is forgotten first.
 */
async function deliver(event, text, times = 1, kind = "") {
  sentLast = { event, text, kind };
  aim();
  const apart = times <= 3;
  const marks = Array.from({ length: apart ? times : 1 }, () => chat.tapped(user, text, apart ? 1 : times, kind));
  if (times > 1 && !config.own_bot) await forget().catch(() => {});
  const deliveries = await sent("/playground/deliver", { user, events: [event], times, at_once: true }, marks);
  if (!deliveries) return;
  if (times > 1) race(deliveries, text);
  if (!apart) return chat.mark(marks[0], deliveries.flatMap(paths), down);
  deliveries.forEach((one, index) => chat.mark(marks[index], paths(one), down, one.ms));
}

async function redeliver() {
  const marks = chat.noted(user, "redelivered");
  const deliveries = await sent("/playground/redeliver", { user }, [marks]);
  if (deliveries) chat.mark(marks, deliveries.flatMap(paths), down);
}

const paths = (delivery) => delivery.events.map((event) => event.path);

async function sent(path, body, marks) {
  try {
    return (await call("POST", path, body)).deliveries;
  } catch {
    for (const mark of marks) chat.mark(mark, ["failed"]);
    return null;
  }
}

const name = (reply) => JSON.stringify([reply.at, reply.delivery, reply.text]);

function hear(reply, fresh = true) {
  heard.set(name(reply), (heard.get(name(reply)) ?? 0) + 1);
  chat.replied(reply, fresh && down, offer);
  if (reply.user === user || !fresh) return;
  const other = [...$("users").children].find((made) => made.dataset.user === reply.user);
  other?.classList.add("unread");
  if (other) label(other, "user_unread", other.textContent);
}

/** A quick reply of the bot's. */
function offer({ label: words, type, text, data, uri }) {
  if (type === "uri") {
    const link = el("a.offer", words);
    Object.assign(link, { href: uri, target: "_blank", rel: "noreferrer" });
    return link;
  }
  const made = el("button.offer", words);
  made.type = "button";
  made.addEventListener("click", () => {
    if (type === "location") $("places").showModal();
    else if (type === "postback") deliver({ type: "postback", postback: { data } }, text ?? words, 1, "tap");
    else write(text ?? words);
  });
  return made;
}
