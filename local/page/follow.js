// A job as its client sees it: the real event stream, broken and resumed at will, and the state beside it.
import { $, el, frame, told } from "./dom.js";
import { send } from "./api.js";
import { followJob } from "./job-events.js";
import { keys, on } from "./live.js";
import { say } from "./words.js";
import { colour, steps } from "./stages.js";

let job = null;
let client = null;
let changed = () => {};
/** Ids in the order they came, and how many came that had come before. */
let heard = [];
let repeats = 0;

export function start(then) {
  changed = then;
  $("break").addEventListener("click", () => (client ? breakOff() : resume()));
  on("keys", ({ set }) => {
    if (job && set.some((entry) => entry.key === job.state)) readState();
  });
  $("state").append(told("p.hint", "state_none"));
  $("heard").append(told("li.hint", "client_none"));
}

export const tally = () => ({ heard: new Set(heard).size, repeats });

/** Follows this job from its beginning. */
export function follow(domain, { job_id, token }) {
  breakOff();
  job = { id: job_id, domain, token, state: `${domain}:state:${job_id}` };
  heard = [];
  repeats = 0;
  $("heard").replaceChildren();
  $("state-job").textContent = job_id;
  drawState(null);
  if (keys.has(job.state)) readState();
  connect("");
}

function connect(after) {
  const mine = job;
  /** Tokens since the last error: a second one means that the first has expired. */
  let tokens = 0;
  const ended = () => {
    client = null;
    status("ended");
  };
  client = followJob(`/jobs/${job.id}/events?domain=${job.domain}${after && `&lastEventId=${after}`}`, {
    token() {
      if (tokens++ === 1) note("expired");
      return mine.token;
    },
    onEvent: hear,
    onGap: () => note("gap"),
    onEnd: ended,
    onError({ cause }) {
      tokens = 0;
      // There is no other token to be had here.
      if (cause !== 401) return;
      client.close();
      ended();
    },
  });
  status("live");
}

const note = (text) => $("heard").append(el("li.resumed", text));

function breakOff() {
  client?.close();
  client = null;
  if (job) status("broken");
}

function resume() {
  const after = heard.at(-1) ?? "";
  $("heard").append(told("li.resumed", "client_resumed", after || "0"));
  connect(after);
}

function status(state) {
  frame(() => {
    say($("client-status"), `client_${state}`);
    $("client-status").className = state;
    $("break").disabled = state === "ended";
    say($("break"), client ? "break" : "resume");
    changed();
  });
}

function hear({ stage, seq }, id) {
  if (heard.includes(id)) repeats++;
  heard.push(id);
  const line = el("li", el(`span.stage.${colour(stage)}`, stage), el("b", String(seq)), el("code", id));
  line.dataset.id = id;
  frame(() => {
    $("heard").append(line);
    $("heard").scrollTop = $("heard").scrollHeight;
    changed();
  });
}

async function readState() {
  const mine = job;
  const { ok, json } = await send("GET", `/jobs/${job.id}?domain=${job.domain}&token=${job.token}`);
  if (ok && mine === job) frame(() => drawState(json));
}

function drawState(state) {
  const all = steps();
  const reached = state ? all.indexOf(state.stage) : -1;
  const items = all.map((stage, index) => el(`li.stage.${colour(stage)}${index <= reached ? ".reached" : ""}`, stage));
  const facts = state && el("dl.facts-of",
    el("dt", "seq"), el("dd", String(state.seq)), el("dt", "data"), el("dd", JSON.stringify(state.data)),
    el("dt", "timestamp"), el("dd", state.timestamp));
  $("state").replaceChildren(el("ol.steps", ...items), facts ?? told("p.hint", "state_none"));
}
