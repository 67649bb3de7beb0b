"""Renderer: fills templates; everything from the ledger stays text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup, escape

from holdfast.core.clock import SystemClock
from holdfast.views.waits import brief_kind
from holdfast.web import words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.web.files import StaticFiles


class Renderer:
    """Renders the templates of the package. Missing names are errors, and every value is escaped."""

    def __init__(self, files: StaticFiles) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        from holdfast.web.tables import MENU

        self._environment = Environment(
            loader=PackageLoader("holdfast.web", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "ago": words.ago,
            "moment": words.moment,
            "iso": words.iso,
            "lasted": words.lasted,
            "count": words.count,
            "percent": words.percent,
            "label": words.label,
            "tone": words.tone,
            "short": words.short_id,
            "pretty": words.pretty,
            "plural": words.plural,
            "noun": words.noun,
            "awaited": awaited,
            "plain": lambda error: words.in_plain_words(str(error)),
            "ticked": ticked,
            "spaced": words.spaced,
            "pairs": lambda values: [(one, one) for one in values],
            "segment": lambda text: quote(str(text), safe=""),
        }
        self._environment.globals |= {"file": files.address, "menu": MENU, "link": link}

    def render(self, template: str, **given: Any) -> str:
        given.setdefault("now", SystemClock().now())
        return self._environment.get_template(template).render(**given)


def link(path: str, *parts: str, **query: str | int | None) -> str:
    """An address of a page: the parts and the query are escaped, and empty values are left out."""
    place = "/".join([path.rstrip("/"), *(quote(str(part), safe="") for part in parts)])
    given: Mapping[str, str] = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{place}?{urlencode(given)}" if given else place


def awaited(kind: str) -> str:
    """What a task waits for, by the kind of its wait, with its article."""
    return "a time" if kind == "sleep" else brief_kind(kind)


def ticked(text: object) -> Markup:
    """The text, escaped, with what it has in backticks, such as a command, as code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:  # a backtick without its fellow
        return escape(text)
    code = Markup("<code>{}</code>")
    pieces = [code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts)]
    return Markup("").join(pieces)


def plain(view: msgspec.Struct) -> dict[str, Any]:
    """A view as plain data, for a chart."""
    built: dict[str, Any] = msgspec.to_builtins(view)
    return built
