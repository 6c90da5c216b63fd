// node run.mjs chromium|package|node PORT SCENARIO: plays one scenario against the gateway on that port. A client that
// leaves a timer or a connection behind keeps this process from ending.
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const [where, port, scenario] = process.argv.slice(2);
const load = createRequire(path.join(process.env.ONETAP_TOOLS, "package.json"));
const base = `http://127.0.0.1:${port}`;

await (where === "chromium" ? inChromium() : inNode());

async function inNode() {
  const client = fileURLToPath(new URL("../../../../docs/job-events.js", import.meta.url));
  const { followJob } = await import(client);
  const scenarios = await import("./scenarios.mjs");
  const own = where === "package" ? { EventSource: load("eventsource").EventSource } : {};
  await scenarios[scenario](base, (url, options) => followJob(url, { ...own, ...options }));
}

async function inChromium() {
  const { chromium } = load("playwright-core");
  const executablePath = execFileSync("sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();
  const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"] });
  try {
    const page = await browser.newPage();
    const faults = [];
    page.on("pageerror", (error) => faults.push(error.stack));
    // Another origin than the gateway's: the client must do with what CORS lets it read.
    await page.goto(`http://localhost:${port}/`);
    await page.evaluate(async ([base, scenario]) => {
      const { followJob } = await import("/job-events.js");
      const scenarios = await import("/scenarios.mjs");
      await scenarios[scenario](base, followJob);
    }, [base, scenario]);
    if (faults.length) throw new Error(`uncaught in the page:\n${faults.join("\n")}`);
  } finally {
    await browser.close();
  }
}
