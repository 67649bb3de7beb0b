"""Nothing at module level remembers anything, but for what is listed here with its reason."""

from __future__ import annotations

import ast

import pytest

from tests.architecture import module_state
from tests.architecture.module_state import remembered, remembered_in

# What a context holds belongs to the asyncio task or thread that asks, and is gone with it.
PER_CONTEXT = {
    ("engine/journal/scopes.py", "here"): "the turn that the calling asyncio task is in",
    ("engine/journal/scopes.py", "inside_step"): "the step whose function is being called",
    ("engine/program/live_run.py", "running"): "the run whose program calls a tool",
    ("integrations/pydantic_ai.py", "_agent_in_run"): "the run that calls the agent",
    (
        "runtimes/command_turns.py",
        "turn_input",
    ): "what a run gives to a step that must not be among its arguments",
    ("store/inline_write.py", "_behalf"): "the task that waits for the task which writes",
    ("tools/restart.py", "_gateway"): "the gateway that runs the calling task",
    ("tools/schedules.py", "_limits"): "the limits of the gateway that runs the calling task",
    ("tools/sessions.py", "_agents"): "the agents of the gateway that runs the calling task",
    ("tools/tasks.py", "_runtimes"): "the runtimes of the gateway that runs the calling task",
}
# They belong to the process or the thread itself, so a second one would be wrong.
PER_PROCESS = {
    ("core/known_secrets.py", "_of_this_process"): "every log line and every record is redacted",
    ("store/guard.py", "_SENTRY"): "audit hooks and POSIX locks belong to the process",
}
# Each value follows from the arguments alone, or from files of the package, so dropping it is harmless.
CACHES = {
    ("api/contract.py", "our_version"): "the installed version",
    ("config/timetable.py", "_shortest_of_cron"): "the shortest interval of a cron expression in a zone",
    ("core/step_declarations.py", "_cleaned"): "the name of a step",
    ("core/secret_shapes.py", "compiled"): "regular expressions",
    ("engine/journal/codec.py", "_anything"): "a codec that keeps the text of its own annotation",
    ("engine/journal/codec.py", "_codecs"): "the codec of a function, which it does not outlive",
    ("engine/journal/codec.py", "_revived_class"): "the class that stands for an exception class",
    ("engine/journal/codec.py", "_typed_decoder"): "the decoder of a type",
    ("engine/program/steps.py", "_declared"): "what a step function declares",
    ("store/checksums.py", "vfs"): "the VFS that SQLite has registered for the process",
    ("store/migrations.py", "_read_folder"): "migrations, which are files of the package",
    ("store/outer_keys.py", "_printed_key"): "what the operator's key command prints",
    ("store/queries.py", "load_queries"): "queries, which are files of the package",
    ("store/sqlite.py", "_new_ledger"): "a ledger without contents, which the migrations make",
    ("store/expected_schema.py", "_read_shape"): "the tables that a list of migrations makes",
    ("store/dashboard_views.py", "_texts"): "views, which are a file of the package",
    ("store/user_sql.py", "our_tables"): "the names of the ledger's own tables",
    ("tools/http.py", "_trust"): "the certificates that the machine trusts; loading them takes milliseconds",
}
# They look like objects that change, and do not.
CONSTANTS = {
    ("integrations/pydantic_ai.py", "HoldfastDurability.engine_spec"): "a frozen record of pydantic-ai",
    ("store/sealing.py", "CLOSED"): "its vault has no key, and never gets one",
}
KEPT = PER_CONTEXT | PER_PROCESS | CACHES | CONSTANTS


def test_nothing_at_module_level_remembers_anything_without_a_reason() -> None:
    found = remembered()

    assert found - set(KEPT) == set(), "pass it as an argument, or give its reason in KEPT"


def test_every_reason_is_for_something_that_is_still_there() -> None:
    assert set(KEPT) - remembered() == set()


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("_last", "_last = None\ndef find():\n    global _last\n    _last = 1\n"),
        ("_seen", "_seen = []\ndef see(one):\n    _seen.append(one)\n"),
        ("_seen", "_seen: dict[str, int] = {}\ndef see(one):\n    _seen[one] = 1\n"),
        ("_seen", "_seen = dict()\ndef forget(one):\n    del _seen[one]\n"),
        ("_Here.door", "class _Here:\n    door = None\ndef set_door(door):\n    _Here.door = door\n"),
        ("_var", "from contextvars import ContextVar\n_var = ContextVar('var')\n"),
        ("_here", "class _Here(threading.local):\n    nest = None\n_here = _Here()\n"),
        ("_tally", "class Tally:\n    def count(self):\n        self.n += 1\n_tally = Tally()\n"),
        ("_numbers", "import itertools\n_numbers = itertools.count()\n"),
        ("_read", "import functools\n@functools.cache\ndef _read(name):\n    return name\n"),
        (None, "TABLE = {'a': 1}\ndef find(one):\n    return TABLE[one]\n"),
        (None, "_seen = []\ndef see(one):\n    _seen = []\n    _seen.append(one)\n"),
        (None, "import re\n_WORD = re.compile('a')\n"),
        (None, "class Point(Struct, frozen=True):\n    x: int\nORIGIN = Point(0)\n"),
    ],
)
def test_what_counts_as_remembering(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, name: str | None, source: str
) -> None:
    monkeypatch.setattr(module_state, "tree_of", lambda _path: ast.parse(source))
    path = request.node.name  # of its own, because what was found in a module is cached

    assert set(remembered_in(path)) == (set() if name is None else {(path, name)})
