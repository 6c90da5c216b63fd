"""What LINE's own SDK for Python makes of the cases on standard input: see tests/official_sdks.rs."""

import json
import sys

from linebot.v3 import SignatureValidator, WebhookParser
from linebot.v3.exceptions import InvalidSignatureError
from linebot.v3.messaging import ReplyMessageRequest


def events(case, secret):
    """How many events a delivery has, or nothing where its signature is not good."""
    assert isinstance(SignatureValidator(secret).validate(case["body"], case["signature"]), bool)
    try:
        return len(WebhookParser(secret).parse(case["body"], case["signature"]))
    except InvalidSignatureError:
        return None


cases = json.load(sys.stdin)
replies = [ReplyMessageRequest.from_dict(reply).to_dict() for reply in cases["replies"]]
assert [len(reply["messages"]) for reply in replies] == [len(reply["messages"]) for reply in cases["replies"]]
json.dump([events(case, cases["secret"]) for case in cases["deliveries"]], sys.stdout)
