// The last transaction as it is now, read again whenever its key changes.
import { $, button, el, frame, runDown, span, tick, told } from "./dom.js";
import { bearer, config, notice, send } from "./api.js";
import { keys, now, on, taipei } from "./live.js";
import * as tabs from "./tabs.js";

const SAMPLES = [
  ["午餐", "120", "信用卡", "飲食"],
  ["計程車", "250", "現金", "交通"],
  ["書", "480.50", "行動支付", "教育"],
];

let user = "";
let reads = 0;
let samples = 0;
/** The latest 交易ID of a sample, in milliseconds. */
let given = 0;
let left = null;
let bar = null;
let current = null;

const key = () => `user:${user}:last_transaction`;
export const path = () => `/users/${user}/last-transaction`;

export function start() {
  tabs.start();
  on("keys", ({ set, gone }) => {
    if (gone.includes(key()) || set.some((entry) => entry.key === key())) refresh();
  });
  tick(count, 500);
}

/** Shows the last transaction of this user. */
export function read(id) {
  user = id;
  tabs.forget();
  refresh();
}

async function refresh() {
  const mine = ++reads;
  if (!keys.has(key())) {
    const expired = current && current.expires_at <= now() + 500;
    current = null;
    return frame(() => empty(expired ? "entry_expired" : "entry_none"));
  }
  current = keys.get(key());
  const { ok, json, etag } = await send("GET", path(), undefined, bearer());
  if (mine !== reads) return;
  frame(() => (ok ? show(json, etag) : broken(json)));
}

/** Reads it for whoever wants to edit: the entry and its ETag, or nothing. */
export async function fetchEntry() {
  if (!keys.has(key())) return null;
  const { ok, json, etag } = await send("GET", path(), undefined, bearer());
  return ok ? { entry: json, etag } : null;
}

function buttons() {
  const record = button("quiet", "record", put);
  record.id = "record";
  const expire = button("quiet", "expire", remove);
  expire.id = "expire";
  expire.disabled = !keys.has(key());
  return el("div.acts", record, expire);
}

function empty(words) {
  left = bar = null;
  $("receipt").classList.add("none");
  $("receipt").replaceChildren(told("p.hint", words), buttons());
  tabs.changed(null);
}

function broken(json) {
  left = bar = null;
  $("receipt").replaceChildren(el("p.hint", json?.message ?? "?"), buttons());
}

function show(entry, etag) {
  const chips = ["分類", "付款方式", "專案", "附註"].map((field) => entry[field]).filter(Boolean);
  left = el("span.left");
  bar = el("i");
  $("receipt").classList.remove("none");
  $("receipt").replaceChildren(
    el("div.item", el("b", entry["品項"]), el("span.amount", el("small", entry["原幣別"]), ` ${entry["原幣金額"]}`)),
    el("div.facts", ...chips.map((chip) => el("span.chip", chip)), buttons()),
    el("span.bar", bar),
    el("div.life", left, el("code", entry["交易ID"]), el("code.etag", short(etag))),
  );
  tabs.changed({ entry, etag });
  count();
}

/** The part of an ETag that tells it from others. */
export const short = (etag) => `ETag ${etag?.replaceAll('"', "").slice(0, 7) ?? "–"}`;

function count() {
  const entry = keys.get(key());
  if (!left || !entry?.expires_at) return;
  const life = entry.expires_at - now();
  left.textContent = span(life);
  runDown(bar, life, config.last_transaction_ttl * 1000);
}

/** A second of Taipei's clock that no entry has as its 交易ID: later than the latest, as the chat counts too. */
function nextSecond() {
  const months = keys.get(`user:${user}:ledger`)?.value ?? "";
  const [, ...digits] = /"last_id":"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)"/.exec(months) ?? [];
  const [year, month, ...rest] = digits.map(Number);
  const latest = digits.length ? Date.UTC(year, month - 1, ...rest) : 0;
  given = Math.max(Date.parse(taipei()), latest + 1000, given + 1000);
  return new Date(given).toISOString();
}

async function put() {
  const [item, amount, by, category] = SAMPLES[samples++ % SAMPLES.length];
  const at = nextSecond();
  const [date, time] = [at.slice(0, 10), at.slice(11, 19)];
  const entry = {
    intent: "bookkeeping", 日期: date, 時間: time.slice(0, 5), 品項: item, 原幣別: "TWD",
    原幣金額: 0, 匯率: 1, 付款方式: by, 交易ID: `${date.replaceAll("-", "")}-${time.replaceAll(":", "")}`, 明細說明: "", 分類: category,
    專案: "日常", 必要性: "必要", 代墊狀態: "無", 收款支付對象: "", 附註: "",
  };
  // The digits go as they stand: 480.50 is not 480.5.
  const body = JSON.stringify(entry).replace('"原幣金額":0', `"原幣金額":${amount}`);
  await write("PUT", body);
}

const remove = () => write("DELETE");

async function write(method, body) {
  const { ok, json, status } = await send(method, path(), body, bearer());
  if (!ok) notice(json?.message ?? `${method}: HTTP ${status}`);
}
