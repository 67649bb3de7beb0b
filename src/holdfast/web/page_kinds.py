"""Page and Action: what a page shows, and what a person may do there; the tables of both are in modules."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from holdfast.views.browser import Visitor

# The parameters of a page: parts of its path and of its query, as the browser sent them.
Query: TypeAlias = Mapping[str, str]
Loads: TypeAlias = Callable[[Visitor, Query], Awaitable[dict[str, Any]]]

READ, WRITE, ADMIN = "read", "write", "admin"


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One page: where it is, what it reads, and the template that shows it."""

    path: str
    title: str
    template: str
    load: Loads
    # The entry of the menu that is lit; "" for none.
    section: str = ""
    # Which events make it out of date: beginnings of their kinds, parted by blanks; `task` alone means those
    # of the task of this page.
    follows: str = ""
    # It is also read again after so many seconds, for what has no events.
    every_s: int = 20


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field that a person fills in before an action."""

    name: str
    label: str
    # `text`, `long`, `json`, `choice`, `check`, `number` or `hidden`.
    kind: str = "text"
    value: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    is_required: bool = False
    hint: str = ""
    # What a text must match, as a regular expression of the browser; the hint says it in words.
    pattern: str = ""


class Confirmation(msgspec.Struct, frozen=True, kw_only=True):
    """What a dialog says before an action: what will happen, in sentences, and what the person may choose."""

    title: str
    says: tuple[str, ...]
    confirm: str
    fields: tuple[Field, ...] = ()
    # What would be interrupted or changed, one line each.
    lines: tuple[str, ...] = ()
    is_dangerous: bool = False
    # Why it cannot be done now; then there is no button.
    refused: str | None = None


class ActionDone(msgspec.Struct, frozen=True, kw_only=True):
    """What an action did, in a sentence, with the page of what it created."""

    text: str
    # The words of the link, and where it leads; empty for none.
    link: str = ""
    href: str = ""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person does: asked once, then done by one method of the gateway, which is audited."""

    name: str
    # Says what it will do; reads what it must.
    ask: Callable[[Visitor, Query], Awaitable[Confirmation]]
    # Does it, and returns what became of it in a sentence.
    act: Callable[[Visitor, Query], Awaitable[str | ActionDone]]
    needs: str = WRITE
