"""What is kept of a finished turn: a summary of each step, with the beginning of its result, redacted."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from holdfast.core.program_records import TurnSummary
from holdfast.core.redaction import holds_secret, redact_json, redact_text
from holdfast.core.step import Step

_PREVIEW_BYTES = 120
# Searched for secrets before it is cut: half of a secret would not be recognised.
_LOOKED_AT_BYTES = 4096


def summary_of(step: Step) -> TurnSummary:
    """What is kept of a plain step when its turn has committed."""
    return TurnSummary(
        name=step.name,
        digest="" if step.input_digest is None else step.input_digest.hex(),
        size_bytes=len(step.result),
        duration_us=step.ended_us - step.started_us,
        preview=preview_of(step.result),
    )


def preview_of(result: bytes) -> str:
    """How a result begins, for people. Redacted before it is cut: half of a secret looks like none."""
    # On an event loop, so only the beginning of a very large result is searched.
    if not holds_secret(result[: 16 * _LOOKED_AT_BYTES]):
        return result[:_PREVIEW_BYTES].decode("utf-8", "replace")
    if len(result) > _LOOKED_AT_BYTES:
        # Redaction needs the whole structure, which a cut would destroy.
        return f"[redacted: {len(result):,} bytes]"
    with suppress(msgspec.DecodeError):  # the mark of a failure is no JSON
        return redact_json(result)[:_PREVIEW_BYTES].decode("utf-8", "replace")
    shown = redact_text(result.decode("utf-8", "replace"))
    return shown.encode()[:_PREVIEW_BYTES].decode("utf-8", "replace")
