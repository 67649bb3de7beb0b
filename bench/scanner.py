"""Looking for secrets: before a value is stored, and before a person sees it."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from bench.measure import Report, timed
from holdfast.core.redaction import holds_secret, keep_secret, redact_json, without_known_secrets

CLEAN = "A worker takes the oldest free run, saves each step, and ends. "
ROW = {
    "id": 1234,
    "name": "report.md",
    "path": "/data/in/report.md",
    "at": "2024-05-06T07:08:09Z",
    "ok": True,
}
HINTS = 'token=abc123 password: "x1y2z3" https://bob:hunter2@example.org Bearer a1b2c3d4e5 '


def bench(report: Report, *, size: int) -> None:
    """Each beside one decoding of the same JSON, in nanoseconds per byte."""
    step = msgspec.json.encode({"answer": 42, "words": ["one", "two", "three"], "file": ROW})
    texts = {
        "one step's result": (step, max(1, size // len(step))),
        "clean text": (msgspec.json.encode(CLEAN * (size // len(CLEAN))), 1),
        "rows of short strings": (msgspec.json.encode([ROW] * (size // 100)), 1),
        "many short strings": (msgspec.json.encode([f"token={number}" for number in range(size // 14)]), 1),
        "text full of hints": (msgspec.json.encode(HINTS * (size // len(HINTS))), 1),
    }
    for name, (encoded, repeats) in texts.items():
        for job, act in (("sealed?", holds_secret), ("redacted", redact_json)):
            report.times(
                f"scanner: {name}, {job} / decoded",
                _ns_per_byte(act, encoded, repeats),
                _ns_per_byte(msgspec.json.decode, encoded, repeats),
                target=None,
                rounds=7,
                unit="ns/byte",
            )
    with without_known_secrets():
        for number in range(1000):
            keep_secret(f"known-{number:032x}")
        report.times(
            "scanner: one step's result with 1,000 known secrets / 1 regex",
            _ns_per_byte(holds_secret, step, max(1, size // len(step))),
            _ns_per_byte(re.compile(rb"\d{8}").search, step, max(1, size // len(step))),
            target=None,
            rounds=7,
            unit="ns/byte",
        )


def _ns_per_byte(act: Callable[[bytes], object], encoded: bytes, repeats: int) -> Callable[[], float]:
    def all_of_them() -> None:
        for _ in range(repeats):
            act(encoded)

    return lambda: timed(all_of_them) / (len(encoded) * repeats) * 1e9
