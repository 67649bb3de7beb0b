"""What a page was asked for, as parameters of a method: what the browser left empty is left out."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from holdfast.views.browser import NotAnswered
from holdfast.web.page_kinds import Query


def given(query: Query, *names: str, **renamed: str) -> dict[str, Any]:
    """What is not empty, by the names of the method: `given(query, "status", page="pageToken")`."""
    wanted = {name: name for name in names} | renamed
    return {param: query[name] for name, param in wanted.items() if query.get(name)}


def page_of(section: str, record: str) -> str:
    """The address of the page of one record."""
    return f"/dashboard/{section}/{quote(record, safe='')}"


def whole_number(query: Query, name: str) -> int | None:
    """None if it was left empty. Raises NotAnswered for what is no number."""
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise NotAnswered(
            "bad_input", f"{name} must be a number, not {text!r}", status=HTTPStatus.BAD_REQUEST
        )
    return int(text)
