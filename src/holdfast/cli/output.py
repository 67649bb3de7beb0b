"""Prints a view as a table or as JSON: results on stdout, messages on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TextIO

import msgspec

from holdfast.cli.commands import with_place
from holdfast.cli.tables import ENOUGH, GAP, cut, lay_out, shorten_ids, whole, wrapped
from holdfast.core.durations import in_one_unit
from holdfast.views.payloads import PayloadView
from holdfast.views.text import one_line

_RESET = "\x1b[0m"
_STYLES = {"bold": "\x1b[1m", "dim": "\x1b[2m", "red": "\x1b[31m", "green": "\x1b[32m"}
_STYLES |= {"yellow": "\x1b[33m", "blue": "\x1b[34m", "cyan": "\x1b[36m"}
_STYLE_OF_STATUS = {
    "queued": "blue",
    "running": "cyan",
    "resuming": "cyan",
    "waiting": "yellow",
    "paused": "yellow",
    "paused_for_restart": "yellow",
    "needs_review": "yellow",
    "blocked": "yellow",
    "warn": "yellow",
    "succeeded": "green",
    "resumed": "green",
    "ok": "green",
    "failed": "red",
    "failed_resume": "red",
    "timed_out": "red",
    "lost": "red",
    "fail": "red",
    "cancelled": "dim",
}
MAX_REMARK_CHARS = 2000
# A terminal of this width has room for the year of a time.
WIDE_ENOUGH = 100


class Output:
    """The output of one command. Coloured only on a terminal, and never when NO_COLOR is set."""

    def __init__(self, *, as_json: bool, is_wide: bool = False, place: str = "") -> None:
        self.as_json = as_json
        self.is_wide = is_wide
        # The --home and --store of this call, for the commands in messages.
        self._place = place

    # --- results, on stdout

    def show(self, view: msgspec.Struct, as_text: Callable[[], None]) -> None:
        """Print one view: as one JSON document, or through `as_text`."""
        if self.as_json:
            _write(msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n")
        else:
            as_text()

    def stream(self, view: msgspec.Struct, as_text: Callable[[], None]) -> None:
        """Print one of many views, as one line of JSON or as text; flushed at once, also into a pipe."""
        if self.as_json:
            _write(msgspec.json.encode(view) + b"\n")
        else:
            as_text()
        sys.stdout.flush()

    def line(self, text: str = "") -> None:
        _write(f"{text}\n")

    def to_copy(self, text: str) -> str:
        """A message for a person: its commands get the --home and --store of this call."""
        return with_place(text, self._place)

    def table(
        self,
        headers: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        leave: Sequence[str] = (),
        matters: str | None = None,
    ) -> None:
        """Aligned columns. On a terminal they fit its width, unless --wide is given: ids are short, and the
        first columns of `leave` are left out, so that the one that matters has room."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        room = self._room()
        shown = whole(headers, cells)
        if room is not None:
            shown = lay_out(headers, cells, room, leave=leave, matters=matters)
        for number, line in enumerate(shown.lines):
            if number:
                line = [self.paint(text, _STYLE_OF_STATUS.get(text.strip(), "")) for text in line]
                self.line("  ".join(line).rstrip())
            else:
                self.line(self.paint("  ".join(line).rstrip(), "bold"))
        if shown.left_out:
            self.say(f"without {', '.join(shown.left_out)}; to show everything, add --wide")

    def row(self, parts: Sequence[str], text: str) -> None:
        """One line of a stream: parts of a fixed width, and a text that is cut at the end of the line."""
        room = self._room()
        clean_parts = [part if part.isascii() and part.isprintable() else one_line(part) for part in parts]
        cells = [*clean_parts, one_line(text, MAX_REMARK_CHARS)]
        if room is None:
            self.line("  ".join(cells).rstrip())
            return
        (cells,) = shorten_ids([cells])
        self.line(cut("  ".join(cells).rstrip(), room))

    def paragraph(self, text: str, *, indent: int = 4) -> None:
        """A line of words. On a terminal it is parted between words, and what follows is indented; a command
        stays in one line, to be copied."""
        first, *more = self._parted(self.to_copy(text), indent)
        self.line(first)
        for line in more:
            self.line(f"{' ' * indent}{line}")

    def fields(self, pairs: Sequence[tuple[str, str | None]]) -> None:
        """Names and values, one per line; a name without a value is left out."""
        shown = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            first, *more = self._parted(self.to_copy(value), width + GAP)
            self.line(f"{self.paint(name.ljust(width), 'dim')}  {self.paint_status(first)}".rstrip())
            for line in more:
                self.line(f"{' ' * width}  {line}".rstrip())

    def _parted(self, value: str, indent: int) -> list[str]:
        """The lines of a value, parted between words on a terminal; a command stays in one, to be copied."""
        room = self._room()
        lines = value.split("\n")
        if room is None or "holdfast " in value:
            return lines
        return [part for line in lines for part in wrapped(line, max(ENOUGH, room - indent))]

    def heading(self, text: str) -> None:
        self.line()
        self.line(self.paint(text, "bold"))

    # --- messages, on stderr

    def say(self, text: str) -> None:
        """A message for a person; never mixed into piped results."""
        with contextlib.suppress(OSError, ValueError):  # stderr was closed
            sys.stderr.write(f"{one_line(self.to_copy(text), MAX_REMARK_CHARS)}\n")
            sys.stderr.flush()

    def say_next(self, token: str) -> None:
        """How to get the next page of a list."""
        self.say(f"for the next page, add --page {token}")

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int | None], None]]:
        """A progress bar on stderr during long work; only on a terminal."""
        if not is_terminal(sys.stderr):
            yield lambda _done, _total: None
            return
        from holdfast.cli.progress import bar

        with bar(what, has_color=may_color(sys.stderr)) as tell:
            yield tell

    # --- times, colours and widths

    def stamp(self, moment: datetime) -> str:
        """A time in a line of a table or a stream, in UTC; on a narrow terminal without its year."""
        room = self._room()
        is_narrow = room is not None and room < WIDE_ENOUGH
        return f"{moment:%m-%d %H:%M:%S}Z" if is_narrow else f"{moment:%Y-%m-%d %H:%M:%S}Z"

    def paint(self, text: str, style: str) -> str:
        if style not in _STYLES or not may_color(sys.stdout):
            return text
        return f"{_STYLES[style]}{text}{_RESET}"

    def paint_status(self, text: str) -> str:
        return self.paint(text, _STYLE_OF_STATUS.get(text, ""))

    def _room(self) -> int | None:
        """The width of the terminal; None if nothing is to be fitted."""
        if self.is_wide or not is_terminal(sys.stdout):
            return None
        import shutil

        return shutil.get_terminal_size().columns


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed already
        return False


def may_color(stream: TextIO) -> bool:
    environ = os.environ
    return not environ.get("NO_COLOR") and environ.get("TERM") != "dumb" and is_terminal(stream)


def _write(text: str | bytes) -> None:
    """JSON is UTF-8 in every locale; text that the locale cannot encode is escaped."""
    stream = sys.stdout
    if isinstance(text, str):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    elif hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(text)
    else:
        stream.write(text.decode())


def ago(moment: datetime | None, now: datetime) -> str:
    """The time since then, in one unit: `3m`."""
    if moment is None:
        return "-"
    return in_one_unit(now - moment)


def clock_time(moment: datetime | None) -> str | None:
    """A time for people to read; always UTC."""
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def step_place(scope: str, name: str, occurrence: str) -> str:
    """A step's key in readable form: `main:12/fetch #2`."""
    which = "" if occurrence == "1" else f" #{occurrence.removeprefix('id:')}"
    return f"{scope}/{name}{which}".lstrip("/")


def brief(payload: PayloadView) -> str:
    """A stored value in one line, with its size; a sealed one names the command that shows its key."""
    if payload.is_sealed:
        return "[sealed]  (to find its key: `holdfast store key show`)"
    return f"{one_line(payload.preview, 300)}  ({size(payload.size_bytes)})"


def size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size_bytes < 1024 or unit == "GiB":
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    raise AssertionError  # the loop returns


def counted(number: int, noun: str) -> str:
    """`1 task`, `3 tasks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(number: float) -> str:
    """`37.5%`, `100%`; rounded down, so that 100 means all."""
    return f"{int(number * 10) / 10:.1f}".removesuffix(".0") + "%"
