"""Where the pages with parameters are in the sample home; names in braces are those of `fill`."""

from __future__ import annotations

PLACES: dict[str, str] = {
    "/tasks/{task}": "/dashboard/tasks/{done}",
    "/tasks/{task}/timeline": "/dashboard/tasks/{done}/timeline",
    "/reviews/{effect}": "/dashboard/reviews/{effect}",
    "/campaigns/{campaign}": "/dashboard/campaigns/survey",
    "/campaigns/{campaign}/items": "/dashboard/campaigns/survey/items",
    "/campaigns/{campaign}/items/{item}": "/dashboard/campaigns/survey/items/row-009",
    "/agents/{agent}": "/dashboard/agents/row-009-analyzer?campaign=survey",
    "/flows/{flow}": "/dashboard/flows/{flow}",
    "/sessions/{session:path}": "/dashboard/sessions/agent:main:main",
    "/schedules/{schedule}": "/dashboard/schedules/often",
    "/restarts/{restart}": "/dashboard/restarts/{restart}",
}
