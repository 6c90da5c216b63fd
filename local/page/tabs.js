// Two tabs that edit the same transaction, each with what it read: a conflict, a merge, or too late.
import { $, button, el, told } from "./dom.js";
import { bearer, send } from "./api.js";
import { label, say } from "./words.js";
import { fetchEntry, path, short } from "./last.js";

const FIELDS = ["原幣金額", "分類", "品項", "付款方式", "附註"];
const NUMBERS = ["原幣金額"];

let tabs = [];
let there = null;

export function start() {
  tabs = [new Tab("A", "原幣金額", "150"), new Tab("B", "分類", "教育")];
  $("tabs").append(...tabs.map((tab) => tab.box));
  $("both").addEventListener("click", () => Promise.all(tabs.map((tab) => tab.save())));
}

/** Another user: what was read is not this one's. */
export function forget() {
  for (const tab of tabs) tab.hold(null);
}

/** The transaction is now this, or gone. A tab keeps what it read: that is what it will be held to. */
export function changed(now) {
  there = now;
  for (const tab of tabs) {
    if (!tab.held && now) tab.hold(now);
    tab.mark();
  }
}

class Tab {
  held = null;

  constructor(name, field, value) {
    this.etag = el("code.etag");
    this.stale = told("span.badge.busy", "stale");
    this.field = el("select", ...FIELDS.map((each) => el("option", each)));
    this.field.value = field;
    label(this.field, "field");
    this.value = el("input");
    this.value.value = value;
    label(this.value, "value");
    this.result = el("p.result");
    this.result.setAttribute("role", "status");
    this.box = el(
      "form.tab",
      el("div.tab-head", told("b", "tab", name), this.etag, this.stale),
      el("div.tab-edit", this.field, this.value),
      el("div.tab-acts", button("quiet", "read", () => this.read()), told("button", "save")),
      this.result,
    );
    this.box.dataset.tab = name;
    this.box.addEventListener("submit", (event) => {
      event.preventDefault();
      this.save();
    });
    this.hold(null);
  }

  hold(held) {
    this.held = held;
    this.result.replaceChildren();
    this.mark();
  }

  mark() {
    if (this.held) {
      delete this.etag.dataset.t;
      this.etag.textContent = short(this.held.etag);
    } else {
      say(this.etag, "tab_nothing");
    }
    this.stale.hidden = !this.held || this.held.etag === there?.etag;
  }

  async read() {
    this.hold(await fetchEntry());
  }

  async save() {
    const field = this.field.value;
    const text = this.value.value.trim();
    // A number goes as its digits; what is none goes as text, and the server says what is wrong with it.
    const number = NUMBERS.includes(field) && /^\d+(\.\d+)?$/.test(text);
    const body = `{${JSON.stringify(field)}:${number ? text : JSON.stringify(text)}}`;
    const match = $("match").checked && this.held ? { "if-match": this.held.etag } : {};
    const answer = await send("PATCH", path(), body, { ...bearer(), ...match });
    if (!answer.ok) return this.show(answer.status, el("span", answer.json?.message ?? "?"));
    const entry = answer.json.updated_tx;
    const merged = this.held && Object.keys(entry).some((each) => each !== field && entry[each] !== this.held.entry[each]);
    this.hold({ entry, etag: answer.etag });
    this.show(answer.status, told("span", merged ? "saved_merged" : "saved"));
  }

  show(status, words) {
    const kind = { 200: "handled", 404: "deduped", 409: "busy", 410: "deduped", 412: "busy" }[status] ?? "failed";
    this.result.replaceChildren(el(`span.badge.${kind}`, String(status)), words);
    this.result.dataset.status = status;
  }
}
