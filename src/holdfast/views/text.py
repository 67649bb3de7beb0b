"""Text made fit to be shown: no terminal escapes, no control characters, no secrets, no endless lines.

Most of what is stored was checked when it came in. It is checked again on its way out, because a screen
must be safe from a ledger that an older version, a producer or a damaged disk has written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import Final

from holdfast.core.redaction import redact, redact_text

MAX_LINE_CHARS: Final = 200
MAX_TEXT_CHARS: Final = 4000
# Only so much more than is shown is looked at to make a preview: a secret at the cut is seen whole.
MAX_LOOKED_AT: Final = 64 * 1024

# What a terminal obeys (ECMA-48): strings with a terminator, control sequences, and the shorter escapes.
_ESCAPES: Final = re.compile(
    # A string ends before the next one begins, so that many without an end cost no square.
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\x90\x98\x9d-\x9f]*+(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
# C0 but tab and newline, DEL, C1, line separators; then what has no shape of its own, but changes the order
# or the look of what stands around it: marks of direction, overrides, isolates, fillers and tags.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Text of any number of lines, of any length."""
    # Redacted last: what was taken out may have stood in the middle of a secret.
    return redact_text(safe(text))


def safe(text: str) -> str:
    """The same with its secrets, for doors that show them (visibility.py): a terminal obeys none of it."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))


def clip(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def bounded(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Text of several lines, up to a length."""
    return clip(clean(text[: MAX_LOOKED_AT + max_chars]), max_chars)


def one_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Text for a cell or a message: whatever its lines, they become one."""
    return clip(" ".join(clean(text[: MAX_LOOKED_AT + max_chars]).split()), max_chars)


def maybe_line(text: str | None, max_chars: int = MAX_LINE_CHARS) -> str | None:
    return None if text is None else one_line(text, max_chars)


def clean_json(value: object) -> object:
    """A decoded JSON value with every string and key in it made fit; its shape stays."""
    # Redacted as a whole: that searches all strings together, and knows which names they are given to.
    return redact(_safe_tree(value))


def _safe_tree(value: object) -> object:
    match value:
        case str():
            return safe(value)
        case dict():
            keys = _unique([safe(str(key)) for key in value])
            return {key: _safe_tree(inner) for key, inner in zip(keys, value.values(), strict=True)}
        case list() | tuple():
            return [_safe_tree(inner) for inner in value]
        case _:
            return value


def _unique(keys: list[str]) -> list[str]:
    """Keys that have become one are numbered, so that no entry is lost."""
    taken: set[str] = set()
    # One count for each key: from 1 again for each of many that are alike, it would cost a square.
    counts: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    for place, key in enumerate(keys):
        unique = key
        while unique in taken:
            unique = f"{key}#{next(counts[key])}"
        taken.add(unique)
        keys[place] = unique
    return keys
