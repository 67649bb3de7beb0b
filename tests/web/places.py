"""Where the pages with parameters are in the sample home; names in braces are those of `fill`."""

from __future__ import annotations

PLACES: dict[str, str] = {
    "/sessions/{session:path}": "/dashboard/sessions/agent:main:main",
    "/schedules/{schedule}": "/dashboard/schedules/often",
    "/restarts/{restart}": "/dashboard/restarts/{restart}",
}
