"""gateway.*: status, readiness for a restart, restart and stop."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import msgspec

from holdfast.api.contract import Caller, GatewayDoor
from holdfast.api.pages import bad_token
from holdfast.api.params import IdText, Nothing, PageToken, Params, ShortText
from holdfast.core.errors import HoldfastError, NotFound, NotReady, RestartBlocked
from holdfast.store.tasks import LAST
from holdfast.views.errors import ErrorView
from holdfast.views.gateway import (
    MAX_REASON_CHARS,
    GatewayView,
    LetResumeView,
    PreflightView,
    ReadinessView,
    RestartAnswerView,
    RestartPageView,
    RestartView,
    StoppingView,
)
from holdfast.views.text import one_line

if TYPE_CHECKING:
    from holdfast.core.manifest import Restart


class RestartParams(Params, frozen=True, kw_only=True):
    """A restart: the reason, and whether to skip the readiness gate."""

    reason: ShortText = "asked for by an operator"
    force: bool = False
    # For the session that asks: what to continue with after the restart.
    continuation: ShortText | None = None


class StopAsked(Params, frozen=True, kw_only=True):
    """Drain the gateway and stop it."""

    reason: ShortText = "asked for by an operator"


class RestartsAsked(Params, frozen=True, kw_only=True):
    """Restarts, newest first; or one of them."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 20
    restart_id: IdText | None = None
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


async def status(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> GatewayView:  # noqa: ARG001 - a method
    found = await gateway.look()
    newest: list[Restart] = []
    # While the gateway starts, there may be no ledger yet; and a read would block if the database is away.
    if found.status != "starting" and found.ledger_problem is None:
        with contextlib.suppress(HoldfastError):  # a damaged record must not hide the rest
            newest = await gateway.restarts(1)
    return GatewayView.of(found, newest[0] if newest else None)


async def preflight(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> PreflightView:  # noqa: ARG001 - a method
    return PreflightView.of(await gateway.preflight())


async def readiness(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> ReadinessView:  # noqa: ARG001 - a method
    return ReadinessView.of(await gateway.preflight())


async def restart(gateway: GatewayDoor, asked: RestartParams, caller: Caller) -> RestartAnswerView:
    """Answered when the drain is over and the process is about to end, or when the restart is refused."""
    from holdfast.gateway.gateway import RestartRequest

    answer = await gateway.restart(
        RestartRequest(
            reason=asked.reason,
            triggered_by=caller.who,
            force=asked.force,
            continuation=asked.continuation,
        )
    )
    if not answer.is_accepted:
        gateway.audit.refuse(caller.actor, "gateway.restart", answer.why or "")
    return RestartAnswerView(
        is_accepted=answer.is_accepted,
        why=answer.why,
        restart_id=answer.restart_id,
        readiness=ReadinessView.of(answer.readiness),
        error=None
        if answer.is_accepted
        else _refusal(answer.why, is_ready=answer.readiness.is_safe or asked.force),
    )


def _refusal(why: str | None, *, is_ready: bool) -> ErrorView:
    """The refusal by the readiness gate; else the work could not be saved, or a new gateway not start."""
    if not is_ready:
        return ErrorView(code=NotReady.code, message=one_line(why or "", MAX_REASON_CHARS))
    return ErrorView(
        code=RestartBlocked.code, message=one_line(str(RestartBlocked(why or "?")), MAX_REASON_CHARS)
    )


async def stop(gateway: GatewayDoor, asked: StopAsked, caller: Caller) -> StoppingView:
    await gateway.stop(asked.reason, triggered_by=caller.who)
    return StoppingView(is_accepted=True)


async def let_resume(gateway: GatewayDoor, asked: Nothing, caller: Caller) -> LetResumeView:  # noqa: ARG001 - a method
    return LetResumeView(resumed=await gateway.let_resume())


async def restarts(gateway: GatewayDoor, asked: RestartsAsked, caller: Caller) -> RestartPageView:  # noqa: ARG001 - a method
    """Raises NotFound for an id of no restart."""
    if asked.restart_id is not None:
        # In the order of ids it is the last one before everything that begins with it.
        found = await gateway.restarts(1, f"{asked.restart_id}{LAST}")
        if not found or not found[0].id.startswith(asked.restart_id):
            raise NotFound("restart", asked.restart_id)
        return RestartPageView(restarts=[RestartView.of(found[0])])
    return restart_page(asked, await gateway.restarts(asked.limit + 1, place_of_restarts(asked)))


def place_of_restarts(asked: RestartsAsked) -> str:
    """Where the page begins. Raises BadInput for a token that is no id of a restart."""
    if asked.page_token is not None and not asked.page_token.startswith("rst_"):
        raise bad_token(asked.page_token)
    return asked.page_token or LAST


def restart_page(asked: RestartsAsked, found: list[Restart]) -> RestartPageView:
    """A page of what was found there; one more than asked for means that there is a next page."""
    shown = found[: asked.limit]
    return RestartPageView(
        restarts=[RestartView.of(one) for one in shown],
        next_page_token=one_line(shown[-1].id) if len(found) > asked.limit else None,
    )
