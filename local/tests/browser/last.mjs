// The last transaction, from two tabs at once.
import assert from "node:assert/strict";
import { count, text, until } from "./browser.mjs";

const CHANGED = "交易已變更，請重新操作";
const tab = (name) => `.tab[data-tab="${name}"]`;
const status = (page, name, wanted) => page.locator(`${tab(name)} .result[data-status="${wanted}"]`).waitFor();
const amount = (page, wanted) =>
  until(page, `an amount of ${wanted}`, (wanted) => document.querySelector(".receipt .amount")?.textContent.endsWith(` ${wanted}`), wanted);

async function record(page) {
  await page.locator("#record").click();
  await page.locator(".receipt .amount").waitFor();
}

/** Two pages, as one has them who left a tab open. */
export async function two_tabs(browser) {
  const first = await browser.open();
  const second = await browser.open({ refusals: [412] });
  await record(first);
  await second.locator(".receipt .amount").waitFor();
  await first.locator(`${tab("A")} input`).fill("150.10");
  await first.locator(`${tab("A")} button:not(.quiet)`).click();
  await status(first, "A", 200);
  await second.locator(`${tab("A")} .badge.busy:not([hidden])`).waitFor();
  await second.locator(`${tab("A")} input`).fill("999");
  await second.locator(`${tab("A")} button:not(.quiet)`).click();
  await status(second, "A", 412);
  assert.ok((await text(second, `${tab("A")} .result`)).endsWith(CHANGED));
  for (const page of [first, second]) await amount(page, "150.10");
  await browser.shoot(second, "two_tabs_conflict");
  await second.locator(`${tab("A")} .quiet`).click();
  await until(second, "what was read to be new", (tab) => document.querySelector(`${tab} .badge.busy`).hidden, tab("A"));
  await second.locator(`${tab("A")} button:not(.quiet)`).click();
  await status(second, "A", 200);
  for (const page of [first, second]) await amount(page, "999");
  return first;
}

export async function both_at_once(browser) {
  const page = await browser.open({ refusals: [404, 412] });
  await record(page);
  await until(page, "both to have read it", () => [...document.querySelectorAll(".tab .etag")].every((etag) => etag.textContent.startsWith("ETag")));
  await page.locator("#both").click();
  await count(page, ".tab .result[data-status]", 2);
  const statuses = await page.locator(".tab .result").evaluateAll((all) => all.map((each) => each.dataset.status).sort());
  assert.deepEqual(statuses, ["200", "412"], "with If-Match one wins and the other is told");

  await page.locator("#record").click();
  await amount(page, "250");
  await page.locator("#match").uncheck();
  await page.locator("#both").click();
  for (const name of ["A", "B"]) await status(page, name, 200);
  await amount(page, "150");
  await until(page, "both edits to have landed", () => document.querySelector(".receipt .facts")?.textContent.includes("教育"));

  await page.locator("#expire").click();
  await count(page, ".receipt.none", 1);
  await page.locator(`${tab("B")} button:not(.quiet)`).click();
  await status(page, "B", 404);
  assert.match(await text(page, `${tab("B")} .result`), /目前沒有可修改的交易記錄/);
  return page;
}

/** An entry of the chat's is the same transaction, and what is wrong with an edit is said. */
export async function chat_entry(browser) {
  const page = await browser.open({ refusals: [422] });
  await page.locator("#text").fill("午餐 120 信用卡");
  await page.locator("#text").press("Enter");
  await amount(page, "120");
  await page.locator(`${tab("A")} input`).fill("很多");
  await page.locator(`${tab("A")} button:not(.quiet)`).click();
  await status(page, "A", 422);
  await page.locator("#text").fill("修改金額 150");
  await page.locator("#text").press("Enter");
  await amount(page, "150");
  return page;
}
