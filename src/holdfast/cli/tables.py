"""Fits tables and text to a width: ids are short, words stay whole, and what matters least leaves first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import msgspec

# Between two columns.
GAP = 2
# What the column that matters gets at least, if its cells are that long.
ENOUGH = 30
# To how much the other columns shrink before one of them leaves.
_CAPS = (1000, 24, 16)
_NARROW = 10
# An id is its time (10 characters) and its chance. Within a millisecond, five characters of chance differ for
# all but one in 30 million pairs; a prefix that is ambiguous all the same is refused with the candidates.
_SHORT = 15
_WHOLE = 26
_ID = re.compile(r"\b[a-z]{2,6}_[0-9a-hjkmnp-tv-z]{26}\b")


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column as it is shown."""

    header: str
    cells: list[str]
    width: int


class TableLayout(msgspec.Struct, frozen=True, kw_only=True):
    """A table that fits its width, and the headers of the columns that were left out."""

    columns: list[_Column]
    left_out: list[str]

    @property
    def lines(self) -> Iterator[list[str]]:
        """The header and each row, padded."""
        yield [pad(column.header, column.width) for column in self.columns]
        for cells in zip(*(column.cells for column in self.columns), strict=True):
            yield [pad(cell, column.width) for cell, column in zip(cells, self.columns, strict=True)]


def whole(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> TableLayout:
    """The table with everything in it, however wide."""
    columns = [[row[place] for row in rows] for place in range(len(headers))]
    return TableLayout(
        columns=[
            _Column(header=header, cells=cells, width=max(map(width_of, [header, *cells])))
            for header, cells in zip(headers, columns, strict=True)
        ],
        left_out=[],
    )


def lay_out(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    room: int,
    *,
    leave: Sequence[str] = (),
    matters: str | None = None,
) -> TableLayout:
    """Fit a table to a width. `matters` names the column that keeps its room (the last one by default), and
    `leave` those that are left out if the room is short, in this order."""
    short = shorten_ids(rows)
    matters = headers[-1] if matters is None else matters
    cells = {header: [row[place] for row in short] for place, header in enumerate(headers)}
    natural = {header: max(map(width_of, [header, *column])) for header, column in cells.items()}
    widths: dict[str, int] = {}
    leaving = [header for header in leave if header in natural and header != matters]
    for number in range(len(leaving) + 1):
        kept = [header for header in headers if header not in leaving[:number]]
        for cap in _CAPS:
            widths = _widths(kept, natural, cells, matters=matters, cap=cap)
            if _total(widths) <= room:
                break
        else:
            continue
        break
    else:
        widths = _widths(list(widths), natural, cells, matters=matters, cap=_NARROW)
    rest = room - (_total(widths) - widths[matters])
    widths[matters] = max(min(natural[matters], rest), min(natural[matters], _NARROW))
    return TableLayout(
        columns=[_Column(header=header, cells=cells[header], width=widths[header]) for header in widths],
        left_out=[header for header in headers if header not in widths],
    )


def _widths(
    kept: Sequence[str], natural: dict[str, int], cells: dict[str, list[str]], *, matters: str, cap: int
) -> dict[str, int]:
    """Text shrinks to the cap, and its words stay whole unless the cap is the narrowest."""

    def width(header: str) -> int:
        if header == matters:
            return min(natural[header], ENOUGH)
        words = (
            [header]
            if cap == _NARROW
            else [header, *(word for cell in cells[header] for word in cell.split())]
        )
        return min(natural[header], max(cap, *map(width_of, words)))

    return {header: width(header) for header in kept}


def _total(widths: dict[str, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def shorten_ids(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Each id as a prefix that is unique among the ids of the table; every command takes it."""
    ids = {found for row in rows for cell in row for found in _ID.findall(cell)}
    length = _SHORT
    while length < _WHOLE and len({_cut_id(one, length) for one in ids}) < len(ids):
        length += 1
    return [[_ID.sub(lambda found: _cut_id(found[0], length), cell) for cell in row] for row in rows]


def _cut_id(one: str, length: int) -> str:
    return one[: one.index("_") + 1 + length]


# --- text


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_sign_width, text))


def _sign_width(sign: str) -> int:
    # Marks, joiners and variation selectors take no room of their own.
    if unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1


def pad(text: str, width: int) -> str:
    """The text in exactly this width: padded, or cut."""
    cut_text = cut(text, width)
    return cut_text + " " * (width - width_of(cut_text))


def cut(text: str, width: int) -> str:
    """The text in at most this width, cut between two words and marked by an ellipsis; a first word that is
    itself too long is cut where it must be."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    end = _fitting(text, width - 1)
    if _is_inside_word(text, end):
        space = text.rfind(" ", 0, end)
        end = space if space > 0 else end
    return text[:end].rstrip(" ,;:-") + "…"


def _fitting(text: str, width: int) -> int:
    """How many characters fit, without taking a mark from its letter or a part from a joined emoji."""
    used = 0
    for place, sign in enumerate(text):
        used += _sign_width(sign)
        if used > width:
            while place > 0 and (_sign_width(text[place]) == 0 or text[place - 1] == "\u200d"):
                place -= 1
            return place
    return len(text)


def _is_inside_word(text: str, end: int) -> bool:
    """Whether a cut there would part a word. Between wide characters, as in Chinese, no word is parted."""
    if not 0 < end < len(text):
        return False
    before, after = text[end - 1], text[end]
    return not before.isspace() and not after.isspace() and _sign_width(before) < 2 and _sign_width(after) < 2


def wrapped(text: str, width: int) -> Iterator[str]:
    """The text in lines of at most this width, parted between words; a longer word has a line of its own."""
    line = ""
    for word in text.split(" "):
        if line and width_of(line) + 1 + width_of(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line
