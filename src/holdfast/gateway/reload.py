"""Watches the settings of the home: what applies at once is applied, for the rest a restart is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from holdfast.config.files import FOLDER, Loaded, is_settings_file, load
from holdfast.config.gateway import Config
from holdfast.config.keys import Changes, changed
from holdfast.core.errors import SettingsError
from holdfast.engine.service import Service

log = logging.getLogger("holdfast")

# The ledger lies in the same directory and changes all the time, so looking is cheaper than being told.
LOOK_EVERY_MS = 500


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
        super().__init__(every_s=LOOK_EVERY_MS / 1000)
        self._home = home
        self._environ = environ
        self._config = loaded.config
        self._overrides = overrides
        self._on_live = on_live
        self._on_restart = on_restart

    async def run_once(self) -> Changes:
        """Compare what is written with what holds."""
        loaded = await asyncio.to_thread(load, self._home, self._environ, self._overrides)
        changes = changed(self._config, loaded.config)
        self._config = loaded.config
        if changes.live:
            self._on_live(loaded.config)
            log.info("settings applied: %s", ", ".join(changes.live))
        if changes.up:
            log.warning("%s counts after the next `holdfast up`", ", ".join(changes.up))
        if changes.restart:
            self._on_restart(changes.restart)
        return changes

    async def run(self) -> None:
        while not self._stop.is_set():
            await self._wait_for_change()
            if self._stop.is_set():
                return
            try:
                await self.run_once()
            except SettingsError as error:
                log.error("the settings are not applied: %s", error)  # noqa: TRY400 - the sentence is enough
            except Exception:  # a service's outermost loop
                log.exception("the settings could not be read")

    async def _wait_for_change(self) -> None:
        from watchfiles import awatch

        folder = self._home / FOLDER
        places = [self._home, folder] if folder.is_dir() else [self._home]
        async for _ in awatch(
            *places,
            watch_filter=lambda _, path: Path(path) == folder or is_settings_file(self._home, Path(path)),
            stop_event=self._stop,
            recursive=False,
            force_polling=True,
            poll_delay_ms=LOOK_EVERY_MS,
            ignore_permission_denied=True,
        ):
            return
