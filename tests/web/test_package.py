"""The dashboard travels in the wheel, whole, and a program that only uses the library imports none of it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WEB = ROOT / "src" / "holdfast" / "web"
TIMEOUT_S = 120
LIBRARY = """
import asyncio, sys
import holdfast as hf

def plus(one: int) -> int:
    return one + 1

@hf.task
async def add(run: hf.Run, one: int) -> int:
    return await run.step(plus, one)

async def main() -> None:
    async with hf.open("sqlite:///ledger.db", tasks=[add]) as holdfast:
        handle = await holdfast.start(add(1))
        print(await handle.result())

asyncio.run(main())
print(*sys.modules, sep="\\n")
"""
OF_THE_DASHBOARD = ("holdfast.web", "holdfast.api", "jinja2", "starlette", "uvicorn")


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_dashboard(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)
    (wheel,) = tmp_path.glob("*.whl")

    packed = set(zipfile.ZipFile(wheel).namelist())
    ours = [one for part in ("static", "templates") for one in (WEB / part).rglob("*") if one.is_file()]
    assert len(ours) > 30
    assert {f"holdfast/web/{one.relative_to(WEB).as_posix()}" for one in ours} <= packed


def test_a_program_that_uses_the_library_imports_nothing_of_the_dashboard(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LIBRARY]
    done = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
    )

    result, *modules = done.stdout.split()
    assert result == "2"
    assert [one for one in modules if one.startswith(OF_THE_DASHBOARD)] == []
