"""Where the pages with parameters are in the sample home; names in braces are those of `fill`."""

from __future__ import annotations

PLACES: dict[str, str] = {
    "/tasks/{task}": "/dashboard/tasks/{done}",
    "/tasks/{task}/timeline": "/dashboard/tasks/{done}/timeline",
    "/reviews/{effect}": "/dashboard/reviews/{effect}",
}
