"""Words of the pages: times, durations, counts and statuses as a person reads them. Pure functions."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

# For what is not there.
NONE = "\N{EN DASH}"
# The colour of a status; also told by its word, never by colour alone.
GOOD, BUSY, WAITS, BAD, QUIET = "good", "busy", "waits", "bad", "quiet"
_TONES = {
    **dict.fromkeys(
        [
            "succeeded",
            "done",
            "resumed",
            "delivered",
            "confirmed",
            "serving",
            "cleared",
            "fired",
            "ok",
            "active",
        ],
        GOOD,
    ),
    **dict.fromkeys(["running", "resuming", "processing", "attempting", "starting", "busy"], BUSY),
    **dict.fromkeys(
        [
            "waiting",
            "needs_review",
            "paused",
            "paused_for_restart",
            "blocked",
            "draining",
            "requeued",
            "silenced",
            "unknown",
            "warning",
            "interrupted",
            "missed",
            "due",
        ],
        WAITS,
    ),
    **dict.fromkeys(
        [
            "failed",
            "failed_resume",
            "timed_out",
            "lost",
            "error",
            "critical",
            "raised",
            "parent_missing",
            "refused",
            "stopped",
            "expired",
        ],
        BAD,
    ),
}
# How the gateway refuses parameters, and a change that comes too late.
_INVALID = re.compile(r"invalid \S+ params: at (?:root|/(?P<name>\S+)): (?P<problem>.+)", re.DOTALL)
_MISSING = re.compile(r"must have required property '(\w+)'")
_NOT_NOW = re.compile(r"(?P<noun>[a-z ]+) \S+ is (?P<status>[\w ]+) and cannot become \w+( again)?")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def tone(status: object) -> str:
    return _TONES.get(str(status), QUIET)


def label(status: object) -> str:
    """A status or a key as words: `paused_for_restart` becomes `paused for restart`."""
    return str(status).replace("_", " ")


def spaced(name: str) -> str:
    """A name in camelCase as words: `runsRescued` becomes `runs rescued`."""
    return "".join(f" {one.lower()}" if one.isupper() else one for one in name).replace("_", " ").strip()


def iso(moment: datetime | None) -> str:
    return "" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(at: datetime | None) -> str:
    return NONE if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago, or how long until; scripts keep it fresh while the page is open."""
    if at is None:
        return NONE
    span = now - at
    if abs(span) < timedelta(seconds=1):
        return "now"
    return f"{duration(span)} ago" if span > timedelta(0) else f"in {duration(-span)}"


def duration(span: timedelta) -> str:
    """The two largest units: `2 d 3 h`, `4 min 5 s`, `350 ms`."""
    seconds = span.total_seconds()
    if seconds < 1:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 60:
        return f"{seconds:.0f} s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in (*_UNITS, (1, "s")):
        if left >= size or parts:
            parts.append(f"{left // size} {unit}" if left // size else "")
            left %= size
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def lasted(began: datetime | None, ended: datetime | None) -> str:
    return NONE if began is None or ended is None else duration(max(ended - began, timedelta(0)))


def count(number: float | None) -> str:
    return NONE if number is None else f"{number:,}"


def noun(number: float, one: str, many: str = "") -> str:
    """The noun after a count; `many` if its plural is not made with an s."""
    return one if number == 1 else many or f"{one}s"


def plural(number: float, one: str, many: str = "") -> str:
    """A count with its noun: `1 run`, `1,224 runs`."""
    return f"{count(number)} {noun(number, one, many)}"


def in_plain_words(refusal: str) -> str:
    """A refusal of the gateway as a person reads it, who knows neither methods nor parameters."""
    if found := _INVALID.match(refusal):
        name, problem = found["name"], found["problem"]
        if missing := _MISSING.match(problem):
            return f"the field “{missing[1]}” is missing"
        if "matching regex" in problem:
            problem = "has characters or a form that is not allowed here"
        elif "length <=" in problem:
            problem = f"is too long: at most {problem.rpartition(' ')[2]} characters"
        elif "length >=" in problem:
            problem = "must not be empty"
        else:
            problem = problem.replace("`", "")
        return f"the field “{name}” {problem}" if name else problem
    if found := _NOT_NOW.match(refusal):
        return f"this {found['noun']} is {label(found['status'])} already"
    return refusal


def percent(share: float) -> str:
    return f"{share:.4g} %"


def short_id(text: str | None) -> str:
    """The end of an id, where ids differ."""
    if text is None:
        return NONE
    kind, _, rest = text.rpartition("_")
    return f"{kind}_…{rest[-6:]}" if kind and len(rest) > 8 else text


def pretty(value: Any) -> str:
    """A value of any kind as text that a person can read."""
    if isinstance(value, str):
        return value
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
