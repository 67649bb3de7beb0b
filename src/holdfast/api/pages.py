"""Reads a page of records, and reports damaged ones without hiding the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from holdfast.core.errors import RowDamaged
from holdfast.views.text import one_line


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_HasId)


def read_sound(
    read: Callable[[int, str], list[R]], *, after: str, limit: int, problems: list[str]
) -> list[R]:
    """At most `limit` records after an id; `read` takes both. Damaged records are added to `problems`."""
    try:
        return read(limit, after)
    except RowDamaged:
        pass
    found: list[R] = []
    while len(found) < limit:
        try:
            one = read(1, after)
        except RowDamaged as damage:
            problems.append(one_line(str(damage)))
            after = damage.record_id
            continue
        if not one:
            break
        found += one
        after = one[-1].id
    return found
