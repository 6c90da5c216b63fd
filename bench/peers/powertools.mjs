// The contestant in TypeScript's place: Powertools' idempotency on DynamoDB and Redis, alone and in its batch utility, as its
// JavaScript is published.
//
// Reads orders from standard input, one a line of JSON, and answers on standard output. Callers are promises.

import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { randomUUID } from 'node:crypto';
import { Agent } from 'node:http';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

// The packages lie in a folder of their own.
const require = createRequire(pathToFileURL(`${process.env.BENCH_MODULES}/`));
const { BatchProcessor, EventType, processPartialResponse } = require('@aws-lambda-powertools/batch');
const { IdempotencyConfig, makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');
const { CachePersistenceLayer } = require('@aws-lambda-powertools/idempotency/cache');
const { DynamoDBClient } = require('@aws-sdk/client-dynamodb');
const { createClient } = require('redis');

const MOST_CALLERS = 64;
const MESSAGES = 10;
const MESSAGE = readFileSync(new URL('message.json', import.meta.url), 'utf8');
// As much of Lambda's context as the library looks at.
const context = { getRemainingTimeInMillis: () => 30_000 };

function powertoolsOn(persistenceStore) {
  const config = new IdempotencyConfig({});
  config.registerLambdaContext(context);
  const charge = makeIdempotent(async (order) => ({ order: order.id, charged: 120 }), { persistenceStore, config });
  return async (key) => {
    const receipt = await charge({ id: key });
    if (receipt.order !== key) throw new Error('an idempotent call ended otherwise than it should');
  };
}

// Handles a batch of messages and says how many of them were new.
function batchesOn(persistenceStore) {
  const processor = new BatchProcessor(EventType.SQS);
  const config = new IdempotencyConfig({ eventKeyJmesPath: 'messageId' });
  let handled = [];
  const recordHandler = makeIdempotent(
    async (record) => {
      handled.push(JSON.parse(record.body).id);
    },
    { persistenceStore, config },
  );
  return async (event) => {
    handled = [];
    config.registerLambdaContext(context);
    const response = await processPartialResponse(event, recordHandler, processor, { context });
    if (response.batchItemFailures.length > 0) throw new Error('a message failed');
    return handled.length;
  };
}

function batch(key) {
  return {
    Records: Array.from({ length: MESSAGES }, (_, n) => JSON.parse(MESSAGE.replaceAll('ORDER', `${key}-${n}`))),
  };
}

function dynamodb() {
  const awsSdkV3Client = new DynamoDBClient({
    endpoint: process.env.AWS_ENDPOINT_URL_DYNAMODB,
    requestHandler: { httpAgent: new Agent({ keepAlive: true, maxSockets: MOST_CALLERS }) },
  });
  return new DynamoDBPersistenceLayer({ tableName: 'powertools', awsSdkV3Client });
}

async function onRedis() {
  return new CachePersistenceLayer({ client: await createClient({ url: process.env.REDIS_URL }).connect() });
}

const made = {};
const base = randomUUID().slice(0, 12);
let number = 0;

async function run(call, inputs, expected) {
  const took = [];
  for (const input of inputs) {
    const start = performance.now();
    const answer = await call(input);
    took.push((performance.now() - start) * 1000);
    if (answer !== expected) throw new Error('a call did something else than it should');
  }
  return took;
}

// What is called, on what, whether it was called so before, and what it answers.
const kinds = {
  execute: { on: powertoolsOn, given: (key) => key, again: false, expected: undefined },
  replay: { on: powertoolsOn, given: (key) => key, again: true, expected: undefined },
  batch: { on: batchesOn, given: batch, again: false, expected: MESSAGES },
  'batch-again': { on: batchesOn, given: batch, again: true, expected: 0 },
};

async function measure({ call: name, store, callers, calls, blocks }) {
  const { on, given, again, expected } = kinds[name];
  const call = (made[`${on.name} ${store}`] ??= on(store === 'dynamodb' ? dynamodb() : await onRedis()));
  const each = Math.ceil(calls / callers);
  const took = [];
  let [elapsed, cpu] = [0, 0];
  for (let block = 0; block <= blocks; block++) {
    const inputs = Array.from({ length: callers }, (_, caller) =>
      Array.from({ length: each }, () => given(again ? `${base}-again-${caller}` : `${base}-${number++}`)),
    );
    if (again) for (const own of inputs) await call(own[0]);
    const [start, startCpu] = [performance.now(), process.cpuUsage()];
    const results = await Promise.all(inputs.map((own) => run(call, own, expected)));
    const [end, used] = [performance.now(), process.cpuUsage(startCpu)];
    // The first block warms up.
    if (block > 0) {
      elapsed += (end - start) / 1e3;
      cpu += (used.user + used.system) / 1e6;
      took.push(...results.flat());
    }
  }
  took.sort((a, b) => a - b);
  const at = (part) => took[Math.round(part * (took.length - 1))];
  return { calls: took.length, elapsed, cpu, p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = { measured: [await measure(JSON.parse(line))] };
  } catch (error) {
    console.error(error);
    answer = { failed: String(error) };
  }
  console.log(JSON.stringify(answer));
}
process.exit(0);
