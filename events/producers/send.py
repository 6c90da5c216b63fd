#!/usr/bin/env python3
"""Sends the events of a job to the queue. onetap publishes each of them once, however often this program is run.

    pip install boto3
    QUEUE_URL=https://sqs.… python send.py job-1

Copy it, and put your own job into `work`. Region, credentials and AWS_ENDPOINT_URL are read by the AWS SDK.
"""

import argparse
import hashlib
import json
import os
import re
import sys
import time
from datetime import datetime, timezone

import boto3
from botocore.exceptions import BotoCoreError, ClientError

# The numbers of each stage, as the queue consumer has them (EVENT_STAGES): here the default table, and `token` for the
# words of a language model, which the default table does not have.
STAGES = {
    "vision": range(10, 20),
    "rule": range(20, 30),
    "answer": range(30, 40),
    "reward": range(40, 50),
    "done": range(50, 60),
    "token": range(1_000, 1_000_000),
}
MAX_EVENT_BYTES = 128 * 1024
# Limits of one SendMessageBatch.
MAX_BATCH_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024
MAX_ATTEMPTS = 5


def event(job_id, domain, stage, nth, data):
    """The nth event of a stage, from 0. Job, stage and seq say which event it is: a repetition has the same."""
    if stage not in STAGES:
        raise ValueError(f"{stage} is not among the STAGES of this program")
    if nth >= len(STAGES[stage]):
        raise ValueError(f"{stage} has only {len(STAGES[stage])} numbers")
    seq = STAGES[stage][nth]  # the stage's first number + nth
    now = datetime.now(timezone.utc).isoformat()
    text = json.dumps(
        {"job_id": job_id, "domain": domain, "stage": stage, "seq": seq, "data": data, "timestamp": now},
        ensure_ascii=False,  # the limit counts bytes of UTF-8, and \u escapes are twice as long
        allow_nan=False,
    )
    if len(text.encode()) > MAX_EVENT_BYTES:
        raise ValueError(f"{stage} {seq} is over 128 KiB: store large data elsewhere, and send where it is")
    return {"job_id": job_id, "id": f"{job_id}:{stage}:{seq}", "text": text}


def work(job_id, domain, tokens):
    """The job: its events. A slow job calls `send` after each step instead, so that its followers see it at once."""
    yield event(job_id, domain, "vision", 0, {"status": "started"})
    yield event(job_id, domain, "vision", 1, {"text": "統一發票 🧾", "total": 120})
    yield event(job_id, domain, "rule", 0, {"category": "午餐"})
    for n in range(tokens):
        yield event(job_id, domain, "token", n, {"token": f"字{n}"})
    yield event(job_id, domain, "answer", 0, {"text": "午餐 120 元"})
    yield event(job_id, domain, "reward", 0, {"points": 1})
    yield event(job_id, domain, "done", 1, {"status": "done"})  # `done` from 51 on ends the job


def batches(events):
    """Lists of events that fit into one call."""
    batch, size = [], 0
    for one in events:
        length = len(one["text"].encode())
        if len(batch) == MAX_BATCH_ENTRIES or size + length > MAX_BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += length
    if batch:
        yield batch


def entry(n, one, fifo):
    """An event as an entry of SendMessageBatch."""
    found = {"Id": str(n), "MessageBody": one["text"]}
    if fifo:
        # A group is delivered in order. SQS drops what comes with the same deduplication id within five minutes; what
        # comes later, onetap recognises. Such an id has at most 128 characters.
        same = one["id"] if len(one["id"]) <= 128 else hashlib.sha256(one["id"].encode()).hexdigest()
        found |= {"MessageGroupId": one["job_id"], "MessageDeduplicationId": same}
    return found


def send(sqs, queue_url, events):
    """Sends events, and those that the queue did not take again; returns their number.

    A call can succeed and still have failed entries. Sending an event twice is harmless: if in doubt, send it again. One
    that is sent again may come after its successors; the latest state of the job never goes back.
    """
    fifo = queue_url.endswith(".fifo")
    sent = 0
    for batch in batches(events):
        waiting = [entry(n, one, fifo) for n, one in enumerate(batch)]
        attempt = 0
        while waiting:
            if attempt == MAX_ATTEMPTS:
                raise ValueError(f"{len(waiting)} events were not accepted: run it again, that is harmless")
            if attempt > 0:
                time.sleep(0.1 * 2 ** (attempt - 1))
            failed = sqs.send_message_batch(QueueUrl=queue_url, Entries=waiting).get("Failed", [])
            refused = [failure["Code"] for failure in failed if failure["SenderFault"]]
            if refused:
                raise ValueError(f"the queue refuses an event: {refused[0]}")
            ids = {failure["Id"] for failure in failed}
            waiting = [one for one in waiting if one["Id"] in ids]
            if waiting:
                print(f"{len(waiting)} not accepted ({failed[0]['Code']}), sending again", file=sys.stderr)
            attempt += 1
        sent += len(batch)
    return sent


def matching(pattern):
    def check(text):
        if not re.fullmatch(pattern, text):
            raise argparse.ArgumentTypeError(f"not of the form {pattern}")
        return text

    return check


def main():
    parser = argparse.ArgumentParser(
        description="Sends the events of a job to the SQS queue QUEUE_URL. Run it twice: each is published once.",
    )
    parser.add_argument("job_id", type=matching(r"[A-Za-z0-9._:-]{1,128}"), help="id of the job")
    parser.add_argument("--domain", type=matching(r"[a-z0-9_-]{1,32}"), default="scan", help="default: scan")
    parser.add_argument("--tokens", type=matching(r"[0-9]+"), default="0", metavar="N", help="also send N events of the stage token")
    arguments = parser.parse_args()
    queue_url = os.environ.get("QUEUE_URL")
    if not queue_url:
        parser.error("QUEUE_URL is not set: the URL of the queue, the stack's output QueueUrl")
    try:
        sqs = boto3.client("sqs", region_name=os.environ.get("AWS_REGION"))
        sent = send(sqs, queue_url, work(arguments.job_id, arguments.domain, int(arguments.tokens)))
    except (BotoCoreError, ClientError, ValueError) as error:
        sys.exit(f"send.py: {error}")
    print(f"sent {sent} events of {arguments.job_id}")


if __name__ == "__main__":
    main()
