"""No secret of a known shape can be read from the files, the rows, the log or the events of a ledger."""

from __future__ import annotations

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast.core.effect import Decision
from holdfast.core.seal_mode import SealMode
from holdfast.engine.conversation.transcripts import new_message, post
from holdfast.store.blobs import INLINE_BYTES
from holdfast.testing import Crashed
from tests.builders import a_delivery, a_flow
from tests.canaries import CANARIES, VALUES, found_in, found_in_rows
from tests.core.test_redaction import findings
from tests.engine.stage import Stage
from tests.engine.tables import dump
from tests.engine.value_places import TASKS, go_on, pass_through
from tests.servers import PostgresServer
from tests.shared_ledgers import SharedLedger, shared_postgres_ledger, shared_sqlite_ledger

pytestmark = pytest.mark.slow

LARGE = "tide " * INLINE_BYTES
# For places that take a text.
TEXTS = [canary.value for canary in CANARIES if isinstance(canary.value, str)]
TEXT = "\n".join(TEXTS)
# A name is short.
NAMES = [text for text in TEXTS if len(text) < 120 and text.isprintable()]
# Half of a secret is left where a text is cut at a fixed length, and looks like none: so many letters of it.
HALVED = next(canary.secret for canary in CANARIES if canary.shape == "github")
CUT = [f"{'x' * (length - 18)} {HALVED} and so on" for length in (120, 200, 2000, 4096)]


# --- what programs tell beside their values


class Rough(Exception):
    """Raised with a secret in its words."""


@hf.task(name="talks", attempts=1)
async def talks(run: hf.Run, text: str) -> str:
    """Everything that a program says in words, and everything that goes wrong with it."""

    async def fails(value: str) -> None:
        raise Rough(value)

    await run.decide(text)
    await run.refer("browser", text)
    await run.output("report", text)
    await run.checkpoint(text)
    await run.emit("told", text=text, values=VALUES, password="quiet harbour wall zzz")
    for name in NAMES:
        await run.step(hf.step(_one, id=name))
        await run.step(hf.step(_one, name=name))
        await run.emit(name)
        await run.progress(done=1, subtask=name)
    with contextlib.suppress(hf.StepFailed):
        await run.step(hf.step(fails, retry=hf.retry(2)), text)
    for number, cut in enumerate(CUT):
        with contextlib.suppress(hf.StepFailed):
            await run.ask(cut, timeout="1s", id=f"cut {number}")
        with contextlib.suppress(hf.StepFailed):
            await run.step(hf.step(fails, id=f"cut {number}"), cut)
    plan = run.plan([hf.PlanItem(id=f"{number}", title=text) for number, text in enumerate(TEXTS[:20])])
    async for item in plan:
        await item.step(_one)
    await run.sleep("1h")
    raise Rough(text)


async def _one() -> int:
    return 1


@hf.opaque
async def dies(*_values: Any) -> Any:
    raise Crashed


@hf.task(name="doubts")
async def doubts(run: hf.Run, values: list[Any]) -> Any:
    return await run.step(dies, values, *values)


async def live(shared_ledger: SharedLedger) -> Stage:
    """A secret of each shape in every call that takes a value or a text."""
    stage = shared_ledger.stage()
    await pass_through(stage, VALUES)
    await stage.open(*TASKS)
    large = await stage.start(TASKS[0]([*VALUES, LARGE], pad=LARGE))
    await go_on(stage, large, [*VALUES, LARGE])
    await talk(stage)
    await doubt(stage)
    for text in TEXTS:
        with contextlib.suppress(hf.BadInput):
            await stage.start(_idle(), key=text, goal=text)
    await stage.store.write(leave_messages)
    return stage


@hf.task(name="idle")
async def _idle(run: hf.Run) -> None:
    await run.sleep("1h")


async def talk(stage: Stage) -> None:
    await stage.open(talks)
    handle = await stage.start(talks(TEXT), goal=TEXT)
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(talks)
        if not (await handle.task()).has_ended:
            assert await stage.pass_time(), (await handle.task()).waits_on
    failure = (await handle.task()).failure
    assert failure is not None
    assert failure.kind.endswith("Rough"), failure.message
    cancelled = await stage.start(talks(TEXT))
    await cancelled.cancel(reason=TEXT)


async def doubt(stage: Stage) -> None:
    """An effect of unknown outcome, of which a person then says what it returned."""
    await stage.open(doubts)
    handle = await stage.start(doubts(VALUES))
    await stage.settle()
    await stage.open(doubts)
    await stage.settle()
    effect = await stage.review()
    await stage.holdfast.resolve(effect.id, Decision.DONE, result=VALUES, note=TEXT)
    await stage.settle()
    assert await stage.result(handle) == VALUES


def leave_messages(tx: Any) -> None:
    """What conversations keep. Their rows seal, whatever came before."""
    for number, canary in enumerate(CANARIES):
        body = msgspec.json.encode(canary.value)
        if isinstance(canary.value, str):
            message = new_message(
                "agent:main:main",
                canary.value,
                None,
                channel_message_id=f"m{number}",
                now=a_flow().created_at,
            )
            post(tx, message)
        tx.deliveries.create(a_delivery(message=body))
        tx.flows.create(a_flow(contents=body))


# --- where it could be read


def files_of(directory: Path, copy: Path) -> Iterator[bytes]:
    """Copied by another process: in this one, no code may touch the files of a ledger that is in use."""
    subprocess.run(["cp", "-r", directory, copy], check=True)
    for path in sorted(copy.rglob("*")):
        if path.is_file():
            yield path.read_bytes()


def words_of(tables: dict[str, list[tuple[Any, ...]]]) -> str:
    """All rows as text, a line for each cell, for a test that looks for secrets in text."""
    cells = {
        cell for rows in tables.values() for row in rows for cell in row if isinstance(cell, (bytes, str))
    }
    texts = (cell.decode("utf-8", "ignore") if isinstance(cell, bytes) else cell for cell in cells)
    # Sealed bytes hold nothing that a scanner of text could know, but many of them.
    return "\n".join({line for text in texts for line in text.split("\n") if line.isprintable()})


async def assert_nothing_can_be_read(shared_ledger: SharedLedger, caplog: pytest.LogCaptureFixture) -> Stage:
    with caplog.at_level(logging.DEBUG):
        stage = await live(shared_ledger)
    tables = dump(stage.store)
    events = stage.store.read_now(lambda tx: tx.events.newest(limit=100_000))

    assert found_in_rows(tables) == set()
    assert found_in(caplog.text.encode(), repr(events).encode()) == set()
    assert findings(words_of(tables)) == []
    return stage


async def test_no_secret_can_be_read_in_any_row_file_log_or_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with shared_sqlite_ledger() as shared_ledger:
        stage = await assert_nothing_can_be_read(shared_ledger, caplog)
        stage.store.backup(str(tmp_path / "backup.db"))
        in_use = list(files_of(shared_ledger.home, tmp_path / "in use"))
        shared_ledger.close()
        closed = list(files_of(shared_ledger.home, tmp_path / "closed"))

    assert (tmp_path / "in use/ledger.db-wal").stat().st_size > 0
    assert found_in(*in_use) == set()
    assert found_in(*closed, (tmp_path / "backup.db").read_bytes()) == set()


@pytest.mark.slow
async def test_no_secret_can_be_read_in_any_row_or_file_of_a_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # One of its own: other tests leave in the files of the shared one what they like.
    with (
        PostgresServer.start(tmp_path / "server") as server,
        shared_postgres_ledger(server, tmp_path) as shared_ledger,
    ):
        await assert_nothing_can_be_read(shared_ledger, caplog)
        contents = list(files_of(server._cluster, tmp_path / "copy"))

    assert len(contents) > 100
    # The databases that every server has are copies of one another.
    assert found_in(*set(contents)) == set()


async def test_the_search_finds_every_shape_in_a_ledger_that_seals_nothing(tmp_path: Path) -> None:
    """Otherwise the tests above would pass whatever is stored."""
    with shared_sqlite_ledger() as shared_ledger:
        shared_ledger.mode = SealMode.NEVER
        stage = shared_ledger.stage()
        await pass_through(stage, VALUES)
        rows = found_in_rows(dump(stage.store))
        files = found_in(*files_of(shared_ledger.home, tmp_path / "copy"))

    shapes = {canary.shape for canary in CANARIES}
    assert {found.partition(": ")[2] for found in rows} == shapes
    assert len({found.partition(":")[0] for found in rows}) >= 8
    assert files == shapes
