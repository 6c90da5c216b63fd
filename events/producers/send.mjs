#!/usr/bin/env node
// Sends the events of a job to the queue. onetap publishes each of them once, however often this program is run.
//
//     npm install @aws-sdk/client-sqs
//     QUEUE_URL=https://sqs.… node send.mjs job-1
//
// Copy it, and put your own job into `work`. Region, credentials and AWS_ENDPOINT_URL are read by the AWS SDK.

import { createHash } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { SendMessageBatchCommand, SQSClient } from "@aws-sdk/client-sqs";

const USAGE = `usage: send.mjs [--domain DOMAIN] [--tokens N] JOB_ID

Sends the events of a job to the SQS queue QUEUE_URL. Run it twice: each is published once.

  --domain DOMAIN  default: scan
  --tokens N       also send N events of the stage token`;

// The first and last number of each stage, as the queue consumer has them (EVENT_STAGES): here the default table, and
// `token` for the words of a language model, which the default table does not have.
const STAGES = {
  vision: [10, 19],
  rule: [20, 29],
  answer: [30, 39],
  reward: [40, 49],
  done: [50, 59],
  token: [1_000, 999_999],
};
const MAX_EVENT_BYTES = 128 * 1024;
// Limits of one SendMessageBatch.
const MAX_BATCH_ENTRIES = 10;
const MAX_BATCH_BYTES = 1024 * 1024;
const MAX_ATTEMPTS = 5;

/** The nth event of a stage, from 0. Job, stage and seq say which event it is: a repetition has the same. */
function event(jobId, domain, stage, nth, data) {
  if (!(stage in STAGES)) throw new Error(`${stage} is not among the STAGES of this program`);
  const [first, last] = STAGES[stage];
  const seq = first + nth;
  if (seq > last) throw new Error(`${stage} has only ${last - first + 1} numbers`);
  const timestamp = new Date().toISOString();
  const text = JSON.stringify({ job_id: jobId, domain, stage, seq, data, timestamp });
  const bytes = Buffer.byteLength(text);
  if (bytes > MAX_EVENT_BYTES) {
    throw new Error(`${stage} ${seq} is over 128 KiB: store large data elsewhere, and send where it is`);
  }
  return { jobId, id: `${jobId}:${stage}:${seq}`, text, bytes };
}

/** The job: its events. A slow job calls `send` after each step instead, so that its followers see it at once. */
function* work(jobId, domain, tokens) {
  yield event(jobId, domain, "vision", 0, { status: "started" });
  yield event(jobId, domain, "vision", 1, { text: "統一發票 🧾", total: 120 });
  yield event(jobId, domain, "rule", 0, { category: "午餐" });
  for (let n = 0; n < tokens; n++) yield event(jobId, domain, "token", n, { token: `字${n}` });
  yield event(jobId, domain, "answer", 0, { text: "午餐 120 元" });
  yield event(jobId, domain, "reward", 0, { points: 1 });
  yield event(jobId, domain, "done", 1, { status: "done" }); // `done` from 51 on ends the job
}

/** Lists of events that fit into one call. */
function* batches(events) {
  let [batch, size] = [[], 0];
  for (const one of events) {
    if (batch.length === MAX_BATCH_ENTRIES || size + one.bytes > MAX_BATCH_BYTES) {
      yield batch;
      [batch, size] = [[], 0];
    }
    batch.push(one);
    size += one.bytes;
  }
  if (batch.length > 0) yield batch;
}

/** An event as an entry of SendMessageBatch. */
function entry(one, n, fifo) {
  const found = { Id: String(n), MessageBody: one.text };
  if (!fifo) return found;
  // A group is delivered in order. SQS drops what comes with the same deduplication id within five minutes; what comes
  // later, onetap recognises. Such an id has at most 128 characters.
  const same = one.id.length <= 128 ? one.id : createHash("sha256").update(one.id).digest("hex");
  return { ...found, MessageGroupId: one.jobId, MessageDeduplicationId: same };
}

/**
 * Sends events, and those that the queue did not take again; returns their number.
 *
 * A call can succeed and still have failed entries. Sending an event twice is harmless: if in doubt, send it again. One
 * that is sent again may come after its successors; the latest state of the job never goes back.
 */
async function send(sqs, queueUrl, events) {
  const fifo = queueUrl.endsWith(".fifo");
  let sent = 0;
  for (const batch of batches(events)) {
    let waiting = batch.map((one, n) => entry(one, n, fifo));
    for (let attempt = 0; waiting.length > 0; attempt++) {
      if (attempt === MAX_ATTEMPTS) {
        throw new Error(`${waiting.length} events were not accepted: run it again, that is harmless`);
      }
      if (attempt > 0) await sleep(100 * 2 ** (attempt - 1));
      const { Failed: failed = [] } = await sqs.send(
        new SendMessageBatchCommand({ QueueUrl: queueUrl, Entries: waiting }),
      );
      const refused = failed.find((failure) => failure.SenderFault);
      if (refused) throw new Error(`the queue refuses an event: ${refused.Code}`);
      const ids = new Set(failed.map((failure) => failure.Id));
      waiting = waiting.filter((one) => ids.has(one.Id));
      if (waiting.length > 0) console.error(`${waiting.length} not accepted (${failed[0].Code}), sending again`);
    }
    sent += batch.length;
  }
  return sent;
}

function wrong(problem) {
  console.error(`${USAGE}\n\nsend.mjs: ${problem}`);
  process.exit(2);
}

function readArguments() {
  const options = { domain: { type: "string" }, tokens: { type: "string" }, help: { type: "boolean", short: "h" } };
  let parsed;
  try {
    parsed = parseArgs({ options, allowPositionals: true });
  } catch (error) {
    wrong(error.message);
  }
  const { domain = "scan", tokens = "0", help } = parsed.values;
  if (help) {
    console.log(USAGE);
    process.exit();
  }
  const [jobId, ...rest] = parsed.positionals;
  if (jobId === undefined || rest.length > 0) wrong("one JOB_ID is needed");
  if (!/^[A-Za-z0-9._:-]{1,128}$/.test(jobId)) wrong("JOB_ID is not 1 to 128 of A-Z a-z 0-9 . _ : -");
  if (!/^[a-z0-9_-]{1,32}$/.test(domain)) wrong("DOMAIN is not 1 to 32 of a-z 0-9 _ -");
  if (!/^[0-9]+$/.test(tokens)) wrong("N is not a whole number");
  const queueUrl = process.env.QUEUE_URL;
  if (!queueUrl) wrong("QUEUE_URL is not set: the URL of the queue, the stack's output QueueUrl");
  return { jobId, domain, tokens: Number(tokens), queueUrl };
}

const { jobId, domain, tokens, queueUrl } = readArguments();
try {
  // Otherwise the client would call the host of the queue's URL, and ignore AWS_ENDPOINT_URL.
  const sqs = new SQSClient({ useQueueUrlAsEndpoint: false });
  const sent = await send(sqs, queueUrl, work(jobId, domain, tokens));
  console.log(`sent ${sent} events of ${jobId}`);
} catch (error) {
  console.error(`send.mjs: ${error.message}`);
  process.exitCode = 1;
}
