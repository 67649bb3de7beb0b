"""Kills a process at every call that touches a file while it changes the tokens of a home.

`python -m tests.security.token_kills create|revoke|rotate|operator DIRECTORY` prints how many points there
were. Each life is a fork of this process, which has no thread.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.api.tokens import Tokens
from holdfast.config import token_file
from holdfast.config.sections import Config
from holdfast.config.token import read_token
from holdfast.core.clock import SystemClock

CALLS = ("open", "fchmod", "fsync", "replace", "unlink", "close")
NOT_KILLED = 42


def kill_at(number: int) -> None:
    count = 0

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return called

    for name in CALLS:
        setattr(os, name, around(getattr(os, name)))


def act(scene: str, home: Path) -> str | None:
    now = SystemClock().now()
    match scene:
        case "create":
            terms = token_file.terms_of(
                scopes=["operator.read"], owner=None, tasks=None, methods=None, expires_at=None
            )
            return token_file.create(home, "new", terms, taken=set(), now=now).text
        case "revoke":
            token_file.revoke(home, "old")
            return None
        case "rotate":
            return token_file.rotate(home, "old", expires_at=None, now=now).text
        case _:
            return token_file.rotate_operator(home)


def life(number: int, scene: str, home: Path) -> int:
    """How a process ended that is killed before its n-th call."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    kill_at(number)
    act(scene, home)
    os._exit(NOT_KILLED)


def main(scene: str, directory: Path) -> None:
    number = 0
    while True:
        number += 1
        home = directory / str(number)
        home.mkdir(mode=0o700)
        operator = read_token(home, {})
        terms = token_file.terms_of(
            scopes=["operator.read"], owner=None, tasks=None, methods=None, expires_at=None
        )
        now = SystemClock().now()
        texts = {
            name: token_file.create(home, name, terms, taken=set(), now=now).text for name in ("old", "other")
        }
        names = {one.name: one.digest for one in token_file.read_issued(home)}
        ended = life(number, scene, home)

        # Whole, as before or as after; who is not concerned comes in all the same.
        tokens = Tokens.read(Config(), home, {})
        assert tokens.find(texts["other"]) is not None
        after = {one.name: one.digest for one in token_file.read_issued(home)}
        assert after["other"] == names["other"]
        if scene != "operator":
            assert tokens.find(operator) is not None
        if scene == "create":
            assert set(after) - {"new"} == set(names)
        is_done = os.waitstatus_to_exitcode(ended) == NOT_KILLED
        if is_done:
            old = operator if scene == "operator" else texts["old"]
            assert (tokens.find(old) is None) == (scene != "create")
        # Another process goes on: nothing that the dead one held is in its way.
        if is_done or (scene in ("create", "revoke") and (("new" in after) or ("old" not in after))):
            token_file.revoke(home, "other")
        else:
            text = act(scene, home)
            tokens = Tokens.read(Config(), home, {})
            assert text is None or tokens.find(text) is not None
            assert scene in ("create", "operator") or tokens.find(texts["old"]) is None
        assert {one.stat().st_mode & 0o777 for one in home.iterdir()} == {0o600}
        shutil.rmtree(home)
        if is_done:
            break
    print(number - 1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
