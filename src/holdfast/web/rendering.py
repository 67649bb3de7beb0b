"""Renderer: fills templates; everything from the ledger stays text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import msgspec

from holdfast.core.clock import SystemClock
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


def plain(view: msgspec.Struct) -> dict[str, Any]:
    """A view as plain data, for a chart."""
    built: dict[str, Any] = msgspec.to_builtins(view)
    return built
