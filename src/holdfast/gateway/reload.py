"""Watches the settings of the home: applies live changes, and asks for a restart for the others."""

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
from holdfast.config.keys import SettingChanges, changed, with_live
from holdfast.config.sections import Config
from holdfast.core.errors import RestartBlocked, SettingsError
from holdfast.engine.aio.service import Service

log = logging.getLogger("holdfast")

# Polling is cheaper than a file watcher here, because the ledger in the same directory changes all the time;
# and it cannot fail or miss a change.
LOOK_EVERY_S = 0.5
# Refused settings are retried with exponential backoff: the operator may fix the cause elsewhere, such as a
# missing module or a token file.
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
# A blocked drain has interrupted work, so the next attempt waits longer.
FIRST_DRAIN_S = 60.0
LONGEST_DRAIN_S = 600.0
_Looks: TypeAlias = dict[str, tuple[int, ...]]


class Reload(Service):
    """Reads the settings again when a document changes. Invalid settings are logged and change nothing.

    It compares the settings in effect with those on disk. So refused settings are retried until they are
    applied, and a document that is changed back needs no restart.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        loaded: Loaded,
        *,
        overrides: Mapping[str, object],
        on_live: Callable[[Config], Awaitable[None] | None],
        on_trial: Callable[[], Awaitable[None]],
        on_restart: Callable[[list[str]], Awaitable[None]],
        on_refused: Callable[[str | None], None] = lambda _why: None,
        on_read: Callable[[Mapping[str, str]], None] = lambda _sources: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_live`, and `on_trial` before a restart, raise SettingsError to refuse; `on_restart` raises
        RestartBlocked. `on_refused` gets the reason why settings are not applied, or None once they are;
        `on_read` gets where the settings in effect come from."""
        super().__init__(every_s=LOOK_EVERY_S)
        self._home = home
        self._environ = environ
        # The settings in effect in this process.
        self._config = loaded.config
        self._overrides = overrides
        self._on_live = on_live
        self._on_trial = on_trial
        self._on_restart = on_restart
        self._on_refused = on_refused
        self._on_read = on_read
        self._sources = loaded.sources
        self._monotonic = monotonic
        # The stat results of the documents when they were last read; None before the first read.
        self._seen: _Looks | None = None
        self._said: str | None = None
        self._said_up: list[str] = []
        # When to retry refused settings although no document has changed.
        self._again_at = math.inf
        self._pause_s = 0.0

    async def run_once(self) -> SettingChanges:
        """Compare the settings on disk with those in effect, and apply the changes."""
        while True:
            changes = await self._read_and_apply()
            if not changes.restart:
                return changes
            await self._on_trial()
            # The documents may have changed during the trial; then the next look reads them again.
            if await asyncio.to_thread(_looks, self._home) == self._seen:
                await self._on_restart(changes.restart)
                return changes

    async def _read_and_apply(self) -> SettingChanges:
        """Apply live changes; returns all changes, those included."""
        # Stat before reading, so that a write in between counts as a change.
        self._seen = await asyncio.to_thread(_looks, self._home)
        loaded = await asyncio.to_thread(load, self._home, self._environ, self._overrides)
        changes = changed(self._config, loaded.config)
        # Only live changes: the others are not in effect before a restart, and may be refused.
        applied = with_live(self._config, loaded.config)
        if live := changed(self._config, applied).live:
            done = self._on_live(applied)
            if done is not None:
                await done
            self._config = applied
            log.info("settings applied: %s", ", ".join(live))
        # What waits for a restart still has its value, and its source, from before.
        waiting = tuple(f"{key}." for key in (*changes.restart, *changes.up))
        read, before = loaded.sources.items(), self._sources.items()
        self._sources = {key: where for key, where in read if not f"{key}.".startswith(waiting)}
        self._sources |= {key: where for key, where in before if f"{key}.".startswith(waiting)}
        self._on_read(self._sources)
        if changes.up and changes.up != self._said_up:
            log.warning("%s: stop `holdfast up` and start it again to apply it", ", ".join(changes.up))
        self._said_up = changes.up
        return changes

    async def run(self) -> None:
        while not self._stop.is_set():
            await self.look()
            await self._pause()

    async def look(self) -> None:
        """Read the settings if a document has changed, or if it is time to retry refused ones.

        Logs errors and raises none. Documents that could not be read are tried again each time.
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
        except OSError as error:  # for example when no file descriptor is free
            self._seen = None
            self._refuse(f"the settings cannot be read: {error}")
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
        """Log the reason, once for as long as it stays the same."""
        is_same = words == self._said
        if not is_same:
            log.error("%s", words, exc_info=is_unforeseen)
        self._said = words
        self._pause_s = min(max(first_s, 2 * self._pause_s if is_same else 0.0), longest_s)
        self._again_at = self._monotonic() + self._pause_s
        self._on_refused(words)

    def _accept(self) -> None:
        if self._said is not None:
            log.warning("the settings on disk are valid again and applied")
        self._said, self._again_at, self._pause_s = None, math.inf, 0.0
        self._on_refused(None)


def _looks(home: Path) -> _Looks:
    """Fingerprints of the documents: they differ when a document changed, and need no reading."""
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
    except FileNotFoundError:  # a dangling link, or a file that is just being removed
        return ()
    # Not only the time: a replaced file may have the same one, and owner and mode matter, too.
    return (now.st_mtime_ns, now.st_ctime_ns, now.st_size, now.st_dev, now.st_ino, now.st_mode, now.st_uid)
