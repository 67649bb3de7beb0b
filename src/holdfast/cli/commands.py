"""Our commands in a message: each gets the --home and --store of this call, so that it can be copied."""

from __future__ import annotations

import re

# In backticks, or bare at the end of a clause: `to answer: holdfast questions answer ID`.
_COMMAND = re.compile(
    r"(?<=`)holdfast [^`]+(?=`)|(?:(?<=: )|(?<=\()|(?<=&& ))holdfast [a-z][^`;()&]*?(?=;|, |\)| \(| &&|$)"
)
# A command that names its own place, or is asked for its help, stays as it is.
_COMPLETE = re.compile(r" (?:--home|--store|--help)\b")


def with_place(text: str, place: str) -> str:
    """The text with ` --home X --store Y` after each command; `place` is empty if the call named none."""
    if not place or "holdfast " not in text:
        return text
    return _COMMAND.sub(lambda found: _placed(found[0], place), text)


def _placed(command: str, place: str) -> str:
    if _COMPLETE.search(command):
        return command
    words, dashes, rest = command.partition(" -- ")
    return f"{words}{place}{dashes}{rest}"
