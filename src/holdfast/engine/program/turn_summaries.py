"""What stays of the steps of a finished turn: a summary of each, and its result if that is short enough."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import msgspec

from holdfast.core.keep_limits import MAX_KEPT_OF_TURN_BYTES
from holdfast.core.program_records import KeptStep, KeptSteps, TurnSummary
from holdfast.core.redaction import holds_secret, redact_json, redact_text
from holdfast.core.step import Step, is_failure
from holdfast.store.kept_steps import pack_kept
from holdfast.store.sealing import Sealing, is_keyed

_PREVIEW_BYTES = 120
# Searched for secrets before it is cut: half of a secret would not be recognised.
_LOOKED_AT_BYTES = 4096


def sum_up(
    steps: Sequence[Step], path: str, *, keep_bytes: int, sealing: Sealing
) -> tuple[tuple[TurnSummary, ...], KeptSteps | None]:
    """The summaries of the steps of a turn, and what else is kept of them; None if that is nothing.

    A short result is whole in its summary. The summary of a step that was called with a secret says neither
    its arguments nor its result: they are kept sealed.
    """
    summaries: list[TurnSummary] = []
    kept: list[KeptStep] = []
    left, is_secret = MAX_KEPT_OF_TURN_BYTES, False
    for step in steps:
        size, has_secret = len(step.result), _may_hold_secret(step.result)
        preview = _preview(step.result, has_secret=has_secret)
        is_hidden = sealing.would_seal(is_secret=is_keyed(step.input_digest))
        # The failure of an effect is not in its record as it was raised.
        is_effect = step.is_effect and not is_failure(step.result)
        may_keep = size <= min(keep_bytes, left) and not is_effect
        result = None
        if may_keep and (is_hidden or has_secret or size > _PREVIEW_BYTES):
            result = step.result
            left -= size
            is_secret = is_secret or has_secret
        if is_hidden:
            is_secret = True
            kept.append(KeptStep(result, preview, _clipped(step.arguments)))
        else:
            kept.append(_NOTHING if result is None else KeptStep(result))
        summaries.append(
            TurnSummary(
                name=step.name,
                digest="" if step.input_digest is None else step.input_digest.hex(),
                size_bytes=size,
                duration_us=step.ended_us - step.started_us,
                preview="" if is_hidden else preview,
                arguments="" if is_hidden else _clipped(step.arguments),
                occurrence=step.occurrence,
                inside=step.scope[len(path) :],
                is_effect=is_effect,
                is_kept=result is not None,
            )
        )
    if all(one is _NOTHING for one in kept):
        return tuple(summaries), None
    return tuple(summaries), KeptSteps(body=pack_kept(kept), is_secret=is_secret)


_NOTHING = KeptStep()


def _clipped(arguments: str) -> str:
    return arguments if len(arguments) <= _PREVIEW_BYTES else f"{arguments[: _PREVIEW_BYTES - 1]}…"


def preview_of(result: bytes) -> str:
    """How a result begins, for people. Redacted before it is cut: half of a secret looks like none."""
    return _preview(result, has_secret=_may_hold_secret(result))


def _may_hold_secret(result: bytes) -> bool:
    # On an event loop, so only the beginning of a very large result is searched.
    return holds_secret(result[: 16 * _LOOKED_AT_BYTES])


def _preview(result: bytes, *, has_secret: bool) -> str:
    if not has_secret:
        return result[:_PREVIEW_BYTES].decode("utf-8", "replace")
    if len(result) > _LOOKED_AT_BYTES:
        # Redaction needs the whole structure, which a cut would destroy.
        return f"[redacted: {len(result):,} bytes]"
    with suppress(msgspec.DecodeError):  # the mark of a failure is no JSON
        return redact_json(result)[:_PREVIEW_BYTES].decode("utf-8", "replace")
    shown = redact_text(result.decode("utf-8", "replace"))
    return shown.encode()[:_PREVIEW_BYTES].decode("utf-8", "replace")
