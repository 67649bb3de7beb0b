"""The state files of one campaign: brings them up to what the ledger says, a bounded piece at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from holdfast.core.campaign import Campaign, batch_name
from holdfast.core.campaign_checkpoint import CampaignCheckpoint, CampaignCheckpointKind
from holdfast.core.clock import from_micros, to_micros
from holdfast.core.errors import BadInput
from holdfast.core.events import Event
from holdfast.core.progress import SPAN, CountKind, ItemCounts, Tally, batch_key, counts_of, noun_of
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.campaigns.documents import read_phase_document
from holdfast.engine.campaigns.report import counts_by
from holdfast.progress import file_documents as documents
from holdfast.progress.file_tree import TreeFolder
from holdfast.progress.snapshots import read_snapshot
from holdfast.store import Tx
from holdfast.store.item_changes import ChangedItem, ChangePosition

T = TypeVar("T")

_PAGE = 500
_SWEEP = 200
# A change may be committed after a later one. Those of the last seconds are read again.
OVERLAP = timedelta(seconds=10)
# Rates and estimates change with time, also if nothing else does.
_RATE_EVERY = timedelta(seconds=60)
# Reports and logs are written whole: at once while they are small, then as they have grown by a tenth.
_SMALL = 2000
_GROWTH = 10
_MOST_RESULTS = 1000
_MOST_FAILURES = 50
_MOST_EVENTS = 1000
_SNAPSHOTS = 50
POSITION = ".position.json"
FINAL = frozenset({CampaignStatus.DONE, CampaignStatus.FAILED})


class LedgerReader(Protocol):
    """What is read from: a store, or the reader of a command."""

    def read_now(self, read: Callable[[Tx], T]) -> T: ...


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the report of a phase was written from: a retry may leave the number of ended items as it was."""

    done: int
    failed: int
    # When an item of the phase ended last, as far as the changes were followed.
    ended_us: int

    @property
    def ended(self) -> int:
        return self.done + self.failed


_NOTHING = Reported(done=0, failed=0, ended_us=0)


class Position(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far the files of a campaign have followed it; kept beside them, so that a restart goes on there."""

    campaign_id: str
    changed: ChangePosition
    is_caught_up: bool = False
    # Every item is compared with its file in turn, until so many whole rounds have found nothing to do.
    swept_to: int = -1
    rounds_left: int = 2
    # The number of the last checkpoint whose snapshot is written.
    checkpoint: int = -1
    reported: dict[str, Reported] = {}
    # By phase: when an item ended last, as far as the changes were followed.
    ended_us: dict[str, int] = {}
    # Whether the campaign was over and its files were up to date: only a restart of it changes them again.
    is_final: bool = False


class Memory:
    """What need not be kept: the process that forgets it does a little more."""

    def __init__(self) -> None:
        self.is_new = True
        self.campaign: Campaign | None = None
        self.summed_at: datetime | None = None


class CampaignFiles:
    """One pass over one campaign. `written` counts the files that were not yet as they should be."""

    def __init__(
        self, ledger: LedgerReader, tree: TreeFolder, campaign: Campaign, memory: Memory, *, now: datetime
    ) -> None:
        self._ledger = ledger
        self._tree = tree
        self._campaign = campaign
        self._memory = memory
        self._now = now
        self._batches: set[int] = set()
        self._days: set[date] = set()
        self._ended_us: dict[str, int] = {}
        self.written = 0
        self.has_more = False

    def bring_up(self, *, budget: int) -> None:
        """Raises HomeUnusable; then the position stays, and the next pass does the same again."""
        self._tree.make_folders(self._campaign.name)
        known = self._position()
        position = known or Position(
            campaign_id=self._campaign.id,
            changed=ChangePosition(updated_at=to_micros(self._campaign.created_at) - 1),
        )
        self._ended_us = dict(position.ended_us)
        changed = self._follow(position, budget)
        is_swept = (position.rounds_left or self._memory.is_new) and not self.has_more
        swept_to = self._sweep(position.swept_to) if is_swept else position.swept_to
        rounds = position.rounds_left or int(self._memory.is_new)
        has_changed = self.written > 0
        if has_changed:
            rounds = 2
        elif is_swept and swept_to == -1:
            rounds -= 1
        if has_changed or self._batches or known is None or self._is_due():
            self._write_summaries(is_first=known is None)
        reported = position.reported if self.has_more else self._write_reports(position.reported)
        after = Position(
            campaign_id=self._campaign.id,
            changed=changed,
            is_caught_up=not self.has_more,
            swept_to=swept_to,
            rounds_left=rounds,
            checkpoint=self._write_snapshots(position.checkpoint),
            reported=reported,
            ended_us=self._ended_us,
            is_final=self._campaign.status in FINAL and not self.has_more,
        )
        if after != known:
            self._tree.write(msgspec.json.encode(after), self._campaign.name, POSITION)
        self._memory.is_new, self._memory.campaign = False, self._campaign

    def _position(self) -> Position | None:
        found = position_in(self._tree, self._campaign.name)
        return found if found is not None and found.campaign_id == self._campaign.id else None

    def _write(self, document: msgspec.Struct, *names: str) -> None:
        self.written += self._tree.write(documents.encoded(document), self._campaign.name, *names)

    # --- items

    def _follow(self, position: Position, budget: int) -> ChangePosition:
        """Write the files of the items that changed; returns where to go on."""
        here, now = position.changed, to_micros(self._now)
        overlap = OVERLAP // timedelta(microseconds=1)
        # A clock that was ahead for a while must not hide what changes until it gets there again.
        if here.updated_at > now:
            here = ChangePosition(updated_at=now)
        begin = here
        if position.is_caught_up:
            begin = ChangePosition(updated_at=here.updated_at - overlap)
        while True:
            found = self._ledger.read_now(self._changed(begin))
            self._write_items([one.item_id for one in found])
            self._batches |= {one.at.batch for one in found}
            self._days |= {documents.day_of(one.at.ended_at or one.at.updated_at) for one in found}
            self._note_ends(found)
            if found:
                last = found[-1].at
                begin = ChangePosition(
                    updated_at=to_micros(last.updated_at), phase=last.phase, place=last.place
                )
            budget -= len(found)
            self.has_more = len(found) == _PAGE
            if not self.has_more or budget <= 0:
                # In a quiet time, what was read again is not read once more.
                quiet = ChangePosition(updated_at=now - overlap)
                return begin if self.has_more else max(here, begin, quiet)

    def _note_ends(self, found: Sequence[ChangedItem]) -> None:
        for one in found:
            if one.at.ended_at is not None and self._is_known(one):
                name = self._campaign.spec.phases[one.at.phase].name
                self._ended_us[name] = max(self._ended_us.get(name, 0), to_micros(one.at.ended_at))

    def _changed(self, begin: ChangePosition) -> Callable[[Tx], list[ChangedItem]]:
        return lambda tx: tx.item_changes.changed(self._campaign.id, begin, limit=_PAGE)

    def _sweep(self, after: int) -> int:
        """Compare the files of the next items with the ledger; returns the place of the last one, or -1 after
        the last of all. So a file is mended that a power cut or a person damaged, or that was missed."""
        found = self._ledger.read_now(lambda tx: tx.items.page(self._campaign.id, after=after, limit=_SWEEP))
        self._write_items([one.id for one in found])
        return found[-1].place if len(found) == _SWEEP else -1

    def _write_items(self, item_ids: Sequence[str]) -> None:
        wanted = list(dict.fromkeys(item_ids))
        if not wanted:
            return
        states = self._ledger.read_now(lambda tx: tx.item_changes.of_items(self._campaign.id, wanted))
        # In the order of phases, so that of each item the phase that is furthest on comes last.
        for one in {state.item_id: state for state in states if self._is_known(state)}.values():
            state = documents.agent_document(self._campaign, one)
            self._write(state, "agent-states", f"{one.item_id}.state.json")
        for one in filter(self._is_known, states):
            made = documents.artifact(self._campaign, one)
            if made is not None:
                names = documents.artifact_names(self._campaign.spec, one.at.phase, one.item_id)
                self._write(made, *names)

    def _is_known(self, one: ChangedItem) -> bool:
        return one.at.phase < len(self._campaign.spec.phases)

    # --- summaries

    def _is_due(self) -> bool:
        if self._campaign != self._memory.campaign:
            return True
        is_old = self._memory.summed_at is None or self._now - self._memory.summed_at >= _RATE_EVERY
        return self._campaign.status is CampaignStatus.RUNNING and is_old

    def _write_summaries(self, *, is_first: bool) -> None:
        campaign, phases = self._campaign, self._campaign.spec.phases
        for phase in phases:
            found = self._ledger.read_now(
                partial(read_phase_document, campaign=campaign, now=self._now, phase=phase.name)
            )
            self._write(found, "progress", f"{phase.name}-progress.json")
        for number in sorted(self._batches):
            batch = self._ledger.read_now(partial(self._batch, number))
            self._write(batch, "progress", f"{batch_name(number)}.json")
        self._write_days(is_first=is_first)
        self._memory.summed_at = self._now

    def _batch(self, number: int, tx: Tx) -> documents.BatchDocument:
        campaign = self._campaign
        counts = {
            phase: counts_of(
                tx.events.counts(noun_of(campaign.id, phase, CountKind.BATCH, batch_key(number)))
            )
            for phase in range(len(campaign.spec.phases))
        }
        items = tx.items.page(campaign.id, batch=number, limit=documents.MOST_REPOS)
        return documents.batch_document(campaign, number, counts, [(one.id, one.priority) for one in items])

    def _write_days(self, *, is_first: bool) -> None:
        counts, done, failed, events = self._ledger.read_now(self._read_days)
        known = {day for by_day in [*done, *failed] for day in by_day} | {
            documents.day_of(event.at) for event in events
        }
        # Of a day before the first event that was read, the log is kept as it is.
        told_from = documents.day_of(events[0].at) if events else None
        if len(events) == _MOST_EVENTS and told_from is not None:
            told_from += timedelta(days=1)
        for day in sorted(known if is_first else known & (self._days | {documents.day_of(self._now)})):
            summary = documents.DaySummary(
                date=day.isoformat(),
                campaign=self._campaign.name,
                phases={
                    phase.name: documents.day_of_phase(
                        counts[number],
                        done=done[number].get(day, 0),
                        failed=failed[number].get(day, 0),
                        done_later=sum(count for other, count in done[number].items() if other > day),
                    )
                    for number, phase in enumerate(self._campaign.spec.phases)
                },
            )
            self._write(summary, "progress", "daily-summary", f"{day.isoformat()}.json")
            name = f"{day.isoformat()}.md"
            if (
                told_from is not None
                and day < told_from
                and self._tree.read(self._campaign.name, "memory", name)
            ):
                continue
            failures = self._ledger.read_now(partial(self._failures_on, day))
            text = documents.day_in_words(
                summary,
                [event for event in events if documents.day_of(event.at) == day],
                failures,
                earlier={
                    phase.name: failed[number].get(day, 0) - sum(one[2] == phase.name for one in failures)
                    for number, phase in enumerate(self._campaign.spec.phases)
                },
            )
            self.written += self._tree.write(text.encode(), self._campaign.name, "memory", name)

    def _read_days(self, tx: Tx) -> tuple[Any, ...]:
        campaign = self._campaign
        numbers = range(len(campaign.spec.phases))
        counts = [_total(tx, campaign, number) for number in numbers]
        done: list[dict[date, int]] = []
        for number in numbers:
            by_day: dict[date, int] = {}
            spans = tx.campaigns.counts_under(noun_of(campaign.id, number, CountKind.SPAN, ""))
            for span, tallies in spans.items():
                day = _day_of_span(int(span))
                by_day[day] = by_day.get(day, 0) + tallies.get(Tally.DONE.value, 0)
            done.append(by_day)
        failed = [tx.item_changes.failures_by_day(campaign.id, number) for number in numbers]
        events: list[Event] = tx.item_changes.events(campaign.id, limit=_MOST_EVENTS)
        return counts, done, failed, events

    def _failures_on(self, day: date, tx: Tx) -> list[tuple[datetime, str, str, str]]:
        """The newest failures of a day, in the order in which they happened."""
        campaign, failures = self._campaign, []
        for number, phase in enumerate(campaign.spec.phases):
            rows = tx.item_changes.failures_on(campaign.id, number, day, limit=_MOST_FAILURES)
            failures += [
                (one.at.ended_at or one.at.updated_at, one.item_id, phase.name, one.at.error or "")
                for one in rows
            ]
        return sorted(failures)[-_MOST_FAILURES:]

    # --- reports, logs, snapshots

    def _write_reports(self, before: dict[str, Reported]) -> dict[str, Reported]:
        """Write the report and the log of each phase in which enough has ended since they were written."""
        counts = self._ledger.read_now(
            lambda tx: {
                phase.name: _total(tx, self._campaign, number)
                for number, phase in enumerate(self._campaign.spec.phases)
            }
        )
        now = {
            name: Reported(done=one.done, failed=one.failed, ended_us=self._ended_us.get(name, 0))
            for name, one in counts.items()
        }
        due = {name: one for name, one in now.items() if self._is_report_due(before.get(name, _NOTHING), one)}
        if due:
            self._write_logs(due)
        return before | due

    def _is_report_due(self, before: Reported, now: Reported) -> bool:
        is_over = self._campaign.status is not CampaignStatus.RUNNING
        has_grown = abs(now.ended - before.ended) * _GROWTH >= now.ended
        return now != before and (is_over or now.ended <= _SMALL or has_grown)

    def _write_logs(self, due: Iterable[str]) -> None:
        phases = self._campaign.spec.phases
        wanted = {number: phase.name for number, phase in enumerate(phases) if phase.name in due}
        results: dict[int, list[ChangedItem]] = {number: [] for number in wanted}
        ended = dict.fromkeys(wanted, 0)
        with contextlib.ExitStack() as logs:
            files = {
                number: logs.enter_context(
                    self._tree.replacing(self._campaign.name, "artifacts", f"{name}-log.jsonl")
                )
                for number, name in wanted.items()
            }
            begin = ChangePosition()
            while page := self._ledger.read_now(self._changed(begin)):
                last = page[-1].at
                begin = ChangePosition(
                    updated_at=to_micros(last.updated_at), phase=last.phase, place=last.place
                )
                lines: dict[int, list[bytes]] = {number: [] for number in wanted}
                for one in page:
                    line = documents.log_line(self._campaign, one) if one.at.phase in wanted else None
                    if line is None:
                        continue
                    lines[one.at.phase].append(msgspec.json.encode(line) + b"\n")
                    ended[one.at.phase] += 1
                    if len(results[one.at.phase]) < _MOST_RESULTS:
                        results[one.at.phase].append(one)
                for number, made in lines.items():
                    write_whole(files[number], b"".join(made))
        self.written += len(wanted)
        for number in wanted:
            self._write_report(number, results[number], ended[number])

    def _write_report(self, number: int, results: list[ChangedItem], ended: int) -> None:
        campaign, name = self._campaign, self._campaign.spec.phases[number].name

        def read(tx: Tx) -> documents.PhaseReport:
            by_priority = counts_by(tx, campaign, number, CountKind.PRIORITY)
            by_category = counts_by(tx, campaign, number, CountKind.CATEGORY)
            return documents.PhaseReport(
                campaign=campaign.name,
                goal=campaign.spec.goal,
                phase=name,
                summary=documents.StatusCounts.of(_sum(by_priority.values())),
                by_priority={key: documents.StatusCounts.of(one) for key, one in by_priority.items()},
                by_category={key: documents.StatusCounts.of(one) for key, one in by_category.items()},
                results=[
                    documents.reported_item(one) for one in sorted(results, key=lambda one: one.at.place)
                ],
                results_omitted=ended - len(results),
            )

        self._write(self._ledger.read_now(read), "artifacts", f"{name}-report.json")

    def _write_snapshots(self, after: int) -> int:
        """Write the snapshots of milestones since a number; returns the number of the last checkpoint.

        A snapshot is of a moment that is past, so one that is there stays as it is.
        """
        last = self._ledger.read_now(lambda tx: tx.campaign_checkpoints.latest(self._campaign.id))
        if last is None or last.number <= after:
            return after
        before = last.number + 1
        while before > after + 1:
            page = self._ledger.read_now(partial(self._milestones, before))
            for one in page:
                if one.number > after and self._tree.read(*self._snapshot_of(one)) is None:
                    found = self._ledger.read_now(partial(read_snapshot, self._campaign, one))
                    self._write(found, *self._snapshot_of(one)[1:])
            before = page[-1].number if page else 0
        return last.number

    def _milestones(self, before: int, tx: Tx) -> list[CampaignCheckpoint]:
        kind = CampaignCheckpointKind.MILESTONE
        return tx.campaign_checkpoints.page(self._campaign.id, kind=kind, before=before, limit=_SNAPSHOTS)

    def _snapshot_of(self, one: CampaignCheckpoint) -> tuple[str, ...]:
        return (self._campaign.name, "checkpoints", one.id, "snapshot.json")


def position_in(tree: TreeFolder, campaign: str) -> Position | None:
    """How far the files in the folder of this campaign are; None if that is not known."""
    with contextlib.suppress(BadInput, msgspec.DecodeError, msgspec.ValidationError):
        found = tree.read(campaign, POSITION)
        return None if found is None else msgspec.json.decode(found, type=Position)
    return None


def _total(tx: Tx, campaign: Campaign, number: int) -> ItemCounts:
    return _sum(counts_by(tx, campaign, number, CountKind.PRIORITY).values())


def _sum(counts: Iterable[ItemCounts]) -> ItemCounts:
    total = ItemCounts()
    for one in counts:
        total += one
    return total


def _day_of_span(number: int) -> date:
    return from_micros(number * (SPAN // timedelta(microseconds=1))).astimezone(UTC).date()


def write_whole(file: int, content: bytes) -> None:
    while content:
        content = content[os.write(file, content) :]
