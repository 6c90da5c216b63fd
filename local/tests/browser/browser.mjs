// What every scenario stands on: Debian's Chromium, pages that are watched, and waiting for things rather than for time.
import { createRequire } from "node:module";
import { execFileSync } from "node:child_process";
import path from "node:path";

const { chromium } = createRequire(path.join(process.env.ONETAP_TOOLS, "package.json"))("playwright-core");

// Quiet: nothing of the browser's own may reach out. Its profile is a new, empty folder that Playwright removes.
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
/** Time limit for one wait, in ms. A busy machine needs seconds for what usually takes a tenth of a second. */
const PATIENCE = 45_000;

/** A browser on the runner at `base`. Whatever a page does wrong is collected in `faults`. */
export class Browser {
  faults = [];

  static async launch(base, screenshots) {
    const made = new Browser();
    const executablePath = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();
    made.base = base;
    made.screenshots = screenshots;
    made.chromium = await chromium.launch({ executablePath, headless: true, args: FLAGS });
    return made;
  }

  /** A page that is connected. `refusals` are the statuses that Chromium may note on the console: they are meant. */
  async open({ refusals = [], ...options } = {}) {
    const context = await this.chromium.newContext({ viewport: { width: 1280, height: 940 }, locale: "en-GB", ...options });
    context.setDefaultTimeout(PATIENCE);
    const page = await context.newPage();
    page.on("pageerror", (error) => this.faults.push(`uncaught: ${error.stack}`));
    page.on("console", (message) => {
      const meant = refusals.some((status) => message.text().includes(`the server responded with a status of ${status} `));
      if (["error", "warning"].includes(message.type()) && !meant) this.faults.push(`console: ${message.text()}`);
    });
    context.on("request", (request) => {
      if (new URL(request.url()).origin !== this.base) this.faults.push(`outside request: ${request.url()}`);
    });
    await page.goto(this.base);
    await page.locator("#live.live").waitFor();
    return page;
  }

  shoot(page, name, options) {
    return page.screenshot({ path: path.join(this.screenshots, `${name}.png`), ...options });
  }

  close() {
    return this.chromium.close();
  }
}

/** Waits until `holds` does in the page, and says what it waited for when it never did. */
export async function until(page, what, holds, argument) {
  try {
    await page.waitForFunction(holds, argument, { timeout: PATIENCE });
  } catch (error) {
    throw new Error(`never: ${what} (${error.message.split("\n")[0]})`);
  }
}

/** Waits until there are exactly so many. */
export async function count(page, selector, wanted) {
  const holds = ([selector, wanted]) => document.querySelectorAll(selector).length === wanted;
  await until(page, `${wanted} of ${selector}`, holds, [selector, wanted]).catch(async (error) => {
    throw new Error(`${error.message}: there are ${await page.locator(selector).count()}`);
  });
}

/** Every tap has been answered: none waits for its path. */
export const settled = (page) => count(page, ".dots", 0);

export const text = async (page, selector) => (await page.locator(selector).first().textContent()).trim();

/** Moves the slider, and waits until the runner has taken it. */
export async function delay(page, ms) {
  const taken = page.waitForResponse((response) => response.url().endsWith("/playground/weather") && response.ok());
  await page.locator("#delay").fill(String(ms));
  await taken;
}
