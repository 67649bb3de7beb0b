"""A small campaign whose items run, end and fail as a test says, and watchers of its alerts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from holdfast.alerts.actions import Act, AlertOptions
from holdfast.alerts.acts import ACTS
from holdfast.alerts.raising import silencing
from holdfast.alerts.watch import AlertWatch, Tick
from holdfast.config.alerts import AlertSettings
from holdfast.core.alert import Alert, AlertAction, AlertActionKind, Silence
from holdfast.core.campaign import Campaign, CampaignSpec, Item, Phase
from holdfast.core.delivery import Delivery
from holdfast.core.payload import decode_payload
from holdfast.core.quiet_hours import QuietHours
from holdfast.core.task import Failure
from holdfast.engine.campaigns.starting import starting_items
from holdfast.engine.claims.claims import ClaimedRun
from holdfast.engine.client.campaigns import Campaigns
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.engine.parts import Parts

PHONE = "phone"


class WatchedCampaign:
    def __init__(self, store: Store, clock: FakeClock) -> None:
        self.store = store
        self.clock = clock
        self.campaigns = Campaigns(store, clock)
        self.campaign: Campaign
        self.parts: Parts
        self.runs: dict[str, ClaimedRun] = {}

    async def begin(self, count: int = 10, *, name: str = "rd-os", **spec: Any) -> Campaign:
        """A running campaign; all its items are running."""
        items = [Item(id=f"repo-{number:03d}") for number in range(1, count + 1)]
        made = CampaignSpec(phases=(Phase(name="analysis", task="analyse"),), **spec)
        campaign = await self.campaigns.create(name, made, items)
        self.campaign = await self.campaigns.start(campaign.id)
        self.parts = await Parts.begin(self.store, self.clock)
        await self.fill()
        return self.campaign

    async def fill(self) -> None:
        await self.store.write(starting_items(self.campaign.id, now=self.clock.now()))
        for claimed in await self.parts.claims.take(1000):
            arguments: Any = decode_payload(claimed.task.arguments)
            self.runs[arguments["item"]["id"]] = claimed

    async def finish(self, count: int = 1) -> None:
        """So many of the running items are done."""
        for item in list(self.runs)[:count]:
            await self.parts.ledger.finish(self.runs.pop(item).claim, {"lines": 3})

    async def fail(self, count: int = 1) -> None:
        failure = Failure(kind="ValueError", message="it is broken")
        for item in list(self.runs)[:count]:
            await self.parts.ledger.fail(self.runs.pop(item).claim, failure)

    def watch(
        self,
        rules: Mapping[str, AlertSettings | str] | None = None,
        *,
        place: str = "here",
        acts: Mapping[AlertActionKind, Act] = ACTS,
        channels: tuple[str, ...] = (PHONE,),
        quiet_hours: QuietHours | None = None,
        grace_s: float = 0.0,
        store: Store | None = None,
        is_wary: bool = False,
        **more: AlertSettings | str,
    ) -> AlertWatch:
        """A gateway that watches these rules, each given as its settings or its condition."""
        used = self.store if store is None else store
        return AlertWatch(
            used,
            self.clock,
            options_of(dict(rules or {}) | more, channels=channels, quiet_hours=quiet_hours),
            place=place,
            acts=acts,
            grace_s=grace_s,
            watch=ClockWatch(used, self.clock, boottime_us=self.clock.boottime_us, machine="m")
            if is_wary
            else None,
            monotonic=self.seconds,
        )

    def seconds(self) -> float:
        return self.clock.boottime_us() / 1e6

    async def ticks(self, watch: AlertWatch, *, minutes: float, every_s: float = 15.0) -> list[Tick]:
        """Pass by pass, for so long."""
        found = []
        for _ in range(int(minutes * 60 / every_s)):
            self.clock.advance(seconds=every_s)
            found.append(await watch.run_once())
        return found

    async def silence(self, rule: str, *, minutes: float) -> Silence:
        now = self.clock.now()
        silence = Silence(
            rule=rule, until=now + timedelta(minutes=minutes), silenced_by="ada", created_at=now
        )
        return await self.store.write(silencing(silence))

    # --- what the ledger has

    def alerts(self) -> list[Alert]:
        """Oldest first."""
        return self.store.read_now(lambda tx: tx.alerts.page(limit=100))[::-1]

    def actions(self, alert: Alert) -> dict[str, AlertAction]:
        found = self.store.read_now(lambda tx: tx.alerts.actions_of([alert.id]))[alert.id]
        return {one.action.value: one for one in found}

    def notices(self) -> list[Delivery]:
        return self.store.read_now(lambda tx: tx.deliveries.owed(limit=100))

    def texts(self) -> list[str]:
        return [one.letter.text for one in self.notices()]

    def counts(self) -> dict[str, int]:
        return self.store.read_now(lambda tx: tx.events.counts("alert"))


def options_of(
    rules: Mapping[str, AlertSettings | str],
    *,
    channels: tuple[str, ...] = (PHONE,),
    quiet_hours: QuietHours | None = None,
) -> AlertOptions:
    made = {
        name: AlertSettings(condition=one) if isinstance(one, str) else one for name, one in rules.items()
    }
    return AlertOptions(
        rules=tuple(one.tried_rule(name) for name, one in made.items()),
        channels=channels,
        quiet_hours=quiet_hours,
    )


def failing(times: int, then: Callable[[], str] = lambda: "done") -> Act:
    """An action that fails so often before it works."""
    left = [times]

    def act(tx: Any, alert: Any, rule: Any, now: Any) -> str:
        if left[0]:
            left[0] -= 1
            raise ValueError("it cannot be done now")
        return then()

    return act
