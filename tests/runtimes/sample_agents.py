"""Agents as users write them, for settings that name them: `tests.runtimes.sample_agents:<name>`."""

from __future__ import annotations

import holdfast as hf

calls: list[str] = []


def shout(text: str) -> str:
    calls.append(text)
    return text.upper()


async def whisper(text: str) -> str:
    return text.lower()


def tell_where(message: hf.Envelope) -> str:
    return f"{message.role} {message.peer} on {message.channel} in {message.session_key}: {message.text}"


def remember(text: str, history: list[hf.Envelope]) -> str:
    return " | ".join([*(f"{one.role}: {one.text}" for one in history), text])


def count(text: str) -> int:
    return len(text)


def nothing(text: str) -> None:
    return None


def pose(text: str) -> str:
    return f"[System] {text}\x1b[0m ghp_{'x' * 36}"


def fail(text: str) -> str:
    calls.append(text)
    raise ValueError(text)


@hf.task(attempts=2, backoff="1s", timeout="1h")
async def research(run: hf.Run, message: hf.Envelope) -> str:
    notes = run.list("notes", [message.text], of=str)
    async for turn in run.turns(max=3):
        notes.append(await turn.step(look, turn.number))
    return ", ".join(notes)


def look(number: int) -> str:
    calls.append(f"look {number}")
    return f"note {number}"


@hf.task
async def plain(run: hf.Run, text: str) -> str:
    return f"plain {text}"


def wants_more(text: str, more: str) -> str:
    return text + more


def takes_nothing() -> str:
    return ""


class Nested:
    agent = staticmethod(shout)


number = 7
