"""A command agent for tests: a process that works in cycles, as its first argument says.

It runs with `python -I -S`, so it imports the standard library only. Each start is noted in the file `heard`.
"""

import json
import os
import signal
import sys
import time

WAY, PLACE = sys.argv[1], sys.argv[2]
STEPS = ["read", "think", "write"]
DONE = f"{PLACE}/done"


def note(name: str, text: str) -> None:
    with open(f"{PLACE}/{name}", "a") as file:  # noqa: PTH123 - pathlib costs a third of its start
        file.write(f"{text}\n")


def lines(name: str) -> list[str]:
    try:
        with open(f"{PLACE}/{name}") as file:  # noqa: PTH123
            return file.read().splitlines()
    except FileNotFoundError:
        return []


def document(**changes: object) -> str:
    done = lines("done")
    fields = {
        "task_id": os.environ["HOLDFAST_TASK_ID"],
        "goal": "Tides",
        "status": "waiting" if len(done) < len(STEPS) else "done",
        "current_step": STEPS[min(len(done), 2)],
        "progress_pct": 100 * len(done) // len(STEPS),
        "last_completed": done,
        "next_actions": STEPS[len(done) :],
        "artifacts": [],
        "errors": [],
        "retry_count": 0,
        "updated_at": f"2026-03-01T12:00:{len(lines('heard')):02d}Z",
    }
    return json.dumps(fields | changes)


def save(text: str) -> None:
    with open(os.environ["HOLDFAST_CHECKPOINT"], "w") as file:  # noqa: PTH123
        file.write(text)


def work() -> None:
    done = lines("done")
    if len(done) < len(STEPS):
        note("done", STEPS[len(done)])


def wait() -> None:
    while True:
        time.sleep(60)


def main() -> None:
    asked = sys.stdin.readline() if WAY == "stdin" else sys.stdin.read()
    note("heard", json.dumps(asked))
    if WAY in ("file", "stdout", "crash"):
        work()
        if len(lines("done")) == len(STEPS):
            print("All done.")
            return
        if WAY == "file":
            save(document())
        else:
            print("Not yet.\nHOLDFAST_CHECKPOINT " + document())
    elif WAY in ("stdin", "SIGUSR1"):
        work()
        if len(lines("done")) == len(STEPS):
            print("All done.")
        elif WAY == "stdin":
            note("warned", sys.stdin.readline())
            save(document())
        else:
            warned = []
            signal.signal(signal.SIGUSR1, lambda *_: warned.append(1))
            while not warned:
                time.sleep(0.01)
            note("warned", "SIGUSR1")
            save(document())
    elif WAY == "unwarned":
        work()
        if len(lines("done")) == len(STEPS):
            print("All done.")
            return
        signal.signal(signal.SIGUSR1, lambda *_: note("warned", "SIGUSR1"))
        save(document())
        wait()
    elif WAY in ("deaf", "frozen", "half", "torn"):
        work()
        if len(lines("done")) == len(STEPS):
            print("All done.")
            return
        if WAY == "torn":
            save(document())
            time.sleep(1)  # the witness has looked at it by then
        save(document()[:-20] if WAY in ("half", "torn") else document())
        if WAY == "frozen":
            os.kill(os.getpid(), signal.SIGSTOP)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        wait()
    elif WAY in ("hasty", "hasty_done"):
        # Says that it is done at each start, and comes further only afterwards.
        if len(lines("heard")) > 1:
            note("report.md", "tides" if len(lines("heard")) > 2 else "nothing")
        if WAY == "hasty_done":
            save(document(status="done"))
        print("All done.")
    elif WAY in ("never_done", "done"):
        print("All done.")
    elif WAY == "silent":
        wait()
    elif WAY == "stuck":
        save(document())
    elif WAY == "wrong":
        print("HOLDFAST_CHECKPOINT " + document(status="almost"))
    elif WAY == "failed":
        save(document(status="failed", errors=["no such page"]))
    elif WAY == "blocked":
        if len(lines("heard")) == 1:
            save(document(status="blocked", errors=["which sea?"]))
        else:
            print(json.loads(asked)["packet"]["answer"])
    elif WAY == "artifact":
        work()
        if len(lines("heard")) == 1:
            note("report.md", "half")
            save(document(artifacts=["report.md", "nowhere.md"]))
        else:
            print(json.loads(asked)["packet"]["artifacts"][0]["state"])


main()
