// The queue and the bus: jobs sent more than once and out of order, and the count that must not mind.
import { $, el, frame, tick, told } from "./dom.js";
import { call } from "./api.js";
import { on } from "./live.js";
import { onLanguage, say } from "./words.js";
import * as follow from "./follow.js";
import { Rows } from "./rows.js";
import { colour } from "./stages.js";

/** So many records of a kind are kept to scroll through, at least. */
const KEPT = 2000;
const COUNTS = ["sent", "delivered", "duplicates", "effects", "waiting"];

let queue = null;
let armed = false;
/** What the shards' streams took, and what the jobs' own logs did: every event is in both (DynamoDB has only the latter). */
const logs = { stream: [], job: [] };
let rows = null;
/** Of the jobs that this page sent last: what was asked for, and the place of everything that took effect. */
let sent = null;
let drained = 0;
const numbers = {};

export function start() {
  rows = new Rows($("stream"), make, fill);
  for (const name of COUNTS) {
    numbers[name] = el("dd", "0");
    numbers[name].id = `count-${name}`;
    $("counts").append(el(`div.${name}`, told("dt", `count_${name}`), numbers[name]));
  }
  numbers.consumer = told("dd", "consumer_idle");
  $("counts").append(el("div.consumer", told("dt", "consumer"), numbers.consumer));
  $("job").addEventListener("submit", (event) => {
    event.preventDefault();
    submit().catch(() => {});
  });
  $("kill").addEventListener("click", async () => {
    armed = (await call("POST", "/playground/consumer/kill").catch(() => null)) !== null;
    frame(draw);
  });
  on("queue", (now) => {
    if (queue && now.kills > queue.kills) armed = false;
    queue = now;
    frame(draw);
  });
  on("records", take);
  on("restart", (all) => {
    logs.stream = [];
    logs.job = [];
    take(all.records);
  });
  follow.start(() => frame(draw));
  tick(judge, 1000);
  onLanguage(() => frame(draw));
  frame(draw);
}

async function submit() {
  const [jobs, copies] = [Number($("jobs").value), Number($("copies").value)];
  const made = await call("POST", "/playground/jobs", { jobs, copies, shuffle: $("shuffle").checked });
  const names = made.jobs.map((job) => `${made.domain}:job:${job.job_id}`);
  const events = made.jobs.reduce((sum, job) => sum + job.events, 0);
  sent = { jobs: new Set(names), events, effects: new Set(), first: made.jobs[0].events };
  // What was quicker than the answer to our own call is among the records already.
  for (const record of logs.job) count(record);
  follow.follow(made.domain, made.jobs[0]);
  frame(draw);
}

function take(fresh) {
  for (const record of fresh) {
    const log = record.log.includes(":job:") ? logs.job : logs.stream;
    log.push(record);
    if (log.length > 2 * KEPT) log.splice(0, KEPT);
    count(record);
  }
  frame(draw);
}

/** By its place: a snapshot brings again what was told before. An event that was appended twice has two places. */
function count(record) {
  if (sent?.jobs.has(record.log)) sent.effects.add(`${record.log} ${record.position}`);
}

const shown = () => (logs.stream.length ? logs.stream : logs.job);

function draw() {
  rows.count = shown().length;
  $("stream-none").hidden = shown().length > 0;
  $("stream-count").textContent = shown().length || "";
  if (queue) {
    for (const name of COUNTS) {
      const text = String(name === "waiting" ? queue.waiting + queue.in_flight : queue[name]);
      if (numbers[name].textContent !== text) numbers[name].textContent = text;
    }
    const state = armed ? "armed" : queue.consumer;
    numbers.consumer.className = state;
    say(numbers.consumer, `consumer_${state}`);
  }
  judge();
}

function judge() {
  const verdict = $("verdict");
  if (!sent || !queue) {
    verdict.className = "verdict";
    return say(verdict, "verdict_none");
  }
  const { heard, repeats } = follow.tally();
  const effects = sent.effects.size;
  const busy = queue.waiting + queue.in_flight > 0;
  drained = busy ? 0 : drained || Date.now();
  const equal = effects === sent.events && heard === sent.first && repeats === 0;
  const wrong = effects > sent.events || repeats > 0 || (drained && !equal && Date.now() - drained > 10_000);
  const state = wrong ? "more" : equal && !busy ? "equal" : "wait";
  verdict.className = `verdict ${state}`;
  verdict.dataset.counts = `${sent.events} ${effects} ${heard} ${repeats}`;
  say(verdict, `verdict_${state}`, sent.events, effects, sent.jobs.size > 1 ? `${heard}/${sent.first}` : heard);
}

function make() {
  const row = el("div.record");
  row.parts = { shard: el("span.shard"), stage: el("span.stage"), seq: el("b"), job: el("span.job-id"), at: el("code") };
  const { shard, stage, seq, job, at } = row.parts;
  row.append(shard, stage, seq, job, at);
  return row;
}

/** The newest is on top. */
function fill(row, index) {
  const log = shown();
  const record = log[log.length - 1 - index];
  if (!record || row.record === record) return;
  row.record = record;
  record.event ??= event(record.text);
  const { shard, stage, seq, job, at } = row.parts;
  shard.textContent = record.log.includes(":job:") ? "job" : `#${record.log.split(":").pop()}`;
  stage.className = `stage ${colour(record.event.stage)}`;
  stage.textContent = record.event.stage ?? "?";
  seq.textContent = record.event.seq ?? "";
  job.textContent = record.event.job_id ?? record.text;
  job.title = record.text;
  at.textContent = record.position;
}

function event(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
