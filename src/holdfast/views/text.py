"""Text made fit to be shown: no terminal escapes, no control characters, no secrets, no endless lines.

Most of what is stored was checked when it came in. It is checked again on its way out, because a screen
must be safe from a ledger that an older version, a producer or a damaged disk has written.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.core.redaction import redact, redact_text

MAX_LINE_CHARS: Final = 200
MAX_TEXT_CHARS: Final = 4000
# Only so much is looked at to make a preview; far more than is shown, so that no secret is cut in half.
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
    """Text of any number of lines, whole."""
    if text.isascii() and text.isprintable():
        return redact_text(text)
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    # Redacted last: what was taken out may have stood in the middle of a secret.
    return redact_text(_SURROGATES.sub("\ufffd", _UNSEEN.sub("", text)))


def clip(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def bounded(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Text of several lines, up to a length."""
    return clip(clean(text[: max(MAX_LOOKED_AT, max_chars)]), max_chars)


def one_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Text for a cell or a message: whatever its lines, they become one."""
    return clip(" ".join(clean(text[: max(MAX_LOOKED_AT, max_chars)]).split()), max_chars)


def maybe_line(text: str | None, max_chars: int = MAX_LINE_CHARS) -> str | None:
    return None if text is None else one_line(text, max_chars)


def clean_json(value: object) -> object:
    """A decoded JSON value with every string and key in it made fit; its shape stays."""
    return redact(_clean_tree(value))


def _clean_tree(value: object) -> object:
    match value:
        case str():
            return clean(value)
        case dict():
            keys = _unique([clean(str(key)) for key in value])
            return {key: _clean_tree(inner) for key, inner in zip(keys, value.values(), strict=True)}
        case list() | tuple():
            return [_clean_tree(inner) for inner in value]
        case _:
            return value


def _unique(keys: list[str]) -> list[str]:
    """Keys that have become one are numbered, so that no entry is lost."""
    taken: set[str] = set()
    for place, key in enumerate(keys):
        number = 1
        while (unique := key if number == 1 else f"{key}#{number}") in taken:
            number += 1
        taken.add(unique)
        keys[place] = unique
    return keys
