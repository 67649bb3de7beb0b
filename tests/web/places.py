"""Where the pages with parameters are in the sample home; names in braces are those that fill() returns."""

from __future__ import annotations

PLACES: dict[str, str] = {
    "/campaigns/{campaign}": "/dashboard/campaigns/survey",
    "/campaigns/{campaign}/items": "/dashboard/campaigns/survey/items",
    "/campaigns/{campaign}/items/{item}": "/dashboard/campaigns/survey/items/row-009",
    "/agents/{agent}": "/dashboard/agents/row-009-analyzer?campaign=survey",
    "/flows/{flow}": "/dashboard/flows/{flow}",
}
