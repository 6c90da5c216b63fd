// What a follower of a job lives through, in a page and in Node alike. `followJob` is the client.

const VISION = ["vision", 10];
const RULE = ["rule", 20];
const ANSWER = ["answer", 30];
const REWARD = ["reward", 40];
const DONE = ["done", 51];
/** For one thing to happen; a busy machine needs seconds where a quick one needs a tenth. */
const PATIENCE_MS = 45_000;
/** Longer than the pause before an `EventSource` of the gateway comes back, and than the client's first pause. */
const SILENCE_MS = 2500;

const sleep = (ms) => new Promise((then) => setTimeout(then, ms));

/** How many timers keep Node from ending; a page cannot tell. */
const timers = () => globalThis.process?.getActiveResourcesInfo().filter((kind) => kind === "Timeout").length ?? 0;

async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  while (!(await holds())) {
    if (Date.now() > end) throw new Error(`never: ${what}`);
    await sleep(10);
  }
}

function equal(actual, expected, what) {
  const [a, e] = [actual, expected].map((value) => JSON.stringify(value));
  if (a !== e) throw new Error(`${what}: ${a} instead of ${e}`);
}

/** The job, its gateway, and a client that notes what it is told. */
class Story {
  seqs = [];
  ids = [];
  errors = [];
  gaps = 0;
  ends = 0;
  tokens = 0;

  constructor(base, followJob) {
    this.base = base;
    this.followJob = followJob;
  }

  /** A string for a body needs no preflight. */
  async control(control) {
    const answer = await fetch(`${this.base}/control`, { method: "POST", body: JSON.stringify(control) });
    return answer.json();
  }

  publish(...events) {
    return this.control({ publish: events });
  }

  async requests() {
    return (await this.control({})).requests;
  }

  async token(token_ttl = 1000) {
    return (await this.control({ token_ttl })).token;
  }

  follow(options = {}, parameters = "") {
    const token = options.token ?? (() => this.token());
    this.job = this.followJob(`${this.base}/jobs/job-1/events?domain=scan${parameters}`, {
      onEvent: (event, id) => {
        this.seqs.push(event.seq);
        this.ids.push(id);
      },
      onGap: () => this.gaps++,
      onEnd: () => this.ends++,
      onError: (error) => this.errors.push(error),
      ...options,
      token: () => {
        this.tokens++;
        return token();
      },
    });
  }

  told(...events) {
    return until(`${JSON.stringify(events)} to be told, after ${this.seqs}`, () => this.seqs.length >= events.length)
      .then(() => equal(this.seqs, events.map(([, seq]) => seq), "events"));
  }

  /** The end, after these events, each once; and after the end, silence. */
  async ended(...events) {
    await until(`the end, after ${this.seqs}`, () => this.ends);
    await this.told(...events);
    equal(new Set(this.ids).size, events.length, "ids");
    await this.silence();
    equal([this.seqs.length, this.ends], [events.length, 1], "events and ends, some time after the end");
  }

  async silence() {
    const before = (await this.requests()).length;
    await sleep(SILENCE_MS);
    equal((await this.requests()).length, before, "requests in the silence");
  }
}

export async function whole(...where) {
  const story = new Story(...where);
  await story.publish(VISION, RULE);
  story.follow();
  await story.told(VISION, RULE);
  await story.publish(ANSWER);
  await story.told(VISION, RULE, ANSWER);
  await story.publish(REWARD, DONE);
  await story.ended(VISION, RULE, ANSWER, REWARD, DONE);
  equal((await story.requests()).map(({ status }) => status), [200, 204, 204], "the stream, its end, and the question why");
  equal([story.errors, story.gaps, story.tokens], [[], 0, 1], "errors, gaps and tokens");
}

export async function no_event_source(base, followJob) {
  let thrown = null;
  try {
    followJob(`${base}/jobs/job-1/events?domain=scan`, { EventSource: null, token: () => "", onEvent() {} });
  } catch (error) {
    thrown = error;
  }
  equal([thrown instanceof TypeError, thrown?.message.includes("EventSource")], [true, true], "the error");
}

export async function seen(...where) {
  const first = new Story(...where);
  await first.publish(VISION, DONE);
  first.follow();
  await first.ended(VISION, DONE);
  const again = new Story(...where);
  again.follow({}, `&lastEventId=${first.ids.at(-1)}`);
  await again.ended();
}

export async function broken(...where) {
  const story = new Story(...where);
  story.follow();
  const events = [VISION, RULE, ANSWER, REWARD];
  for (const n of events.keys()) {
    // Also while no stream is open: this one ends several times a second, and comes back after one.
    await story.publish(events[n]);
    await story.told(...events.slice(0, n + 1));
    await story.control({ cut: true });
  }
  await story.publish(DONE);
  await story.ended(...events, DONE);
  equal([story.gaps, story.tokens], [0, 1], "gaps and tokens");
}

export async function expires(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  const lives = [5, 1000];
  story.follow({ token: () => story.token(lives.shift()) });
  await story.told(VISION);
  await until("a second token", () => story.tokens === 2);
  await story.publish(RULE);
  await story.told(VISION, RULE);
  await story.publish(DONE);
  await story.ended(VISION, RULE, DONE);
  equal([story.tokens, story.errors], [2, []], "tokens and errors");
}

export async function refused_token(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  story.follow({ token: () => (story.tokens === 1 ? "1.00" : story.token()) });
  await story.told(VISION);
  await story.publish(DONE);
  await story.ended(VISION, DONE);
  equal(story.errors.map(({ cause }) => cause), [401], "what the page is told of it");
  equal(story.tokens, 2, "tokens");
}

export async function no_token(...where) {
  const story = new Story(...where);
  await story.publish(VISION, DONE);
  story.follow({
    token: async () => {
      if (story.tokens === 1) throw new Error("the page's server is away");
      return story.token();
    },
  });
  await story.ended(VISION, DONE);
  equal(story.errors.map(({ message }) => message), ["the page's server is away"], "what the page is told of it");
}

export async function store_down(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  story.follow();
  await story.told(VISION);
  // The gateway's store, not the publisher's: the event wakes the stream, which cannot read it.
  await story.control({ down: true, publish: [RULE] });
  await until("the client to be back", async () => (await story.requests()).length === 2);
  await story.told(VISION);
  await story.control({ down: false, publish: [DONE] });
  await story.ended(VISION, RULE, DONE);
  equal([story.errors, story.tokens], [[], 1], "errors and tokens");
}

export async function refused(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  story.follow();
  await story.told(VISION);
  // Two requests at a time: the one that `EventSource` gives up at, and the one that asks why.
  await story.control({ refuse: [502, 502, 429, 429, 503, 503], cut: true, publish: [RULE] });
  await story.told(VISION, RULE);
  equal(story.errors.length, 3, `errors (${story.errors})`);
  const first = await story.requests();
  equal(first.map(({ status }) => status), [200, 502, 502, 429, 429, 503, 503, 200], "answers");
  equal([3, 5, 7].map((n, failures) => first[n].at - first[n - 1].at >= 500 * 2 ** failures), [true, true, true], "growing pauses");

  // The question may be answered by a stream, which is not wanted.
  await story.control({ refuse: [429], cut: true, publish: [ANSWER] });
  await story.told(VISION, RULE, ANSWER);
  const second = (await story.requests()).slice(first.length);
  equal(second.map(({ status }) => status), [429, 200, 200], "answers");
  equal(second[2].at - second[1].at < 4000, true, "a stream in between makes the pauses short again");
  await until("one stream to be left", async () => (await story.control({})).open_streams === 1);
  await story.publish(DONE);
  await story.ended(VISION, RULE, ANSWER, DONE);
}

export async function gap(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  story.follow();
  await story.told(VISION);
  await story.control({ forget: true, publish: [RULE], cut: true });
  await until("the gap", () => story.gaps);
  await story.control({ cut: true, publish: [ANSWER, DONE] });
  await until("the end", () => story.ends);
  // What was told while its log was there may be told before the gap, and is never told twice.
  equal(story.seqs, [VISION, RULE, ANSWER, DONE].map(([, seq]) => seq), "events");
  equal(story.gaps, 1, "gaps");
}

export async function empty_gap(...where) {
  const story = new Story(...where);
  story.follow({}, "&lastEventId=1-0");
  await until("the gap", () => story.gaps);
  await story.control({ cut: true });
  await until("the client to be back", async () => (await story.requests()).length === 2);
  await story.publish(VISION, DONE);
  await story.ended(VISION, DONE);
  equal(story.gaps, 1, "gaps");
}

export async function overtaken(...where) {
  const story = new Story(...where);
  await story.publish(VISION);
  story.follow();
  await story.publish(DONE);
  await story.told(VISION, DONE);
  await story.publish(RULE);
  await story.told(VISION, DONE, RULE);
  // Who loses its connection within the grace comes back in time.
  await story.control({ cut: true, publish: [ANSWER] });
  await story.ended(VISION, DONE, RULE, ANSWER);
}

export async function closed(...where) {
  // In a stream.
  const open = new Story(...where);
  await open.publish(VISION);
  open.follow();
  await open.told(VISION);
  open.job.close();
  await open.publish(RULE);
  await open.silence();
  await open.told(VISION);
  // Before its first request, with the token on its way, or what comes instead of it.
  const early = new Story(...where);
  const token = await early.token();
  for (const answer of [({ resolve }) => resolve(token), ({ reject }) => reject(new Error("no token"))]) {
    let asked;
    early.follow({ token: () => new Promise((resolve, reject) => (asked = { resolve, reject })) });
    early.job.close();
    answer(asked);
    await early.silence();
  }
  // While it connects: a request that is on its way is the last.
  const connecting = new Story(...where);
  const sent = (await connecting.requests()).length;
  connecting.follow({ token: () => token });
  await Promise.resolve();
  connecting.job.close();
  await sleep(SILENCE_MS);
  equal((await connecting.requests()).length <= sent + 1, true, "at most one request");
  await connecting.told();
  // In the pause after an error, and by the handler of that error.
  for (const close of [(story) => queueMicrotask(() => story.job.close()), (story) => story.job.close()]) {
    const failing = new Story(...where);
    failing.follow({
      token: () => Promise.reject(new Error("no token")),
      onError: (error) => {
        failing.errors.push(error);
        close(failing);
      },
    });
    await until("the error", () => failing.errors.length);
    equal(timers(), 0, "timers");
    await failing.silence();
    equal([failing.tokens, failing.errors.length], [1, 1], "tokens and errors");
  }
  // By the handler of an event, with more of them on their way.
  const first = new Story(...where);
  first.follow({
    onEvent: ({ seq }) => {
      first.seqs.push(seq);
      first.job.close();
    },
  });
  await first.told(VISION);
  await first.silence();
  await first.told(VISION);
  // While it asks why its stream was closed.
  const asking = new Story(...where);
  const before = await asking.control({ refuse: [429], publish: [DONE] });
  asking.follow({}, "&last_seq=51");
  await until("the question", async () => (await asking.control({})).arrived === before.arrived + 2);
  asking.job.close();
  await until("the answer", async () => (await asking.requests()).length === before.requests.length + 2);
  await asking.silence();
  equal([open, early, connecting, first, asking].map(({ ends }) => ends), [0, 0, 0, 0, 0], "ends");
  equal([open, early, connecting, first].map(({ errors }) => errors), [[], [], [], []], "errors");
}
