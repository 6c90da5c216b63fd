// The weather: what its providers do, how often each was asked, and what is kept of their forecasts.
import { $, el, frame, span, tick, told } from "./dom.js";
import { call } from "./api.js";
import { now, on } from "./live.js";
import { label, say } from "./words.js";

const BEHAVIOURS = ["works", "down", "refuses"];
/** The fields by which the runner sets them. */
const FIELDS = ["provider", "fallback"];

const rows = [];
let sliding = 0;

export function start() {
  on("settings", ({ weather }) => frame(() => draw(weather)));
  tick(() => rows.forEach(count));
  $("delay").addEventListener("input", () => {
    shown($("delay").value);
    clearTimeout(sliding);
    sliding = setTimeout(slow, 120);
  });
  $("forget").addEventListener("click", () => forget().catch(() => {}));
  $("outdate").addEventListener("click", () => call("POST", "/playground/weather/outdate", {}).catch(() => {}));
}

/** Forgets what is kept: the next forecast is fetched, which takes its time. */
export const forget = () => call("POST", "/playground/weather/forget", {});

const set = (change) => call("PUT", "/playground/weather", change);

async function slow() {
  sliding = 0;
  await set({ delay_ms: Number($("delay").value) }).catch(() => {});
}

const shown = (ms) => ($("delay-shown").textContent = `${ms} ms`);

function draw({ delay_ms, providers }) {
  while (rows.length < providers.length) rows.push(row(FIELDS[rows.length]));
  providers.forEach((provider, index) => fill(rows[index], provider));
  $("simulated").hidden = providers.every(({ name }) => name.startsWith("sample"));
  // Another tab moved it; a hand on this one's slider goes first.
  if (sliding) return;
  $("delay").value = delay_ms;
  shown(delay_ms);
}

function row(field) {
  const choice = el("select", ...BEHAVIOURS.map((each) => Object.assign(told("option", `provider_${each}`), { value: each })));
  label(choice, field);
  const made = { field, choice, name: el("code"), calls: el("b.calls"), pause: el("span.pause") };
  made.pause.hidden = true;
  choice.addEventListener("change", async () => {
    await set({ [field]: choice.value }).catch(() => (choice.value = made.provider.behaviour));
  });
  made.box = el("div.provider", el("span.provider-name", told("b", field), made.name), choice, el("span.asked", told("span", "asked"), made.calls), made.pause);
  made.box.dataset.provider = field;
  $("providers").append(made.box);
  return made;
}

function fill(row, provider) {
  row.provider = provider;
  row.name.textContent = provider.name;
  row.choice.value = provider.behaviour;
  row.calls.textContent = provider.calls;
  row.box.classList.toggle("faulty", provider.behaviour !== "works");
  count(row);
}

/** For how long it is not asked, or that it will be paused. */
function count({ provider, pause }) {
  const left = (provider.paused_until ?? 0) - now();
  pause.hidden = left <= 0 && provider.behaviour !== "refuses";
  if (left > 0) say(pause, "paused", span(Math.ceil(left / 1000) * 1000));
  else if (!pause.hidden) say(pause, "will_pause");
}
