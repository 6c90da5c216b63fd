// The page: reads what the runner is, then lets every part show its own.
import { $ } from "./dom.js";
import { config, load } from "./api.js";
import { connect, on } from "./live.js";
import { say, toggleLanguage, translate } from "./words.js";
import * as bus from "./bus.js";
import * as keys from "./keys.js";
import * as last from "./last.js";
import * as ledger from "./ledger.js";
import * as lock from "./lock.js";
import * as phone from "./phone.js";
import * as weather from "./weather.js";

translate();
say($("language"), "language");
$("language").addEventListener("click", toggleLanguage);

async function start() {
  try {
    await load();
  } catch {
    // It has been told; the runner may be on its way up.
    setTimeout(start, 2000);
    return;
  }
  $("kind").textContent = `${config.store} · v${config.version}`;
  // A bot of one's own has no weather and no ledger.
  document.body.classList.toggle("own-bot", config.own_bot);
  if (config.own_bot) {
    const name = document.querySelector(".bot-name");
    say(name.querySelector("b"), "own_bot");
    say(name.querySelector("small"), "own_bot_note");
    $("text").dataset.tPlaceholder = "own_message_hint";
    translate();
  }
  for (const part of config.own_bot ? [phone, lock, keys] : [phone, lock, weather, last, ledger, bus, keys]) part.start();
  on("settings", ({ store }) => document.body.classList.toggle("down", store.down));
  connect();
}

start();
