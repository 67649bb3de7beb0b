"""Values that no call takes, by what is wrong with them."""

from __future__ import annotations

from datetime import datetime

from holdfast.core.payload import MAX_PAYLOAD_BYTES


def nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> object:
    value: list[object] = []
    value.append(value)
    return value


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is wrong with it

# Values that no text field takes.
TEXTS: dict[str, object] = {
    "empty": "",
    "blank": " \n\t ",
    "control character": "tide\x07",
    "escape": "\x1b[31mtide",
    "NUL": "tide\x00",
    "line separator": "tide\u2028",
    "bidirectional override": "\u202etide",
    "half a surrogate": "tide \ud800",
    "number": 7,
    "none": None,
    "bytes": b"tide",
    "list": ["tide"],
}
NAMES = TEXTS | {"too long": "n" * 201, "two lines": "one\ntwo", "tab": "one\ttwo"}
IDS: dict[str, object] = {
    "empty": "",
    "unknown shape": "TASK/../..",
    "blank": "task 1",
    "NUL": "task_\x00",
    "half a surrogate": "task_\ud800",
    "injection": "task_'; DROP TABLE tasks; --",
    "too long": "t" * 65,
    "number": 7,
    "none": None,
    "bytes": b"task_1",
    "list": [],
}
PAYLOADS: dict[str, object] = {
    "too large": "x" * MAX_PAYLOAD_BYTES,
    "too deep": nested(101),
    "endless": endless(),
    "half a surrogate": "tide \udfff",
    "half a surrogate in a key": {"\ud800": 1},
    "number as a key": {1: 2},
    "not a number": float("nan"),
    "infinite": [float("-inf")],
    "bytes": b"tide",
    "set": {"tide"},
    "function": nested,
    "object": object(),
    "a number of 5,000 digits": 10**5000,
}
NUMBERS: dict[str, object] = {
    "negative": -1,
    "too large": 10**30,
    "fraction": 1.5,
    "truth": True,
    "text": "1",
    "list": [1],
}
MOMENTS: dict[str, object] = {"naive": NAIVE, "text": "tomorrow", "number": 17, "list": []}
CLAIMS: dict[str, object] = {"none": None, "text": "run_1", "empty": ""}
