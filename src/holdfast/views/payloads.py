"""PayloadView and FailureView: what a record carries, bounded."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from holdfast.core.task import Failure
from holdfast.views.text import MAX_TEXT_CHARS, bounded, clean_json, clip, one_line

MAX_SHOWN_BYTES = 64 * 1024
MAX_PREVIEW_CHARS = 2000
MAX_PLACES = 20

# No JSON begins with it: what follows is the failure of a step, which is remembered like a result.
FAILED = b"!"
# Control characters as JSON writes them.
_ESCAPED = re.compile(r"\\u(00[0189][0-9a-fA-F]|007[fF])")


class PayloadView(msgspec.Struct, frozen=True, kw_only=True):
    """Stored JSON: its value when it is small enough, always its size and how it begins."""

    size_bytes: int
    is_whole: bool
    value: Any = None
    preview: str

    @classmethod
    def of(cls, payload: bytes) -> PayloadView:
        if len(payload) <= MAX_SHOWN_BYTES:
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                value = clean_json(msgspec.json.decode(payload))
                preview = clip(msgspec.json.encode(value).decode(), MAX_PREVIEW_CHARS)
                return cls(size_bytes=len(payload), is_whole=True, value=value, preview=preview)
        return cls(size_bytes=len(payload), is_whole=False, preview=_beginning(payload))


def _beginning(payload: bytes) -> str:
    """How the JSON begins, as text; what it escapes is unescaped first, to be seen and taken out."""
    text = payload[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    return bounded(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text), MAX_PREVIEW_CHARS)


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong: its kind, the words, and the facts that help."""

    kind: str
    message: str
    # Among them `traceback`: where the error came from in the user's own code, outermost place first.
    facts: dict[str, Any] = {}

    @property
    def places(self) -> list[str]:
        """Where it came from, a line for each place, outermost first; empty when that is not known."""
        found = self.facts.get("traceback")
        return [one_line(str(one)) for one in found[-MAX_PLACES:]] if isinstance(found, list) else []

    @classmethod
    def of(cls, failure: Failure) -> FailureView:
        facts = clean_json(failure.facts)
        return cls(
            kind=one_line(failure.kind),
            message=bounded(failure.message, MAX_TEXT_CHARS),
            facts=facts if isinstance(facts, dict) else {},
        )

    @classmethod
    def maybe(cls, failure: Failure | None) -> FailureView | None:
        return None if failure is None else cls.of(failure)


def failure_in(payload: bytes) -> FailureView | None:
    """The failure that stands where a result might; None for a result."""
    if payload.startswith(FAILED):
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            return FailureView.of(msgspec.json.decode(payload[len(FAILED) :], type=Failure))
    return None
