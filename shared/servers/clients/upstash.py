"""Runs the official Python client against the gateway; exits with the line that failed.

Environment: UPSTASH_REDIS_REST_URL, UPSTASH_REDIS_REST_TOKEN.
"""

import os

from upstash_redis import Redis
from upstash_redis.errors import UpstashError

URL = os.environ["UPSTASH_REDIS_REST_URL"]
TOKEN = os.environ["UPSTASH_REDIS_REST_TOKEN"]


def equal(seen, expected):
    assert seen == expected, f"{seen!r} is not {expected!r}"


def fails(call, text):
    try:
        call()
    except UpstashError as error:
        assert text in str(error), f"{error} does not say {text}"
    else:
        raise AssertionError(f"no error that says {text}")


for encoding in ["base64", None]:
    redis = Redis(url=URL, token=TOKEN, rest_encoding=encoding, rest_retries=0, allow_telemetry=False)

    def key(name):
        return f"py:{encoding}:{name}"

    # A claim: the first wins, the second does not, also where it asks for the value that is there.
    equal(redis.set(key("claim"), "mine", nx=True, px=60_000), True)
    equal(redis.set(key("claim"), "other", nx=True, px=60_000), False)
    equal(redis.execute(["SET", key("claim"), "other", "NX", "GET", "PX", 60_000]), None)
    equal(redis.get(key("claim")), "mine")
    assert redis.pttl(key("claim")) > 0
    equal(redis.set(key("claim"), "next", get=True), "mine")
    equal(redis.get(key("absent")), None)

    # Any text, and the word that base64 leaves alone.
    for text in ["", "OK", "你好 🙂", 'quotes " and\nlines']:
        redis.set(key("text"), text)
        equal(redis.get(key("text")), text)
    redis.set(key("ok"), "OK")
    equal(redis.mget(key("ok"), key("absent")), ["OK", None])

    # Scripts, with the line that only Upstash knows, by text and by digest.
    script = "#!lua flags=allow-key-locking\nreturn { KEYS[1], ARGV[1], { 'nested', 7 } }"
    expected = ["k", "a", ["nested", 7]]
    equal(redis.eval(script, keys=["k"], args=["a"]), expected)
    equal(redis.evalsha(redis.script_load(script), keys=["k"], args=["a"]), expected)
    fails(lambda: redis.evalsha("0" * 40), "NOSCRIPT")

    # Pipelines and transactions.
    for batch in [redis.pipeline(), redis.multi()]:
        batch.set(key("n"), 1).incr(key("n")).get(key("n"))
        equal(batch.exec(), [True, 2, "2"])
    redis.set(key("s"), "x")
    fails(lambda: redis.incr(key("s")), "ERR value is not an integer")

    # Streams.
    first = redis.xadd(key("log"), "*", {"kind": "first"})
    second = redis.xadd(key("log"), "*", {"kind": "second"}, maxlen=100)
    entries = redis.xrange(key("log"), "-", "+")
    equal([entry[0] for entry in entries], [first, second])
    equal([list(entry[1]) for entry in entries], [["kind", "first"], ["kind", "second"]])

    # This client cannot subscribe; it can publish.
    equal(redis.publish(key("channel"), "hello"), 0)

stranger = Redis(url=URL, token="wrong", rest_retries=0, allow_telemetry=False)
fails(lambda: stranger.get("k"), "WRONGPASS")
