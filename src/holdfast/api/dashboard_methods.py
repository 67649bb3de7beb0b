"""dashboard.link: a new link that signs a browser in once; only for commands on the gateway's own host."""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.api.contract import ADMIN, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, acts
from holdfast.api.params import Params, TokenName
from holdfast.config.sign_in import CODE_LASTS, make_code, sign_in_url
from holdfast.config.token_file import OPERATOR, read_issued
from holdfast.core.clock import SystemClock
from holdfast.core.errors import NotFound, Refused
from holdfast.views.up import DashboardLinkView


class DashboardLinkAsked(Params, frozen=True, kw_only=True):
    """A link with the rights of this token; by default those of the operator."""

    token: TokenName = OPERATOR


async def _link(gateway: GatewayDoor, asked: DashboardLinkAsked, caller: Caller) -> DashboardLinkView:  # noqa: ARG001 - a method
    if not gateway.urls:
        raise Refused("this gateway listens on no TCP port, so no browser can reach it")
    # Codes expire by this machine's clock, as tokens do.
    now = SystemClock().now()
    code = await asyncio.to_thread(_make_code, gateway, asked.token, now)
    return DashboardLinkView(
        url=sign_in_url(gateway.urls[0], code), token=asked.token, valid_until=now + CODE_LASTS
    )


def _make_code(gateway: GatewayDoor, token: str, now: datetime) -> str:
    """Refused here, because the sign-in page tells a caller without a session nothing about tokens."""
    ends: dict[str, datetime | None] = {OPERATOR: None}
    ends |= {name: one.expires_at for name, one in gateway.config.tokens.items()}
    ends |= {one.name: one.expires_at for one in read_issued(gateway.home)}
    if token not in ends:
        raise NotFound("token", token)
    end = ends[token]
    if end is not None and end <= now:
        raise Refused(
            f"the token {token} has expired; give it a new text and a new end: "
            f"`holdfast tokens rotate {token} --expires-in 90d`"
        )
    return make_code(gateway.home, now, token=token)


DASHBOARD_METHODS: list[Method] = [
    acts(
        "dashboard.link",
        ADMIN,
        DashboardLinkAsked,
        DashboardLinkView,
        _link,
        "A new link to the dashboard, which signs a browser in once, within ten minutes.",
        is_local=True,
    ),
]
