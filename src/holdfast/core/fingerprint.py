"""Fingerprint: what failures with one cause have in common, without numbers, ids and quoted text. Pure."""

from __future__ import annotations

import hashlib
import re
from typing import Final

import msgspec

from holdfast.core.task import Failure

MAX_READ_CHARS: Final = 20_000
MAX_PATTERN_CHARS: Final = 300
# What stands for what differs from one failure to the next.
NUMBER, QUOTED = "#", "…"

_QUOTED = re.compile(r"""(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)(?!\w)""")
# UUIDs, digests, and our own ids such as task_01m7s8jph8344hn31v9r7vz129.
_IDS = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?:0x)?(?=[a-fA-F]*\d)[0-9a-fA-F]{8,}\b"
    r"|(?<=_)[0-9a-hjkmnp-tv-z]{26}\b"
)
# One number, or several joined as in dates, addresses and decimals.
_NUMBERS = re.compile(rf"[\d{NUMBER}]+(?:[.,:_-][\d{NUMBER}]+)*")
# The number of the line in `orchard.py:49 in water`, which moves with every change of the file.
_LINE = re.compile(r":\d+(?= in )")


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """Equal for failures of one kind and place whose messages differ only in what the pattern leaves out."""

    id: str
    kind: str
    # The innermost frame of the author's code, or the step; empty if neither is known.
    place: str
    pattern: str


def fingerprint_of(failure: Failure) -> Fingerprint:
    place, pattern = place_of(failure), pattern_of(failure.message)
    digest = hashlib.blake2b(
        "\0".join((failure.kind, place, pattern)).encode(errors="replace"), digest_size=8
    )
    return Fingerprint(id=digest.hexdigest(), kind=failure.kind, place=place, pattern=pattern)


def place_of(failure: Failure) -> str:
    frames, step = failure.facts.get("traceback"), failure.facts.get("step")
    if isinstance(frames, list) and frames:
        return _cut(_LINE.sub("", str(frames[-1])))
    return _cut(_NUMBERS.sub(NUMBER, step)) if isinstance(step, str) else ""


def pattern_of(message: str) -> str:
    """The message without numbers, ids and quoted text. Applied to a pattern it changes nothing."""
    text = " ".join(message[:MAX_READ_CHARS].split())
    text = _QUOTED.sub(lambda found: found[0][0] + QUOTED + found[0][-1], text)
    return _cut(_NUMBERS.sub(NUMBER, _IDS.sub(NUMBER, text)))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_PATTERN_CHARS else text[:MAX_PATTERN_CHARS].rstrip()
