"""Kills a working process again and again, and holds what it was told against the ledger.

This is the warm parent: it has no store, no loop and no thread, so a fork of it is a new process in
milliseconds. `python -m tests.crash.kill_loop URL HOME SEED KILLS FRESH` kills KILLS forked children and
FRESH fresh processes, then lets a last one work everything to its end, and prints a report.
"""

from __future__ import annotations

import asyncio
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from holdfast.store import Store
from holdfast.testing import FailingStore, Failpoint
from tests.crash.facts import assert_facts_stand, assert_saved_results_were_attempted, read_facts
from tests.crash.invariants import assert_ledger_is_whole
from tests.crash.ledger_address import LedgerAddress
from tests.crash.processes import Pipe, assert_ended_well, fork
from tests.crash.victim import facts_path, live

# How long a child may work before it is killed: claims and a few rounds of work fit in.
WINDOW_S = {"sqlite": 0.020, "postgresql": 0.040}
# How many of the children are killed as early as while they open the ledger, and while they recover.
OPENING, RECOVERING = 0.1, 0.3
# How many kill themselves at a statement; the others are killed from outside, at a moment.
FROM_INSIDE = 0.5
MAX_CALL = 40
MAX_STATEMENT = 8


class KillReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop did."""

    kills: int
    facts: dict[str, int]
    tasks: dict[str, int]
    longest_lineage: int
    seconds: float


class KillLoop:
    def __init__(self, place: LedgerAddress, seed: int) -> None:
        self.kills = 0
        self._place = place
        self._random = random.Random(seed)
        self._window_s = WINDOW_S[place.url.partition(":")[0]]
        self._recovery_s = self._window_s
        # Up to here the facts were found in the ledger by a process that lived long enough to say so.
        self._checked = 0

    def kill_a_child(self) -> None:
        """One life: it looks at what its predecessors were told, says so, recovers, works, and is killed."""
        pipe, seed, wrapped = Pipe(), self._random.getrandbits(32), self._wrapping()
        offset, size = self._checked, _size_of(facts_path(self._place.home))
        pid = fork(
            lambda: asyncio.run(live(self._place, seed=seed, offset=offset, say=pipe.say, wrapped=wrapped))
        )
        pipe.only_hear()
        when = self._random.random()
        if when < OPENING:
            _kill_in(self._random.uniform(0, self._window_s), pid, pipe.reading)
        else:
            if pipe.hear() == "checked":
                self._checked = size
            if when < OPENING + RECOVERING:
                _kill_in(self._random.uniform(0, self._recovery_s), pid, pipe.reading)
            else:
                self._let_it_recover(pipe)
                _kill_in(self._random.uniform(0, self._window_s), pid, pipe.reading)
        pipe.close()
        self.kills += 1

    def _let_it_recover(self, pipe: Pipe) -> None:
        """Measure how long that takes, so that others can be killed in the midst of it."""
        started = time.monotonic()
        if pipe.hear() == "recovered":
            self._recovery_s = 0.8 * self._recovery_s + 0.2 * (time.monotonic() - started)

    def kill_a_fresh_process(self) -> None:
        command = [sys.executable, "-m", "tests.crash.victim", self._place.url, str(self._place.home)]
        command += [str(self._random.getrandbits(32)), str(self._checked)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"checked\n"
            assert process.stdout.readline() == b"recovered\n"
            time_left = self._random.uniform(0, self._window_s)
            select.select([process.stdout], [], [], time_left)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        self.kills += 1

    def _wrapping(self) -> Callable[[Store], Store]:
        """Some children carry their death in them: before, inside or after one of their writes."""
        if self._random.random() >= FROM_INSIDE:
            return lambda store: store
        point = Failpoint(
            call=self._random.randint(1, MAX_CALL),
            where=self._random.choice(["before", "inside", "inside", "after"]),
            statement=self._random.randint(1, MAX_STATEMENT),
        )
        if point.where != "inside":
            point = msgspec.structs.replace(point, statement=0)
        return lambda store: FailingStore(store, [point], act=_kill_oneself)


def _kill_oneself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_in(seconds: float, pid: int, reading: int) -> None:
    """At that moment, or when it has died before: then its end of the pipe is closed."""
    select.select([reading], [], [], seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code == -signal.SIGKILL, f"a process ended with {code} and not by SIGKILL"


def _size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def work_to_the_end(place: LedgerAddress, seed: int) -> None:
    assert_ended_well(fork(lambda: asyncio.run(live(place, seed=seed, until_done=True))))


def check(place: LedgerAddress) -> tuple[Counter[str], Counter[str], int]:
    """Everything that any process was ever told stands, and the ledger is whole and at rest."""
    facts = read_facts(facts_path(place.home))
    store = place.open()
    try:
        contents = assert_ledger_is_whole(store, is_at_rest=True)
        assert_facts_stand(store, facts)
        assert_saved_results_were_attempted(store, facts, contents.tasks)
        assert contents.living_boots == set()
    finally:
        store.close()
    longest = max(run.number for run in contents.runs.values())
    return (
        Counter(fact.kind for fact in facts),
        Counter(str(task.status) for task in contents.tasks.values()),
        longest,
    )


def main(url: str, home: str, seed: str, kills: str, fresh: str) -> None:
    started = time.monotonic()
    place = LedgerAddress(url=url, home=Path(home))
    loop = KillLoop(place, int(seed))
    for number in range(int(kills)):
        loop.kill_a_child()
        if number < int(fresh):
            loop.kill_a_fresh_process()
    work_to_the_end(place, int(seed))
    facts, tasks, longest = check(place)
    report = KillReport(
        kills=loop.kills,
        facts=dict(facts),
        tasks=dict(tasks),
        longest_lineage=longest,
        seconds=round(time.monotonic() - started, 1),
    )
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
