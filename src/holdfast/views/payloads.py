"""PayloadView and FailureView: what a record carries, bounded."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from holdfast.core.redaction import holds_secret
from holdfast.core.sealing import SEALED
from holdfast.core.step import failure_in_payload
from holdfast.core.task import Failure
from holdfast.views.text import MAX_TEXT_CHARS, bounded, clean_json, clip, one_line, safe

MAX_SHOWN_BYTES = 64 * 1024
# To redact more than this for a preview would take seconds.
MAX_REDACTED_BYTES = 1024 * 1024
MAX_PREVIEW_CHARS = 2000
MAX_PLACES = 20

# Control characters as JSON writes them.
_ESCAPED = re.compile(r"\\u(00[0189][0-9a-fA-F]|007[fF])")
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class PayloadView(msgspec.Struct, frozen=True, kw_only=True):
    """Stored JSON: its value when it is small enough, always its size and how it begins."""

    size_bytes: int
    is_whole: bool
    value: Any = None
    preview: str
    # No key at hand opens it, so `value` and `size_bytes` are those of the placeholder.
    is_sealed: bool = False

    @classmethod
    def of(cls, payload: bytes) -> PayloadView:
        """Not on an event loop: to redact a large payload takes its time."""
        if len(payload) <= MAX_SHOWN_BYTES:
            with contextlib.suppress(*_NO_JSON):
                value = clean_json(msgspec.json.decode(payload))
                return cls(
                    size_bytes=len(payload),
                    is_whole=True,
                    value=value,
                    preview=_cut(value),
                    is_sealed=payload is SEALED,
                )
        return cls(size_bytes=len(payload), is_whole=False, preview=_beginning(payload))

    @property
    def shown(self) -> Any:
        """The value; or how it begins, as text."""
        return self.value if self.is_whole else self.preview


def _cut(value: object) -> str:
    return clip(msgspec.json.encode(value).decode(), MAX_PREVIEW_CHARS)


def _beginning(payload: bytes) -> str:
    """How the JSON begins, as text. If there may be a secret in it, all of it is redacted before it is cut:
    in a text without its structure, a secret does not stand beside its name."""
    head = payload[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    # What it escapes is unescaped first, to be seen and taken out.
    head = safe(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), head))
    if not holds_secret(payload) and not holds_secret(head.encode()):
        return clip(head, MAX_PREVIEW_CHARS)
    if len(payload) <= MAX_REDACTED_BYTES:
        with contextlib.suppress(*_NO_JSON):
            return _cut(clean_json(msgspec.json.decode(payload)))
    return f"[redacted: {len(payload):,} bytes]"


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
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return FailureView.maybe(failure_in_payload(payload))
    return None
