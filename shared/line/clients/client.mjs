// Calls the Messaging API at `url` with LINE's own SDK for JavaScript: see tests/official_sdks.rs.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.env.ONETAP_TOOLS}/`);
const { messagingApi } = require("@line/bot-sdk");

const cases = JSON.parse(readFileSync(0, "utf8"));
const config = { baseURL: cases.url, channelAccessToken: cases.token };
const api = new messagingApi.MessagingApiClient(config);
const blob = new messagingApi.MessagingApiBlobClient(config);

const last = cases.pushes.at(-1);
for (const { to, messages, retryKey } of cases.pushes) await api.pushMessage({ to, messages }, retryKey);
const again = await api.pushMessage({ to: last.to, messages: last.messages }, last.retryKey).then(
  () => "sent",
  (refused) => [refused.status, refused.headers.get("x-line-accepted-request-id")],
);
await api.showLoadingAnimation({ chatId: cases.userId, loadingSeconds: cases.seconds });
const { httpResponse, body } = await blob.getMessageContentWithHttpInfo(cases.messageId);
const chunks = [];
for await (const chunk of body) chunks.push(chunk);
const quota = await api.getMessageQuota();
const { totalUsage } = await api.getMessageQuotaConsumption();
const profile = await api.getProfile(cases.userId);
const bot = await api.getBotInfo();
console.log(JSON.stringify({
  again,
  content: [Buffer.concat(chunks).toString("hex"), httpResponse.headers.get("content-type")],
  quota: [quota.type, quota.value ?? null, totalUsage],
  profile: [profile.displayName, profile.language ?? null, profile.pictureUrl ?? null, profile.statusMessage ?? null],
  bot: [bot.userId, bot.basicId, bot.displayName],
}));
