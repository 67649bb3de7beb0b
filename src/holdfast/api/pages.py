"""Reads a page of records from the place of its token, and reports damaged ones without hiding the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from holdfast.core.errors import BadInput, NotFound, RowDamaged
from holdfast.core.ids import is_whole_id
from holdfast.views.text import one_line


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


R = TypeVar("R", bound=_HasId)


def place_of(prefix: str, token: str, resolve: Callable[[str], str]) -> str:
    """Where a page begins. The last record of the previous page may have been pruned meanwhile.

    Raises BadInput for a token that is no id: otherwise it would silently show the first or the last page.
    """
    try:
        return resolve(token)
    except (NotFound, BadInput):
        if is_whole_id(prefix, token):
            return token
        raise bad_token(token) from None


def bad_token(token: str) -> BadInput:
    why = f"{token!r:.80} is not a page token of this list; copy the one printed under the previous page"
    return BadInput("page token", why)


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
