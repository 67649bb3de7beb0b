"""Prints a view as a table or as JSON: what was asked for on stdout, everything else on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import TextIO

import msgspec

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
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
NARROWEST = 20
MAX_REMARK_CHARS = 2000


class Output:
    """Where one command writes. Colour only for a terminal, and never when NO_COLOR is set."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    # --- what was asked for

    def show(self, view: msgspec.Struct, as_text: Callable[[], None]) -> None:
        """One view: as one JSON document, or in the words and tables of `as_text`."""
        if self.as_json:
            _write(msgspec.json.format(msgspec.json.encode(view), indent=2) + b"\n")
        else:
            as_text()

    def stream(self, view: msgspec.Struct, as_text: Callable[[], None]) -> None:
        """One of many views, as one line of JSON or in words; seen at once, also through a pipe."""
        if self.as_json:
            _write(msgspec.json.encode(view) + b"\n")
        else:
            as_text()
        sys.stdout.flush()

    def line(self, text: str = "") -> None:
        _write(f"{text}\n")

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns; in a terminal the last one is cut where the line ends."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        widths = [
            max(_width(header), *(_width(row[place]) for row in cells)) if cells else _width(header)
            for place, header in enumerate(headers)
        ]
        room = self._room() - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = min(widths[-1], max(NARROWEST, room))
        self.line(self.paint("  ".join(map(_pad, headers, widths)).rstrip(), "bold"))
        for row in cells:
            padded = list(map(_pad, row, widths))
            painted = [self.paint(text, _STYLE_OF_STATUS.get(text.strip(), "")) for text in padded]
            self.line("  ".join(painted).rstrip())

    def fields(self, pairs: Sequence[tuple[str, str | None]]) -> None:
        """Names and values under each other; those without a value are left out."""
        shown = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            first, *more = value.split("\n")
            self.line(f"{self.paint(name.ljust(width), 'dim')}  {self.paint_status(first)}".rstrip())
            for line in more:
                self.line(f"{' ' * width}  {line}".rstrip())

    def heading(self, text: str) -> None:
        self.line()
        self.line(self.paint(text, "bold"))

    # --- everything else

    def say(self, text: str) -> None:
        """To the person who looks on, never into what they pipe elsewhere."""
        with contextlib.suppress(OSError, ValueError):  # nobody looks on any more
            sys.stderr.write(f"{one_line(text, MAX_REMARK_CHARS)}\n")
            sys.stderr.flush()

    @contextlib.contextmanager
    def progress(self, what: str) -> Iterator[Callable[[int, int | None], None]]:
        """A bar on stderr while something long goes on; silent unless a person looks on."""
        if not is_terminal(sys.stderr):
            yield lambda _done, _total: None
            return
        from holdfast.cli.progress import bar

        with bar(what, has_color=may_color(sys.stderr)) as tell:
            yield tell

    # --- looks

    def paint(self, text: str, style: str) -> str:
        if style not in _STYLES or not may_color(sys.stdout):
            return text
        return f"{_STYLES[style]}{text}{_RESET}"

    def paint_status(self, text: str) -> str:
        return self.paint(text, _STYLE_OF_STATUS.get(text, ""))

    def _room(self) -> int:
        if not is_terminal(sys.stdout):
            return 10_000
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
    """JSON is UTF-8 whatever the locale; words that the locale cannot say are spelled out."""
    stream = sys.stdout
    if isinstance(text, str):
        encoding = getattr(stream, "encoding", None) or "utf-8"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
    elif hasattr(stream, "buffer"):
        stream.flush()
        stream.buffer.write(text)
    else:
        stream.write(text.decode())


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def _pad(text: str, width: int) -> str:
    """Exactly so wide, if need be by cutting."""
    if _width(text) > width:
        while text and _width(text) > width - 1:
            text = text[:-1]
        text += "…"
    return text + " " * (width - _width(text))


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since, in one unit: `3m`."""
    if moment is None:
        return "-"
    seconds = max(0, int((now - moment).total_seconds()))
    return next((f"{seconds // size}{unit}" for unit, size in _UNITS if seconds >= size), "0s")


def clock_time(moment: datetime | None) -> str | None:
    """A moment as people read it; always UTC."""
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def brief(payload: PayloadView) -> str:
    """A stored value in one line, with its size; one that no key opens says which command names its key."""
    if payload.is_sealed:
        return "[sealed]  (`holdfast store key show` names the key that opens it)"
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
