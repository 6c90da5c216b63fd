// node run.mjs URL SCREENSHOTS SCENARIO: plays one scenario; fails with what was wrong, whoever's fault it is.
import { mkdirSync } from "node:fs";
import { Browser } from "./browser.mjs";
import * as bus from "./bus.mjs";
import * as chat from "./chat.mjs";
import * as last from "./last.mjs";
import * as ledger from "./ledger.mjs";
import * as page from "./page.mjs";
import * as weather from "./weather.mjs";

const [base, screenshots, name] = process.argv.slice(2);
const play = { ...bus, ...chat, ...last, ...ledger, ...page, ...weather }[name];
if (!play) throw new Error(`there is no scenario ${name}`);
mkdirSync(screenshots, { recursive: true });

const browser = await Browser.launch(base, screenshots);
try {
  const played = await play(browser);
  await browser.shoot(played, name);
  if (browser.faults.length) throw new Error(`the page is not clean:\n${browser.faults.join("\n")}`);
} catch (error) {
  for (const context of browser.chromium.contexts()) {
    for (const [index, open] of context.pages().entries()) await browser.shoot(open, `${name}_failed_${index}`).catch(() => {});
  }
  if (browser.faults.length) console.error(browser.faults.join("\n"));
  throw error;
} finally {
  await browser.close();
}
