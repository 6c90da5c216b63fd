// The phone and the lock.
import assert from "node:assert/strict";
import { count, delay, settled, text, until } from "./browser.mjs";

const HANDLED = '.from-bot[data-path="handled"]';
const BUSY = '.from-bot[data-path="busy"]';

/** Delay of the provider in ms, half of its time limit: taps meet while it waits, and a slow machine still answers in time. */
const HALF = 750;

async function write(page, words) {
  await page.locator("#text").fill(words);
  await page.locator("#text").press("Enter");
}

/** Taps twice until two taps have met, and returns how often. On a slow machine the first may be answered before the second arrives. */
async function double(page) {
  const met = page.locator(".from-user .badge.busy");
  const before = await met.count();
  for (let taps = 1; ; taps++) {
    assert.ok(taps <= 5, "two taps at once meet");
    await page.locator("#double").click();
    await settled(page);
    if ((await met.count()) > before) return taps;
  }
}

export async function double_tap(browser) {
  const page = await browser.open();
  await delay(page, HALF);
  const first = await double(page);
  await count(page, HANDLED, 2 * first - 1);
  await count(page, BUSY, 1);
  assert.match(await text(page, `${HANDLED} .bubble`), /範例資料[^]*🌡️/u, "it is a forecast");
  assert.match(await text(page, `${BUSY} .bubble`), /正在為您查詢天氣/);
  await count(page, ".from-user .badge.handled", first);
  await count(page, ".from-user .badge.busy", 1);
  assert.equal(await page.locator(".race .lane").count(), 2);
  // Once more at the same place: the forecast that is kept is forgotten first, so that the taps meet again.
  const again = await double(page);
  await count(page, HANDLED, 2 * (first + again) - 2);
  await count(page, BUSY, 2);
  await count(page, ".from-bot .source.fetched", first + again);
  return page;
}

export async function twenty_taps(browser) {
  const page = await browser.open();
  await delay(page, HALF);
  const answer = page.waitForResponse((response) => response.url().endsWith("/playground/deliver"));
  await page.locator("#twenty").click();
  const { deliveries } = await (await answer).json();
  await settled(page);
  // How many taps meet during one forecast depends on the speed of the machine. Each tap got one answer.
  const paths = (await page.locator(".from-user .marks").getAttribute("data-paths")).split(" ");
  const times = (path) => paths.filter((each) => each === path).length;
  const tally = { handled: times("handled"), busy: times("busy") };
  assert.equal(tally.handled + tally.busy, 20);
  assert.ok(tally.busy > 0, "at least two of twenty met");
  // Nobody waited for another's forecast: each had the lock, and had its own fetched.
  const sources = deliveries.flatMap((one) => one.events.map((event) => event.forecast)).filter(Boolean);
  assert.deepEqual(sources, Array(tally.handled).fill("fetched"));
  // All began together, so that forecasts one after another take as long as they do in sum.
  const longest = Math.max(...deliveries.map((one) => one.ms));
  assert.ok(tally.handled * HALF <= longest + 50, `${tally.handled} forecasts in ${longest} ms ran at once`);
  await count(page, HANDLED, tally.handled);
  await until(page, "every busy answer to be counted", ([selector, busy]) => {
    const bubbles = [...document.querySelectorAll(selector)];
    return bubbles.reduce((sum, bubble) => sum + Number(bubble.dataset.count ?? 1), 0) === busy;
  }, [BUSY, tally.busy]);
  return page;
}

export async function lock_shown(browser) {
  const page = await browser.open();
  await delay(page, HALF);
  await page.evaluate(() => {
    const rows = document.getElementById("holders");
    new MutationObserver(() => {
      const held = rows.querySelector(".held");
      if (held) window.held = held.textContent;
    }).observe(rows, { subtree: true, attributes: true, childList: true });
  });
  // The page is updated ten times a second. Under load it may miss a lock that is held between two updates.
  for (let attempt = 1; !(await page.evaluate(() => window.held)); attempt++) {
    assert.ok(attempt <= 5, "the lock was shown while it was held");
    await page.locator('#menu [data-tap="home"]').click();
    await settled(page);
    await count(page, HANDLED, attempt);
  }
  assert.match(await page.evaluate(() => window.held), /^A\s*held by \w{8}.* s$/);
  await count(page, ".holding.held", 0);
  return page;
}

export async function redelivery(browser) {
  const page = await browser.open();
  await page.locator('#menu [data-tap="home"]').click();
  await count(page, HANDLED, 1);
  await settled(page);
  await page.locator("#redeliver").click();
  await page.locator(".note .badge.deduped").waitFor();
  // Had it been answered, that answer would stand before the next one's.
  await write(page, "說明");
  await until(page, "the next answer", (selector) => document.querySelector(`${selector}:last-child .bubble`)?.textContent.includes("您可以這樣使用"), ".from-bot");
  await count(page, ".from-bot", 2);
  return page;
}

export async function store_down(browser) {
  const page = await browser.open();
  await page.locator("#down").check();
  await page.locator("#open-note").waitFor();
  await page.locator('#menu [data-tap="home"]').click();
  await count(page, `${HANDLED} .badge.open`, 1);
  assert.match(await text(page, `${HANDLED} .bubble`), /系統暫時有點忙/, "a saved place needs the store, and says so");
  await write(page, "永和區");
  await until(page, "a forecast without the store", () => [...document.querySelectorAll(".from-bot .bubble")].some((bubble) => bubble.textContent.includes("🌡️")));
  await count(page, `${HANDLED} .badge.open`, 2);
  await browser.shoot(page, "store_down_while_down");
  await page.locator("#down").uncheck();
  await until(page, "the store to be back", () => !document.body.classList.contains("down"));
  await write(page, "永和區");
  await count(page, HANDLED, 3);
  await settled(page);
  await count(page, `${HANDLED} .badge.open`, 2);
  return page;
}

export async function two_users(browser) {
  const page = await browser.open();
  await delay(page, HALF);
  for (let attempt = 1; ; attempt++) {
    await page.locator('#menu [data-tap="home"]').click();
    await page.locator(".user").nth(1).click();
    await page.locator('#menu [data-tap="home"]').click();
    await count(page, HANDLED, attempt);
    assert.equal(await page.locator(BUSY).count(), 0, "one user's lock is not another's");
    // On a slow machine the first user's answer may come before the second user is chosen: then it is not unread.
    const unread = await page.locator(".user.unread").waitFor({ timeout: 3000 }).then(() => true, () => false);
    await page.locator(".user").first().click();
    await count(page, HANDLED, attempt);
    await count(page, ".user.unread", 0);
    if (unread) return page;
    assert.ok(attempt < 15, "an answer to a user who is not shown is marked as unread");
  }
}

export async function keyboard(browser) {
  const page = await browser.open();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
  await page.keyboard.press("Enter");
  await until(page, "the text box to have the focus", () => document.activeElement.id === "text");
  await page.keyboard.type("永和區");
  await page.keyboard.press("Enter");
  await count(page, HANDLED, 1);
  for (let steps = 0; (await focused(page)) !== "other"; steps++) {
    assert.ok(steps < 20, "the menu can be reached from the text box");
    await page.keyboard.press("Tab");
  }
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(ring, "none", "the focus can be seen");
  await page.keyboard.press("Space");
  await page.locator(".offers .offer").first().waitFor();
  await page.locator("#place").focus();
  await page.keyboard.press("Enter");
  await page.locator("#places[open]").waitFor();
  await page.keyboard.press("Enter");
  await count(page, HANDLED, 3);
  assert.match(await text(page, ".from-bot:last-child .bubble"), /中正區[^]*🌡️/u, "a place is sent as one");
  return page;
}

/** A place with 天氣 behind it, and a question that means the saved home. Each language has a user of its own, and so a chat of its own. */
export async function weather_examples(browser) {
  let page;
  for (const [user, locale] of ["en-GB", "zh-TW"].entries()) {
    page = await browser.open({ locale });
    await page.locator(".user").nth(user).click();
    for (const [words, part] of [["永和天氣", "永和區"], ["明天會下雨嗎", ""]]) {
      await page.locator("#examples").getByRole("button", { name: words, exact: true }).click();
      await settled(page);
      await until(page, `a forecast after ${words}`, (part) => {
        const said = document.querySelector(".from-bot:last-child .bubble")?.textContent ?? "";
        return said.includes("🌡️") && said.includes(part);
      }, part);
    }
    await count(page, HANDLED, 2);
  }
  return page;
}

const focused = (page) => page.evaluate(() => document.activeElement.dataset.tap ?? document.activeElement.id);

export async function markup(browser) {
  const page = await browser.open();
  const words = '<img src=x onerror="document.title=1"><b>粗</b>';
  await write(page, words);
  await count(page, ".from-bot", 1);
  assert.equal(await text(page, ".from-user .bubble"), words);
  await page.locator("#filter").fill(words);
  assert.equal(await page.locator("main img").count(), 0);
  const answer = await page.request.get(browser.base);
  assert.match(answer.headers()["content-security-policy"], /default-src 'self'/);
  return page;
}

/** A bot of one's own: its buttons work, what is repeated meets its lock, and nothing of the bundle's bot is there. */
export async function own_bot(browser) {
  const page = await browser.open();
  for (const hidden of ["#weather", "#ledger", ".last", ".bus", "#menu", "#examples"]) {
    assert.equal(await page.locator(hidden).isVisible(), false, `${hidden} is hidden`);
  }
  assert.equal(await page.locator("#double").isDisabled(), true, "nothing was sent yet");
  await write(page, "hello");
  await settled(page);
  assert.match(await text(page, `${HANDLED} .bubble`), /a menu/);
  await page.locator(".from-bot button", { hasText: "Tea" }).click();
  await settled(page);
  await count(page, HANDLED, 2);
  await page.locator("#double").click();
  await settled(page);
  await count(page, ".from-bot", 4);
  await page.locator("#language").click();
  assert.match(await text(page, ".bot-name"), /你的機器人|your bot/);
  return page;
}
