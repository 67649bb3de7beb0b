"""Programs get the values of secrets that the operator declared, for tasks that may use them; no others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import holdfast as hf
from holdfast import app
from holdfast.api.questions import AnswerAsked, recording_answer
from holdfast.api.reviews import ResolveAsked, resolving_effect
from holdfast.config.files import load
from holdfast.config.sections import Config
from holdfast.core.clock import SystemClock
from holdfast.core.errors import BadInput, SettingsError
from holdfast.core.known_secrets import known_secrets
from holdfast.core.secret import refuse_references
from holdfast.engine.program.secrets import DeclaredSecret, Secrets
from holdfast.runtimes.command import secret_names
from tests.api.stand_in import ServedDoors, served_doors
from tests.conftest import quick_directory

ENVIRON = {"SHOP_KEY": "value of the shop", "HOLDFAST_TOKEN": "t" * 40, "HOLDFAST_SECRET_B": "value of b"}


def written(home: Path, text: str) -> Config:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "holdfast.toml").write_text(text)
    return load(home, ENVIRON).config


def of_gateway(declared: dict[str, DeclaredSecret] | None = None) -> Secrets:
    return Secrets(environment=ENVIRON, declared=declared, is_gateway=True)


# --- what a gateway gives out


def test_a_declared_secret_is_found_by_its_name() -> None:
    secrets = of_gateway({"SHOP": DeclaredSecret(variable="SHOP_KEY")})

    assert secrets.find("SHOP", task="any") == "value of the shop"
    assert "value of the shop" in known_secrets()


@pytest.mark.parametrize("name", ["SHOP_KEY", "PATH", "B", "HOLDFAST_SECRET_B"])
def test_a_gateway_gives_out_nothing_that_the_settings_do_not_declare(name: str) -> None:
    with pytest.raises(BadInput) as refused:
        of_gateway().find(name, task="buy")

    assert f'[secrets.{name}] env = "{name}", tasks = ["buy"]' in str(refused.value)
    assert "task buy" in str(refused.value)


@pytest.mark.parametrize("name", ["HOLDFAST_TOKEN", "HOLDFAST_KEY", "HOLDFAST_STORE", "PGPASSWORD"])
def test_what_is_the_gateways_own_is_never_found_by_any_caller(name: str) -> None:
    everything = dict.fromkeys(["HOLDFAST_TOKEN", "HOLDFAST_KEY", "HOLDFAST_STORE", "PGPASSWORD"], "own")

    for secrets in (Secrets(everything.get, everything), of_gateway({name: DeclaredSecret(variable=name)})):
        with pytest.raises(BadInput, match="gateway's own"):
            secrets.find(name, task="buy")


def test_a_variable_with_another_name_that_holds_a_token_is_not_given_out_either() -> None:
    secrets = Secrets(
        environment={"ALIAS": "t" * 40},
        declared={"ALIAS": DeclaredSecret(variable="ALIAS")},
        is_gateway=True,
        is_own=lambda value: value == "t" * 40,
    )

    with pytest.raises(BadInput, match="gateway's own"):
        secrets.find("ALIAS", task="buy")


def test_a_secret_with_tasks_is_for_these_alone(tmp_path: Path) -> None:
    config = written(
        tmp_path / "home",
        '[agents.ada]\ncommand = ["cat"]\n'
        '[secrets.SHOP]\nenv = "SHOP_KEY"\ntasks = ["buy"]\nagents = ["ada"]\n',
    )
    secrets = of_gateway(app.declared_secrets(config))

    assert [secrets.find("SHOP", task=task) for task in ("buy", "agent.ada")] == ["value of the shop"] * 2
    with pytest.raises(BadInput, match=r"task steal.*secrets\.SHOP\.tasks"):
        secrets.find("SHOP", task="steal")


def test_an_empty_list_of_tasks_lets_no_task_use_it(tmp_path: Path) -> None:
    config = written(tmp_path / "home", '[secrets.SHOP]\nenv = "SHOP_KEY"\ntasks = []\n')

    with pytest.raises(BadInput, match="do not name this task"):
        of_gateway(app.declared_secrets(config)).find("SHOP", task="buy")


def test_a_declared_secret_whose_variable_is_not_set_says_so() -> None:
    with pytest.raises(BadInput, match="variable NOT_SET is not set"):
        of_gateway({"SHOP": DeclaredSecret(variable="NOT_SET")}).find("SHOP", task="buy")


def test_a_variable_that_an_agent_is_passed_is_declared_for_that_agent_alone(tmp_path: Path) -> None:
    config = written(
        tmp_path / "home",
        '[agents.ada]\ncommand = ["cat"]\nenv = { KEY = "SHOP_KEY" }\n[agents.bob]\ncommand = ["cat"]\n',
    )
    secrets = of_gateway(app.declared_secrets(config))

    assert secrets.find("SHOP_KEY", task="agent.ada") == "value of the shop"
    with pytest.raises(BadInput, match=r"agent\.bob"):
        secrets.find("SHOP_KEY", task="agent.bob")


def test_a_reload_that_declares_or_withdraws_a_secret_counts_at_the_next_step() -> None:
    secrets = of_gateway()
    secrets.declare({"SHOP": DeclaredSecret(variable="SHOP_KEY")})

    assert secrets.find("SHOP", task="buy") == "value of the shop"
    secrets.declare({})
    with pytest.raises(BadInput):
        secrets.find("SHOP", task="buy")


def test_no_command_inherits_a_declared_secret(tmp_path: Path) -> None:
    config = written(tmp_path / "home", '[secrets.SHOP]\nenv = "SHOP_KEY"\n')

    assert "SHOP_KEY" in secret_names(config)
    assert of_gateway(app.declared_secrets(config)).variables == {"SHOP_KEY"}


# --- what may be declared


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[secrets.A]\nenv = "HOLDFAST_TOKEN"\n', "secrets.A.env .*reserved for the gateway"),
        ('[secrets.A]\nenv = "HOLDFAST_KEY"\n', "secrets.A.env .*reserved for the gateway"),
        ('[secrets.A]\nenv = "PGPASSWORD"\n', "secrets.A.env .*reserved for the gateway"),
        ('[secrets.HOLDFAST_TOKEN]\nenv = "A"\n', "secrets.HOLDFAST_TOKEN .*reserved for the gateway"),
        ('[secrets.A]\nenv = "T"\n[tokens.b]\ntoken_env = "T"\n', r"tokens\.b\.token_env uses this variable"),
        (
            '[secrets.A]\nenv = "S"\n[channels.c]\nkind = "webhook"\nsecret_env = "S"\nurl = "http://x/"\n',
            r"channels\.c\.secret_env uses this variable",
        ),
        (
            '[agents.a]\ncommand = ["x"]\nenv = { X = "HOLDFAST_TOKEN" }\n',
            "agents.a.env .*reserved for the gateway",
        ),
        (
            '[agents.a]\ncommand = ["x"]\nenv = { X = "T" }\n[tokens.b]\ntoken_env = "T"\n',
            r"agents\.a\.env .*tokens\.b\.token_env uses T",
        ),
        (
            '[agents.a]\ncommand = ["x"]\nenv = { X = "S" }\n[secrets.S]\nenv = "S"\ntasks = ["t"]\n',
            r"agents\.a\.env .*secrets\.S\.agents does not name a",
        ),
        ('[secrets.lower]\nenv = "A"\n', "in capitals"),
        ('[secrets.A]\nenv = "sk live 123"\n', "never the secret itself"),
        ('[secrets.A]\nenv = "A"\nagents = ["nobody"]\n', "no agent 'nobody'"),
        ('[secrets.A]\nenv = "A"\ntasks = [" "]\n', "write names of tasks"),
        ('[secrets.A]\ntasks = ["x"]\n', "secrets.A.env is missing"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused_with_its_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    with pytest.raises(SettingsError, match=expected) as refused:
        written(tmp_path / "home", text)

    assert "sk live 123" not in str(refused.value)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_secrets_are_declared_in_json_and_yaml_too(tmp_path: Path, form: str) -> None:
    text = {
        "json": '{"secrets": {"SHOP": {"env": "SHOP_KEY"}}}',
        "yaml": "secrets:\n  SHOP:\n    env: SHOP_KEY\n",
    }
    (tmp_path / f"holdfast.{form}").write_text(text[form])
    tmp_path.chmod(0o700)

    assert load(tmp_path, ENVIRON).config.secrets["SHOP"].env == "SHOP_KEY"


# --- what a script declares


async def bought(**options: Any) -> str:
    async def pay(key: str) -> str:
        return f"paid with {len(key)} characters"

    @hf.task
    async def buy(run: hf.Run) -> str:
        return await run.step(pay, hf.secret("SHOP"))

    async with hf.open("memory:", tasks=[buy], **options) as holdfast:
        handle = await holdfast.start(buy())
        return await asyncio.wait_for(handle.result(), 20)


@pytest.mark.parametrize(
    "secrets",
    [{"SHOP": "0123"}, {"SHOP": lambda: "0123"}, {"SHOP": "0123"}.get],
    ids=["value", "maker", "finder"],
)
async def test_a_script_declares_values_functions_or_one_function(secrets: Any) -> None:
    assert await bought(secrets=secrets) == "paid with 4 characters"


async def test_a_script_that_declares_nothing_gets_nothing_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP", "value of the shop")

    with pytest.raises(hf.TaskFailed, match="SHOP"):
        await bought()


@pytest.mark.parametrize(
    ("secrets", "expected"),
    [
        ({"HOLDFAST_KEY": "x"}, "gateway's own"),
        ({"lower": "x"}, "name of a secret"),
        ({"A": 1}, "A"),
        (1, "mapping"),
    ],
)
async def test_what_a_script_cannot_declare_is_refused_at_once(secrets: Any, expected: str) -> None:
    with pytest.raises(BadInput, match=expected):
        await bought(secrets=secrets)


# --- what comes in


@pytest.mark.parametrize(
    "value",
    [
        {"$secret": "A"},
        {"a": [{"b": {"$secret": "A"}}]},
        {"$secret": "A", "and": "more"},
        [[{"$secret": None}]],
        hf.secret("A"),
    ],
)
def test_a_reference_from_outside_is_refused_however_deep(value: object) -> None:
    with pytest.raises(BadInput, match=r"hf\.secret"):
        refuse_references("arguments", value)


def test_every_method_that_takes_any_json_refuses_a_reference() -> None:
    now = SystemClock().now()
    reference = {"deep": [{"$secret": "A"}]}

    with pytest.raises(BadInput, match="answer"):
        recording_answer(AnswerAsked(question_id="q", answer=reference), by="ada", now=now)
    asked = ResolveAsked(effect_id="e", decision="done", result=reference)
    with pytest.raises(BadInput, match="result"):
        resolving_effect(asked, by="ada", now=now)


def test_no_method_but_these_takes_any_json() -> None:
    """Another one has to refuse references, too."""
    from holdfast.api.methods import METHODS

    free = {
        (method.name, field.name)
        for method in METHODS.values()
        for field in msgspec.structs.fields(method.params)
        if field.type is Any or "Any" in str(field.type)
    }

    assert free == {
        *((f"flows.{name}", "state") for name in ("create", "update", "wait", "resume", "finish", "fail")),
        ("flows.update", "wait"),
        ("flows.wait", "wait"),
        ("ledger.create", "arguments"),
        ("producer.create", "arguments"),
        ("producer.finish", "result"),
        # Of these nothing is stored: they are refused, or only `mode` is read.
        ("cron.add", "delivery"),
        ("cron.add", "failure_alert"),
        ("cron.add", "pacing"),
        ("cron.add", "trigger"),
        ("questions.answer", "answer"),
        ("reviews.resolve", "result"),
    }


def test_a_reference_over_http_websocket_and_unix_socket_is_refused(tmp_path: Path) -> None:
    from holdfast.api.ledger import CreateAsked
    from holdfast.cli.client import Relayed, call
    from holdfast.views.tasks import CreatedView

    asked = {"name": "send", "goal": "x", "arguments": {"token": {"$secret": "HOLDFAST_TOKEN"}}}
    with quick_directory(tmp_path) as home, served_doors(home) as house:
        over_http = house.post("ledger.create", asked)
        with house.websocket() as client:
            client.connect()
            over_websocket = client.call("ledger.create", asked)
        params = CreateAsked(name="send", goal="x", arguments=asked["arguments"])
        with pytest.raises(Relayed, match=r"hf\.secret"):
            call(home, "ledger.create", params, CreatedView)
        assert tasks_in(house) == []

    assert over_http.status_code == 400
    assert "hf.secret" in over_http.json()["error"]["message"]
    assert over_websocket["error"]["code"] == "INVALID_REQUEST"


def tasks_in(house: ServedDoors) -> list[object]:
    return list(house.gateway.store.read_now(lambda tx: tx.tasks.page(limit=10)))
