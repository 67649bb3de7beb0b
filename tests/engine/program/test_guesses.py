"""A short secret cannot be guessed from any digest that a ledger stores: each is keyed with a key outside."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec

import holdfast as hf
from holdfast.core.payload import digest_of
from holdfast.core.seal_mode import SealMode
from holdfast.engine.journal.codec import input_digest
from holdfast.engine.journal.scopes import digest_of_values
from holdfast.store.blobs import INLINE_BYTES
from tests.engine.stage import Stage
from tests.engine.tables import Tables, dump
from tests.shared_ledgers import SharedLedger, shared_sqlite_ledger

PIN = "4711"
PINS = [f"{number:04}" for number in range(10_000)]
LARGE = "t" * INLINE_BYTES


async def use(password: str) -> str:
    return "let in"


async def look(creds: Any) -> str:
    return "let in"


async def keep(password: Any, pad: str = "") -> Any:
    return {"password": password, "pad": pad}


@hf.opaque
async def pay(password: str) -> str:
    return "paid"


async def look_at(password: str) -> dict[str, str]:
    """As `write_file` does: what it returns tells what it was given."""
    return {"sha256": hashlib.sha256(password.encode()).hexdigest()}


@hf.opaque
async def write(password: str) -> dict[str, str]:
    return await look_at(password)


@hf.task(name="login")
async def login(run: hf.Run, password: str) -> Any:
    creds, cell = run.list("creds", [{"password": password}]), run.value("cell", {"password": password})
    await run.step(use, password)
    await run.step(hf.step(look, id="list"), creds)
    await run.step(hf.step(look, id="value"), cell)
    await run.step(hf.step(look, id="deep"), {"a": [cell]})
    await run.step(hf.step(keep, id="blob"), password, pad=LARGE)
    await run.step(pay, password=password)
    await run.step(hf.step(pay, id="by place"), password)
    await run.step(look_at, password)
    await run.step(write, password)
    async for turn in run.turns(max=1):
        await turn.step(use, password=password)
        await turn.step(look_at, password)
        await turn.tool(write, {"password": password})
    await run.sleep("1h")
    return {"password": password}


async def live(shared_ledger: SharedLedger) -> tuple[Tables, bytes]:
    """The rows of a ledger in which a program was given the PIN, and the key of its digests."""
    stage: Stage = shared_ledger.stage()
    await stage.open(login)
    handle = await stage.start(login(PIN), key="once")
    while not (await handle.task()).has_ended:
        await stage.settle()
        await stage.open(login)
        await stage.pass_time()
    assert await stage.result(handle) == {"password": PIN}
    return dump(stage.store), b"stage"


class Durable:
    """What stands for a durable list or value in the input of a step."""

    def __init__(self, digest: str | bytes) -> None:
        self._digest = digest

    def __holdfast_digest__(self) -> str | bytes:
        return self._digest


def digests_of(pin: str, key: bytes) -> Iterator[tuple[str, bytes]]:
    """Everything that our code makes of it, as a person who has the code and the database can."""
    item = msgspec.json.encode({"password": pin})
    chain = hashlib.blake2b(bytes(16) + item, digest_size=16).digest()
    large = msgspec.json.encode({"password": pin, "pad": LARGE})
    plain: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("input, by place", (pin,), {}),
        ("input, by name", (), {"password": pin}),
        ("input, a list", (Durable(f"creds:1:{chain.hex()}"),), {}),
        ("input, a value", (Durable(item),), {}),
        ("input, a value deep inside", ({"a": [Durable(item)]},), {}),
    ]
    for what, args, kwargs in plain:
        yield what, input_digest(key, args, kwargs)[0]
    yield "arguments beside a dedup key", digest_of("python", "login", item)
    yield "chain of a list", chain
    yield "all values", bytes.fromhex(digest_of_values({"cell": item}))
    yield "what a step returned", hashlib.sha256(pin.encode()).digest()
    yield "blob", hashlib.blake2b(large, digest_size=32).digest()


def late_digests_of(plain: bytes, tables: Tables) -> Iterator[bytes]:
    """Of a row whose value would be digested as it is, beside the id of its record."""
    for name in ("tasks", "effects", "questions"):
        for row in tables[name]:
            yield digest_of(str(row[0]), plain)


def guesses(tables: Tables, key: bytes) -> dict[str, set[str]]:
    """The PINs that a thief of the database finds, by the kind of digest that told."""
    stored = set(stored_digests(tables))
    found: dict[str, set[str]] = {}
    for pin in PINS:
        for what, digest in digests_of(pin, key):
            if digest in stored:
                found.setdefault(what, set()).add(pin)
    return found


def stored_digests(tables: Tables) -> Iterator[bytes]:
    """Every cell that may be a digest, and every one that stands as hex in another."""
    for cell in (cell for rows in tables.values() for row in rows for cell in row if cell is not None):
        content = bytes(cell) if isinstance(cell, (bytes, memoryview)) else str(cell).encode()
        # Two may stand one behind the other.
        yield from (content, content[:8], content[-8:])
        yield from (bytes.fromhex(one.decode()) for one in re.findall(rb"(?:[0-9a-f]{2}){8,}", content))


async def test_no_stored_digest_tells_a_pin(shared_ledger: SharedLedger) -> None:
    tables, key = await live(shared_ledger)

    assert guesses(tables, key) == {}
    assert not any(f'{PIN}"' in str(cell) for rows in tables.values() for row in rows for cell in row)
    result = msgspec.json.encode({"password": PIN})
    assert set(stored_digests(tables)).isdisjoint(late_digests_of(result, tables))


async def test_the_attack_finds_the_pin_by_every_digest_of_a_ledger_that_seals_nothing() -> None:
    with shared_sqlite_ledger() as shared_ledger:
        shared_ledger.mode = SealMode.NEVER
        tables, key = await live(shared_ledger)

    everything = {what for what, _ in digests_of(PIN, key)}
    assert guesses(tables, key) == {what: {PIN} for what in everything}
