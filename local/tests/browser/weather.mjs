// The weather: its faults, and where each forecast came from.
import assert from "node:assert/strict";
import { count, delay, text, until } from "./browser.mjs";

const PROVIDER = '[data-provider="provider"]';
const FALLBACK = '[data-provider="fallback"]';

/** Asks for the forecast of a place, and waits until it is shown where it came from. */
async function ask(page, place, source) {
  const before = await page.locator(".from-bot .source").count();
  await page.locator("#text").fill(place);
  await page.locator("#text").press("Enter");
  await count(page, ".from-bot .source", before + 1);
  const shown = page.locator(".from-bot").last();
  assert.ok(await shown.locator(`.source.${source}`).count(), `${place}: ${source}, not ${await shown.locator(".source").textContent()}`);
  return (await shown.locator(".bubble").textContent()).trim();
}

async function set(page, row, behaviour) {
  const taken = page.waitForResponse((response) => response.url().endsWith("/playground/weather") && response.ok());
  await page.locator(`${row} select`).selectOption(behaviour);
  await taken;
  await until(page, `${row} to be ${behaviour}`, ([row, faulty]) => document.querySelector(row).classList.contains("faulty") === faulty, [row, behaviour !== "works"]);
}

/** Presses a button of the card, and waits until the runner has done it. */
async function press(page, id) {
  const done = page.waitForResponse((response) => response.url().endsWith(`/weather/${id}`) && response.ok());
  await page.locator(`#${id}`).click();
  await done;
}

/** Waits until the provider and the fallback were asked so often. */
const asked = (page, ...wanted) =>
  until(page, `${wanted} calls`, (wanted) => [...document.querySelectorAll(".calls")].map((each) => each.textContent).join() === wanted, wanted.join());

export async function provider_down(browser) {
  const page = await browser.open();
  await asked(page, 0, 0);
  assert.match(await ask(page, "永和區", "fetched"), /🌡️/u);
  await asked(page, 1, 0);
  await set(page, PROVIDER, "down");
  assert.match(await ask(page, "板橋區", "fallback"), /板橋區[^]*🌡️/u, "it is answered all the same");
  await asked(page, 2, 1);
  // Another user, the same places: nobody is asked.
  await page.locator(".user").nth(1).click();
  await ask(page, "板橋區", "kept");
  await ask(page, "永和區", "kept");
  await asked(page, 2, 1);
  // What is shown is still there when the page is opened again.
  await page.reload();
  await count(page, ".from-bot .source", 2);
  await page.locator(".user").nth(1).click();
  await count(page, ".from-bot .source.kept", 2);
  await asked(page, 2, 1);
  return page;
}

/** The foot of a forecast: when it was fetched. */
const foot = (bubble) => bubble.match(/\d\d\/\d\d \d\d:\d\d 更新$/)[0];

export async function both_down(browser) {
  const page = await browser.open();
  const fetched = await ask(page, "永和區", "fetched");
  await press(page, "outdate");
  await set(page, PROVIDER, "down");
  await set(page, FALLBACK, "down");
  const stale = await ask(page, "永和區", "stale");
  assert.notEqual(foot(stale), foot(fetched), "the time at which it was fetched, made half an hour older");
  assert.match(await ask(page, "板橋區", "failed"), /系統暫時有點忙/, "nothing is kept of this one");
  await asked(page, 3, 2);
  await browser.shoot(page, "both_down_while_down");
  await set(page, PROVIDER, "works");
  await ask(page, "永和區", "fetched");
  await asked(page, 4, 2);
  return page;
}

export async function provider_slow(browser) {
  const page = await browser.open();
  await delay(page, 2000);
  const answer = page.waitForResponse((response) => response.url().endsWith("/playground/deliver"));
  assert.match(await ask(page, "永和區", "fallback"), /🌡️/u);
  const { deliveries: [{ ms }] } = await (await answer).json();
  // Here a forecast has three seconds, of which the provider gets half.
  assert.ok(ms >= 1000, `${ms} ms: the provider was given its time`);
  await asked(page, 1, 1);
  await delay(page, 0);
  await press(page, "forget");
  await ask(page, "永和區", "fetched");
  await asked(page, 2, 1);
  return page;
}

export async function provider_refuses(browser) {
  const page = await browser.open();
  await set(page, PROVIDER, "refuses");
  await page.locator(`${PROVIDER} .pause`).waitFor();
  assert.match(await text(page, `${PROVIDER} .pause`), /not asked for a minute/);
  await ask(page, "永和區", "fallback");
  await asked(page, 1, 1);
  await until(page, "the pause", (row) => /^Not asked for another .*[\d:]+/.test(document.querySelector(`${row} .pause`).textContent), PROVIDER);
  await set(page, PROVIDER, "works");
  await ask(page, "板橋區", "fallback");
  await asked(page, 1, 2);
  assert.ok(await page.locator(`${PROVIDER} .pause`).isVisible(), "it works again, and is still not asked");
  await browser.shoot(page, "provider_refuses_while_paused");
  await press(page, "forget");
  await page.locator(`${PROVIDER} .pause`).waitFor({ state: "hidden" });
  await ask(page, "板橋區", "fetched");
  await asked(page, 2, 2);
  // The keys of what was forgotten are gone from the store; that of the new one is there.
  await page.locator("#filter").fill("weather:");
  await until(page, "one key", () => [...document.querySelectorAll(".key .name")].map((name) => name.textContent).join() === "weather:sample:新北市板橋區");
  return page;
}

const WORDS = {
  "zh-TW": ["天氣", ["正常", "中斷", "限流（429）"], { fetched: "新取得", kept: "快取", fallback: "備援", stale: "舊資料", failed: "無預報" }],
  "en-GB": ["The weather", ["works", "is down", "rate-limits (429)"], { fetched: "fetched", kept: "kept", fallback: "fallback", stale: "stale", failed: "no forecast" }],
};

/** Every source once, by nothing but the keyboard. */
async function every_source(page, words) {
  const choose = async (row, key) => {
    await page.locator(`${row} select`).focus();
    const taken = page.waitForResponse((response) => response.url().endsWith("/playground/weather") && response.ok());
    await page.keyboard.press(key);
    await taken;
  };
  const push = async (id) => {
    const done = page.waitForResponse((response) => response.url().endsWith(`/weather/${id}`) && response.ok());
    await page.locator(`#${id}`).focus();
    await page.keyboard.press("Enter");
    await done;
  };
  const told = async (place, source) => {
    await ask(page, place, source);
    assert.equal(await page.locator(".from-bot .source").last().textContent(), words[source]);
  };
  await push("forget");
  await told("永和區", "fetched");
  await told("永和區", "kept");
  await choose(PROVIDER, "ArrowDown");
  await told("板橋區", "fallback");
  await choose(FALLBACK, "ArrowDown");
  await push("outdate");
  await told("永和區", "stale");
  await told("淡水區", "failed");
}

export async function weather_words(browser) {
  const pages = [];
  for (const [locale, [title, options, words]] of Object.entries(WORDS)) {
    const page = await browser.open({ locale });
    assert.equal(await text(page, "#weather-title"), title);
    assert.deepEqual(await page.locator(`${PROVIDER} option`).allTextContents(), options);
    await every_source(page, words);
    await page.locator("#weather").scrollIntoViewIfNeeded();
    await browser.shoot(page, `weather_${locale}`);
    for (const row of [FALLBACK, PROVIDER]) await set(page, row, "works");
    pages.push(page);
  }
  return pages.at(-1);
}

export async function weather_phone(browser) {
  const page = await browser.open({ viewport: { width: 360, height: 740 }, hasTouch: true, locale: "zh-TW" });
  await set(page, PROVIDER, "refuses");
  await ask(page, "永和區", "fallback");
  await set(page, FALLBACK, "down");
  await ask(page, "板橋區", "failed");
  for (const name of ["chinese", "english"]) {
    assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth), 0);
    const cut = await page.locator("#weather button, #weather select, #weather .pause, .from-bot .source").evaluateAll((all) =>
      all.filter((each) => each.scrollWidth > each.clientWidth + 1 || each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent));
    assert.deepEqual(cut, [], "no word is cut off");
    await page.locator("#weather").screenshot({ path: `${browser.screenshots}/weather_phone_${name}_card.png` });
    await page.locator(".phone").screenshot({ path: `${browser.screenshots}/weather_phone_${name}_chat.png` });
    await page.locator("#language").click();
  }
  return page;
}

export async function weather_real(browser) {
  const page = await browser.open();
  await page.locator("#simulated").waitFor();
  assert.equal(await text(page, `${PROVIDER} code`), "open-meteo");
  await count(page, ".provider", 1);
  // The fault is in front of the provider: nothing goes out.
  await set(page, PROVIDER, "down");
  await ask(page, "永和區", "failed");
  await asked(page, 1);
  return page;
}
