"""The contestant in Python: Powertools' idempotency on DynamoDB and Redis, alone and in its batch utility, and redis-py's lock as
seed 000 writes it.

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
from pathlib import Path
from urllib.parse import urlparse

import boto3
import redis
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)
from aws_lambda_powertools.utilities.idempotency.persistence.cache import CachePersistenceLayer
from botocore.config import Config

MOST_CALLERS = 64
MESSAGES = 10
MESSAGE = Path(__file__).with_name("message.json").read_text()


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


def batches_on(persistence):
    """Handles a batch of messages and says how many of them were new."""
    processor = BatchProcessor(event_type=EventType.SQS)
    config = IdempotencyConfig(event_key_jmespath="messageId")
    new = []

    @idempotent_function(data_keyword_argument="record", config=config, persistence_store=persistence)
    def record_handler(record: SQSRecord):
        new.append(record.json_body["id"])

    def call(event):
        new.clear()
        context = Context()
        config.register_lambda_context(context)
        response = process_partial_response(
            event=event, record_handler=record_handler, processor=processor, context=context
        )
        if response["batchItemFailures"]:
            raise RuntimeError("a message failed")
        return len(new)

    return call


def batch(key):
    return {"Records": [json.loads(MESSAGE.replace("ORDER", f"{key}-{n}")) for n in range(MESSAGES)]}


def dynamodb():
    client = boto3.client(
        "dynamodb",
        endpoint_url=os.environ["AWS_ENDPOINT_URL_DYNAMODB"],
        config=Config(max_pool_connections=MOST_CALLERS),
    )
    return DynamoDBPersistenceLayer(table_name="powertools", boto3_client=client)


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
            else:
                persistence = dynamodb() if store == "dynamodb" else CachePersistenceLayer(client=on_redis())
                self.made[known] = batches_on(persistence) if name == "batch" else powertools_on(persistence)
        return self.made[known]

    def measure(self, order):
        # What is called, whether it was called so before, and what it answers.
        name, again, expected = {
            "lock": ("lock", False, None),
            "execute": ("execute", False, None),
            "replay": ("execute", True, None),
            "batch": ("batch", False, MESSAGES),
            "batch-again": ("batch", True, 0),
        }[order["call"]]
        call = self.call(name, order["store"])
        given = batch if name == "batch" else lambda key: key
        callers = order["callers"]
        each = -(-order["calls"] // callers)
        took, elapsed, cpu = [], 0.0, 0.0
        for block in range(order["blocks"] + 1):
            if again:
                inputs = [[given(f"{self.base}-again-{caller}")] * each for caller in range(callers)]
                for own in inputs:
                    call(own[0])
            else:
                inputs = [
                    [given(f"{self.base}-{next(self.numbers)}") for _ in range(each)] for _ in range(callers)
                ]
            start, start_cpu = time.perf_counter(), time.process_time()
            if callers == 1:
                results = [run(call, inputs[0], expected)]
            else:
                results = list(self.pool.map(lambda own: run(call, own, expected), inputs))
            end, end_cpu = time.perf_counter(), time.process_time()
            # The first block warms up.
            if block > 0:
                elapsed += end - start
                cpu += end_cpu - start_cpu
                took += [one for own in results for one in own]
        took.sort()
        at = lambda part: took[round(part * (len(took) - 1))] * 1e6
        return {"calls": len(took), "elapsed": elapsed, "cpu": cpu, "p50": at(0.5), "p95": at(0.95), "p99": at(0.99)}


def run(call, inputs, expected):
    took = []
    for one in inputs:
        start = time.perf_counter()
        answer = call(one)
        took.append(time.perf_counter() - start)
        if answer != expected:
            raise RuntimeError("a call did something else than it should")
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
