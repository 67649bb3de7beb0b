"""The sweeps of plug-ins: in each pass, previewed too, and never in the way of the others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from holdfast.app import sweeps
from holdfast.store import Store
from holdfast.testing import FakeClock
from holdfast.upkeep import plugins as plugins_module
from holdfast.upkeep.plugins import PluginSwept
from holdfast.upkeep.sweep import Sweep

OLD = ("moons is older than a day", "tides is older than a day")


class Broken:
    name = "broken"

    async def sweep(self, *, is_dry_run: bool) -> list[str]:
        raise OSError(f"its file is gone ({is_dry_run=})")


class Stuck:
    name = "stuck"

    async def sweep(self, *, is_dry_run: bool) -> list[str]:  # noqa: ARG002 - the shape of a sweep
        await asyncio.Event().wait()
        return []


class Nameless:
    @property
    def name(self) -> str:
        raise AttributeError("it has none")

    async def sweep(self, *, is_dry_run: bool) -> list[str]:  # noqa: ARG002 - the shape of a sweep
        return []


class Cache:
    """A plug-in with two entries that are too old."""

    name = "cache"

    def __init__(self) -> None:
        self.entries = {"tides", "moons"}

    async def sweep(self, *, is_dry_run: bool) -> list[str]:
        found = [f"{entry} is older than a day" for entry in sorted(self.entries)]
        if not is_dry_run:
            self.entries.clear()
        return found


@pytest.mark.parametrize("broken", [Broken, Stuck, Nameless])
async def test_a_plug_in_that_fails_is_reported_and_stops_no_other(
    store: Store,
    clock: FakeClock,
    broken: Callable[[], plugins_module.PluginSweep],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins_module, "PATIENCE_S", 0.01)
    cache = Cache()

    with caplog.at_level(logging.WARNING, "holdfast"):
        swept = await Sweep(store, clock, plugins=[broken(), cache]).run_once()

    failed, done = swept.plugins
    assert failed.problem is not None
    assert done == PluginSwept(name="cache", changes=OLD)
    assert cache.entries == set()
    assert "is tried again in the next pass" in caplog.text


async def test_the_preview_of_a_plug_in_changes_nothing_and_says_what_its_sweep_changes(
    store: Store, clock: FakeClock
) -> None:
    cache = Cache()
    sweep = Sweep(store, clock, plugins=[cache])

    preview = await sweep.preview_plugins()
    kept = set(cache.entries)
    swept = await sweep.apply(await sweep.plan())

    assert kept == {"moons", "tides"}
    assert tuple(preview) == swept.plugins
    assert cache.entries == set()


def test_plug_ins_are_found_by_their_entry_points_and_one_that_cannot_be_loaded_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points = [
        EntryPoint("gone", "no_such_module:sweep", sweeps.GROUP),
        EntryPoint("cache", "tests.upkeep.test_plugins:Cache", sweeps.GROUP),
    ]
    monkeypatch.setattr(
        sweeps, "entry_points", lambda *, group: [one for one in points if one.group == group]
    )

    found = sweeps.load_plugin_sweeps()

    assert [one.name for one in found] == ["cache"]
    assert "the sweep gone (no_such_module:sweep) could not be loaded" in caplog.text
