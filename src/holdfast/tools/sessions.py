"""A tool with which an agent gives work to a child session; it is told when the work has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import BadInput, KeyConflict, NotFound, NotInRun, Refused
from holdfast.core.step_declarations import DidNotHappen, Happened, Verdict, tool, verifiable
from holdfast.tools.inputs import current_key

if TYPE_CHECKING:
    from holdfast.engine.conversation.spawning import Spawned, SpawnRequest
    from holdfast.engine.program.live_run import LiveRun
    from holdfast.store import Tx

# Names the agents of the gateway that runs the present task.
_agents: ContextVar[Callable[[], Collection[str]] | None] = ContextVar("holdfast_agents", default=None)


class SpawnedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The child: its task, the key of that task (`smartwake_…`) and its session."""

    task_id: str
    task_key: str
    session_key: str
    # Whether the same packet had spawned it before.
    is_duplicate: bool


@contextlib.contextmanager
def spawning_through(agents: Callable[[], Collection[str]]) -> Iterator[None]:
    """Runs that start inside the block may spawn sessions of these agents."""
    token = _agents.set(agents)
    try:
        yield
    finally:
        _agents.reset(token)


async def _verify_spawn(
    task: str,
    task_id: str | None = None,
    wakeMode: str = "cron",  # noqa: N803 - the packet's own word
    resume: Mapping[str, Any] | None = None,
    done_criteria: list[str] | None = None,
    agent: str | None = None,
    run_timeout_s: float | None = None,
) -> Verdict:
    from holdfast.engine.conversation.spawning import find_spawned

    live = _live()
    asked = _asked(live, task, task_id, wakeMode, resume, done_criteria, agent, run_timeout_s)
    found = await live.store.read(lambda tx: find_spawned(tx, asked, now=live.clock.now()))
    return DidNotHappen() if found is None else Happened(_answer(found))


_REFUSALS = (BadInput, NotInRun, NotFound, KeyConflict, Refused)


_effect = verifiable(_verify_spawn, did_not_happen=_REFUSALS)


@tool(effect=_effect, name="sessions_spawn", raises=_REFUSALS)
async def sessions_spawn(
    task: str,
    task_id: str | None = None,
    wakeMode: str = "cron",  # noqa: N803 - the packet's own word
    resume: Mapping[str, Any] | None = None,
    done_criteria: list[str] | None = None,
    agent: str | None = None,
    run_timeout_s: float | None = None,
) -> SpawnedSession:
    """Give work to a child session of an agent (this one's own, unless named), once for each call.

    Returns its task's id at once. The child works by itself, through every timeout; this session is told when
    it has ended. `task_id` (smartwake_<slug>_<timestamp>) is the key of its task: the same packet again
    returns the first task, another packet under the same key is refused.
    """
    from holdfast.engine.conversation.spawning import spawning

    live = _live()
    asked = _asked(live, task, task_id, wakeMode, resume, done_criteria, agent, run_timeout_s)
    spawn = spawning(asked, now=live.clock.now())

    def spawn_here(tx: Tx) -> Spawned:
        # A process that was frozen and has lost the run must not spawn: the next one may have done it.
        tx.journal.require(live.claim)
        return spawn(tx)

    return _answer(await live.write(spawn_here))


@tool(effect=_effect, name="session_spawn", raises=_REFUSALS)
async def session_spawn(
    task: str,
    task_id: str | None = None,
    wakeMode: str = "cron",  # noqa: N803 - the packet's own word
    resume: Mapping[str, Any] | None = None,
    done_criteria: list[str] | None = None,
    agent: str | None = None,
    run_timeout_s: float | None = None,
) -> SpawnedSession:
    """The same as `sessions_spawn`, under the name that some runtimes give it."""
    return await sessions_spawn(task, task_id, wakeMode, resume, done_criteria, agent, run_timeout_s)


def _live() -> LiveRun:
    from holdfast.engine.program.live_run import running  # heavy, and needed only inside a run

    live = running.get()
    if live is None or _agents.get() is None:
        raise NotInRun("sessions_spawn", "a run of a gateway: start one with `holdfast up`")
    return live


def _asked(
    live: LiveRun,
    task: str,
    task_id: str | None,
    wake_mode: str,
    resume: Mapping[str, Any] | None,
    done_criteria: list[str] | None,
    agent: str | None,
    run_timeout_s: float | None,
) -> SpawnRequest:
    from holdfast.core.session import AGENT_PREFIX
    from holdfast.core.spawn_packet import packet_from
    from holdfast.engine.conversation.spawning import spawn_request
    from holdfast.engine.ledger.entries import WAKING

    agents, mine = _agents.get(), live.task
    # A spawned session spawns as itself, not as the session that spawned it.
    owner = mine.session_key if mine.name.startswith(AGENT_PREFIX) and mine.session_key else mine.owner
    packet = packet_from(
        {
            "task": task,
            "task_id": task_id or "",
            "wakeMode": wake_mode,
            "resume": {} if resume is None else resume,
            "done_criteria": [] if done_criteria is None else done_criteria,
            "runTimeoutS": run_timeout_s,
        }
    )
    return spawn_request(
        packet,
        owner=owner,
        agent=agent,
        agents=() if agents is None else agents(),
        key=current_key(),
        # The same at each attempt of this effect.
        now=mine.created_at,
        is_woken=mine.origin is not None and mine.origin.channel == WAKING.channel,
    )


def _answer(spawned: Spawned) -> SpawnedSession:
    return SpawnedSession(
        task_id=spawned.task.id,
        task_key=spawned.task.dedup_key or "",
        session_key=spawned.session_key,
        is_duplicate=spawned.is_duplicate,
    )
