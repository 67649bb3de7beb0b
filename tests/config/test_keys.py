"""The table of keys is that of the structs, and says what each change needs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast.config.files import changed
from holdfast.config.keys import (
    ENTRIES,
    KEYS,
    SECTIONS,
    ApplyMode,
    SettingChanges,
    applies,
    defaults,
    fit_to_show,
    key_of,
    values,
    with_live,
)
from holdfast.config.sections import (
    AgentSettings,
    ChannelSettings,
    Config,
    GatewaySettings,
    RestartSettings,
    ScheduleSettings,
    TokenSettings,
)
from tests.config.homes import EVERY_KEY


def keys_of(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        if not prefix and field.name in SECTIONS:
            yield from keys_of(ENTRIES[field.name], f"{field.name}.*.")
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from keys_of(field.type, f"{prefix}{field.name}.")
        else:
            yield f"{prefix}{field.name}"


def config(**more: Any) -> Config:
    return msgspec.convert(more, Config)


def test_the_table_has_every_key_of_the_structs_in_their_order() -> None:
    assert [key.name for key in KEYS] == list(keys_of(Config))


def test_every_key_has_a_meaning_that_fits_a_table() -> None:
    for key in KEYS:
        assert key.meaning[0].isupper() or key.meaning.startswith("`")
        assert not key.meaning.endswith(".")
        assert "|" not in key.meaning


def test_only_what_must_be_given_has_no_default() -> None:
    without = {key.name for key in KEYS} - set(defaults())

    assert without == {
        "channels.*.kind",
        "secrets.*.env",
        "workflows.*.nodes",
        "alerts.*.condition",
    }


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("gateway.port", "gateway.port"),
        ("gateway.restart.readiness_gate", "gateway.restart.readiness_gate"),
        ("agents.main.command", "agents.*.command"),
        ("agents.*.command", "agents.*.command"),
        ("agents.main", None),
        ("agents.a.b.command", None),
        ("agents", None),
        ("gateway", None),
        ("", None),
    ],
)
def test_a_key_is_found_as_it_is_written(name: str, key: str | None) -> None:
    found = key_of(name)

    assert (None if found is None else found.name) == key


# --- changes


def test_nothing_changed_is_no_change() -> None:
    one = msgspec.convert(EVERY_KEY, Config)

    assert changed(one, msgspec.convert(EVERY_KEY, Config)) == SettingChanges()
    assert not changed(one, one)


def test_each_change_is_sorted_by_what_it_needs() -> None:
    new = config(
        gateway={"port": 1, "capacity": 2, "allowed_hosts": ["x"], "restart": {"readiness_gate": False}}
    )

    found = changed(Config(), new)

    assert found == changed(new, Config())
    assert found
    assert found == SettingChanges(
        live=["gateway.allowed_hosts", "gateway.restart.readiness_gate"],
        restart=["gateway.capacity"],
        up=["gateway.port"],
    )


def test_an_entry_that_came_or_went_or_differs_is_one_change() -> None:
    agent = {"command": ["cat"]}
    schedule = {"cron": "0 0 * * *", "agent": "a", "prompt": "x"}
    old = config(agents={"a": agent}, schedules={"day": schedule, "gone": schedule})
    new = config(
        agents={"a": agent | {"timeout_s": 5}, "b": agent},
        schedules={"day": schedule | {"prompt": "y"}, "come": schedule},
    )

    assert changed(old, new) == SettingChanges(
        live=["schedules.day.prompt", "schedules.gone", "schedules.come"],
        restart=["agents.a.timeout_s", "agents.b"],
    )


def test_what_applies_live_is_taken_over_and_nothing_else() -> None:
    every = msgspec.convert(EVERY_KEY, Config)
    old = Config(agents=every.agents, channels=every.channels)

    live = with_live(old, every)

    assert changed(live, every).live == []
    assert changed(old, live) == SettingChanges(live=changed(old, every).live)
    assert with_live(every, every) == every


def test_a_rule_of_alerts_with_a_channel_that_needs_a_restart_comes_with_it() -> None:
    every = msgspec.convert(EVERY_KEY, Config)
    old = Config(agents=every.agents)

    assert "slow" not in with_live(old, every).alerts
    assert with_live(old, every).policies == every.policies.__class__(
        **{name: getattr(every.policies, name) for name in ("quiet_hours",)},
        concurrency=msgspec.structs.replace(every.policies.concurrency, gateway=None),
    )


def test_a_schedule_of_an_agent_that_needs_a_restart_comes_with_it() -> None:
    agent, schedule = {"command": ["cat"]}, {"cron": "0 0 * * *", "agent": "old", "prompt": "x"}
    old = config(agents={"old": agent}, schedules={"moved": schedule, "gone": schedule})
    new = config(
        agents={"new": agent},
        schedules={"moved": schedule | {"agent": "new"}, "come": schedule | {"agent": "new"}},
    )

    live = with_live(old, new)

    assert live == config(agents={"old": agent}, schedules={"moved": schedule})


def test_a_change_of_any_single_key_is_noticed() -> None:
    """From each key's default to the value that it has where all are set."""
    every = msgspec.convert(EVERY_KEY, Config)
    plain = {name: value for name, value in values(every).items() if name.split(".")[0] not in SECTIONS}
    for name, value in plain.items():
        # A certificate and its key are set together or not at all.
        before = {"gateway": {"tls": {"cert": "a", "key": "b"}}} if name.startswith("gateway.tls.") else {}
        tree: dict[str, Any] = copy.deepcopy(before)
        table = tree
        *parts, last = name.split(".")
        for part in parts:
            table = table.setdefault(part, {})
        table[last] = value

        found = changed(config(**before), config(**tree))

        assert (found.live + found.restart + found.up) == [name]
        assert name in getattr(found, applies(name).value)


def test_a_whole_entry_needs_what_the_neediest_of_its_keys_does() -> None:
    assert applies("agents.a") is ApplyMode.RESTART
    assert applies("schedules.a") is ApplyMode.LIVE
    assert applies("channels.a") is ApplyMode.RESTART
    assert applies("tokens.a") is ApplyMode.LIVE


# --- what is shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("gateway.port", 1, 1),
        ("store.url", "postgresql://ada:hunter2@h/d", "postgresql://ada:[redacted:url]@h/d"),
        ("store.url", None, None),
        ("store.key_command", ["kms", "--token", "hunter2"], ["kms", "--token", "[redacted:flag]"]),
        ("gateway.alert_urls", ["tgram://hunter2/1", "hunter2"], ["tgram://…", "…"]),
        ("channels.a.urls", ["mailto://ada:hunter2@x"], ["mailto://…"]),
        ("channels.a.url", {"hunter2": 1}, "…"),
        (
            "agents.a.command",
            ["x", "--api-key", "sk-ant-" + "hunter2" * 5],
            ["x", "--api-key", "[redacted:flag]"],
        ),
        ("agents.a.command", ["x", "--api-key", "hunter2"], ["x", "--api-key", "[redacted:flag]"]),
        (
            "agents.a.command",
            ["psql", "postgresql://ada:hunter2@h/d?sslkey=hunter2", "-c", "select 1"],
            ["psql", "postgresql://ada:[redacted:url]@h/d?sslkey=…", "-c", "select 1"],
        ),
        ("agents.a.command", ["psql", "host=h", "password=hunter2"], None),
        ("agents.a.command", ["mysql", "-u", "root", "-phunter2"], ["mysql", "-u", "root", "-p…"]),
        ("agents.a.command", ["mysql", "--password=hunter2", "--port=3306"], None),
        ("agents.a.command", ["sshpass", "-p", "hunter2", "ssh", "-p", "22", "h"], None),
        ("agents.a.command", ["redis-cli", "-a", "hunter2", "ping"], ["redis-cli", "-a", "…", "ping"]),
        ("agents.a.command", ["curl", "-u", "ada:hunter2", "x"], None),
        ("agents.a.command", ["curl", "-uada:hunter2", "x"], ["curl", "-u…", "x"]),
        ("agents.a.command", ["curl", "--user=ada:hunter2"], ["curl", "--user=…"]),
        (
            "agents.a.command",
            ["curl", "-H", "Authorization: Bearer hunter2", "-H", "X-Thing: hunter2"],
            ["curl", "-H", "Authorization: …", "-H", "X-Thing: …"],
        ),
        ("agents.a.command", ["curl", "-b", "session=hunter2", "https://h/?k=hunter2"], None),
        ("agents.a.command", ["sh", "-c", "curl -u ada:hunter2 h && mysql -phunter2"], None),
        ("agents.a.command", ["sh", "-c", 'curl -H "Authorization: hunter2" h'], None),
        ("agents.a.command", ["env", "THING=hunter2", "x"], ["env", "THING=…", "x"]),
        ("agents.a.command", ["login", "ada:hunter2"], ["login", "ada:…"]),
        ("agents.a.command", ["x", "a9hunter2Xk31"], ["x", "…"]),
        ("agents.a.env", {"KEY": "hunter2", "OTHER": "MY_KEY"}, {"KEY": "…", "OTHER": "MY_KEY"}),
    ],
)
def test_what_is_shown_of_a_value_holds_no_secret(name: str, value: Any, shown: Any) -> None:
    assert "hunter2" not in str(fit_to_show(name, value))
    if name != "store.url" and shown is not None:
        assert fit_to_show(name, value) == shown


HIDDEN = "swordfish"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["x", "--pw", HIDDEN], None),
        (["env", f"PASS={HIDDEN}", "x"], ["env", "PASS=…", "x"]),
        (["sh", "-c", f"PASS={HIDDEN} foo"], None),
        (["sh", "-c", f"DB_PW={HIDDEN} foo"], None),
        (["curl", "--data-urlencode", f"pass={HIDDEN}"], None),
        (["ldapsearch", "-w", HIDDEN, "-b", "dc=x"], None),
        (["ldapsearch", f"-w{HIDDEN}"], ["ldapsearch", "-w…"]),
        (["sqlcmd", "-S", "h", "-P", HIDDEN], ["sqlcmd", "-S", "h", "-P", "…"]),
        (["zip", "-P", HIDDEN, "a.zip"], ["zip", "-P", "…", "a.zip"]),
        (["x", "-p", "12345678"], ["x", "-p", "…"]),
        (["x", "-p123456"], ["x", "-p…"]),
        (["redis-cli", "-a", "1234"], ["redis-cli", "-a", "…"]),
        (["sh", "-c", "mysql -p1234"], None),
        (["curl", f"-sSubob:{HIDDEN}"], None),
        (["x", "--bearer", HIDDEN], ["x", "--bearer", "…"]),
        (["x", "--pin", HIDDEN], ["x", "--pin", "…"]),
        (["x", "--psk", HIDDEN], ["x", "--psk", "…"]),
        (["x", "--otp", HIDDEN], ["x", "--otp", "…"]),
        (["sqlplus", f"scott/{HIDDEN}@db"], ["sqlplus", "scott/…@db"]),
        (["git", "clone", f"https://{HIDDEN}@host/a"], ["git", "clone", "https://…@host/a"]),
        (["x", "--connection-string", f"Server=h;K={HIDDEN}"], ["x", "--connection-string", "…"]),
    ],
)
def test_a_password_in_a_command_is_hidden(command: list[str], shown: list[str] | None) -> None:
    found = fit_to_show("agents.a.command", command)

    assert not [secret for secret in (HIDDEN, "1234") if secret in str(found)]
    assert shown is None or found == shown


@pytest.mark.parametrize(
    "command",
    [
        ["claude", "--print", "--model", "opus", "--output-format", "json"],
        ["python", "-m", "agents.main", "--port", "8080", "./agent.py"],
        ["docker", "run", "--rm", "-i", "image:3.11", "/usr/bin/agent-2", "--config=/etc/agent.toml"],
        ["ssh", "-p", "22", "ada@host", "run", "2026-01-02"],
        ["psql", "postgresql://host/db"],
        ["docker", "run", "-p", "8080:80", "-w", "/srv", "--ping", "5", "--mapping", "a"],
        ["git", "clone", "ssh://git@host/a", "grep", "-w", "word", "actions/checkout@v4"],
    ],
)
def test_an_ordinary_command_is_shown_as_it_is(command: list[str]) -> None:
    assert fit_to_show("agents.a.command", command) == command


# --- the structs by themselves


def test_settings_made_in_python_are_checked_like_those_of_a_document() -> None:
    for make in (
        lambda: AgentSettings(),
        lambda: AgentSettings(command=["x"], callable="m:f"),
        lambda: ScheduleSettings(cron="x", agent="a", prompt="p"),
        lambda: ScheduleSettings(cron="0 0 30 2 *", agent="a", prompt="p"),
        lambda: ScheduleSettings(cron="* * * * *", agent="a", prompt=" "),
        lambda: ChannelSettings(kind="webhook", agent="a"),
        lambda: GatewaySettings(host="a b"),
        lambda: GatewaySettings(allowed_origins=["https://x.example/path"]),
        lambda: GatewaySettings(allowed_hosts=["http://x.example"]),
        lambda: GatewaySettings(trusted_proxies=["proxy.example"]),
        lambda: GatewaySettings(trusted_proxies=["10.0.0.5/24"]),
        lambda: GatewaySettings(trusted_proxies=[""]),
        lambda: RestartSettings(manifest_path=""),
        lambda: RestartSettings(manifest_path="~nobodyhere/manifest.json"),
        lambda: AgentSettings(command=["x"], directory="~nobodyhere"),
        lambda: AgentSettings(callable="m:f", stdin="json"),
        lambda: AgentSettings(command=["c"], done_files=["report.md"]),
        lambda: AgentSettings(callable="m:f", run_timeout_s=60, done_command=["pytest"]),
        lambda: AgentSettings(command=["c"], run_timeout_s=60, done_files=[" "]),
        lambda: TokenSettings(),
        lambda: TokenSettings(token_env="A", token_file="b"),
        lambda: TokenSettings(token_env="not a name"),
        lambda: TokenSettings(token_file=" "),
        lambda: TokenSettings(token_env="A", scopes=[]),
        lambda: TokenSettings(token_env="A", owner=" "),
        lambda: TokenSettings(token_env="A", owner="ada", scopes=["operator.admin"]),
        lambda: Config(agents={"a.b": AgentSettings(command=["x"])}),
    ):
        with pytest.raises(ValueError, match=r"^[\w.]+: "):
            make()


def test_a_run_of_an_agent_that_is_longer_than_its_answer_is_refused_with_an_example_that_fits() -> None:
    with pytest.raises(ValueError, match=r"\(timeout_s = 60\); set a shorter one, such as 6$"):
        AgentSettings(command=["c"], timeout_s=60, run_timeout_s=90)

    assert AgentSettings(command=["c"], timeout_s=60, run_timeout_s=6).run_timeout_s == 6


def test_four_times_the_rate_may_come_at_once() -> None:
    assert GatewaySettings(rate_limit_per_s=5).burst == 20


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Config().gateway.port = 1  # type: ignore[misc]
