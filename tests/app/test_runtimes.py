"""The runtimes of a process: plug-ins are found by their entry points, as an installer leaves them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import holdfast
from holdfast import producers
from holdfast.app.runtimes import GROUP, build_runtimes
from holdfast.testing import FakeClock
from holdfast.testing.stores import memory_store

PLUG_IN = '''
from holdfast.producers import LifeUnknown, NotMine, WorkStopped

class Renderer:
    """Controls what was recorded as rendering."""

    name = "renderer"
    stopped = []

    async def cancel(self, work, reason):
        if work.task.name != "render":
            return NotMine()
        self.stopped.append((work.run.id, reason))
        return WorkStopped()

    async def is_alive(self, work):
        return NotMine() if work.task.name != "render" else LifeUnknown()

    async def reattach(self, work):
        return NotMine()
'''
METADATA = "Metadata-Version: 2.1\nName: holdfast-render\nVersion: 1.0\n"
ENTRY_POINTS = f"""
[{GROUP}]
renderer = holdfast_render_plug_in:Renderer
missing = holdfast_render_plug_in:NoSuchName
absent = holdfast_no_such_module:Runtime
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution as `pip install` leaves it: a module, and its dist-info."""
    site = tmp_path / "site-packages"
    info = site / "holdfast_render-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "holdfast_render_plug_in.py").write_text(PLUG_IN)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.mark.usefixtures("installed")
def test_an_installed_plug_in_is_asked_before_the_runtimes_of_holdfast_and_a_broken_one_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    store = memory_store(clock)

    with caplog.at_level(logging.ERROR, logger="holdfast"):
        found = build_runtimes(store, clock, tmp_path)

    assert [runtime.name for runtime in found] == ["renderer", "cli", "cron", "subagent"]
    told = " ".join(record.getMessage() for record in caplog.records)
    assert "the runtime missing (holdfast_render_plug_in:NoSuchName) could not be loaded" in told
    assert "the runtime absent (holdfast_no_such_module:Runtime) could not be loaded" in told
    store.close()


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
async def test_a_script_stops_the_work_of_a_plug_in_and_of_its_own_runtime(tmp_path: Path) -> None:
    class Own:
        """Controls what is named `own`."""

        name = "own"

        def __init__(self) -> None:
            self.stopped: list[str] = []

        async def cancel(self, work: producers.RecordedWork, reason: str) -> producers.StopAnswer:  # noqa: ARG002
            if work.task.name != "own":
                return producers.NotMine()
            self.stopped.append(work.run.id)
            return producers.WorkStopped()

        async def is_alive(self, work: producers.RecordedWork) -> producers.LifeAnswer:  # noqa: ARG002
            return producers.NotMine()

        async def reattach(self, work: producers.RecordedWork) -> producers.ReattachAnswer:  # noqa: ARG002
            return producers.NotMine()

    own = Own()
    url = f"sqlite:///{tmp_path / 'work.db'}"
    async with holdfast.open(url, home=tmp_path / "home", runtimes=[own]) as opened:
        recorder = producers.Producers(opened.store, opened.store.clock)
        outcomes = []
        for name in ("own", "render", "other"):
            new = producers.NewRecord(name=name, goal=name, owner="ada", runtime="media", run_id=f"{name}-1")
            work = await recorder.create(new, is_running=True)
            outcomes.append(type(await opened.cancel(work.task.id, reason="enough")).__name__)

    from holdfast_render_plug_in import Renderer  # type: ignore[import-not-found]

    assert outcomes == ["Cancelled"] * 3
    assert own.stopped == ["own-1"]
    assert Renderer.stopped == [("render-1", "enough")]
