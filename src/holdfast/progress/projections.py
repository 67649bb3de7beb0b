"""Service: writes the readable state/ files; they can always be rebuilt."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast.core.campaign import Campaign
from holdfast.core.clock import Clock
from holdfast.core.errors import (
    Conflict,
    HoldfastError,
    HomeUnusable,
    NotFound,
    RowDamaged,
    StoreUnavailable,
)
from holdfast.core.transitions import CampaignStatus
from holdfast.engine.aio.service import Service
from holdfast.progress.campaign_files import FINAL, CampaignFiles, LedgerReader, Memory, position_in
from holdfast.progress.file_tree import FileTree, TreeFolder
from holdfast.store import Store, Tx

EVERY_S = 5.0
# How many changed item-phases one pass reads of a campaign: what is left comes with the next pass.
ROWS_PER_PASS = 500
# How many campaigns are looked at beside the running ones.
NEWEST = 20
_PAGE = 100


# Told of what went wrong with the files of one campaign.
Met: TypeAlias = Callable[[str, HoldfastError], None]


def _ignored(_campaign: str, _error: HoldfastError) -> None: ...


class PassResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one pass did: how many files it wrote, and whether more is to be read at once."""

    files: int = 0
    has_more: bool = False


class FileWriter:
    """Brings the files of a folder up to what the ledger says. It only reads the ledger, a page at a time, in
    short transactions."""

    def __init__(self, ledger: LedgerReader, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._memory: dict[str, Memory] = {}
        # Whose files the memory is about.
        self._folder: Path | None = None
        # Campaigns whose files were not final when they were written last.
        self._open: set[str] = set()

    def run_pass(self, tree: TreeFolder, *, met: Met = _ignored) -> PassResult:
        """One pass over the campaigns that may have changed; what goes wrong with one of them is told to
        `met`, and the others are brought up. Raises HomeUnusable, and StoreUnavailable."""
        self._look_at(tree)
        files, has_more = 0, False
        for campaign in self._ledger.read_now(partial(_recent, self._open)):
            try:
                written = self.bring_up(tree, campaign)
            except (HomeUnusable, StoreUnavailable):
                raise
            except HoldfastError as error:
                met(campaign.name, error)
                continue
            files, has_more = files + written.files, has_more or written.has_more
        return PassResult(files=files, has_more=has_more)

    def bring_up(self, tree: TreeFolder, campaign: Campaign) -> PassResult:
        """The same for one campaign."""
        self._look_at(tree)
        memory = self._memory.setdefault(campaign.id, Memory())
        files = CampaignFiles(self._ledger, tree, campaign, memory, now=self._clock.now())
        files.bring_up(budget=ROWS_PER_PASS)
        self._open.add(campaign.id)
        if campaign.status in FINAL and not files.has_more:
            self._open.discard(campaign.id)
        return PassResult(files=files.written, has_more=files.has_more)

    def _look_at(self, tree: TreeFolder) -> None:
        """Forget another folder, and find the campaigns whose files in this one are not final yet: they may
        have ended while no process wrote."""
        if self._folder != tree.path:
            self._memory, self._folder = {}, tree.path
            found = [position_in(tree, name) for name in tree.names_in()]
            self._open = {one.campaign_id for one in found if one is not None and not one.is_final}


def _recent(also: Collection[str], tx: Tx) -> list[Campaign]:
    found = {one.id: one for one in tx.campaigns.page(limit=NEWEST)}
    found |= {one.id: one for campaign_id in also if (one := _sound(tx, campaign_id)) is not None}
    after = ""
    while page := tx.campaigns.in_status(CampaignStatus.RUNNING, after=after):
        found |= {one.id: one for one in page}
        after = page[-1].id
    return list(found.values())


def _sound(tx: Tx, campaign_id: str) -> Campaign | None:
    """None if it is gone or damaged."""
    with contextlib.suppress(NotFound, RowDamaged):
        return tx.campaigns.get(campaign_id)
    return None


def newest_campaign(tx: Tx) -> Campaign | None:
    """The one that the names of the seed lead to."""
    found = tx.campaigns.page(limit=1)
    return found[0] if found else None


class RebuildReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rebuild wrote."""

    campaigns: int
    files: int


def rebuild(
    home: Path,
    ledger: LedgerReader,
    clock: Clock,
    *,
    on_campaign: Callable[[int, int], None] = lambda _done, _all: None,
) -> RebuildReport:
    """Write the files of all campaigns anew, beside the old ones, and put them in their place when all are
    there. Raises Conflict if another process is writing them, HomeUnusable, and StoreUnavailable."""
    state = FileTree(home)
    with state.held() as is_ours:
        if not is_ours:
            raise Conflict(
                "another process is writing the state files; try again in a moment: holdfast state rebuild"
            )
        state.tidy()
        old, new = state.current(), state.create()
        projector = FileWriter(ledger, clock)
        campaigns = ledger.read_now(_all)
        files = 0
        for number, campaign in enumerate(campaigns):
            on_campaign(number, len(campaigns))
            if old is not None:
                files += new.take_over(old, campaign.name)
            with contextlib.suppress(
                RowDamaged
            ):  # the files of a damaged campaign are written as far as they can
                while (written := projector.bring_up(new, campaign)).has_more:
                    files += written.files
                files += written.files
        on_campaign(len(campaigns), len(campaigns))
        state.show(new)
        newest = ledger.read_now(newest_campaign)
        if newest is not None:
            state.show_newest(newest.name)
    return RebuildReport(campaigns=len(campaigns), files=files)


def _all(tx: Tx) -> list[Campaign]:
    """Every campaign, newest first."""
    found: list[Campaign] = []
    while True:
        page = tx.campaigns.page(limit=_PAGE, **({"before": found[-1].id} if found else {}))
        found += page
        if len(page) < _PAGE:
            return found


class ProjectionWriter(Service):
    """Writes what has changed, every few seconds, in a thread of its own. No work waits for it: if the files
    cannot be written, that is logged once, and the next pass tries again."""

    def __init__(self, store: Store, clock: Clock, home: Path, *, every_s: float = EVERY_S) -> None:
        super().__init__(every_s=every_s)
        self._store = store
        self._home = home
        self._projector = FileWriter(store, clock)
        self._has_more = False
        self._is_tidy = False
        self._shown: str | None = None
        # A pass that was cancelled still runs in its thread.
        self._lock = threading.Lock()

    async def run_once(self) -> PassResult:
        """One pass; nothing if there is no campaign, or another process writes the files."""
        written = await asyncio.to_thread(self._pass)
        self._has_more = written.has_more
        return written

    async def _pause(self) -> None:
        await self._wait(0.2 if self._has_more else self._next_in_s())

    def _pass(self) -> PassResult:
        with self._lock:
            newest = self._store.read_now(newest_campaign)
            if newest is None:
                return PassResult()
            state = FileTree(self._home)
            with state.held() as is_ours:
                return self._write(state, newest) if is_ours else PassResult()

    def _write(self, files: FileTree, newest: Campaign) -> PassResult:
        if not self._is_tidy:
            files.tidy()
            self._is_tidy = True
        tree = files.current()
        is_new = tree is None
        tree = tree or files.create()
        written = self._projector.run_pass(tree, met=self._met)
        if is_new:
            files.show(tree)
        files.show_newest(newest.name)
        return written

    def _met(self, campaign: str, error: HoldfastError) -> None:
        self.troubles.met(f"the state files of campaign {campaign}", error, again_in_s=self.every_s)
