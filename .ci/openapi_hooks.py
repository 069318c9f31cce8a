"""What schemathesis does not know by itself: how JSON lines are made, and sent."""

import json

import schemathesis
from hypothesis import strategies

REPLIES = strategies.lists(strategies.fixed_dictionaries({"text": strategies.text(max_size=20)}), max_size=3)
TASK = strategies.fixed_dictionaries(
    {"task": strategies.text(min_size=1, max_size=20), "workspace": strategies.just("/"), "script": REPLIES},
    optional={"id": strategies.text(min_size=1, max_size=5), "priority": strategies.integers(-9, 9)},
)
LINES = strategies.lists(TASK, min_size=1, max_size=5)

schemathesis.openapi.media_type("application/jsonl", LINES.map(lambda tasks: "\n".join(map(json.dumps, tasks)).encode()))


@schemathesis.serializer("application/jsonl")
def as_it_is(_context, value):
    return value if isinstance(value, (bytes, str)) else json.dumps(value)
