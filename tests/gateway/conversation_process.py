"""A gateway's conversations in a process of their own, to be killed: what it reads is posted and answered.

`python -m tests.gateway.conversation_process STORE LOCKS HOOK`: each line of input is
`<session> <id> <text>`; the id is said on standard output when the message is durable.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from holdfast.app import open_store
from holdfast.channels.webhook import Webhook
from holdfast.core.clock import SystemClock
from holdfast.core.task import Origin
from holdfast.delivery.outbox import Outbox
from holdfast.engine.aio.background import beside
from holdfast.engine.claims.boots import Life
from holdfast.engine.program.author_api import Run
from holdfast.engine.program.definitions import by_name
from holdfast.engine.worker.worker import Worker
from holdfast.gateway.conversations import Conversations
from holdfast.gateway.inbox import Inbox
from holdfast.runtimes.contract import AgentInput
from tests.gateway.chats import agent


def work(text: str, part: int) -> str:
    return f"{text}/{part}"


async def speak(run: Run, heard: AgentInput) -> str:
    said = heard.message.text
    for part in range(3):
        said = await run.step(work, said, part)
    return said


async def main(url: str, locks: str, hook: str) -> None:
    clock = SystemClock()
    store = open_store(url, clock=clock)
    life = await Life.begin(store, clock, locks=Path(locks))
    worker = Worker(store, clock, life, by_name([agent(speak)]))
    await worker.take_over()
    channels = {"hook": Webhook("hook", hook, b"a secret of the sea", clock)}
    services = [
        Conversations(store, clock, {"scholar"}, every_s=0.2),
        Outbox(store, clock, channels, boot_id=life.id, every_s=0.2),
    ]
    inbox = Inbox(store, clock)
    async with beside(worker), asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run())
        print("ready", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            session, message_id, text = line.strip().split(maxsplit=2)
            origin = Origin(channel="hook", peer=session)
            await inbox.post(f"agent:scholar:{session}", text, origin, channel_message_id=message_id)
            print(message_id, flush=True)
        for service in services:
            service.stop()
    await life.end()
    store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
