"""Judges texts by a JSON Schema: reads {"schema": …, "texts": […]}, writes a list of true and false."""

import json
import sys

from jsonschema import Draft202012Validator

task = json.load(sys.stdin)
Draft202012Validator.check_schema(task["schema"])
schema = Draft202012Validator(task["schema"])


def no_json(constant):
    raise ValueError(f"{constant} is not JSON")


def is_valid(text):
    try:
        return schema.is_valid(json.loads(text, parse_constant=no_json))
    except ValueError:
        return False


json.dump([is_valid(text) for text in task["texts"]], sys.stdout)
