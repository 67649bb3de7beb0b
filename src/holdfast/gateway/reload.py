"""Watches the settings of the home: what applies at once is applied, for the rest a restart is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from holdfast.config.files import FOLDER, Loaded, is_settings_file, load
from holdfast.config.gateway import Config
from holdfast.config.keys import Changes, changed
from holdfast.core.errors import SettingsError
from holdfast.engine.service import Service

log = logging.getLogger("holdfast")

# The ledger lies in the same directory and changes all the time, so looking is cheaper than being told.
# And no watcher is there to fail, or to be away while somebody writes.
LOOK_EVERY_S = 0.5
_Looks: TypeAlias = dict[str, tuple[int, ...]]


class Reload(Service):
    """Reads the settings again when a document changes. Wrong ones change nothing, and are said."""

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        loaded: Loaded,
        *,
        overrides: Mapping[str, object],
        on_live: Callable[[Config], None],
        on_restart: Callable[[list[str]], None],
    ) -> None:
        super().__init__(every_s=LOOK_EVERY_S)
        self._home = home
        self._environ = environ
        self._config = loaded.config
        self._overrides = overrides
        self._on_live = on_live
        self._on_restart = on_restart
        # How the documents looked when they were last read; at first nobody knows.
        self._seen: _Looks | None = None
        self._said: str | None = None

    async def run_once(self) -> Changes:
        """Compare what is written with what holds."""
        # Before they are read: what is written meanwhile is seen as a change.
        self._seen = await asyncio.to_thread(_looks, self._home)
        loaded = await asyncio.to_thread(load, self._home, self._environ, self._overrides)
        changes = changed(self._config, loaded.config)
        if changes.live:
            self._on_live(loaded.config)
            log.info("settings applied: %s", ", ".join(changes.live))
        # Not before: what could not be applied is tried again with the next change.
        self._config = loaded.config
        if changes.up:
            log.warning("%s counts after the next `holdfast up`", ", ".join(changes.up))
        if changes.restart:
            self._on_restart(changes.restart)
        return changes

    async def run(self) -> None:
        while not self._stop.is_set():
            await self.look()
            await self._pause()

    async def look(self) -> None:
        """Read the settings if a document has changed since. Says what is wrong; raises nothing.

        What is wrong stays so until somebody writes again; what could not be read is tried again each time.
        """
        try:
            if await asyncio.to_thread(_looks, self._home) == self._seen:
                return
            await self.run_once()
        except SettingsError as error:
            if isinstance(error.__cause__, OSError):
                self._seen = None
            self._say(f"the settings are not applied: {error}")
        except OSError as error:  # not even to look, for example without a free descriptor
            self._seen = None
            self._say(f"the settings cannot be looked at: {error}")
        except Exception as error:  # noqa: BLE001 - a service's outermost loop
            self._seen = None
            self._say(f"the settings could not be applied: {error!r}", is_unforeseen=True)
        else:
            self._said = None

    def _say(self, words: str, *, is_unforeseen: bool = False) -> None:
        """Once, as long as it stays the same."""
        if words != self._said:
            log.error("%s", words, exc_info=is_unforeseen)
        self._said = words


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
