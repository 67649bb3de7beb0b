"""A coding agent that writes a settings file with passwords is killed half-way: the file is right."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast.core.effect import EffectClass
from holdfast.core.transitions import EffectStatus
from holdfast.store.outer_keys import GivenKey
from holdfast.store.sealing import Vault
from holdfast.store.sqlite import SqliteStore
from holdfast.tools import files, write_file
from tests.canaries import CANARIES, found_in
from tests.crash.processes import Pipe, fork, kill
from tests.engine.stage import Stage
from tests.shared_ledgers import TickingClock

PASSWORDS = [canary.value for canary in CANARIES if isinstance(canary.value, str)]
SETTINGS = (
    "database:\n  password: quiet harbour wall aaa\n" + "\n".join(f"# {one}" for one in PASSWORDS) + "\n"
)


async def draft(path: str) -> dict[str, str]:
    """What a model says: the call of a tool."""
    return {"path": path, "content": SETTINGS}


@hf.task(name="coder")
async def coder(run: hf.Run, path: str) -> dict[str, Any]:
    calls: list[Any] = run.list("calls", [])
    async for turn in run.turns(max=1):
        call = await turn.step(draft, path)
        written = await turn.tool(write_file, call, id="call_1")
        calls.append([call, written.sha256])
    return {"calls": list(calls)}


async def live(home: Path) -> Any:
    """One life: begins the task or goes on with it. What it returns, once it has ended."""
    clock = TickingClock()
    with closing(SqliteStore(home / "ledger.db", clock=clock, vault=Vault(GivenKey(bytes(32))))) as store:
        stage = Stage(store, clock, home / "boots")
        await stage.open(coder)
        handle = await stage.start(coder(str(home / "work" / "settings.yaml")), key="only")
        await stage.settle()
        effects = store.read_now(lambda tx: tx.effects.newest_of_task(handle.id, limit=9))
        stage.kill()
        return await stage.result(handle), effects


def stop_at(point: str, pipe: Pipe) -> None:
    """In this process, which is a child: says that it is there, and waits to be killed."""
    act = getattr(files, point)

    def stop(*arguments: Any, **options: Any) -> Any:
        if point in ("_create", "_remove"):
            pipe.say("here")
            threading.Event().wait()
        found = act(*arguments, **options)
        pipe.say("here")
        threading.Event().wait()
        return found

    setattr(files, point, stop)


# Before anything is written; while the new content lies beside; when it is in its place, and none knows.
@pytest.mark.parametrize("point", ["_create", "_write_beside", "_remove", "_sync_directory"])
def test_the_file_is_right_and_the_ledger_has_no_password(quick_path: Path, point: str) -> None:
    (quick_path / "work").mkdir()
    pipe = Pipe()

    def begin() -> None:
        stop_at(point, pipe)
        asyncio.run(live(quick_path))

    pid = fork(begin)
    assert pipe.hear() == "here"
    kill(pid)
    pipe.close()
    was_written = (quick_path / "work/settings.yaml").exists()
    (result, effects) = asyncio.run(live(quick_path))

    assert was_written is (point in ("_remove", "_sync_directory"))
    assert [one.name for one in (quick_path / "work").iterdir()] == ["settings.yaml"]
    assert (quick_path / "work/settings.yaml").read_bytes() == SETTINGS.encode()
    assert result["calls"][0][0] == {"path": str(quick_path / "work/settings.yaml"), "content": SETTINGS}
    assert [one.effect_class for one in effects] == [EffectClass.VERIFIABLE] * len(effects)
    assert {one.status for one in effects} <= {EffectStatus.DONE, EffectStatus.CONFIRMED, EffectStatus.FAILED}
    ledger = [one.read_bytes() for one in quick_path.glob("ledger.db*")]
    assert found_in(*ledger) == set()
