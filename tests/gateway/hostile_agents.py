"""Bad agents beside good ones: they ignore a drain, swallow every exception, never
return, or kill the gateway. What they do to the world is a line in a file, as for those of noting_agents."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time

import holdfast as hf
from holdfast.core.message import Envelope
from tests.gateway.noting_agents import note, was_noted, world

_LOOK_EVERY_S = 0.02


def is_open(door: str) -> bool:
    """Tests open doors by making files; a door stays open, also for the lives after this one."""
    return (world() / f"{door}.open").exists()


async def until_open(door: str) -> None:
    while not is_open(door):  # noqa: ASYNC110 - what opens it is another process
        await asyncio.sleep(_LOOK_EVERY_S)


def plant(line: str) -> str:
    note("planted", line)
    return line


def intrude(line: str) -> str:
    """What a program tries while it is unwound; no reader should see it."""
    note("intruded", line)
    return line


def _begin(message: Envelope) -> None:
    note("begun", message.text)


async def _intrude(run: hf.Run, message: Envelope) -> None:
    """Again and again, as a program that believes it must be let in."""
    for number in range(3):
        try:
            await run.step(hf.step(intrude, id=f"intrude-{number}"), message.text)
        except BaseException as error:  # noqa: BLE001 - that is what it is for
            note("refused", f"{message.text} {type(error).__name__}")


@hf.task
async def ignores(run: hf.Run, message: Envelope) -> str:
    """Makes no call for as long as the door is closed, so it never hears that it shall stop."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    try:
        await until_open("mended")
    except BaseException:
        await _intrude(run, message)
        raise
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


@hf.task
async def swallows(run: hf.Run, message: Envelope) -> str:
    """Takes whatever is thrown at it, the end of its own coroutine too, and goes on."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    is_closed, number = True, 0
    while is_closed:
        try:
            number += 1
            is_closed = await run.step(hf.step(_look, id=f"look-{number}"))
        except BaseException:  # noqa: BLE001 - that is what it is for
            number -= 1
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


async def _look() -> bool:
    await asyncio.sleep(_LOOK_EVERY_S)
    return not is_open("mended")


def _never() -> str:
    if not is_open("mended"):
        threading.Event().wait()
    return "at last"


@hf.task
async def threads(run: hf.Run, message: Envelope) -> str:
    """A step in a thread that never returns."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    await run.step(hf.step(_never, id="never"))
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


@hf.task
async def own_threads(run: hf.Run, message: Envelope) -> str:
    """The same in a thread that the engine knows nothing of: Python waits for it when it ends."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    await asyncio.to_thread(_never)
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


@hf.task
async def blocks(run: hf.Run, message: Envelope) -> str:
    """Keeps the loop itself from going on, once a test wants it to."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    await until_open("block")
    while not is_open("mended"):
        time.sleep(_LOOK_EVERY_S)  # noqa: ASYNC251 - that is what it is for
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


@hf.task
async def behaves(run: hf.Run, message: Envelope) -> str:
    """Many short steps: it stops at its next one."""
    await run.step(plant, f"{message.text} before")
    _begin(message)
    number = 0
    while await run.step(hf.step(_look, id=f"look-{number}")):
        number += 1
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


def _was_sent(line: str) -> hf.Happened | hf.DidNotHappen:
    return hf.Happened(line) if was_noted("sent", line) else hf.DidNotHappen()


@hf.verifiable(_was_sent)
async def send(line: str) -> str:
    """Done at once, and under way until the door opens."""
    note("sent", line)
    await until_open("send")
    return line


@hf.task
async def sends(run: hf.Run, message: Envelope) -> str:
    await run.step(plant, f"{message.text} before")
    _begin(message)
    await run.step(send, message.text)
    return await run.step(hf.step(plant, id="after"), f"{message.text} after")


@hf.opaque
async def post(line: str) -> str:
    """No service can be asked whether it happened. Under way until the door opens."""
    note("posted", line)
    await until_open("post")
    return f"posted {line}"


@hf.task
async def posts(run: hf.Run, message: Envelope) -> str:
    return await run.step(post, message.text)


@hf.task
async def kills(run: hf.Run, message: Envelope) -> str:
    """Ends the whole process, without a word, whenever it is carried; others make no progress meanwhile."""
    _begin(message)
    # Whatever is said there: as a model would that reads the same transcript.
    if ":kill-" in message.session_key:
        await until_open("kill")
        _kill(message)
    await until_open("mended")
    return await run.step(plant, message.text)


def _kill(message: Envelope) -> None:
    note("killed", message.text)
    os.kill(os.getpid(), signal.SIGKILL)


@hf.task
async def creeps(run: hf.Run, message: Envelope) -> str:
    """Does one more step in each life, and kills it: it cannot be said that it makes no progress."""
    _begin(message)
    for number in range(100):
        carried_by = await run.step(hf.step(os.getpid, id=f"creep-{number}"))
        if is_open("spared"):
            break
        if carried_by == os.getpid():
            _kill(message)
    return await run.step(plant, message.text)


async def echo(text: str) -> str:
    """A trivially quick agent."""
    return text
