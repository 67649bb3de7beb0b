"""A migration in four phases that is safe at every point: each phase looks at the world before it acts.

Run it with `python examples/migration.py`.
A phase does not say "copy the files" but "ensure that the files are there": done twice it changes nothing,
and cut short it repairs what it finds. So every phase is a plain step, and a kill costs at most one of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path

import holdfast as hf

PHASES = ["prep", "transfer", "integrate", "validate"]


def ensure_inventory(source: str, target: str) -> list[str]:
    """What there is to move, written down once: from then on that list holds."""
    inventory = Path(target, "inventory.json")
    inventory.parent.mkdir(parents=True, exist_ok=True)
    if not inventory.exists():
        print("prep: writing the inventory", flush=True)
        files = sorted(path for path in Path(source).iterdir() if path.is_file())
        put(inventory, json.dumps({path.name: checksum(path) for path in files}).encode())
    return sorted(inventory_of(target))


def ensure_copied(source: str, target: str, name: str) -> str:
    """The file is there, whole, and the one that was inventoried."""
    wanted, copy = inventory_of(target)[name], Path(target, name)
    if not copy.exists() or checksum(copy) != wanted:
        print(f"transfer: copying {name}", flush=True)
        put(copy, Path(source, name).read_bytes())
    return wanted


def ensure_index(target: str) -> int:
    """The index lists exactly what was moved."""
    names, index = sorted(inventory_of(target)), Path(target, "index.txt")
    wanted = "".join(f"{name}\n" for name in names).encode()
    if not index.exists() or index.read_bytes() != wanted:
        print("integrate: writing the index", flush=True)
        put(index, wanted)
    return len(names)


def differing_files(target: str) -> list[str]:
    """What is not as the inventory says; nothing, when all went well."""
    print("validate: comparing", flush=True)
    copies = {name: Path(target, name) for name in inventory_of(target)}
    wanted = inventory_of(target)
    return [name for name, copy in copies.items() if not copy.exists() or checksum(copy) != wanted[name]]


@hf.task
async def migrate(run: hf.Run, source: str, target: str) -> str:
    async for phase in run.plan(PHASES):  # finished phases are skipped after a restart
        match phase.id:
            case "prep":
                names = await phase.step(ensure_inventory, source, target)
            case "transfer":
                # Not the `names` of above: after a restart in here, that phase would not have run.
                names = sorted(inventory_of(target))
                for done, name in enumerate(names, start=1):
                    await phase.step(hf.step(ensure_copied, id=name), source, target, name)
                    await run.progress(done=done, total=len(names), subtask=name)
            case "integrate":
                await phase.step(ensure_index, target)
            case "validate":
                if differing := await phase.step(differing_files, target):
                    raise RuntimeError(f"these files differ: {', '.join(differing)}")
    return f"{len(inventory_of(target))} files moved"


# --- files


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def inventory_of(target: str) -> dict[str, str]:
    inventory: dict[str, str] = json.loads(Path(target, "inventory.json").read_bytes())
    return inventory


def put(path: Path, content: bytes) -> None:
    """Whole or not at all: a reader never sees half of it."""
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)  # noqa: PTH105 - the name of what makes it safe


async def main(url: str = "sqlite:///migration.db") -> None:
    source = Path("old")
    source.mkdir(exist_ok=True)
    for name, text in {"ada.txt": "analytical", "grace.txt": "compiler", "mary.txt": "spherical"}.items():
        (source / name).write_text(text)
    async with hf.open(url, tasks=[migrate]) as holdfast:
        handle = await holdfast.start(migrate("old", "new"), key="old to new")
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
