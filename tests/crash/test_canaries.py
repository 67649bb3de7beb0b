"""Secrets put into every place that takes a value are found in no file, no log and no output afterwards."""

from __future__ import annotations

import logging
import random
import string
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zstandard

import holdfast as hf
from holdfast.core.checkpoint import CheckpointKind, ResumeReason
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, HoldfastError, KeyConflict
from holdfast.core.step import ArtifactKind
from holdfast.core.task import Failure, Origin, Progress
from holdfast.store import Store
from holdfast.store.sealing import MARK
from tests.crash.ledger_address import LedgerAddress
from tests.engine.parts import Parts
from tests.engine.tables import dump
from tests.engine.workers import GateAndNotes, carrying, note_step, soon
from tests.servers import PostgresServer

pytestmark = pytest.mark.slow

SHAPES = (
    "ghp_{}",
    "sk-ant-api03-{}",
    "password={}",
    "https://ada:{}@example.org/",
    "Authorization: Bearer {}",
    "xoxb-{}",
)
# In the path of a scope, where no ':' and no '/' is allowed.
PART_SHAPES = tuple(shape for shape in SHAPES if not set(shape) & set(":/"))


def body_of(stored: bytes) -> bytes:
    """What a thief of the database reads in a blob."""
    return stored if stored[:1] == MARK else zstandard.ZstdDecompressor().decompress(stored)


class Canaries:
    """Secrets, each used in one place only, so that the one that is found tells where it got through."""

    def __init__(self, seed: int) -> None:
        self.places: dict[str, str] = {}
        self._random = random.Random(seed)

    def secret(self, place: str, shapes: tuple[str, ...] = SHAPES) -> str:
        core = "".join(self._random.choices(string.ascii_letters + string.digits, k=34)) + "7Q"
        self.places[core] = place
        return self._random.choice(shapes).format(core)

    def part(self, place: str) -> str:
        """A name that can stand in the path of a scope."""
        return f"look {self.secret(place, PART_SHAPES)} and go on"

    def text(self, place: str) -> str:
        return f"look: {self.secret(place)} and go on"

    def large(self, place: str) -> str:
        """So large that it becomes a blob."""
        return f"{place}: " + "tide " * 4000 + self.text(place) + " tide" * 4000

    def value(self, place: str) -> dict[str, object]:
        """Under a name that tells, in a text, in a list, as a key, and deep inside."""
        core = self.secret(f"{place} (by name)").split("=")[-1]
        return {
            "api_key": core,
            "text": self.text(f"{place} (text)"),
            "list": [1, self.secret(f"{place} (list)")],
            self.secret(f"{place} (key)"): True,
            "deep": {"deeper": [{"deepest": self.secret(f"{place} (deep)")}]},
        }

    def found_in(self, content: bytes) -> set[str]:
        return {place for core, place in self.places.items() if core.encode() in content}


async def live(store: Store, place: LedgerAddress, canaries: Canaries, directory: Path) -> None:
    """One life that hands a secret to every call that takes a value."""
    text, value = canaries.text, canaries.value
    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    first = await parts.carry(
        name=text("name"),
        goal=text("goal"),
        owner=text("owner"),
        arguments=value("arguments"),
        session_key=text("session key"),
        key=text("dedup key"),
        origin=Origin(
            channel=text("channel"), peer=text("peer"), account_id=text("account"), thread=text("thread")
        ),
    )
    await parts.journal.save_step(first.claim, "small", value("step result"))
    await parts.journal.save_step(first.claim, "large", canaries.large("large step result"))
    await parts.artifacts.record_output(first.claim, text("output name"), text("output content"))
    await parts.artifacts.record_output(first.claim, "diff", text("diff"), kind=ArtifactKind.DIFF)
    await parts.artifacts.record_file(
        first.claim, written(directory, text("file content")), name=text("file name")
    )
    await parts.ledger.progress(first.claim, Progress(done=1, subtask=text("subtask")))
    await parts.checkpoints.record(first.claim, CheckpointKind.MILESTONE, text("milestone"))
    await parts.checkpoints.pause([first.claim], ResumeReason.SIGNAL, note=text("pause note"))
    await parts.resumer.resume_all()
    (again,) = await parts.claims.take()
    await parts.claims.wait(again.claim, waits_on=text("waits on"))
    await parts.claims.wake(again.run.id)
    (again,) = await parts.claims.take()
    await parts.ledger.finish(again.claim, value("result"))
    second = await parts.carry(goal=canaries.large("large goal"), arguments=canaries.large("large arguments"))
    failure = Failure(
        kind=text("failure kind"), message=text("failure message"), facts=value("failure facts")
    )
    await parts.ledger.fail(second.claim, failure)
    third = await parts.carry()
    await parts.ledger.cancel(third.task.id, reason=text("cancel reason"))
    await parts.ledger.finish(third.claim, canaries.large("large result"))
    await provoke_errors(parts, canaries)
    await parts.life.end()
    await speak(store, canaries)


def speaking(canaries: Canaries, gate: GateAndNotes) -> hf.TaskDefinition[[], str]:
    """A program with a secret in every name that it gives, and in everything that it says."""
    text, part, note = canaries.text, canaries.part, note_step(gate)
    # Made once: a replay must give the same names.
    step_name, step_id, effect_id, wait_id = (
        text(f"id of a {kind}") for kind in ("step", "id", "effect", "wait")
    )
    scope, plan_id, plan_text = part("scope"), part("plan id"), part("plan text")
    title, decision, reference, tool = (text(place) for place in ("title", "decision", "reference", "tool"))
    item, listed, kept, argument = (text(place) for place in ("item", "list", "value", "argument"))
    list_name, value_name, question = (text(place) for place in ("list name", "value name", "question"))

    @hf.opaque
    async def send(_text: str) -> str:
        gate.notes.append("sent")
        return item

    async def wait() -> None:
        gate.entered.set()
        await gate.open.wait()

    @hf.task(name="speaks")
    async def speaks(run: hf.Run) -> str:
        await run.step(hf.step(note, name=step_name), "by name")
        await run.step(hf.step(note, id=step_id), "by id")
        await run.step(hf.step(send, id=effect_id), argument)
        run.list(list_name).append(listed)
        run.value(value_name, "").set(kept)
        await run.decide(decision)
        await run.refer(tool, reference)
        async for turn in run.turns(scope, max=1):
            await turn.step(note, "in a turn")
        async for each in run.plan([hf.PlanItem(id=plan_id, title=title), plan_text]):
            await each.step(note, "in the plan")
        with suppress(hf.StepFailed):
            await run.ask(question, timeout="1s", id=wait_id)
        await run.step(wait)
        return await run.step(hf.step(note, id="after"), "after")

    return speaks


async def speak(store: Store, canaries: Canaries) -> None:
    """A program speaks, its process ends, and the next one replays it: by its hidden names."""
    gate = GateAndNotes()
    speaks = speaking(canaries, gate)
    async with carrying(store, SystemClock(), speaks) as process:
        handle = await process.holdfast.start(speaks())
        await soon(gate.entered.wait())
    gate.open.set()
    async with carrying(store, SystemClock(), speaks) as process:
        assert await soon(process.holdfast.handle(handle.id).result()) == "after"
    assert Counter(gate.notes) == {
        "by name": 1,
        "by id": 1,
        "sent": 1,
        "in a turn": 1,
        "in the plan": 2,
        "after": 1,
    }


async def provoke_errors(parts: Parts, canaries: Canaries) -> None:
    """Errors show what they are about, but never a secret in it."""
    key = canaries.text("key of a conflict")
    await parts.create(key=key, arguments=1)
    with pytest.raises(KeyConflict) as conflict:
        await parts.create(key=key, arguments=2)
    logging.getLogger("holdfast").warning("%s", conflict.value)
    for bad in ("\x00", "\ud800"):
        with pytest.raises(BadInput) as refused:
            await parts.create(goal=canaries.text("refused goal") + bad)
        logging.getLogger("holdfast").warning("%s", refused.value)
    with suppress(HoldfastError):
        await parts.ledger.get(canaries.secret("id"))


def written(directory: Path, content: str) -> Path:
    path = directory / "report.txt"
    path.write_text(content)
    return path


def every_byte(
    place: LedgerAddress, server: PostgresServer | None, copy: Path
) -> Iterator[tuple[Path, bytes]]:
    """Of every file that the database or we have written for this ledger, its WAL included."""
    # Copied by another process: in this one, no code may touch the ledger's files at all.
    subprocess.run(["cp", "-r", place.home, copy], check=True)
    for root in [copy] if server is None else [copy, server._cluster]:
        for path in sorted(root.rglob("*")):
            if path.is_file():
                yield path, path.read_bytes()


async def test_no_secret_is_found_in_any_file_log_or_output(
    place: LedgerAddress,
    tmp_path: Path,
    seed: int,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    canaries = Canaries(seed)
    server = None if place.is_file else request.getfixturevalue("postgres_server")
    store = place.open()

    with caplog.at_level(logging.DEBUG):
        await live(store, place, canaries, tmp_path)
    tables = dump(store)
    blobs = [body_of(row[2]) for row in tables["blobs"]]
    leaks = {
        f"{path.name}: {leak}"
        for path, content in every_byte(place, server, tmp_path / "copy")
        for leak in canaries.found_in(content)
    }
    store.close()

    assert len(canaries.places) > 66
    assert len(blobs) >= 3
    assert canaries.found_in(repr(tables).encode()) == set()
    assert canaries.found_in(b"".join(blobs)) == set()
    assert leaks == set()
    assert canaries.found_in(caplog.text.encode()) == set()
    assert canaries.found_in("".join(capfd.readouterr()).encode()) == set()


async def test_a_canary_that_gets_through_would_be_found(
    place: LedgerAddress, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The search itself works: a word that no pattern takes for a secret is found in the files."""
    canaries = Canaries(1)
    canaries.secret("planted")
    (planted,) = canaries.places
    server = None if place.is_file else request.getfixturevalue("postgres_server")
    store = place.open()

    parts = await Parts.begin(store, SystemClock(), locks=place.locks)
    await parts.create(goal=f"the ship {planted} has left")
    found = [
        path for path, content in every_byte(place, server, tmp_path / "copy") if canaries.found_in(content)
    ]
    store.close()

    assert found
