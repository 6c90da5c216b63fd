"""Calls the Messaging API at `url` with LINE's own SDK for Python: see tests/official_sdks.rs."""

import json
import sys

from linebot.v3 import WebhookParser
from linebot.v3.messaging import (
    ApiClient, ApiException, Configuration, Message, MessagingApi, MessagingApiBlob, PushMessageRequest,
    ShowLoadingAnimationRequest,
)

cases = json.load(sys.stdin)


def without_nothing(value):
    """Without the fields that are not set."""
    if isinstance(value, dict):
        return {name: without_nothing(field) for name, field in value.items() if field is not None}
    return [without_nothing(element) for element in value] if isinstance(value, list) else value


class Blob(MessagingApiBlob):
    """Asks the same server for contents."""

    def __init__(self, client):
        super().__init__(client)
        call = client.call_api
        client.call_api = lambda *args, _host=None, **named: call(*args, **named)


def incoming(event):
    """What is needed of a message that a user sent."""
    message = event.message
    provider = getattr(message, "content_provider", None)
    return [message.type, message.id, provider and provider.type]


models = [without_nothing(Message.from_dict(message).to_dict()) for message in cases["messages"]]

with ApiClient(Configuration(host=cases["url"], access_token=cases["token"])) as client:
    api, blob = MessagingApi(client), Blob(client)
    for push in cases["pushes"]:
        request = PushMessageRequest.from_dict({"to": push["to"], "messages": push["messages"]})
        api.push_message(request, push["retryKey"])
    try:
        api.push_message(request, push["retryKey"])
        again = "sent"
    except ApiException as refused:
        again = [refused.status, refused.headers["x-line-accepted-request-id"]]
    request = ShowLoadingAnimationRequest(chatId=cases["userId"], loadingSeconds=cases["seconds"])
    api.show_loading_animation(request)
    content = blob.get_message_content_with_http_info(cases["messageId"])
    quota, consumption = api.get_message_quota(), api.get_message_quota_consumption()
    profile, bot = api.get_profile(cases["userId"]), api.get_bot_info()

payload = WebhookParser(cases["secret"]).parse(cases["body"], cases["signature"], as_payload=True)
json.dump({
    "models": models,
    "again": again,
    "content": [bytes(content.data).hex(), content.headers["content-type"]],
    "quota": [quota.type.value, quota.value, consumption.total_usage],
    "profile": [profile.display_name, profile.language, profile.picture_url, profile.status_message],
    "bot": [bot.user_id, bot.basic_id, bot.display_name],
    "destination": payload.destination,
    "incoming": [incoming(event) for event in payload.events],
}, sys.stdout)
