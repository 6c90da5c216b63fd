// The ledger: what was written, by chat or over HTTP, in the month it belongs to.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { count, text, until } from "./browser.mjs";

const ROWS = "#entries tr";
/** As the first version of the chat had it; it goes on being understood. */
const THREE = "早餐 50、午餐 120、飲料 45 現金";
const LANGUAGES = [
  { locale: "en-GB", user: 0, counted: (n) => (n === 1 ? "1 entry" : `${n} entries`), nothing: "Nothing recorded in", down: "The store is down", column: "Paid by", sums: ["Spent", "Income"] },
  { locale: "zh-TW", user: 1, counted: (n) => `共 ${n} 筆`, nothing: "沒有記帳紀錄", down: "儲存體中斷", column: "付款方式", sums: ["支出", "收入"] },
];

/** Today in Taipei, where entries are dated, moved by so many months. */
function month(by = 0) {
  const at = new Date(Date.now() + 8 * 3_600_000);
  return new Date(Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + by, 1)).toISOString().slice(0, 7);
}

/** Opens the page in a language, as its user; each of the two has a ledger of its own. */
async function open(browser, { locale, user }, options) {
  const page = await browser.open({ locale, ...options });
  await page.locator(".user").nth(user).click();
  await page.locator("#nothing, #book").and(page.locator(":visible")).waitFor();
  return page;
}

/** Writes in the chat, and waits until it is answered. */
async function write(page, words) {
  const answered = page.waitForResponse((response) => response.url().endsWith("/playground/deliver"));
  await page.locator("#text").fill(words);
  await page.locator("#text").press("Enter");
  await answered;
}

/** Has everything erased: asks for it, and taps the button that confirms it. */
async function erase(page) {
  await write(page, "刪除我的資料");
  const answered = page.waitForResponse((response) => response.url().endsWith("/playground/deliver"));
  await page.getByRole("button", { name: "確定刪除" }).last().click();
  await answered;
}

/** The rows as they are read, the newest first: item, amount, category, payment. */
const table = (page) =>
  page.locator(ROWS).evaluateAll((rows) => rows.map((row) => [...row.cells].slice(2).map((cell) => cell.textContent).join("|")));

async function shows(page, wanted) {
  await until(page, `the rows ${JSON.stringify(wanted)}`, (wanted) => {
    const rows = [...document.querySelectorAll("#entries tr")].map((row) => [...row.cells].slice(2).map((cell) => cell.textContent).join("|"));
    return JSON.stringify(rows) === JSON.stringify(wanted);
  }, wanted).catch(async (error) => assert.deepEqual(await table(page), wanted, error.message));
}

/** The sums: the number of entries, what was spent, what came in, and each category with its bar's length, its sum and its number. */
const sums = (page) =>
  page.evaluate(() => [
    document.getElementById("sum-count").textContent,
    document.getElementById("sum-total").textContent,
    document.getElementById("sum-income").textContent,
    ...[...document.querySelectorAll("#categories tr")].map((row) => {
      const [head, , total, number] = [...row.cells].map((cell) => cell.textContent);
      const { width } = row.querySelector(".bar i").getBoundingClientRect();
      const part = Math.round((100 * width) / row.querySelector(".bar").getBoundingClientRect().width);
      return `${head} ${part}% ${total} ${number}`;
    }),
  ]);

const empty = (page) => page.locator("#nothing:visible").waitFor();

/** Whoever has the token writes it, as another program would. */
async function put(browser, page, user, { amount = "1", ...fields }) {
  const { edit_token, users } = await (await page.request.get(`${browser.base}/playground/config`)).json();
  const entry = {
    intent: "bookkeeping", 日期: `${month()}-01`, 時間: "00:00", 品項: "麵", 原幣別: "TWD", 原幣金額: 0, 匯率: 1, 付款方式: "現金",
    交易ID: "20200101-000000", 分類: "飲食", 專案: "日常", 必要性: "必要", 代墊狀態: "無", ...fields,
  };
  // A float would not hold all digits that an amount may have.
  const data = JSON.stringify(entry).replace('"原幣金額":0', `"原幣金額":${amount}`);
  const headers = { authorization: `Bearer ${edit_token}`, "content-type": "application/json" };
  const answer = await page.request.put(`${browser.base}/users/${users[user]}/last-transaction`, { data, headers });
  assert.ok(answer.ok(), await answer.text());
}

async function download(page) {
  const saved = page.waitForEvent("download");
  await page.locator("#csv").click();
  const file = await saved;
  const bytes = await readFile(await file.path());
  assert.deepEqual([...bytes.subarray(0, 3)], [0xef, 0xbb, 0xbf], "a spreadsheet knows by it that this is UTF-8");
  const lines = bytes.subarray(3).toString("utf8").split("\r\n");
  assert.equal(lines.pop(), "", "the last line ends too");
  return { name: file.suggestedFilename(), header: lines.shift().split(","), lines };
}

/** Sends an example of the phone as it stands. */
const say = (page, words) => page.locator("#examples").getByRole("button", { name: words, exact: true }).click();

/** The bot's newest answer has all of these parts. */
const answers = (page, ...parts) =>
  until(page, `an answer with ${parts}`, (parts) => {
    const said = document.querySelector(".from-bot:last-child .bubble")?.textContent.replaceAll(",", "") ?? "";
    return parts.every((part) => said.includes(part));
  }, parts);

export async function ledger_chat(browser) {
  let page;
  for (const language of LANGUAGES) {
    page = await open(browser, language);
    assert.ok((await text(page, "#nothing")).includes(language.nothing));
    assert.ok((await text(page, "#nothing")).includes(month()));
    // Delivered four times: one of them counts.
    await page.locator("#nothing .example").click();
    const two = ["午餐|TWD 120|飲食|現金", "早餐|TWD 50|飲食|現金"];
    await shows(page, two);
    for (let times = 1; times <= 3; times++) {
      await page.locator("#redeliver").click();
      await count(page, ".note .badge.deduped", times);
    }
    assert.deepEqual(await table(page), two);
    assert.deepEqual(await sums(page), [language.counted(2), "170", "0", "飲食 100% 170 2"]);
    assert.equal(await page.locator(".entries th").last().textContent(), language.column);
    assert.equal(await page.locator("#stream .record").count(), 0, "an entry is no event of the bus");

    await write(page, "分類改成娛樂");
    await shows(page, ["午餐|TWD 120|娛樂|現金", two[1]]);
    assert.deepEqual(await sums(page), [language.counted(2), "170", "0", "娛樂 100% 120 1", "飲食 42% 50 1"]);
    await write(page, "改成 150.10");
    await shows(page, ["午餐|TWD 150.10|娛樂|現金", two[1]]);
    await until(page, "the sum to be exact", () => document.getElementById("sum-total").textContent === "200.1");
    await say(page, "改成150");
    await shows(page, ["午餐|TWD 150|娛樂|現金", two[1]]);
    await say(page, "刪掉剛剛那筆");
    await shows(page, two.slice(1));

    // The bot asks for what is missing, and offers answers.
    await say(page, "計程車 250");
    await page.locator(".offers").getByText("現金", { exact: true }).click();
    await shows(page, ["計程車|TWD 250|交通|現金", two[1]]);
    await say(page, "薪水 50000 轉帳");
    await shows(page, ["薪水|TWD 50000|收入|轉帳", "計程車|TWD 250|交通|現金", two[1]]);
    assert.deepEqual(await sums(page), [language.counted(3), "300", "50000", "交通 100% 250 1", "飲食 20% 50 1"]);
    await write(page, "書 USD 12.50 匯率 31.5 信用卡 分類 教育");
    await shows(page, ["書|USD 12.50 × 31.5|教育|信用卡", "薪水|TWD 50000|收入|轉帳", "計程車|TWD 250|交通|現金", two[1]]);
    const [, total, income] = await sums(page);
    assert.deepEqual([total, income], ["693.75", "50000"]);

    // The bot counts the same.
    await say(page, "今天花多少");
    await answers(page, total, income);
    await write(page, "最近紀錄");
    await answers(page, "書", "12.50", "薪水");
    await erase(page);
    await empty(page);
    assert.equal(await page.locator(ROWS).and(page.locator(":visible")).count(), 0);
  }
  return page;
}

/** Spending and income are two sums, and neither is a part of the other. */
export async function ledger_income(browser) {
  let page;
  for (const language of LANGUAGES) {
    page = await open(browser, language);
    await put(browser, page, language.user, { 品項: "薪水", 交易ID: "20200101-000001", 分類: "收入", 付款方式: "轉帳", amount: "50000" });
    await count(page, ROWS, 1);
    assert.deepEqual(await sums(page), [language.counted(1), "0", "50000"], "income is no category of spending");
    await put(browser, page, language.user, { 品項: "午餐", 交易ID: "20200101-000002", 時間: "00:02", amount: "100.10" });
    await put(browser, page, language.user, { 品項: "退款", 交易ID: "20200101-000003", 時間: "00:03", 分類: "收入", 原幣別: "USD", 匯率: 31.5, amount: "0.10" });
    await count(page, ROWS, 3);
    assert.deepEqual(await sums(page), [language.counted(3), "100.1", "50003.15", "飲食 100% 100.1 1"]);
    assert.deepEqual(await page.locator(".sum .amount small:first-child").allTextContents(), language.sums);
    await page.locator("#ledger").screenshot({ path: `${browser.screenshots}/ledger_income_${language.locale}.png` });
    await page.setViewportSize({ width: 360, height: 740 });
    await page.locator("#ledger").screenshot({ path: `${browser.screenshots}/ledger_income_${language.locale}_phone.png` });
    assert.equal(await page.evaluate(() => document.scrollingElement.scrollWidth - innerWidth), 0);
    await page.locator("#language").click();
    const other = LANGUAGES[1 - LANGUAGES.indexOf(language)];
    assert.deepEqual(await page.locator(".sum .amount small:first-child").allTextContents(), other.sums);
  }
  return page;
}

export async function ledger_months(browser) {
  let page;
  for (const language of LANGUAGES) {
    page = await open(browser, language);
    await write(page, "計程車 480.50 信用卡");
    await write(page, "午餐 120 信用卡");
    await shows(page, ["午餐|TWD 120|飲食|信用卡", "計程車|TWD 480.50|交通|信用卡"]);
    await write(page, `修改日期 ${month(-1)}-28`);
    await shows(page, ["計程車|TWD 480.50|交通|信用卡"]);
    await page.locator("#earlier").click();
    await shows(page, ["午餐|TWD 120|飲食|信用卡"]);
    assert.equal(await page.locator("#month").inputValue(), month(-1));
    assert.equal(await text(page, `${ROWS} .date`), `${month(-1)}-28`);
    assert.deepEqual((await download(page)).lines.length, 1);
    // What is written now belongs to now.
    await write(page, "晚餐 200 現金");
    await page.locator("#later").click();
    await shows(page, ["晚餐|TWD 200|飲食|現金", "計程車|TWD 480.50|交通|信用卡"]);
    await page.locator("#month").fill(month(-2));
    await empty(page);
    assert.ok((await text(page, "#nothing")).includes(month(-2)));
    await page.locator("#month").fill(month(-1));
    await shows(page, ["午餐|TWD 120|飲食|信用卡"]);
    await page.locator("#later").click();
    await count(page, ROWS, 2);
    // The other user's is another ledger.
    await page.locator(".user").nth(1 - language.user).click();
    if (language.user === 0) await empty(page);
    await page.locator(".user").nth(language.user).click();
    await count(page, ROWS, 2);
  }
  return page;
}

/** What users write is text, in the table and in a spreadsheet. */
export async function ledger_csv(browser) {
  let page;
  for (const language of LANGUAGES) {
    page = await open(browser, language, { viewport: { width: 1280, height: 1030 } });
    const markup = '<img src=x onerror="document.title=1"><script>document.title=1</script>';
    await put(browser, page, language.user, { 品項: markup, 交易ID: "20200101-000001", 時間: "00:01", 分類: "<b>粗</b>" });
    await put(browser, page, language.user, { 品項: "=1+1", 交易ID: "20200101-000002", 時間: "00:02", 付款方式: "@SUM(1)", 附註: 'a,"b"' });
    await write(page, "午餐 120 信用卡");
    await shows(page, ["午餐|TWD 120|飲食|信用卡", "=1+1|TWD 1|飲食|@SUM(1)", `${markup}|TWD 1|<b>粗</b>|現金`]);
    assert.equal(await page.locator("main img, main script, .ledger td b, .ledger th b").count(), 0);
    assert.equal(await page.title(), "onetap");

    const { name, header, lines } = await download(page);
    assert.equal(name, `transactions-${month()}.csv`);
    for (const field of ["日期", "時間", "品項", "原幣金額", "分類", "付款方式", "交易ID"]) assert.ok(header.includes(field), field);
    assert.equal(lines.length, 3);
    assert.ok(lines[0].includes('"<img src=x onerror=""document.title=1""><script>'), lines[0]);
    assert.ok(lines[1].includes("'=1+1") && lines[1].includes("'@SUM(1)") && lines[1].includes('"a,""b"""'), lines[1]);
    assert.ok(lines[2].includes("午餐") && lines[2].includes(",120,"), lines[2]);
    await browser.shoot(page, `ledger_csv_${language.locale}`);
  }
  return page;
}

export async function ledger_outage(browser) {
  let page;
  for (const language of LANGUAGES) {
    page = await open(browser, language, { refusals: [503] });
    await write(page, THREE);
    await count(page, ROWS, 3);
    await page.locator("#down").check();
    await page.locator("#ledger-problem:visible").waitFor();
    assert.ok((await text(page, "#ledger-problem")).includes(language.down));
    assert.ok(await page.locator("#csv").isDisabled());
    await write(page, "午餐 100 現金");
    await browser.shoot(page, `ledger_outage_${language.locale}`);
    await page.locator("#down").uncheck();
    await page.locator("#ledger-problem").waitFor({ state: "hidden" });
    await count(page, ROWS, 3);
    assert.ok(await page.locator("#csv").isEnabled());

    // An outage that no switch announces.
    await page.route("**/transactions?**", (route) => route.fulfill({ status: 503, json: { success: false, message: "系統暫時無法讀取交易記錄，請稍後再試" } }));
    await write(page, "晚餐 200 現金");
    await page.locator("#ledger-problem:visible").waitFor();
    assert.ok((await text(page, "#ledger-problem")).endsWith("系統暫時無法讀取交易記錄，請稍後再試"));
    await page.unroute("**/transactions?**");
    await count(page, ROWS, 4);
    await page.locator("#ledger-problem").waitFor({ state: "hidden" });
  }
  return page;
}

/** Hundreds of entries, and words and amounts as long as they may be. */
export async function ledger_long(browser) {
  const page = await open(browser, LANGUAGES[0]);
  const watching = await open(browser, LANGUAGES[0], { viewport: { width: 360, height: 740 }, hasTouch: true });
  const users = await page.locator(".user").evaluateAll((all) => all.map((each) => each.dataset.user));
  const letters = [..."abcdefghijklmnopqrst"];
  for (const first of letters.slice(0, 11)) {
    // More than the page's own box takes.
    const words = letters.map((second, n) => `點心${first}${second} ${n + 1}.50`).join("、") + " 現金";
    const events = [{ type: "message", message: { type: "text", text: words } }];
    const answer = await page.request.post(`${browser.base}/playground/deliver`, { data: { user: users[0], events } });
    assert.equal((await answer.json()).deliveries[0].events[0].path, "handled");
  }
  await put(browser, page, 0, { 品項: "很長的品項".repeat(20), 付款方式: "某銀行聯名簽帳金融信用卡", 分類: "一個名字很長的分類" });
  for (const each of [page, watching]) {
    await until(each, "every entry to be counted", () => document.getElementById("sum-count").textContent === "221 entries");
    await count(each, ROWS, 200);
    assert.match(await text(each, "#entries-more"), /200 of 221/);
    assert.match(await text(each, ROWS), /點心kt/);
  }
  assert.equal((await download(page)).lines.length, 221);
  await erase(page);
  for (const each of [page, watching]) await empty(each);
  const wide = { 品項: "LongWordWithoutAnySpace".repeat(8), 原幣別: "USD", 付款方式: "某銀行聯名簽帳金融信用卡", 分類: "一個名字很長的分類", 匯率: 31.5 };
  await put(browser, page, 0, wide);
  const huge = { 交易ID: "20200101-000003", 品項: "很長的品項".repeat(20) };
  await put(browser, page, 0, { ...huge, amount: "999999999999999999.99999999" });
  for (const [each, width] of [[page, "desktop"], [watching, "phone"]]) {
    await count(each, ROWS, 2);
    await each.locator("#ledger").screenshot({ path: `${browser.screenshots}/ledger_long_${width}.png` });
    assert.equal(await each.evaluate(() => document.scrollingElement.scrollWidth - innerWidth), 0, width);
    assert.equal(await each.locator(".entries").evaluate((box) => box.scrollWidth - box.clientWidth), 0, "nothing is scrolled sideways");
  }
  for (const width of [1480, 1280, 1130, 900, 770, 640, 360]) {
    await watching.setViewportSize({ width, height: 740 });
    const room = await watching.locator(`${ROWS} .what`).first().evaluate((cell) => cell.getBoundingClientRect().width);
    assert.ok(room >= 80, `an item has ${room} pixels on a page of ${width}`);
  }
  return page;
}
