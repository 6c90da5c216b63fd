// The ledger: a month of the user's entries, read again whenever the user's list of months or last transaction is written.
// Every change of the ledger writes one of them.
import { $, el, frame, tick } from "./dom.js";
import { bearer, save, send } from "./api.js";
import { on, taipei } from "./live.js";
import { say } from "./words.js";

/** Two entries in one sentence. */
export const TWO = "早餐50元 午餐120元 現金";

/** The most rows that are drawn; the file has all of them. */
const MOST_ROWS = 200;
/** Time until a store that did not answer is asked again. */
const RETRY_MS = 3000;

let user = "";
/** The month that was chosen; `null` is the current one, also after midnight. */
let chosen = null;
let connected = false;
let down = false;
/** What is shown: the user and the month that were asked for, and the answer. */
let shown = null;
/** What keeps the ledger from being read: a word and its value. */
let problem = null;
let reading = false;
let outdated = false;
let retry = 0;
/** 交易ID → the row, and the entry as text. */
let rows = new Map();

const current = () => taipei().slice(0, 7);
const month = () => chosen ?? current();
const path = () => `/users/${user}/transactions?month=${month()}`;

export function start() {
  on("keys", ({ set, gone }) => {
    const written = new Set([...gone, ...set.map((entry) => entry.key)]);
    if (written.has(`user:${user}:ledger`) || written.has(`user:${user}:last_transaction`)) refresh();
  });
  on("settings", ({ store }) => {
    if (store.down === down) return;
    down = store.down;
    refresh();
  });
  on("restart", () => {
    connected = true;
    refresh();
  });
  $("earlier").addEventListener("click", () => step(-1));
  $("later").addEventListener("click", () => step(1));
  $("month").addEventListener("change", () => choose($("month").value));
  $("csv").addEventListener("click", () => save(`${path()}&format=csv`, bearer(), `transactions-${month()}.csv`));
  tick(() => shown && shown.month !== month() && refresh(), 10_000);
}

/** Shows the ledger of this user. */
export function read(id) {
  user = id;
  refresh();
}

/** Offers an example where there is nothing to see; `write` sends it. */
export function offer(write) {
  const made = el("button.example", TWO);
  made.type = "button";
  made.lang = "zh-Hant";
  made.addEventListener("click", () => {
    choose("");
    write(TWO);
  });
  $("nothing").append(made);
}

function step(by) {
  const [year, number] = month().split("-").map(Number);
  choose(new Date(Date.UTC(year, number - 1 + by)).toISOString().slice(0, 7));
}

/** Shows this month; the current one if it is none. A year that is being typed is not a year yet. */
function choose(text) {
  if (text && !/^[1-9]\d{3}-\d\d$/.test(text)) return;
  chosen = text === current() ? null : text || null;
  refresh();
}

/** Reads the month. Whatever changes meanwhile makes it read once more, and no more than that. */
async function refresh() {
  outdated = true;
  if (!shown || shown.user !== user || shown.month !== month()) {
    shown = null;
    rows.clear();
    $("month").value = month();
    frame(draw);
  }
  if (reading || !connected) return;
  reading = true;
  while (outdated) {
    outdated = false;
    await readMonth();
  }
  reading = false;
}

async function readMonth() {
  clearTimeout(retry);
  const asked = { user, month: month() };
  if (down) {
    problem = ["ledger_down"];
    return frame(draw);
  }
  const { ok, status, json } = await send("GET", path(), undefined, bearer());
  if (asked.user !== user || asked.month !== month()) return;
  if (ok) {
    problem = null;
    shown = { ...asked, ...json };
  } else {
    problem = ["ledger_failed", json?.message ?? `HTTP ${status}`];
    // Without any answer the runner is away: its stream comes back, and brings everything again.
    if (status === 503) retry = setTimeout(refresh, RETRY_MS);
  }
  frame(draw);
}

function draw() {
  $("ledger-problem").hidden = !problem;
  if (problem) say($("ledger-problem"), ...problem);
  $("csv").disabled = Boolean(problem);
  $("ledger").classList.toggle("stale", Boolean(problem));
  $("book").hidden = !shown?.count;
  $("nothing").hidden = !shown || shown.count > 0 || Boolean(problem);
  if (!shown) return;
  say($("nothing-hint"), "ledger_none", shown.month);
  say($("sum-count"), shown.count === 1 ? "entries_one" : "entries_count", shown.count);
  $("sum-total").textContent = shown.total_twd;
  $("sum-income").textContent = shown.income_twd;
  drawEntries(shown.transactions);
  drawSums(shown.by_category);
}

/** The newest on top. A row that is new or has changed lights up. */
function drawEntries(entries) {
  const newest = entries.slice(-MOST_ROWS).reverse();
  const before = rows;
  rows = new Map();
  for (const entry of newest) {
    const [id, text] = [entry["交易ID"], JSON.stringify(entry)];
    const same = before.get(id)?.text === text ? before.get(id) : null;
    rows.set(id, same ?? { row: row(entry), text, fresh: before.size > 0 });
  }
  const all = [...rows.values()];
  const drawn = [...$("entries").children];
  if (all.length !== drawn.length || all.some(({ row }, index) => row !== drawn[index])) {
    $("entries").replaceChildren(...all.map(({ row }) => row));
  }
  for (const one of all.filter(({ fresh }) => fresh)) {
    one.fresh = false;
    one.row.animate([{ background: "var(--flash)" }, { background: "transparent" }], 900);
  }
  $("entries-more").hidden = entries.length <= MOST_ROWS;
  say($("entries-more"), "entries_more", MOST_ROWS, entries.length);
}

function row(entry) {
  const cell = (what, ...children) => {
    const made = el(`td.${what}`, ...children);
    made.setAttribute("role", "cell");
    return made;
  };
  const text = (field) => String(entry[field] ?? "");
  const foreign = text("原幣別") !== "TWD";
  const made = el(
    "tr",
    cell("date", text("日期")),
    cell("time", text("時間")),
    cell("what", text("品項")),
    cell("number", el("small", text("原幣別")), ` ${text("原幣金額")}`, foreign ? el("small", ` × ${text("匯率")}`) : null),
    cell("category", text("分類")),
    cell("payment", text("付款方式")),
  );
  made.setAttribute("role", "row");
  made.dataset.id = entry["交易ID"];
  return made;
}

/** What was spent, by category. A bar is as long as its sum is beside the largest one. The sums are exact decimals; only the bars are rounded. */
function drawSums(categories) {
  const largest = Math.max(...categories.map((category) => Number(category.total_twd)), 0);
  const made = categories.map(({ 分類: name, count, total_twd }) => {
    const bar = el("i");
    bar.style.transform = `scaleX(${largest > 0 ? Number(total_twd) / largest : 0})`;
    const head = el("th", name);
    head.scope = "row";
    const share = el("td.share", el("span.bar", bar));
    share.setAttribute("aria-hidden", "true");
    return el("tr", head, share, el("td.number", total_twd), el("td.number", String(count)));
  });
  $("categories").replaceChildren(...made);
}
