// The page itself: widths, colours, languages, and what it says when the runner is away.
import assert from "node:assert/strict";
import { count, delay, settled, text, until } from "./browser.mjs";

/** Something in every part, so that there is something to be too wide. */
async function fill(page) {
  await page.locator("#double").click();
  // Whether the two taps meet depends on the speed of the machine.
  await page.locator('.from-bot[data-path="handled"]').first().waitFor();
  await settled(page);
  await page.locator("#examples .example").first().click();
  await count(page, "#entries tr", 1);
  await page.locator("#examples").getByText("薪水 50000 轉帳").click();
  await count(page, "#entries tr", 2);
  await page.locator("#record").click();
  await count(page, "#entries tr", 3);
  await until(page, "the sample to be the last transaction", () => document.querySelector(".receipt .amount")?.textContent === "TWD 120");
  for (const name of ["A", "B"]) await page.locator(`.tab[data-tab="${name}"] .quiet`).click();
  await count(page, ".tab .badge:not([hidden])", 0);
  await page.locator("#both").click();
  await count(page, ".tab .result[data-status]", 2);
  await page.locator("#job button[type=submit]").click();
  await page.locator(".verdict.equal").waitFor();
}

const overhang = (page) => page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth);

export async function phone_width(browser) {
  const page = await browser.open({ viewport: { width: 360, height: 740 }, hasTouch: true, refusals: [412] });
  await fill(page);
  assert.equal(await overhang(page), 0);
  await browser.shoot(page, "phone_width_english", { fullPage: true });
  await page.locator("#language").click();
  assert.equal(await overhang(page), 0);
  const small = await page.locator("button:visible").evaluateAll((all) => all.filter((each) => each.offsetHeight < 24).map((each) => each.textContent));
  assert.deepEqual(small, [], "a finger hits every button");
  return page;
}

/** How light a colour is, 0 to 1. */
const light = (page, selector, property) =>
  page.locator(selector).first().evaluate((element, property) => {
    const [red, green, blue] = getComputedStyle(element)[property].match(/[\d.]+/g).map(Number);
    return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
  }, property);

export async function dark_mode(browser) {
  const page = await browser.open({ colorScheme: "dark", refusals: [412] });
  await fill(page);
  for (const part of ["body", ".card", ".phone", ".from-bot .bubble", ".list", ".tab select", ".entries", "#month"]) {
    assert.ok((await light(page, part, "backgroundColor")) < 0.25, `${part} is dark`);
    assert.ok((await light(page, part, "color")) > 0.6, `the text of ${part} is light`);
  }
  const day = await browser.open({ colorScheme: "light" });
  assert.ok((await light(day, "body", "backgroundColor")) > 0.85);
  return page;
}

export async function languages(browser) {
  const page = await browser.open();
  assert.equal(await text(page, "#lock-title"), "The lock");
  await page.locator("#language").click();
  assert.equal(await text(page, "#lock-title"), "處理鎖");
  assert.equal(await page.locator("html").getAttribute("lang"), "zh-Hant");
  await page.reload();
  await page.locator("#live.live").waitFor();
  assert.equal(await text(page, "#lock-title"), "處理鎖", "it is remembered");
  const chinese = await browser.open({ locale: "zh-TW" });
  assert.equal(await text(chinese, "#lock-title"), "處理鎖", "a browser that speaks it gets it");
  for (const each of [page, chinese]) {
    const mute = await each.locator("[data-t], [data-t-label]").evaluateAll((all) =>
      all.filter((element) => (element.dataset.t && !element.textContent) || element.textContent === element.dataset.t).map((element) => element.outerHTML));
    assert.deepEqual(mute.filter((html) => !html.includes("hidden")), [], "everything has words");
  }
  const nameless = await page.locator("button, input, select").evaluateAll((all) =>
    all.filter((each) => !each.textContent.trim() && !each.getAttribute("aria-label") && !each.labels?.length).map((each) => each.outerHTML));
  assert.deepEqual(nameless, [], "everything that can be used has a name");
  return page;
}

export async function lost(browser) {
  const page = await browser.open();
  await page.locator('#menu [data-tap="home"]').click();
  await count(page, ".from-bot", 1);
  // Chromium notes both the broken stream and the refused attempts: here they are the point.
  const before = browser.faults.length;
  await page.context().setOffline(true);
  await page.locator('#menu [data-tap="home"]').click();
  await page.locator(".notice").waitFor();
  await page.locator(".from-user .badge.failed").waitFor();
  await page.context().setOffline(false);
  await page.route("**/playground/live", (route) => route.abort());
  await page.reload();
  await page.locator("#live.lost").waitFor();
  await page.unroute("**/playground/live");
  await page.locator("#live.live").waitFor();
  browser.faults.splice(before);
  await count(page, ".from-bot", 1);
  return page;
}

/** The picture of the README, and its three sisters. */
export async function pictures(browser) {
  const size = { viewport: { width: 1280, height: 1410 }, refusals: [412] };
  const page = await browser.open(size);
  await fill(page);
  await page.locator("#examples").getByText("早餐50元 午餐120元 現金").click();
  await count(page, "#entries tr", 5);
  await page.locator("#examples").getByText("計程車 250").click();
  await page.locator(".offers").getByText("悠遊卡", { exact: true }).click();
  await count(page, "#entries tr", 6);
  await until(page, "the answer, and new rows to fade", () =>
    document.querySelector(".from-bot:last-child .bubble")?.textContent.includes("悠遊卡") &&
    [...document.querySelectorAll("#entries tr")].every((row) => row.getAnimations().length === 0));
  await delay(page, 1000);
  await page.locator("#twenty").click();
  // While the lock is held, if the page shows that within five seconds.
  await page.locator(".holding.held").first().waitFor({ timeout: 5000 }).catch(() => {});
  await browser.shoot(page, "playground");
  await count(page, ".dots", 0);
  const chinese = await browser.open({ ...size, locale: "zh-TW" });
  await chinese.locator("#examples").getByText("計程車 250").click();
  await chinese.locator(".offers").getByText("悠遊卡", { exact: true }).waitFor();
  await browser.shoot(chinese, "playground_chinese");
  const dark = await browser.open({ ...size, colorScheme: "dark" });
  await dark.locator("#text").fill("永和區");
  await dark.locator("#text").press("Enter");
  await until(dark, "an answer", () => document.querySelector(".from-bot:last-child .bubble")?.textContent.includes("永和區"));
  await browser.shoot(dark, "playground_dark");
  return page;
}
