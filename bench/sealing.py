"""What it costs to look for secrets in every value, and to seal what holds one (docs/adr/0021)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import importlib.util
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import holdfast as hf
from bench.measure import Measured, Report, timed
from bench.programs import ANSWER, Pace, plain_steps
from bench.writes import WARM_UP
from holdfast.core.clock import SystemClock
from holdfast.core.seal_mode import SealMode
from holdfast.store.sealing import LedgerKey, MemoryKey, Vault
from holdfast.store.sqlite import SqliteStore
from tests.engine.workers import carrying

SIZES = {"100 B": 100, "1 kB": 1_000, "16 kB": 16_000, "1 MB": 1_000_000}
# Made up here, so that no scanner takes this file for a leak.
SECRET = ANSWER | {"pass" + "word": secrets.token_hex(8)}

_salts = itertools.count()

Steps = Callable[[hf.Run, int], Awaitable[float]]


async def answer_with_secret(_number: int) -> dict[str, object]:
    return SECRET


async def secret_steps(run: hf.Run, count: int) -> float:
    started = time.perf_counter()
    for number in range(count):
        await run.step(answer_with_secret, number)
    return count / (time.perf_counter() - started)


@contextlib.asynccontextmanager
async def one_run(path: Path | None, mode: SealMode) -> AsyncIterator[Pace]:
    """One run of one task on a ledger of its own, which does steps whenever the bench says so."""
    pace = Pace()

    @hf.task(name="bench")
    async def work(run: hf.Run) -> None:
        while (wanted := await pace.wanted.get())[1]:
            await pace.rates.put(await wanted[0](run, wanted[1]))

    store = SqliteStore(path, clock=SystemClock(), vault=Vault(MemoryKey(), mode))
    with contextlib.closing(store):
        async with carrying(store, SystemClock(), work) as process:
            handle = await process.holdfast.start(work())
            yield pace
            await pace.wanted.put((plain_steps, 0))
            await handle.result()


def bench(report: Report, directory: Path, *, size: int) -> None:
    bench_steps(report, "SQLite", lambda: directory / f"sealing-{next(_salts)}" / "ledger.db", size=size)
    # Nothing but the processor: what a disk would hide.
    bench_steps(report, "SQLite in memory", lambda: None, size=size)
    bench_ciphers(report)


def bench_steps(report: Report, kind: str, new_path: Callable[[], Path | None], *, size: int) -> None:
    kinds: list[tuple[str, SealMode, Steps, float | None]] = [
        # At most 5 % of a plain step, on a disk.
        (
            "without secrets, seal = secrets",
            SealMode.SECRETS,
            plain_steps,
            0.95 if kind == "SQLite" else None,
        ),
        ("with a secret, seal = secrets", SealMode.SECRETS, secret_steps, None),
        ("without secrets, seal = all", SealMode.ALL, plain_steps, None),
    ]
    names = [f"{kind}: plain steps {what} / seal = never" for what, _, _, _ in kinds]
    if not any(map(report.wants, names)):
        return
    count = max(1, size // 20)
    with asyncio.Runner() as runner:
        scopes = [one_run(new_path(), mode) for mode in (SealMode.NEVER, *(mode for _, mode, _, _ in kinds))]
        paces = [runner.run(_enter(scope)) for scope in scopes]
        for pace in paces:
            runner.run(pace.take_turn(plain_steps, WARM_UP))
        rows: list[Measured] = [
            (name, lambda pace=pace, how=how: runner.run(pace.take_turn(how, count)), target)  # type: ignore[misc]
            for name, pace, (_, _, how, target) in zip(names, paces[1:], kinds, strict=True)
        ]
        report.rates_in_turns(rows, lambda: runner.run(paces[0].take_turn(plain_steps, count)), rounds=100)
        for scope in scopes:
            runner.run(_leave(scope))


async def _enter(scope: contextlib.AbstractAsyncContextManager[Pace]) -> Pace:
    return await scope.__aenter__()


async def _leave(scope: contextlib.AbstractAsyncContextManager[Pace]) -> None:
    await scope.__aexit__(None, None, None)


# --- the cipher alone


def bench_ciphers(report: Report) -> None:
    key, place = LedgerKey.new(), ("steps.result", "task", "", "step", "1")
    others: dict[str, Callable[[bytes], object]] = {
        "BLAKE2b of it": lambda plain: hashlib.blake2b(plain, digest_size=32).digest()
    }
    if importlib.util.find_spec("cryptography") is not None:
        # By its name, because it is no dependency of ours.
        aead = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        cipher = aead.AESGCM(secrets.token_bytes(32))
        others["AES-GCM"] = lambda plain: cipher.encrypt(secrets.token_bytes(12), plain, b"steps.result")
    elif report.wants("Sealing"):
        print("AES-GCM is not measured: the package `cryptography` is not installed", flush=True)
    for size, length in SIZES.items():
        plain = secrets.token_bytes(length)
        times = max(20, 2_000_000 // (length + 1_000))

        def seal(plain: bytes = plain, times: int = times) -> float:
            return _each(lambda: key.seal(plain, place), times)

        for name, other in others.items():
            report.times(
                f"Sealing {size}, a thousand times: XChaCha20-Poly1305 / {name}",
                seal,
                lambda other=other, plain=plain, times=times: _each(lambda: other(plain), times),  # type: ignore[misc]
                target=None,
                rounds=9,
            )


def _each(act: Callable[[], object], times: int) -> float:
    """Seconds for a thousand of them."""

    def act_often() -> None:
        for _ in range(times):
            act()

    return timed(act_often) / times * 1000
