"""Where the pages with parameters are in the sample home; names in braces are those of `fill`."""

from __future__ import annotations

PLACES: dict[str, str] = {}
