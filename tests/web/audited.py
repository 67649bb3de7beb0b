"""What the audit log says that a person did at the dashboard."""

from __future__ import annotations

from tests.web.gateways import LiveGateway


def done_at_the_dashboard(gateway: LiveGateway, subject: str) -> list[str]:
    """The actions on one record, oldest first."""
    entries = gateway.call("audit.list", subject=subject, limit=100)["entries"]
    return [one["action"] for one in reversed(entries) if one["who"] == "operator (dashboard)"]
