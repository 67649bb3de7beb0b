"""PayloadView and FailureView: stored values and failures, limited in size."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import msgspec

from holdfast.core.redaction import holds_secret
from holdfast.core.seal_mode import SEALED
from holdfast.core.step import failure_in_payload
from holdfast.core.task import Failure
from holdfast.views.text import MAX_TEXT_CHARS, bounded, clean_json, clip, one_line, safe

MAX_SHOWN_BYTES = 64 * 1024
# Redacting more than this for a preview would take seconds.
MAX_REDACTED_BYTES = 1024 * 1024
MAX_PREVIEW_CHARS = 2000
MAX_PLACES = 20

# Control characters as JSON writes them.
_ESCAPED = re.compile(r"\\u(00[0189][0-9a-fA-F]|007[fF])")
_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class PayloadView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Stored JSON: its size and a preview, and its value if it is small enough."""

    size_bytes: int
    is_whole: bool
    value: Any = None
    preview: str
    # The key is not here, so `value` and `size_bytes` are those of a placeholder.
    is_sealed: bool = False

    @classmethod
    def of(cls, payload: bytes) -> PayloadView:
        """Must not run on an event loop: redacting a large payload is slow."""
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
        """The value; if it is large, its preview."""
        return self.value if self.is_whole else self.preview


def _cut(value: object) -> str:
    return clip(msgspec.json.encode(value).decode(), MAX_PREVIEW_CHARS)


def _beginning(payload: bytes) -> str:
    """The beginning of the JSON, as text. If it may contain a secret, all of it is redacted before it is cut:
    a cut text loses the names that mark secrets."""
    head = payload[:MAX_SHOWN_BYTES].decode("utf-8", "replace")
    # Unescape first, so that escaped secrets and control characters are found.
    head = safe(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), head))
    if not holds_secret(payload) and not holds_secret(head.encode()):
        return clip(head, MAX_PREVIEW_CHARS)
    if len(payload) <= MAX_REDACTED_BYTES:
        with contextlib.suppress(*_NO_JSON):
            return _cut(clean_json(msgspec.json.decode(payload)))
    return f"[redacted: {len(payload):,} bytes]"


class FailureView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A failure: its kind, message and facts."""

    kind: str
    message: str
    # Includes `traceback`: the frames in the user's own code, outermost first.
    facts: dict[str, Any] = {}

    @property
    def places(self) -> list[str]:
        """The traceback, one line per frame, outermost first; empty if unknown."""
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
