// A minimal Lambda function with Powertools' idempotency on DynamoDB, and the shortest loop that serves it: what Lambda
// itself puts around a handler takes longer.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const require = createRequire(pathToFileURL(`${process.env.BENCH_MODULES}/`));
const { makeIdempotent } = require('@aws-lambda-powertools/idempotency');
const { DynamoDBPersistenceLayer } = require('@aws-lambda-powertools/idempotency/dynamodb');

const persistenceStore = new DynamoDBPersistenceLayer({ tableName: process.env.POWERTOOLS_TABLE });
const handler = makeIdempotent(async (event) => ({ order: event.id, charged: 120 }), { persistenceStore });

const api = `http://${process.env.AWS_LAMBDA_RUNTIME_API}/2018-06-01/runtime/invocation`;
for (;;) {
  const next = await fetch(`${api}/next`);
  const deadline = Number(next.headers.get('lambda-runtime-deadline-ms'));
  const context = { getRemainingTimeInMillis: () => deadline - Date.now() };
  const result = await handler(await next.json(), context);
  const id = next.headers.get('lambda-runtime-aws-request-id');
  await (await fetch(`${api}/${id}/response`, { method: 'POST', body: JSON.stringify(result) })).arrayBuffer();
}
