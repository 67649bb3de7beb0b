"""Agents from the settings: loaded or refused by name, given a typed message, answering once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.app import declared_secrets
from holdfast.config.sections import AgentSettings, ChannelSettings, Config, SecretSettings, TokenSettings
from holdfast.core.checkpoint import ResumeReason, SeedContext, decode_seed
from holdfast.core.effect import Decision
from holdfast.core.errors import SettingsError
from holdfast.core.ids import CheckpointId, RunId
from holdfast.core.message import MAX_ANSWER_CHARS, Envelope, Role, clean_answer
from holdfast.core.plan import Cursor
from holdfast.core.transitions import MessageStatus
from holdfast.engine.program.secrets import DeclaredSecret, Secrets
from holdfast.runtimes.agents import define, definitions
from holdfast.runtimes.command import CommandInput, stdin_of
from holdfast.store import Store
from holdfast.store.sealing import FACT, LedgerKey, wrap
from holdfast.testing import FakeClock
from tests.backends import on_sqlite
from tests.builders import START
from tests.engine.stage import Stage
from tests.gateway.chats import GROUP, KEY, Chat
from tests.runtimes import sample_agents

pytestmark = pytest.mark.slow

HERE = "tests.runtimes.sample_agents"
PYTHON = [sys.executable, "-c"]
SEED = SeedContext(
    checkpoint_id=CheckpointId("ckpt_1"),
    reason=ResumeReason.CRASH,
    previous_run_id=RunId("run_1"),
    goal="Tides?\nNow.",
    plan=None,
    cursor=Cursor(),
    steps_saved=0,
    progress=None,
    decisions=(),
    tool_context=(),
    artifacts=(),
)


@pytest.fixture
def stage(store: Store, clock: FakeClock, tmp_path: Path) -> Iterator[Stage]:
    sample_agents.calls.clear()
    stage = Stage(store, clock, tmp_path / "boots")
    yield stage
    stage.kill()


async def chat_with(stage: Stage, tmp_path: Path, **settings: Any) -> Chat:
    config = Config(agents={"scholar": AgentSettings(**settings)})
    stage.secrets = Secrets(declared=declared_secrets(config))
    return await Chat(stage, *definitions(config, home=tmp_path)).begin()


async def ask(stage: Stage, tmp_path: Path, text: str = "Tides?", **settings: Any) -> list[str]:
    chat = await chat_with(stage, tmp_path, **settings)
    await chat.say(text, origin=GROUP)
    for _ in range(4):
        await chat.talk()
        chat.clock.advance(minutes=1)
    return (await chat.transcript())[1:]


# --- Python


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("shout", "agent: TIDES?"),
        ("Nested.agent", "agent: TIDES?"),
        ("whisper", "agent: tides?"),
        ("plain", "agent: plain Tides?"),
        ("research", "agent: Tides?, note 1, note 2, note 3"),
        ("tell_where", f"agent: user {GROUP.peer} on hook in {KEY}: Tides?"),
    ],
)
@on_sqlite
async def test_a_python_agent_answers(stage: Stage, tmp_path: Path, name: str, answer: str) -> None:
    assert await ask(stage, tmp_path, callable=f"{HERE}:{name}") == [answer]


async def test_an_agent_hears_what_was_said_before_and_not_what_waits(stage: Stage, tmp_path: Path) -> None:
    chat = await chat_with(stage, tmp_path, callable=f"{HERE}:remember")
    for text in ("one", "two", "three"):
        await chat.say(text)

    await chat.talk()

    assert await chat.answers() == [
        "one",
        "user: one | agent: one | two",
        "user: one | user: two | agent: one | agent: user: one | agent: one | two | three",
    ]


async def test_an_agent_that_says_nothing_has_answered(stage: Stage, tmp_path: Path) -> None:
    assert await ask(stage, tmp_path, callable=f"{HERE}:nothing") == []


async def test_what_is_no_text_is_no_answer(stage: Stage, tmp_path: Path) -> None:
    (said,) = await ask(stage, tmp_path, callable=f"{HERE}:count")

    assert said.startswith("system: ")


async def test_what_an_agent_says_is_cleaned_and_never_in_the_systems_name(
    stage: Stage, tmp_path: Path
) -> None:
    (said,) = await ask(stage, tmp_path, callable=f"{HERE}:pose")

    assert said == f"agent: [not the system] Tides?[0m ghp_{'x' * 36}"


async def test_what_is_said_to_an_agent_and_by_it_stays_as_it_was_also_on_its_channel(
    stage: Stage, tmp_path: Path
) -> None:
    chat = await chat_with(stage, tmp_path, callable=f"{HERE}:remember")
    await chat.say("password: hunter2!", origin=GROUP)
    await chat.say(f"and ghp_{'x' * 36}", origin=GROUP)

    await chat.talk()

    answers = [
        "password: hunter2!",
        f"user: password: hunter2! | agent: password: hunter2! | and ghp_{'x' * 36}",
    ]
    assert await chat.answers() == answers
    owed = await stage.store.read(lambda tx: tx.deliveries.owed(after="", limit=9))
    assert sorted(one.letter.text for one in owed) == sorted(answers)
    # What people see of it: the goals of the tasks that answered.
    goals = [task.goal for task in await stage.store.read(lambda tx: tx.tasks.page())]
    assert "hunter2" not in str(goals)
    assert "ghp_" not in str(goals)


async def test_an_agent_that_raises_is_tried_three_times(stage: Stage, tmp_path: Path) -> None:
    (said,) = await ask(stage, tmp_path, callable=f"{HERE}:fail")

    assert sample_agents.calls == ["Tides?"] * 3
    assert said.startswith("system: ")


async def test_what_its_author_declared_of_a_task_holds_for_the_agent() -> None:
    config = Config(agents={"scholar": AgentSettings(callable=f"{HERE}:research")})

    definition, command = definitions(config)

    assert command.name == "cron.command"
    assert definition.name == "agent.scholar"
    assert definition.attempts == 2
    assert definition.timeout == sample_agents.research.timeout


def test_the_settings_own_limit_comes_first() -> None:
    definition = define("scholar", AgentSettings(callable=f"{HERE}:research", timeout_s=5))

    assert definition.timeout is not None
    assert definition.timeout.total_seconds() == 5


async def test_an_interrupted_agent_goes_on_from_its_last_step(stage: Stage, tmp_path: Path) -> None:
    chat = await chat_with(stage, tmp_path, callable=f"{HERE}:research")
    await chat.say("Tides?")
    await chat.conversations.run_once()
    # The process dies before it has carried anything; the next one goes on.
    await chat.begin()

    await chat.talk()

    assert sample_agents.calls == ["look 1", "look 2", "look 3"]
    assert await chat.answers() == ["Tides?, note 1, note 2, note 3"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("tests.runtimes.nowhere:f", "cannot be imported .*; put it into the home"),
        (f"{HERE}:nobody", "has no 'nobody'"),
        (f"{HERE}:number", "a function is needed, not int"),
        (f"{HERE}:wants_more", "'more' cannot be given"),
        (f"{HERE}:takes_nothing", "takes nothing"),
    ],
)
def test_an_agent_that_cannot_be_loaded_is_refused_with_the_key_and_the_fix(name: str, match: str) -> None:
    with pytest.raises(SettingsError, match=match) as error:
        definitions(Config(agents={"scholar": AgentSettings(callable=name)}))

    assert "agents.scholar.callable" in str(error.value)


def test_a_long_answer_is_cut_and_an_empty_one_is_none() -> None:
    cut = clean_answer("x" * (MAX_ANSWER_CHARS + 5))

    assert cut is not None
    assert cut.endswith("[… 5 characters left out …]")
    assert clean_answer(" \n\x00 ") is None


# --- commands


async def test_a_command_reads_the_text_and_its_output_is_the_answer(stage: Stage, tmp_path: Path) -> None:
    assert await ask(stage, tmp_path, text="Tides?\nAnd waves 🌊", command=["tr", "a-z", "A-Z"]) == [
        "agent: TIDES?\nAND WAVES 🌊"
    ]


async def test_a_command_that_does_not_read_does_no_harm(stage: Stage, tmp_path: Path) -> None:
    assert await ask(stage, tmp_path, text="x" * 200_000, command=["echo", "done"]) == ["agent: done"]


async def test_a_command_knows_the_session_and_gets_only_what_is_passed_of_our_secrets(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_KEY", "the value that is not stored")
    monkeypatch.setenv("HOLDFAST_TOKEN", "0" * 64)
    code = (
        "import os; print(os.environ['THEIR_KEY'] == 'the value that is not stored',"
        " os.environ.get('HOLDFAST_TOKEN'), os.environ['HOLDFAST_SESSION_KEY'], os.environ['HOLDFAST_PEER'])"
    )

    said = await ask(stage, tmp_path, command=[*PYTHON, code], env={"THEIR_KEY": "OUR_KEY"})

    assert said == [f"agent: True None {KEY} {GROUP.peer}"]


async def test_a_command_sees_no_secret_that_the_settings_name_for_others(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("HOLDFAST_SECRET_X", "HOLDFAST_KEY", "HOLDFAST_NEW_KEY")
    for name in (
        "OTHERS_KEY",
        "HOOK_SECRET",
        "BOARD_TOKEN",
        "SHOP_KEY",
        "LATER_KEY",
        *ours,
        "MY_KEY",
        "PLAIN",
    ):
        monkeypatch.setenv(name, f"sea {name}")
    monkeypatch.setenv("HOLDFAST_STORE", "postgresql://sea:hunter2@host/ledger")
    code = "import os; print(sorted(name for name, value in os.environ.items() if 'sea' in value))"
    config = Config(
        agents={
            "scholar": AgentSettings(command=[*PYTHON, code], env={"MY_KEY": "MY_KEY"}),
            "other": AgentSettings(command=["true"], env={"KEY": "OTHERS_KEY"}),
        },
        channels={"hook": ChannelSettings(kind="webhook", secret_env="HOOK_SECRET", agent="other")},
        tokens={"board": TokenSettings(token_env="BOARD_TOKEN")},
        secrets={"SHOP": SecretSettings(env="SHOP_KEY")},
    )
    stage.secrets = Secrets(
        declared=declared_secrets(config) | {"LATER": DeclaredSecret(variable="LATER_KEY")}
    )
    chat = await Chat(stage, *definitions(config, home=tmp_path)).begin()
    await chat.say("Tides?")

    await chat.talk()

    assert await chat.answers() == ["['MY_KEY', 'PLAIN']"]


@pytest.mark.parametrize("directory", ["desk", "~/desk", "{home}/desk"])
@on_sqlite
async def test_a_command_works_in_its_directory(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    (tmp_path / "desk").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))

    said = await ask(stage, tmp_path, command=["pwd"], directory=directory.format(home=tmp_path))

    assert said == [f"agent: {tmp_path / 'desk'}"]


async def test_a_command_may_read_a_document(stage: Stage, tmp_path: Path) -> None:
    (said,) = await ask(stage, tmp_path, command=["cat"], stdin="json")

    document = msgspec.json.decode(said.removeprefix("agent: "), type=CommandInput)
    assert (document.message.text, document.message.peer) == ("Tides?", GROUP.peer)
    assert document.resumed is None


def test_a_resumed_command_reads_what_is_known_before_the_message() -> None:
    message = Envelope(
        id="msg_1", session_key=KEY, role=Role.USER, text="Tides?\nNow.", channel="hook", created_at=START
    )

    read = stdin_of(AgentSettings(command=["cat"]), message, SEED)

    said, document, empty, *text = read.split("\n")
    assert said.startswith("[System] Resumed after an interruption (crash). ")
    assert decode_seed(document.encode()) == SEED
    assert (empty, text) == ("", ["Tides?", "Now."])
    assert stdin_of(AgentSettings(command=["cat"]), message, None) == message.text


async def test_a_command_that_fails_is_not_begun_again(stage: Stage, tmp_path: Path) -> None:
    script = f"echo x >> {tmp_path / 'began'}; echo trouble >&2; exit 3"

    (said,) = await ask(stage, tmp_path, command=["sh", "-c", script])

    assert said.startswith("system: ")
    assert (tmp_path / "began").read_text() == "x\n"
    (task,) = stage.store.read_now(lambda tx: tx.tasks.page(limit=9))
    assert task.failure is not None
    assert "ended with 3: trouble" in task.failure.message


async def test_a_command_that_takes_too_long_is_stopped(stage: Stage, tmp_path: Path) -> None:
    (said,) = await ask(stage, tmp_path, command=["sleep", "60"], timeout_s=0.2)

    assert said.startswith("system: ")


async def test_a_command_that_is_not_there_fails_its_message_only(stage: Stage, tmp_path: Path) -> None:
    (said,) = await ask(stage, tmp_path, command=["/no/such/program"])

    assert said.startswith("system: ")


def test_a_module_that_is_broken_is_not_looked_for_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_agent.py").write_text("x = (\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(SettingsError, match=r"cannot be imported .SyntaxError.*; fix it"):
        define("a", AgentSettings(callable="broken_agent:x"))


def test_a_function_that_takes_a_run_is_told_that_it_is_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "undeclared.py").write_text("async def agent(run, message):\n    return 'x'\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(SettingsError, match=r"decorate it with @hf\.task"):
        define("a", AgentSettings(callable="undeclared:agent"))


# --- pydantic-ai

MODELS = """
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from holdfast.integrations.pydantic_ai import HoldfastDurability

asked = []

def reply(messages, info):
    parts = [f"{type(part).__name__} {part.content}" for message in messages for part in message.parts]
    asked.append(parts)
    return ModelResponse(parts=[TextPart(" | ".join(parts))])

durable = Agent(FunctionModel(reply), name="scholar", capabilities=[HoldfastDurability()])
class Tide(BaseModel):
    metres: float

def measure(messages, info):
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, {"metres": 4.5})])

typed = Agent(FunctionModel(measure), name="gauge", output_type=Tide, capabilities=[HoldfastDurability()])
fleeting = Agent(FunctionModel(reply), name="scholar")
other = 7
"""


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    pytest.importorskip("pydantic_ai")
    (tmp_path / "models_of_a_test.py").write_text(MODELS)
    monkeypatch.syspath_prepend(tmp_path)
    yield "models_of_a_test"
    sys.modules.pop("models_of_a_test", None)


async def test_a_model_answers_with_the_transcript_behind_it(
    stage: Stage, tmp_path: Path, models: str
) -> None:
    chat = await chat_with(stage, tmp_path, pydantic_ai=f"{models}:durable")
    await chat.say("one")
    await chat.talk()
    await chat.inbox.note(KEY, "[System] Gateway restarted.", key="restart:1")
    await chat.say("two")
    await chat.talk()

    first, second = await chat.answers()
    assert first == "UserPromptPart one"
    # As pydantic-ai tells a model what the system said in the middle of a conversation.
    system = "UserPromptPart <system>[System] Gateway restarted.</system>"
    # (What an agent says itself is cleaned of such words.)
    system = system.replace("<system>", "<not the system>").replace("</system>", "</not the system>")
    assert second == f"UserPromptPart one | TextPart UserPromptPart one | {system} | UserPromptPart two"


async def test_an_agent_whose_output_is_a_model_answers_with_its_json(
    stage: Stage, tmp_path: Path, models: str
) -> None:
    chat = await chat_with(stage, tmp_path, pydantic_ai=f"{models}:typed")
    await chat.say("how high is the tide?")
    await chat.talk()

    assert await chat.answers() == ['{"metres":4.5}']


@pytest.mark.parametrize(
    ("name", "match"), [("fleeting", "HoldfastDurability"), ("other", "a pydantic-ai agent is needed")]
)
def test_a_model_that_would_not_survive_a_restart_is_refused(models: str, name: str, match: str) -> None:
    with pytest.raises(SettingsError, match=match):
        define("scholar", AgentSettings(pydantic_ai=f"{models}:{name}"))


# --- what is not known


async def test_a_command_of_unknown_outcome_waits_for_a_person_and_then_the_session_goes_on(
    stage: Stage, tmp_path: Path
) -> None:
    """The witness was killed, too: no run may begin the command a second time."""
    script = "kill -9 $PPID; sleep 60"
    chat = await chat_with(stage, tmp_path, command=["sh", "-c", script])
    asked = await chat.say("do it")
    await chat.say("next")
    await chat.talk()
    effect = await stage.review()

    assert (await chat.inbox.message(asked.id)).status is MessageStatus.TAKEN
    assert (await chat.inbox.session(KEY)).queued == 1
    result = {"exit_code": 0, "stdout": "it was done", "stderr": ""}
    await stage.holdfast.resolve(effect.id, Decision.DONE, result=result, by="ada")
    await chat.talk()
    told, answered = (await chat.inbox.messages(KEY))[2:4]
    assert (told.role, told.text.partition(":")[0]) == (Role.SYSTEM, "[System] This session waits")
    assert (answered.role, answered.text) == (Role.AGENT, "it was done")


# --- a key that is lost


async def test_a_message_whose_key_is_lost_is_told_of_and_its_session_goes_on(
    stage: Stage, tmp_path: Path
) -> None:
    chat = await chat_with(stage, tmp_path, callable=f"{HERE}:shout")
    await chat.say("my password: third-stone", origin=GROUP)
    forget_key(stage.store)

    for _ in range(4):
        await chat.talk()
        chat.clock.advance(minutes=1)
    await chat.say("Tides?", origin=GROUP)
    for _ in range(4):
        await chat.talk()
        chat.clock.advance(minutes=1)

    first, told, question, answer = await chat.transcript()
    assert first == "user: [sealed]"
    assert "could not be answered" in told
    assert (question, answer) == ("user: Tides?", "agent: TIDES?")


def forget_key(store: Store) -> None:
    """As `holdfast store rekey --lost` does, and a new process."""
    vault = store.sealing.vault
    outer = vault.outer.load()
    assert outer is not None
    fact = wrap(LedgerKey.new(), outer).write()
    store.write_now(lambda tx: tx.boots.set_fact(FACT, fact))
    vault.known = None
