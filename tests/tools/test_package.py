"""What `holdfast.tools` offers, and what it declares about each tool."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import holdfast.tools
from holdfast.core.effect import EffectClass
from holdfast.core.errors import HoldfastError, NotInRun
from holdfast.core.step_declarations import options_of, step_name
from holdfast.engine.journal.codec import codec_of
from holdfast.tools import errors

TOOLS = ["git_commit", "git_push", "http_get", "http_request", "send_message", "shell", "write_file"]
VERIFIABLE = {"git_commit", "git_push", "send_message", "shell", "write_file"}
# They look at files of this machine, and know nothing of what another host did.
LOCAL = {"git_commit", "git_push", "shell", "write_file"}
ERRORS = [
    one
    for one in vars(errors).values()
    if inspect.isclass(one) and issubclass(one, HoldfastError) and one.__module__ == errors.__name__
]


def test_every_name_is_there() -> None:
    assert {name: getattr(holdfast.tools, name).__name__ for name in holdfast.tools.__all__} == {
        name: name for name in holdfast.tools.__all__
    }
    assert dir(holdfast.tools) == holdfast.tools.__all__
    assert not hasattr(holdfast.tools, "no_such_tool")


def test_the_package_itself_imports_next_to_nothing() -> None:
    code = "import sys; import holdfast.tools; print(*sys.modules)"

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    ours = {name for name in found.stdout.split() if name.startswith("holdfast")}
    assert ours == {"holdfast", "holdfast.tools"}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_has_its_name_its_class_its_promise_and_a_result_that_can_be_stored(name: str) -> None:
    tool = getattr(holdfast.tools, name)
    effect = options_of(tool).effect

    assert effect is not None
    assert step_name(tool) == name
    assert (effect.effect_class is EffectClass.VERIFIABLE) == (name in VERIFIABLE)
    assert effect.is_local == (name in LOCAL)
    assert len(inspect.getdoc(tool) or "") > 100
    assert issubclass(codec_of(tool).annotation, msgspec.Struct)


@pytest.mark.parametrize("name", sorted(VERIFIABLE))
def test_a_verify_is_called_as_its_tool_is(name: str) -> None:
    tool = getattr(holdfast.tools, name)
    effect = options_of(tool).effect

    assert effect is not None
    assert effect.verify is not None
    ours, theirs = inspect.signature(tool), inspect.signature(effect.verify)
    assert list(ours.parameters.values()) == list(theirs.parameters.values())


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_declares_every_error_of_its_own_that_it_raises(name: str) -> None:
    tool = getattr(holdfast.tools, name)
    source = Path(inspect.getsourcefile(inspect.unwrap(tool)) or "").read_text(encoding="utf-8")
    named = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    raised = {one for one in ERRORS if one.__name__ in named}

    assert raised <= set(options_of(tool).raises)


async def test_outside_an_effect_there_is_no_key() -> None:
    with pytest.raises(NotInRun):
        await holdfast.tools.shell("true")


def test_every_error_has_a_code_of_its_own_and_is_drawn() -> None:
    drawn = errors.__doc__ or ""

    assert len({one.code for one in ERRORS}) == len(ERRORS)
    assert [one.__name__ for one in ERRORS if f"─ {one.__name__} " not in drawn] == []
