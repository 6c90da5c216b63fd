"""The contestant in Python: Powertools' idempotency on DynamoDB and Redis, and redis-py's lock as seed 000 writes it.

Reads orders from standard input, one a line of JSON, and answers on standard output. Callers are threads.
"""

import json
import os
import sys
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from urllib.parse import urlparse

import boto3
import redis
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from botocore.config import Config

MOST_CALLERS = 64


class Context:
    """As much of Lambda's context as the library looks at."""

    def get_remaining_time_in_millis(self):
        return 30_000


def powertools_on(persistence):
    config = IdempotencyConfig()
    config.register_lambda_context(Context())

    @idempotent_function(data_keyword_argument="order", persistence_store=persistence, config=config)
    def charge(order):
        return {"order": order["id"], "charged": 120}

    def call(key):
        if charge(order={"id": key})["order"] != key:
            raise RuntimeError("an idempotent call ended otherwise than it should")

    return call


def dynamodb():
    client = boto3.client(
        "dynamodb",
        endpoint_url=os.environ["AWS_ENDPOINT_URL_DYNAMODB"],
        config=Config(max_pool_connections=MOST_CALLERS),
    )
    return powertools_on(DynamoDBPersistenceLayer(table_name="powertools", boto3_client=client))


def on_redis():
    url = urlparse(os.environ["REDIS_URL"])
    return redis.Redis(host=url.hostname, port=url.port, decode_responses=True)


def lock_on(client):
    def call(key):
        name = f"processing:user:{key}"
        if not client.set(name, "1", nx=True, ex=5):
            raise RuntimeError("a lock ended otherwise than it should")
        client.delete(name)

    return call


class Contestant:
    def __init__(self):
        self.made = {}
        self.pool = ThreadPoolExecutor(MOST_CALLERS)
        self.base = uuid.uuid4().hex[:12]
        self.numbers = count()

    def call(self, name, store):
        known = (name, store)
        if known not in self.made:
            if name == "lock":
                self.made[known] = lock_on(on_redis())
            elif store == "dynamodb":
                self.made[known] = dynamodb()
            else:
                self.made[known] = powertools_on(CachePersistenceLayer(client=on_redis()))
        return self.made[known]

    def measure(self, order):
        call = self.call("lock" if order["call"] == "lock" else "execute", order["store"])
        callers = order["callers"]
        each = -(-order["calls"] // callers)
        took, elapsed, cpu = [], 0.0, 0.0
        for block in range(order["blocks"] + 1):
            if order["call"] == "replay":
                keys = [[f"{self.base}-again-{caller}"] * each for caller in range(callers)]
                for own in keys:
                    call(own[0])
            else:
                keys = [[f"{self.base}-{next(self.numbers)}" for _ in range(each)] for _ in range(callers)]
            start, start_cpu = time.perf_counter(), time.process_time()
            if callers == 1:
                results = [run(call, keys[0])]
            else:
                results = list(self.pool.map(lambda own: run(call, own), keys))
            end, end_cpu = time.perf_counter(), time.process_time()
            # The first block warms up.
            if block > 0:
                elapsed += end - start
                cpu += end_cpu - start_cpu
                took += [one for own in results for one in own]
        took.sort()
        at = lambda part: took[round(part * (len(took) - 1))] * 1e6
        return {"calls": len(took), "elapsed": elapsed, "cpu": cpu, "p50": at(0.5), "p95": at(0.95), "p99": at(0.99)}


def run(call, keys):
    took = []
    for key in keys:
        start = time.perf_counter()
        call(key)
        took.append(time.perf_counter() - start)
    return took


def main():
    contestant = Contestant()
    for line in sys.stdin:
        try:
            answer = {"measured": [contestant.measure(json.loads(line))]}
        except Exception as error:
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


main()
