// Runs the official JavaScript client against the gateway; exits with the line that failed.
//
// Environment: UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN, and ONETAP_TOOLS, whose node_modules has the client.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";

const require = createRequire(join(process.env.ONETAP_TOOLS, "node_modules", "from-here.js"));
const { Redis } = require("@upstash/redis");
const { UPSTASH_REDIS_REST_URL: url, UPSTASH_REDIS_REST_TOKEN: token } = process.env;

for (const responseEncoding of ["base64", false]) {
  const redis = new Redis({ url, token, responseEncoding, retry: false, enableTelemetry: false });
  const key = (name) => `mjs:${responseEncoding}:${name}`;

  // A claim: the first wins, the second is null, also where it asks for the value that is there.
  assert.equal(await redis.set(key("claim"), "mine", { nx: true, px: 60_000 }), "OK");
  assert.equal(await redis.set(key("claim"), "other", { nx: true, px: 60_000 }), null);
  assert.equal(await redis.set(key("claim"), "other", { nx: true, px: 60_000, get: true }), null);
  assert.equal(await redis.get(key("claim")), "mine");
  assert.ok((await redis.pttl(key("claim"))) > 0);
  assert.equal(await redis.set(key("claim"), "next", { get: true }), "mine");
  assert.equal(await redis.get(key("absent")), null);

  // Any text, and the word that base64 leaves alone.
  for (const text of ["", "OK", "你好 🙂", 'quotes " and\nlines']) {
    await redis.set(key("text"), text);
    assert.equal(await redis.get(key("text")), text);
  }
  await redis.set(key("ok"), "OK");
  assert.deepEqual(await redis.mget(key("ok"), key("absent")), ["OK", null]);

  // Scripts, with the line that only Upstash knows, by text and by digest.
  const script = "#!lua flags=allow-key-locking\nreturn { KEYS[1], ARGV[1], { 'nested', 7 } }";
  const expected = ["k", "a", ["nested", 7]];
  assert.deepEqual(await redis.eval(script, ["k"], ["a"]), expected);
  const loaded = redis.createScript(script);
  assert.deepEqual(await loaded.exec(["k"], ["a"]), expected);
  assert.deepEqual(await redis.evalsha(await redis.scriptLoad(script), ["k"], ["a"]), expected);
  await assert.rejects(redis.evalsha("0".repeat(40), [], []), /NOSCRIPT/);

  // Pipelines and transactions.
  const batch = (kind) => kind.set(key("n"), 1).incr(key("n")).get(key("n")).exec();
  assert.deepEqual(await batch(redis.pipeline()), ["OK", 2, 2]);
  assert.deepEqual(await batch(redis.multi()), ["OK", 2, 2]);
  const failing = await redis.pipeline().set(key("s"), "x").incr(key("s")).exec({ keepErrors: true });
  assert.equal(failing[0].result, "OK");
  assert.match(failing[1].error, /^ERR value is not an integer/);
  await assert.rejects(redis.incr(key("s")), /ERR value is not an integer/);

  // Streams.
  const id = await redis.xadd(key("log"), "*", { kind: "first" });
  await redis.xadd(key("log"), "*", { kind: "second" }, { trim: { type: "MAXLEN", threshold: 100, comparison: "~" } });
  const range = await redis.xrange(key("log"), "-", "+");
  assert.equal(Object.keys(range)[0], id);
  assert.deepEqual(Object.values(range), [{ kind: "first" }, { kind: "second" }]);

  // Subscriptions.
  const subscriber = redis.subscribe([key("channel")]);
  const next = (type) => new Promise((resolve) => subscriber.on(type, resolve));
  const message = next("message");
  assert.equal(await next("subscribe"), 1);
  assert.equal(await redis.publish(key("channel"), "hello, you"), 1);
  assert.deepEqual(await message, { channel: key("channel"), message: "hello, you" });
  await subscriber.unsubscribe();
}

const stranger = new Redis({ url, token: "wrong", retry: false, enableTelemetry: false });
await assert.rejects(stranger.get("k"), (error) => error.name === "UpstashError" && /WRONGPASS/.test(error.message));

process.exit(0);
