"""Makes text safe to show: no terminal escapes, no control characters, no secrets, no endless lines.

Most stored text was checked on input. It is checked again on output, because a screen must be safe from a
ledger that an older version, a producer or a damaged disk has written.
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
# A word up to this length is not parted where text is cut.
_LONGEST_WORD: Final = 24
# A preview reads this much beyond the cut, so that a secret at the cut is found whole.
MAX_LOOKED_AT: Final = 64 * 1024

# Terminal escapes (ECMA-48): strings with a terminator, control sequences, and short escapes.
_ESCAPES: Final = re.compile(
    # A string ends where the next one begins: many unterminated ones must not take quadratic time.
    r"(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\x90\x98\x9d-\x9f]*+(?:\x07|\x1b\\|\x9c)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]"
)
# C0 except tab and newline, DEL, C1, line separators; then invisible characters that change the order or the
# look of the text around them: direction marks, overrides, isolates, fillers and tags.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Make text of any length and number of lines safe, and redact it."""
    # Redact last: a removed character may have split a secret.
    return redact_text(safe(text))


def safe(text: str) -> str:
    """The same without redaction, for outputs that show secrets (see visibility.py)."""
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _SURROGATES.sub("\ufffd", _UNSEEN.sub("", text))


def clip(text: str, max_chars: int) -> str:
    """Cut the text to a length: between two words, if one ends shortly before."""
    if len(text) <= max_chars:
        return text
    end = max_chars - 1
    space = text.rfind(" ", end - _LONGEST_WORD, end + 1)
    return f"{text[: space if space > 0 else end]}…"


def bounded(text: str, max_chars: int = MAX_TEXT_CHARS) -> str:
    """Safe text of several lines, cut to a length."""
    return clip(clean(text[: MAX_LOOKED_AT + max_chars]), max_chars)


def one_line(text: str, max_chars: int = MAX_LINE_CHARS) -> str:
    """Safe text in one line, for a table cell or a message."""
    return clip(" ".join(clean(text[: MAX_LOOKED_AT + max_chars]).split()), max_chars)


def maybe_line(text: str | None, max_chars: int = MAX_LINE_CHARS) -> str | None:
    return None if text is None else one_line(text, max_chars)


def clean_json(value: object) -> object:
    """A decoded JSON value with every string and key made safe; its structure stays."""
    # Redact the whole value at once: faster, and the keys help to find secrets.
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
    """Number keys that became equal, so that no entry is lost."""
    taken: set[str] = set()
    # Keep a counter per key: searching from 1 each time would take quadratic time.
    counts: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))
    for place, key in enumerate(keys):
        unique = key
        while unique in taken:
            unique = f"{key}#{next(counts[key])}"
        taken.add(unique)
        keys[place] = unique
    return keys
