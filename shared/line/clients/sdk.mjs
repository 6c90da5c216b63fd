// What LINE's own SDK for JavaScript makes of the cases on standard input: see tests/official_sdks.rs.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.ONETAP_TOOLS}/`);
const { validateSignature } = require("@line/bot-sdk");

const { secret, deliveries } = JSON.parse(readFileSync(0, "utf8"));
const events = ({ body, signature }) =>
  validateSignature(body, secret, signature) ? JSON.parse(body).events.length : null;
console.log(JSON.stringify(deliveries.map(events)));
