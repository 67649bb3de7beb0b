"""workers.list: the processes that carry runs, and how many each carries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from holdfast.api.contract import READ, Caller, GatewayDoor
from holdfast.api.method_kinds import Method, calls
from holdfast.api.pages import bad_token
from holdfast.api.params import PageSize, PageToken, Params
from holdfast.core.claim import Carried
from holdfast.store.tasks import LAST
from holdfast.views.workers import WorkerPageView, WorkerView

if TYPE_CHECKING:
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection


class WorkersAsked(Params, frozen=True, kw_only=True):
    """Workers that have not ended, oldest first; or those that have ended, latest first."""

    which: Literal["alive", "ended"] = "alive"
    limit: PageSize = 100
    # The `nextPageToken` of the previous page.
    page_token: PageToken | None = None


async def workers(gateway: GatewayDoor, asked: WorkersAsked, caller: Caller) -> WorkerPageView:  # noqa: ARG001 - a method
    projection = gateway.projection()
    return await gateway.store.read(lambda tx: read_workers(tx, asked, projection))


def read_workers(tx: Tx, asked: WorkersAsked, projection: Projection) -> WorkerPageView:
    """Counts only the runs of the workers of this page."""
    if asked.page_token is not None and not asked.page_token.startswith("boot_"):
        raise bad_token(asked.page_token)
    if asked.which == "alive":
        found = tx.boots.page_alive(after=asked.page_token or "", limit=asked.limit + 1)
    else:
        found = tx.boots.page_ended(before=asked.page_token or LAST, limit=asked.limit + 1)
    shown = found[: asked.limit]
    carried = tx.boots.carried([one.id for one in shown if one.ended_at is None])
    views = []
    for boot in shown:
        mine = carried.get(boot.id, Carried())
        status = projection.status_of(boot)
        views.append(WorkerView.of(boot, status=status, runs=mine.runs, last_beat_at=mine.heard_at))
    return WorkerPageView(workers=views, next_page_token=shown[-1].id if len(found) > asked.limit else None)


WORKER_METHODS: list[Method] = [
    calls(
        "workers.list",
        READ,
        WorkersAsked,
        WorkerPageView,
        workers,
        "The processes that carry runs: where each is, and how many runs it carries.",
    ),
]
