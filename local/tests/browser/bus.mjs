// The queue, the bus and the client.
import assert from "node:assert/strict";
import { count, text, until } from "./browser.mjs";

const number = async (page, name) => Number(await text(page, `#count-${name}`));

async function send(page, { copies, jobs = 1, kill = false }) {
  await page.locator("#jobs").selectOption(String(jobs));
  await page.locator("#copies").selectOption(String(copies));
  if (kill) {
    await page.locator("#kill").click();
    await page.locator("dd.armed").waitFor();
  }
  await page.locator("#job button[type=submit]").click();
}

/** What was asked for, what took effect, what the client heard, and what it heard twice. */
const counts = async (page) => (await page.locator("#verdict").getAttribute("data-counts")).split(" ").map(Number);

export async function duplicates(browser) {
  const page = await browser.open();
  await send(page, { copies: 5, kill: true });
  await page.locator(".verdict.equal").waitFor();
  const [events, effects, heard, repeats] = await counts(page);
  assert.ok(events > 0);
  assert.deepEqual([effects, heard, repeats], [events, events, 0]);
  assert.equal(await number(page, "sent"), 5 * events);
  assert.equal(await number(page, "effects"), events);
  assert.ok((await number(page, "delivered")) > 5 * events, "the killed consumer's messages came again");
  await count(page, ".heard li[data-id]", events);
  await until(page, "the state to be the last stage", () => document.querySelector(".steps li:last-child.reached"));

  await send(page, { copies: 2, jobs: 5 });
  await until(page, "five jobs to be equal", (wanted) => {
    const verdict = document.querySelector(".verdict.equal");
    return verdict?.dataset.counts.split(" ")[1] === String(wanted);
  }, 5 * events);
  assert.equal(await number(page, "effects"), 6 * events);
  return page;
}

/** Stages of the configuration: twenty tokens that leave the state alone, and one event that ends the job. */
export async function stages(browser) {
  const page = await browser.open();
  await send(page, { copies: 3, kill: true });
  await page.locator(".verdict.equal").waitFor();
  assert.deepEqual(await counts(page), [23, 23, 23, 0]);
  const heard = await page.locator(".heard li[data-id] .stage").evaluateAll((all) => all.map(({ textContent, className }) => [textContent, className]));
  const colours = Object.fromEntries(heard);
  assert.deepEqual(Object.keys(colours).sort(), ["done", "plan", "token"]);
  assert.equal(new Set(Object.values(colours)).size, 3, "each has its colour");
  assert.deepEqual(await page.locator(".steps li").allTextContents(), ["plan", "done"], "tokens are no step");
  // A token's number is higher: the state would stay there.
  await until(page, "the state to be the job's last event", () => document.querySelector(".facts-of dd")?.textContent === "10");
  assert.equal(await page.locator(".steps .reached").count(), 2);
  await page.locator("#job").scrollIntoViewIfNeeded();
  await page.setViewportSize({ width: 360, height: 740 });
  assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth), 0);
  await page.locator("#state").scrollIntoViewIfNeeded();
  await browser.shoot(page, "stages_phone");
  await page.setViewportSize({ width: 1280, height: 940 });
  await page.locator("#state").scrollIntoViewIfNeeded();
  return page;
}

export async function reconnect(browser) {
  const page = await browser.open();
  // In the very frame in which something is heard, so that something is left to be missed.
  await page.evaluate(() => {
    new MutationObserver(() => {
      const heard = document.querySelectorAll(".heard li[data-id]").length;
      if (window.breaks && heard > 0) document.getElementById("break").click();
      if (heard > 0) window.breaks = false;
    }).observe(document.getElementById("heard"), { childList: true });
  });
  for (let attempt = 1; ; attempt++) {
    await page.evaluate(() => (window.breaks = true));
    await send(page, { copies: 2, kill: true });
    await page.locator("#client-status.broken, #client-status.ended").waitFor();
    await until(page, "every effect", () => {
      const [events, effects] = document.getElementById("verdict").dataset.counts.split(" ");
      return events === effects;
    });
    const [events, , heard] = await counts(page);
    if (heard < events) break;
    assert.ok(attempt < 5, "the client was broken off before the job's end");
  }
  await browser.shoot(page, "reconnect_broken_off");
  await page.locator("#break").click();
  await page.locator(".verdict.equal").waitFor();
  const [events, effects, heard, repeats] = await counts(page);
  assert.deepEqual([effects, heard, repeats], [events, events, 0]);
  assert.equal(await page.locator(".heard .resumed").count(), 1);
  const seqs = await page.locator(".heard li[data-id] b").allTextContents();
  assert.equal(new Set(seqs).size, events, "every event once");
  return page;
}

/** What a plain `EventSource` sees of a job that the store's absence interrupts: nobody reconnects it or asks for anything again. */
export async function outage(browser) {
  const page = await browser.open();
  const call = (method, path, data) => page.request.fetch(`${browser.base}/playground/${path}`, { method, data });
  const json = async (answer) => (assert.ok((await answer).ok()), (await answer).json());
  for (let attempt = 1; ; attempt++) {
    await json(call("PUT", "store", { down: false }));
    // Half of the first batch takes effect, then the consumer is dead for a second: time to take the store down.
    await json(call("POST", "consumer/kill"));
    const { domain, jobs: [{ job_id, token, events }] } = await json(call("POST", "jobs", { copies: 5 }));
    await page.evaluate(async (url) => {
      window.plain = new EventSource(url);
      window.seen = [];
      window.plain.onmessage = ({ lastEventId, data }) => window.seen.push([lastEventId, JSON.parse(data).seq]);
      await new Promise((first) => window.plain.addEventListener("message", first, { once: true }));
    }, `/jobs/${job_id}/events?domain=${domain}&token=${token}`);
    await json(call("PUT", "store", { down: true }));
    if ((await page.evaluate(() => window.seen.length)) < events) {
      await interrupted(page, job_id, events, () => json(call("PUT", "store", { down: false })));
      return page;
    }
    await page.evaluate(() => window.plain.close());
    assert.ok(attempt < 10, "the store goes down in the middle of the job");
  }
}

async function interrupted(page, job_id, events, mend) {
  const statuses = [];
  page.on("response", (answer) => answer.url().includes(`/jobs/${job_id}/events`) && statuses.push(answer.status()));
  await page.waitForTimeout(10_000);
  assert.ok((await page.evaluate(() => window.seen.length)) < events, "the rest cannot come while the store is down");
  assert.ok(statuses.length > 0, "the browser came back meanwhile");
  assert.ok(statuses.every((status) => status === 200), `any other status would be the last: ${statuses}`);
  await mend();
  await until(page, "the end of the job, and of the reconnecting", () => window.plain.readyState === EventSource.CLOSED);
  assert.equal(statuses.at(-1), 204);
  const seen = await page.evaluate(() => window.seen);
  assert.equal(seen.length, events, `each event once: ${JSON.stringify(seen)}`);
  assert.equal(new Set(seen.map(([id]) => id)).size, events);
  assert.equal(new Set(seen.map(([, seq]) => seq)).size, events);
}

/** A drawing changes a row in at most so many places: its own, its texts, their titles, its colours and its bar. */
const CHANGES_PER_ROW = 15;

/** More than five hundred keys and two thousand events: what the page does for them must not grow with them. */
export async function crowd(browser) {
  const page = await browser.open();
  await page.evaluate(() => {
    window.frames_seen = [];
    window.long = [];
    let last = performance.now();
    requestAnimationFrame(function next(now) {
      window.frames_seen.push(now - last);
      last = now;
      requestAnimationFrame(next);
    });
    new PerformanceObserver((list) => window.long.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
    // An observer is called once after each drawing, with all that it changed.
    window.changed = { ".key": [], ".record": [] };
    for (const [box, row] of [["keys", ".key"], ["stream", ".record"]]) {
      const all = { subtree: true, childList: true, characterData: true, attributes: true };
      new MutationObserver((changes) => window.changed[row].push(changes.length)).observe(document.getElementById(box), all);
    }
  });
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  let before = { TaskDuration: 0, Timestamp: 0 };
  const measure = async (what) => {
    const { metrics } = await session.send("Performance.getMetrics");
    const now = Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
    const work = (100 * (now.TaskDuration - before.TaskDuration)) / (now.Timestamp - before.Timestamp);
    before = now;
    const { frames, long } = await page.evaluate(() => {
      const taken = { frames: window.frames_seen.sort((a, b) => a - b), long: window.long };
      window.frames_seen = [];
      window.long = [];
      return taken;
    });
    const at = (share) => frames[Math.floor(frames.length * share)]?.toFixed(1);
    const worst = Math.max(0, ...long).toFixed(0);
    // Printed, not asserted: on a busy machine there are few frames, and tasks take long.
    console.log(`${what}: ${frames.length} frames, median ${at(0.5)} ms, p95 ${at(0.95)} ms; at work ${work.toFixed(0)} % of the time, ${long.length} long tasks, the longest ${worst} ms`);
  };

  await measure("before them");
  for (let round = 0; round < 5; round++) {
    const answer = await page.request.post(`${browser.base}/playground/jobs`, { data: { jobs: 50, copies: 1, shuffle: true } });
    assert.ok(answer.ok(), await answer.text());
  }
  await until(page, "two thousand effects", () => Number(document.getElementById("count-effects").textContent) >= 2000);
  await until(page, "an empty queue", () => document.getElementById("count-waiting").textContent === "0");
  // The stream is told apart from the counters, and may come later.
  await until(page, "two thousand records", () => Number(document.getElementById("stream-count").textContent) >= 2000);
  await measure("while 2 500 events arrive");
  const keys = Number((await text(page, "#store-note")).match(/\d+/)[0]);
  const records = Number(await text(page, "#stream-count"));
  assert.ok(keys > 500, `${keys} keys`);

  // Full of keys, with live changes: the double tap's lock, markers and profile.
  await page.locator("#double").click();
  await page.locator('.from-bot[data-path="handled"]').first().waitFor();
  await page.locator("#keys").evaluate((list) => (list.scrollTop = list.scrollHeight / 2));
  await page.waitForTimeout(3000);
  await measure(`with ${keys} keys and ${records} records`);

  const changed = await page.evaluate(() => window.changed);
  for (const row of [".key", ".record"]) {
    const drawn = await page.locator(row).count();
    assert.ok(drawn > 3 && drawn < 60, `${drawn} of ${row} are drawn`);
    const most = Math.max(...changed[row]);
    console.log(`${row}: ${drawn} drawn; ${changed[row].length} drawings, the largest of ${most} changes`);
    assert.ok(changed[row].length > 0, `${row} was drawn`);
    assert.ok(most <= drawn * CHANGES_PER_ROW, `${most} changes at once for ${drawn} of ${row}`);
  }
  await page.locator("#keys").evaluate((list) => (list.scrollTop = list.scrollHeight));
  await until(page, "the last key", (keys) => document.querySelector(`.key[aria-rowindex="${keys}"]`), await total(page));
  await page.locator("#filter").fill("profile");
  await until(page, "only profiles", () => [...document.querySelectorAll(".key")].length === 2);
  return page;
}

const total = async (page) => Number(await page.locator("#keys").getAttribute("aria-rowcount"));
