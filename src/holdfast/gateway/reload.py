"""Watches the settings of the home: what applies at once is applied, for the rest a restart is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from holdfast.config.files import FOLDER, Loaded, is_settings_file, load
from holdfast.config.gateway import Config
from holdfast.config.keys import Changes, changed, with_live
from holdfast.core.errors import RestartBlocked, SettingsError
from holdfast.engine.aio.service import Service

log = logging.getLogger("holdfast")

# The ledger lies in the same directory and changes all the time, so looking is cheaper than being told.
# And no watcher is there to fail, or to be away while somebody writes.
LOOK_EVERY_S = 0.5
# Settings that are refused are tried again, after a pause that doubles: their cause may be mended elsewhere,
# a module that is missing, or the file of a token.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# A drain that was taken back has interrupted work, so the next one comes later.
FIRST_DRAIN_S = 60.0
LONGEST_DRAIN_S = 600.0
_Looks: TypeAlias = dict[str, tuple[int, ...]]


class Reload(Service):
    """Reads the settings again when a document changes. Wrong ones change nothing, and are said.

    What holds is compared with what is written. So settings that were refused are tried again until they are
    applied, and documents that say again what holds need no restart.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        loaded: Loaded,
        *,
        overrides: Mapping[str, object],
        on_live: Callable[[Config], None],
        on_trial: Callable[[], Awaitable[None]],
        on_restart: Callable[[list[str]], Awaitable[None]],
        on_refused: Callable[[str | None], None] = lambda _why: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_live` and `on_trial`, which comes before a restart, raise SettingsError to refuse; `on_restart`
        raises RestartBlocked. `on_refused` hears why the settings are not applied, and None when they are."""
        super().__init__(every_s=LOOK_EVERY_S)
        self._home = home
        self._environ = environ
        # As they hold in this process.
        self._config = loaded.config
        self._overrides = overrides
        self._on_live = on_live
        self._on_trial = on_trial
        self._on_restart = on_restart
        self._on_refused = on_refused
        self._monotonic = monotonic
        # How the documents looked when they were last read; at first nobody knows.
        self._seen: _Looks | None = None
        self._said: str | None = None
        self._said_up: list[str] = []
        # When refused settings are tried again although no document has changed.
        self._again_at = math.inf
        self._pause_s = 0.0

    async def run_once(self) -> Changes:
        """Compare what is written with what holds, and apply it."""
        while True:
            changes = await self._read_and_apply()
            if not changes.restart:
                return changes
            await self._on_trial()
            # What was tried may be something else by now; perhaps again what holds.
            if await asyncio.to_thread(_looks, self._home) == self._seen:
                await self._on_restart(changes.restart)
                return changes

    async def _read_and_apply(self) -> Changes:
        """Apply what applies live; what differs, from before that."""
        # Before they are read: what is written meanwhile is seen as a change.
        self._seen = await asyncio.to_thread(_looks, self._home)
        loaded = await asyncio.to_thread(load, self._home, self._environ, self._overrides)
        changes = changed(self._config, loaded.config)
        # Without the rest: what needs a restart does not hold yet, and may be refused.
        applied = with_live(self._config, loaded.config)
        if live := changed(self._config, applied).live:
            self._on_live(applied)
            self._config = applied
            log.info("settings applied: %s", ", ".join(live))
        if changes.up and changes.up != self._said_up:
            log.warning("%s counts after the next `holdfast up`", ", ".join(changes.up))
        self._said_up = changes.up
        return changes

    async def run(self) -> None:
        while not self._stop.is_set():
            await self.look()
            await self._pause()

    async def look(self) -> None:
        """Read the settings if a document has changed since, or if they were refused a while ago.

        Says what is wrong; raises nothing. What could not be read is tried again each time.
        """
        try:
            is_time = self._monotonic() >= self._again_at
            if await asyncio.to_thread(_looks, self._home) == self._seen and not is_time:
                return
            await self.run_once()
        except SettingsError as error:
            if isinstance(error.__cause__, OSError):
                self._seen = None
            self._refuse(f"the settings are not applied: {error}", FIRST_PAUSE_S, LONGEST_PAUSE_S)
        except RestartBlocked as error:
            self._refuse(f"the settings are not applied: {error.why}", FIRST_DRAIN_S, LONGEST_DRAIN_S)
        except OSError as error:  # not even to look, for example without a free descriptor
            self._seen = None
            self._refuse(f"the settings cannot be looked at: {error}")
        except Exception as error:  # noqa: BLE001 - a service's outermost loop
            self._seen = None
            self._refuse(f"the settings could not be applied: {error!r}", is_unforeseen=True)
        else:
            self._accept()

    def _refuse(
        self,
        words: str,
        first_s: float = LOOK_EVERY_S,
        longest_s: float = LOOK_EVERY_S,
        *,
        is_unforeseen: bool = False,
    ) -> None:
        """Said once, as long as it stays the same."""
        is_same = words == self._said
        if not is_same:
            log.error("%s", words, exc_info=is_unforeseen)
        self._said = words
        self._pause_s = min(max(first_s, 2 * self._pause_s if is_same else 0.0), longest_s)
        self._again_at = self._monotonic() + self._pause_s
        self._on_refused(words)

    def _accept(self) -> None:
        if self._said is not None:
            log.warning("what was wrong with the settings is mended")
        self._said, self._again_at, self._pause_s = None, math.inf, 0.0
        self._on_refused(None)


def _looks(home: Path) -> _Looks:
    """What tells one version of the documents from another, without reading them."""
    found = {}
    for directory in (home, home / FOLDER):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
            for entry in entries:
                if is_settings_file(home, Path(entry.path)):
                    found[entry.path] = _look_of(entry)
    return found


def _look_of(entry: os.DirEntry[str]) -> tuple[int, ...]:
    try:
        now = entry.stat()
    except FileNotFoundError:  # a link that leads nowhere, or what is just being removed
        return ()
    # Another file may take its place with the same time; and who may write it counts, too.
    return (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_dev, now.st_ino, now.st_mode, now.st_uid)
