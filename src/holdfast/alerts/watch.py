"""Service: evaluates the rules, raises and clears alerts, and does what the rules ask for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from holdfast.alerts.actions import Act, AlertOptions, is_failure, performing, putting_off
from holdfast.alerts.acts import ACTS, restarting_more, silent_agents
from holdfast.alerts.figures import AGES_FACT, Figures, ages_from, campaign_figures, ledger_figures
from holdfast.alerts.raising import (
    SeenVerdict,
    clearing,
    forgetting,
    is_to_move,
    moving_to_silence,
    raising,
    turning,
)
from holdfast.config.conditions import ConditionFailed, evaluate
from holdfast.core.alert import (
    ABANDONED_AFTER,
    LEDGER,
    NOTICES,
    SEEN_EVERY,
    Alert,
    AlertAction,
    AlertActionKind,
    AlertRule,
    Silence,
    VerdictKey,
    VerdictKind,
    VerdictStep,
    WatchedVerdict,
    step_of,
)
from holdfast.core.alert_condition import FigureScope
from holdfast.core.campaign import Campaign
from holdfast.core.clock import Clock, to_micros
from holdfast.core.errors import HoldfastError, NotFound, RowDamaged, StoreUnavailable
from holdfast.core.jumps import TOLERANCE
from holdfast.core.transitions import AlertActionStatus, AlertStatus, CampaignStatus
from holdfast.engine.aio.polling import PollingService
from holdfast.engine.clocks.jump_watch import ClockWatch
from holdfast.store import Store, Tx, Write

log = logging.getLogger("holdfast")

EVERY_S = 15.0
# After a start, ages are not trusted for so long: the work of the process before is only being resumed.
GRACE_S = 60.0
MAX_ACTIONS = 100
KEEP_HISTORY = timedelta(days=90)
_PRUNE_EVERY_S = 3600.0
_PRUNED_AT_ONCE = 500


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did."""

    raised: tuple[Alert, ...] = ()
    cleared: tuple[Alert, ...] = ()
    # Actions that were done, failed, skipped or put off.
    acted: tuple[AlertAction, ...] = ()


class _Board(msgspec.Struct, frozen=True, kw_only=True):
    """One look at what the ledger remembers of alerts."""

    alerts: dict[VerdictKey, Alert]
    verdicts: dict[VerdictKey, WatchedVerdict]
    silences: dict[str, Silence]
    ages_from: datetime | None

    @property
    def keys(self) -> set[VerdictKey]:
        return self.alerts.keys() | self.verdicts.keys()


class _Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with what is true of it now."""

    seen: SeenVerdict
    is_true: bool


class _Looked(msgspec.Struct, kw_only=True):
    """What one pass found out: the verdicts to look at, and whose figures could not be read."""

    verdicts: list[_Verdict] = []
    # Every verdict that a rule of this gateway is about.
    keys: set[VerdictKey] = set()
    unread: set[str] = set()

    def add(
        self,
        rule: AlertRule,
        kind: VerdictKind,
        subject: str,
        name: str,
        board: _Board,
        *,
        is_true: bool,
        figures: Figures | None = None,
        problem: str | None = None,
    ) -> None:
        key = (rule.name, kind, subject)
        seen = SeenVerdict(
            rule=rule,
            kind=kind,
            subject=subject,
            subject_name=name,
            verdict=board.verdicts.get(key),
            alert=board.alerts.get(key),
            figures=figures or {},
            problem=problem,
        )
        self.verdicts.append(_Verdict(seen=seen, is_true=is_true))


class AlertWatch(PollingService):
    """Several gateways may run this service on one ledger: each alert is raised once, and each action is done
    once. What a pass costs grows with the rules and the running campaigns, not with their items."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        options: AlertOptions,
        *,
        place: str = "",
        watch: ClockWatch | None = None,
        acts: Mapping[AlertActionKind, Act] = ACTS,
        every_s: float = EVERY_S,
        grace_s: float = GRACE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`options` may be replaced while the service runs. `place` names the gateway that has these rules.
        Without a watch, the time of the clock is taken as it is."""
        super().__init__(store, "alerts", every_s=every_s)
        self.options = options
        self._clock = clock
        self._place = place
        self._watch = watch
        self._acts = acts
        self._grace_s = grace_s
        self._monotonic = monotonic
        self._started_s = monotonic()
        # The time of the last pass, by both clocks: if the wall clock went on further, it has jumped.
        self._last: tuple[datetime, float] | None = None
        self._seen_s: float | None = None
        self._pruned_s: float | None = None

    def hurry(self) -> None:
        self.stop()

    async def run_once(self) -> Tick:
        """Evaluate every rule, and do the actions that are due. An error of one rule, one campaign or one
        action is logged or told, and the others go on. Raises StoreUnavailable."""
        now = self._clock.now() if self._watch is None else await self._watch.firing_time()
        if now is None:
            return Tick()
        await self._note_jump(now)
        board = await self._board(now)
        looked = await self._look(board, now)
        changed = [await self._step(one, board, now) for one in looked.verdicts]
        changed += [await self._end(key, looked, board, now) for key in board.keys - looked.keys]
        await self._keep_silences(board, now)
        acted = await self._act(now)
        await self._restart_more(board, now)
        await self._tidy(now)
        found = [one for one in changed if one is not None]
        return Tick(
            raised=tuple(one for one in found if one.status is not AlertStatus.CLEARED),
            cleared=tuple(one for one in found if one.status is AlertStatus.CLEARED),
            acted=tuple(acted),
        )

    # --- what is true now

    async def _board(self, now: datetime) -> _Board:
        board = await self._store.read(_read_board)
        if board.ages_from is not None and board.ages_from > now + TOLERANCE:
            # The clock was ahead when it was noted, and is right again: no age would count until then.
            await self._store.write(_ages_begin(now))
            board = msgspec.structs.replace(board, ages_from=now)
        return board

    async def _look(self, board: _Board, now: datetime) -> _Looked:
        """Evaluate each rule for the ledger, or for each running campaign that it is about."""
        looked = _Looked()
        rules = self.options.rules
        if not rules:
            return looked
        figures = await self._store.read(partial(ledger_figures, now=now, ages_from=board.ages_from))
        for rule in rules:
            if rule.condition.scope is FigureScope.LEDGER:
                self._evaluate(rule, LEDGER, LEDGER, figures, board, looked)
        of_campaigns = [rule for rule in rules if rule.condition.scope is FigureScope.CAMPAIGN]
        after = ""
        while of_campaigns:
            found = await self._store.read(partial(_running, after))
            if not found:
                break
            for campaign in found:
                mine = [rule for rule in of_campaigns if rule.is_about(campaign.name)]
                if mine:
                    await self._look_at(campaign, mine, figures, board, now, looked)
            after = found[-1].id
        return looked

    async def _look_at(
        self,
        campaign: Campaign,
        rules: Sequence[AlertRule],
        figures: Figures,
        board: _Board,
        now: datetime,
        looked: _Looked,
    ) -> None:
        what = f"figures of campaign {campaign.name}"
        try:
            own = await self._store.read(
                partial(campaign_figures, campaign=campaign, now=now, ages_from=board.ages_from)
            )
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            self.troubles.met(what, error, again_in_s=self.every_s)
            looked.unread.add(campaign.id)
            return
        self.troubles.worked(what)
        for rule in rules:
            self._evaluate(rule, campaign.id, campaign.name, figures | own, board, looked)

    def _evaluate(
        self,
        rule: AlertRule,
        subject: str,
        name: str,
        figures: Figures,
        board: _Board,
        looked: _Looked,
    ) -> None:
        """Note whether the condition is true, or that it cannot be evaluated; then the last answer stays."""
        key = (rule.name, VerdictKind.CONDITION, subject)
        looked.keys |= {key, (rule.name, VerdictKind.FAILURE, subject)}
        alert = board.alerts.get(key)
        try:
            if alert is not None and rule.clear_when is not None:
                is_true = not evaluate(rule.clear_when, figures)
            else:
                is_true = evaluate(rule.condition, figures)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one rule must not stop the others
            problem = str(error) if isinstance(error, ConditionFailed) else repr(error)
            looked.add(rule, VerdictKind.FAILURE, subject, name, board, is_true=True, problem=problem)
            return
        looked.add(rule, VerdictKind.FAILURE, subject, name, board, is_true=False)
        shown = {one: round(float(figures[one]), 4) for one in rule.condition.names}
        if alert is None and is_true and self._is_starting and any(map(_is_age, shown)):
            return
        looked.add(rule, VerdictKind.CONDITION, subject, name, board, is_true=is_true, figures=shown)

    @property
    def _is_starting(self) -> bool:
        return self._monotonic() - self._started_s < self._grace_s

    # --- changes

    async def _step(self, one: _Verdict, board: _Board, now: datetime) -> Alert | None:
        """Make the one change that is due, if one is."""
        seen, rule = one.seen, one.seen.rule
        verdict = seen.verdict
        if verdict is not None and verdict.digest != rule.digest and not self._may_take(verdict, now):
            return None  # another gateway has another rule of this name, and watches this verdict
        step = step_of(
            verdict,
            is_true=one.is_true,
            has_alert=seen.alert is not None,
            raise_after=timedelta() if seen.kind is VerdictKind.FAILURE else rule.raise_after,
            clear_after=rule.clear_after,
            now=now,
            ages_from=board.ages_from,
        )
        try:
            return await self._change(step, one, now)
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            self.troubles.met(f"alert rule {rule.name}", error, again_in_s=self.every_s)
            return None

    async def _change(self, step: VerdictStep, one: _Verdict, now: datetime) -> Alert | None:
        seen = one.seen
        match step:
            case VerdictStep.TURN:
                await self._store.write(turning(seen, one.is_true, place=self._place, now=now))
            case VerdictStep.FORGET:
                assert seen.verdict is not None
                await self._store.write(forgetting(seen.verdict))
            case VerdictStep.RAISE:
                raised = await self._store.write(raising(seen, place=self._place, now=now))
                if raised is not None:
                    log.warning("alert %s: %s, %s", raised.rule, raised.subject_name, raised.words)
                return raised
            case VerdictStep.CLEAR:
                assert seen.alert is not None
                why = "it is not so any more"
                return await self._store.write(
                    clearing(seen.alert, seen.verdict, why=why, rule=seen.rule, now=now)
                )
            case VerdictStep.NOTHING:
                pass
        return None

    def _may_take(self, verdict: WatchedVerdict, now: datetime) -> bool:
        """Whether a verdict is this gateway's own, or of one that has not been heard of for long."""
        if verdict.place == self._place:
            return True
        has_waited = self._monotonic() - self._started_s >= ABANDONED_AFTER.total_seconds()
        return has_waited and now - verdict.seen_at > ABANDONED_AFTER

    async def _end(self, key: VerdictKey, looked: _Looked, board: _Board, now: datetime) -> Alert | None:
        """Clear what no rule is about any more: its campaign has ended, or its rule is gone."""
        rule, _, subject = key
        verdict, alert = board.verdicts.get(key), board.alerts.get(key)
        if subject in looked.unread:
            return None
        why = "the rule was changed or removed"
        if subject != LEDGER:
            status = await self._store.read(partial(_status_of, subject))
            if status in (CampaignStatus.PAUSED, CampaignStatus.DRAFT):
                return None  # nothing can change for the better; the alert stays
            if status is not CampaignStatus.RUNNING:
                why = f"the campaign is {'gone' if status is None else status.value}"
        is_over = why.startswith("the campaign")
        if not is_over and verdict is not None and not self._may_take(verdict, now):
            return None
        if alert is None:
            assert verdict is not None
            await self._store.write(forgetting(verdict))
            return None
        known = self.options.by_name.get(rule)
        return await self._store.write(clearing(alert, verdict, why=why, rule=known, now=now))

    async def _keep_silences(self, board: _Board, now: datetime) -> None:
        late = [one for one in board.alerts.values() if is_to_move(one, board.silences, now)]
        if late or any(one.until <= now for one in board.silences.values()):
            await self._store.write(moving_to_silence(late, self.options.by_name, now=now))

    # --- actions

    async def _act(self, now: datetime) -> list[AlertAction]:
        due = await self._store.read(lambda tx: tx.alerts.due_actions(now=now, limit=MAX_ACTIONS))
        done = [await self._perform(one, now) for one in due]
        if any(one is not None and one.status is AlertActionStatus.FAILED for one in done):
            # A person is told at once, not at the next pass.
            notices = await self._store.read(lambda tx: tx.alerts.due_actions(now=now, limit=MAX_ACTIONS))
            done += [await self._perform(one, now) for one in notices if one.action in NOTICES]
        return [one for one in done if one is not None]

    async def _perform(self, action: AlertAction, now: datetime) -> AlertAction | None:
        try:
            return await self._store.write(performing(action, self.options, self._acts, now=now))
        except Exception as error:  # an action may fail in any way, and is tried again
            if isinstance(error, StoreUnavailable):
                raise
            if not is_failure(error):
                return None
            log.warning("%s of %s failed: %s", action.action.value, action.alert_id, error)
            return await self._store.write(putting_off(action, error, now=now))

    async def _restart_more(self, board: _Board, now: datetime) -> None:
        """While an alert that restarts agents is raised, restart those that fall silent later, too."""
        known = self.options.by_name
        for alert in board.alerts.values():
            rule = known.get(alert.rule)
            if rule is None or alert.status is not AlertStatus.RAISED or alert.kind is VerdictKind.FAILURE:
                continue
            if AlertActionKind.RESTART_AGENT not in rule.actions:
                continue
            try:
                if await self._store.read(partial(_has_silent, alert, rule, now)):
                    await self._store.write(restarting_more(alert.id, rule, now=now))
            except StoreUnavailable:
                raise
            except HoldfastError as error:
                self.troubles.met(f"alert rule {rule.name}", error, again_in_s=self.every_s)

    # --- upkeep

    async def _note_jump(self, now: datetime) -> None:
        """If the clock jumped ahead, or the machine slept, no age from before counts: it would raise every
        alert at once."""
        last, self._last = self._last, (now, self._monotonic())
        if last is None:
            return
        ahead = (now - last[0]) - timedelta(seconds=self._last[1] - last[1])
        if ahead > TOLERANCE:
            log.warning("the clock went on by %s at once: ages of alert rules begin anew", ahead)
            await self._store.write(_ages_begin(now))

    async def _tidy(self, now: datetime) -> None:
        """Now and then: tell that this gateway still watches its verdicts, and delete old alerts."""
        passed = self._monotonic()
        if self._seen_s is None or passed - self._seen_s >= SEEN_EVERY.total_seconds():
            self._seen_s = passed
            before = now - SEEN_EVERY / 2
            await self._store.write(lambda tx: tx.alerts.see_verdicts(self._place, before=before, now=now))
        if self._pruned_s is None or passed - self._pruned_s >= _PRUNE_EVERY_S:
            trusted = now if self._watch is None else await self._watch.deletion_time()
            if trusted is None:
                return
            self._pruned_s = passed
            before = trusted - KEEP_HISTORY
            while (
                await self._store.write(lambda tx: tx.alerts.prune(before=before, limit=_PRUNED_AT_ONCE))
                == _PRUNED_AT_ONCE
            ):
                pass


def _ages_begin(now: datetime) -> Write[None]:
    return lambda tx: tx.boots.set_fact(AGES_FACT, str(to_micros(now)))


def _read_board(tx: Tx) -> _Board:
    return _Board(
        alerts={(one.rule, one.kind, one.subject): one for one in tx.alerts.live()},
        verdicts=tx.alerts.verdicts(),
        silences=tx.alerts.silences(),
        ages_from=ages_from(tx),
    )


def _running(after: str, tx: Tx) -> list[Campaign]:
    return tx.campaigns.in_status(CampaignStatus.RUNNING, after=after)


def _status_of(campaign_id: str, tx: Tx) -> CampaignStatus | None:
    try:
        return tx.campaigns.get(campaign_id).status
    except NotFound:
        return None
    except RowDamaged:  # nothing of it runs any more
        return CampaignStatus.FAILED


def _has_silent(alert: Alert, rule: AlertRule, now: datetime, tx: Tx) -> bool:
    campaign = tx.campaigns.get(alert.subject)
    return campaign.status is CampaignStatus.RUNNING and bool(silent_agents(tx, campaign, rule, now))


def _is_age(name: str) -> bool:
    return name.endswith("_minutes")
