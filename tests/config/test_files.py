"""Settings come from documents, the environment and the command line; what is wrong is named with its fix."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import trust
from holdfast.config.files import COMMAND_LINE, DEFAULT, is_settings_file, load
from holdfast.config.keys import KEYS, key_of, values
from holdfast.config.sections import Config
from holdfast.core.errors import SettingsError
from tests.config.homes import EVERY_KEY, WRITERS, in_camel, write


def refused(home: Path, overrides: dict[str, object] | None = None) -> str:
    with pytest.raises(SettingsError) as found:
        load(home, {}, overrides)
    return str(found.value).replace(str(home), "HOME")


# --- what is read


def test_a_home_without_documents_has_the_defaults(tmp_path: Path) -> None:
    loaded = load(tmp_path / "not there", {})

    assert loaded.config == Config()
    assert (loaded.sources, loaded.paths) == ({}, [])
    assert loaded.source_of("gateway.port") == DEFAULT


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("spell", [dict, in_camel], ids=["snake", "camel"])
def test_every_key_is_read_in_every_form_and_both_spellings(tmp_path: Path, form: str, spell: Any) -> None:
    path = write(tmp_path, f"holdfast.{form}", spell(EVERY_KEY))

    loaded = load(tmp_path, {})

    assert loaded.config == msgspec.convert(EVERY_KEY, Config)
    assert loaded.paths == [path]
    assert set(loaded.sources.values()) == {str(path)}


def test_the_settings_of_the_test_use_every_key() -> None:
    used = {key.name for name in values(msgspec.convert(EVERY_KEY, Config)) if (key := key_of(name))}

    assert used == {key.name for key in KEYS}


def test_the_document_of_seed_001_is_read_as_it_stands(tmp_path: Path) -> None:
    document = """{
      "gateway": {
        "restart": {
          "sessionRecovery": true,
          "cronRetryOnInterrupt": true,
          "readinessGate": true,
          "readinessGateThreshold": 0,
          "drainQueueMessages": true,
          "manifestPath": "restart-manifest.json"
        }
      }
    }"""
    write(tmp_path, "holdfast.json", document)

    loaded = load(tmp_path, {})

    assert loaded.config == Config()
    assert len(loaded.sources) == 6


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("section", ["agents", "schedules", "channels"])
@pytest.mark.parametrize("is_wrapped", [False, True], ids=["bare", "under its name"])
def test_a_section_may_stand_in_a_document_of_its_own(
    tmp_path: Path, form: str, section: str, *, is_wrapped: bool
) -> None:
    rest = {key: value for key, value in EVERY_KEY.items() if key != section}
    main = write(tmp_path, "holdfast.toml", rest)
    own = EVERY_KEY[section]
    path = write(tmp_path, f"config/{section}.{form}", {section: own} if is_wrapped else own)

    loaded = load(tmp_path, {})

    assert loaded.config == msgspec.convert(EVERY_KEY, Config)
    assert loaded.paths == [main, path]
    assert {loaded.sources[key] for key in loaded.sources if key.startswith(section)} == {str(path)}


def test_a_section_may_be_split_between_documents_but_no_entry(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", {"agents": {"a": {"command": ["cat"]}}})
    write(tmp_path, "config/agents.yaml", {"b": {"command": ["cat"]}})

    assert set(load(tmp_path, {}).config.agents) == {"a", "b"}

    write(tmp_path, "config/agents.yaml", {"a": {"session": "x"}})
    assert refused(tmp_path) == "agents.a is in two files, one is HOME/config/agents.yaml: keep one"


def test_each_schedule_has_a_session_of_its_own(tmp_path: Path) -> None:
    one = {"cron": "0 0 * * *", "agent": "a", "prompt": "x"}
    entries = {"agents": {"a": {"command": ["cat"]}}, "schedules": {"day": one, "night": one}}
    write(tmp_path, "holdfast.json", entries)

    schedules = load(tmp_path, {}).config.schedules

    assert {name: schedule.session for name, schedule in schedules.items()} == {
        "day": "cron-day",
        "night": "cron-night",
    }


# --- who wins


def test_the_command_line_wins_over_the_environment_and_that_over_documents(tmp_path: Path) -> None:
    path = write(
        tmp_path, "holdfast.toml", {"store": "sqlite:///a.db", "gateway": {"port": 1, "capacity": 5}}
    )

    by_file = load(tmp_path, {})
    by_environ = load(tmp_path, {"HOLDFAST_STORE": "sqlite:///b.db"})
    by_line = load(
        tmp_path, {"HOLDFAST_STORE": "sqlite:///b.db"}, {"store": "memory:", "gateway.port": 3, "tasks": None}
    )

    assert (by_file.config.store.url, by_file.sources["store.url"]) == ("sqlite:///a.db", str(path))
    assert (by_environ.config.store.url, by_environ.sources["store.url"]) == (
        "sqlite:///b.db",
        "HOLDFAST_STORE",
    )
    assert (by_line.config.store.url, by_line.config.gateway.port) == ("memory:", 3)
    assert by_line.sources == {
        "store.url": COMMAND_LINE,
        "gateway.port": COMMAND_LINE,
        "gateway.capacity": str(path),
    }


def test_the_store_is_a_table_or_a_url_and_the_environment_says_what_is_sealed(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", "store = 'sqlite:///a.db'")
    short = load(tmp_path, {"HOLDFAST_SEAL": "never"})
    table = {"url": "sqlite:///a.db", "seal": "all", "key_command": ["kms", "x"]}
    path = write(tmp_path, "holdfast.toml", {"store": table})
    whole = load(tmp_path, {"HOLDFAST_STORE": "memory:"})

    assert (short.config.store.url, short.config.store.seal) == ("sqlite:///a.db", "never")
    assert short.sources["store.seal"] == "HOLDFAST_SEAL"
    assert (whole.config.store.url, whole.config.store.seal) == ("memory:", "all")
    assert (whole.config.store.key_command, whole.sources["store.key_command"]) == (["kms", "x"], str(path))
    with pytest.raises(SettingsError, match=r"store\.seal in HOLDFAST_SEAL is 'some'"):
        load(tmp_path, {"HOLDFAST_SEAL": "some"})


def test_a_value_of_the_command_line_is_checked_like_any_other(tmp_path: Path) -> None:
    assert refused(tmp_path, {"gateway.port": -1}) == (
        "gateway.port in the command line is -1: a whole number of at least 0 is needed"
    )
    assert "is not a setting" in refused(tmp_path, {"gateway.prot": 1})


# --- what is refused


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            "[gateway]\nport = 'x'",
            "gateway.port in HOME/holdfast.toml, line 2, is 'x': a whole number is needed",
        ),
        (
            "[gateway]\nport = true",
            "gateway.port in HOME/holdfast.toml, line 2, is True: a whole number is needed",
        ),
        ("[gateway]\nport = 70000", "is 70000: a whole number of at most 65535 is needed"),
        ("[gateway]\nrate_limit_per_s = 0", "is 0: a number above 0.0 is needed"),
        ("[gateway]\nalert_after_s = nan", "gateway.alert_after_s in HOME/holdfast.toml, line 2, is nan: "),
        ("[gateway]\nalert_after_s = inf", "gateway.alert_after_s in HOME/holdfast.toml, line 2, is inf: "),
        ("[gateway.restart]\nreadiness_gate = 1", "is 1: true or false is needed"),
        (
            "[gateway.restart]\ndrain_timeout_s = '90s'",
            "is '90s': a number is needed, in seconds, such as 600",
        ),
        ("[wakes]\nrun_timeout_s = -5", "is -5: a number above 0.0 is needed, in seconds, such as 600"),
        ("[gateway.restart]\nmanifest_path = ' '", "name a file"),
        (
            "[gateway]\nprot = 1",
            "gateway.prot in HOME/holdfast.toml, line 2, is not a setting: did you mean gateway.port?",
        ),
        (
            "x = 1",
            "x in HOME/holdfast.toml, line 1, is not a setting: the keys there are store, tasks, gateway,",
        ),
        ("gateway = 1", "gateway in HOME/holdfast.toml is 1: write a table of keys"),
        ("agents = []", "agents in HOME/holdfast.toml is []: write a table with a name for each entry"),
        ("agents.a = 1", "agents.a in HOME/holdfast.toml is 1: write a table of keys"),
        (
            "tasks = ['a', 1]",
            "tasks in HOME/holdfast.toml, line 1, is ['a', 1]: a string in quotes at [1] is needed",
        ),
        ("tasks = ['a/b.py']", 'write "package.module" or "module:task"'),
        (
            "store = 'ledger.db'",
            "store.url in HOME/holdfast.toml is 'ledger.db': write sqlite:ledger.db for a file",
        ),
        ("[store]\nseal = 'some'", "store.seal in HOME/holdfast.toml, line 2, is 'some': write which values"),
        (
            "[agents.a]\ncommand = ['x']\nstdin = 'pipe'",
            "agents.a.stdin in HOME/holdfast.toml, line 3, is 'pipe': write what a command reads",
        ),
        (
            "[policies]\napproval.effects = ['keyed', 'boom']",
            (
                "policies.approval.effects in HOME/holdfast.toml, line 2, is ['keyed', 'boom']: "
                "each must be one of keyed, opaque, verifiable"
            ),
        ),
        (
            "[policies]\nquiet_hours.let_through = ['fatal', 3]",
            "is ['fatal', 3]: each must be one of info, warning, critical",
        ),
        ("[policies]\nretention.python = 'many'", "is {'python': 'many'}: a number at python is needed"),
        ("[policies]\nretention.python = 0", "a number of at least 1.0 at python is needed"),
        (
            "[alerts.a]\ncondition = 'failed_count > 3'\nseverity = 'fatal'",
            "alerts.a.severity in HOME/holdfast.toml, line 3, is 'fatal': write `info`, `warning` or `crit",
        ),
        (
            "[workflows.release.nodes]\nbuild.task = 'a'\ntest.task = 'b'\ntest.priority = 99",
            ": a whole number of at most 9 at test.priority is needed",
        ),
        (
            "[workflows.release.nodes]\nbuild.task = 'a'\nbuild.need = ['b']",
            (
                ": it has no key need: remove that key, or correct its name; "
                "the keys there are task, args, needs, goal, priority"
            ),
        ),
        ("[workflows.release.nodes]\nbuild.needs = ['b']", ": task must be set in build"),
        (
            "[store]\nkey_command = 'kms'",
            "store.key_command in HOME/holdfast.toml, line 2, is 'kms': a list is needed: write [\"kms\"]",
        ),
        (
            "[store]\nkey_command = ['']",
            "store.key_command in HOME/holdfast.toml, line 2, is ['']: start with the",
        ),
        (
            "[agents.a]\ncommand = 'claude -p'",
            "agents.a.command in HOME/holdfast.toml, line 2, is 'claude -p': a list is needed: write [\"cl",
        ),
        ("[store]\nkey = 'x'", "store.key in HOME/holdfast.toml, line 2, is not a setting"),
        ("[agents.a]", "agents.a.callable in HOME/holdfast.toml is not set: set exactly one of callable"),
        (
            "[agents.a]\ncommand = ['x']\ncallable = 'm:f'",
            "agents.a.command in HOME/holdfast.toml, line 2, is ['x']: ",
        ),
        (
            "[agents.a]\ncallable = 'm.f'",
            "agents.a.callable in HOME/holdfast.toml, line 2, is 'm.f': write \"module:name\"",
        ),
        (
            "[agents.a]\ncommand = ['x']\ntimeout_s = 0",
            "agents.a.timeout_s in HOME/holdfast.toml, line 3, is 0",
        ),
        ("[agents.'a b']\ncommand = ['x']", "agents.a b in HOME/holdfast.toml is 'a b': use 1 to 64 letters"),
        ("[agents.a]\ncommand = ['x']\nsession = 'a:b'", "without spaces and colons"),
        (
            "[schedules.s]\ncron = '* * * * *'\nprompt = 'x'",
            "schedules.s.agent in HOME/holdfast.toml is not set: it has no target; give exactly one of agent",
        ),
        (
            "[schedules.s]\ncron = '61 * * * *'\nprompt = 'x'\nagent = 'a'",
            "schedules.s.cron in HOME/holdfast.toml, line 2, is '61 * * * *': bad minute; write minute,",
        ),
        (
            "[schedules.s]\ncron = '* * * * *'\nprompt = 'x'\nagent = 'a'\ntz = 'Mars/Olympus'",
            "schedules.s.tz in HOME/holdfast.toml, line 5, is 'Mars/Olympus': name a time zone",
        ),
        (
            "[agents.b]\ncommand = ['x']\n[schedules.s]\ncron = '* * * * *'\nprompt = 'x'\nagent = 'a'",
            "schedules.s.agent in HOME/holdfast.toml, line 6, is 'a': name one of the agents (b)",
        ),
        ("[channels.c]\nkind = 'smoke'", "is 'smoke': write `webhook` or `apprise`"),
        ("[channels.c]\nkind = 'webhook'\nagent = 'a'", "set either secret_env"),
        ("[channels.c]\nkind = 'webhook'\nsecret_env = 'S'", "name the agent that answers incoming messages"),
        (
            "[channels.c]\nkind = 'webhook'\nsecret_env = 'S'\nurl = 'ftp://x'",
            "write an http:// or https:// URL",
        ),
        ("[channels.c]\nkind = 'webhook'\nurls = ['json://x']", "remove this key"),
        (
            "[channels.c]\nkind = 'apprise'",
            "channels.c.urls in HOME/holdfast.toml is []: set either urls",
        ),
        ("[channels.c]\nkind = 'apprise'\nurls = ['json://x']\nagent = 'a'", "channels.c.agent in"),
        ("[gateway.restart]\nreadinessGate = true\nreadiness_gate = true", "in two spellings: keep one"),
        ("[gateway", "HOME/holdfast.toml is not valid TOML: "),
    ],
)
def test_a_wrong_setting_is_named_with_its_value_and_the_fix(
    tmp_path: Path, document: str, says: str
) -> None:
    write(tmp_path, "holdfast.toml", document)

    assert says in refused(tmp_path)


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ("[channels.c]\nkind='apprise'\nurls=['tgram://hunter2/1', 'hunter2 and more']", "channels.c.urls"),
        ("[gateway]\nalert_urls = 'slack://hunter2'", "gateway.alert_urls"),
        ("store = 'mysql://ada:hunter2@h/d'", "store.url"),
        ("store.url = 'mysql://ada:hunter2@h/d'", "store.url"),
        ("[agents.a]\ncommand = ['x']\nenv.KEY = 'hunter2 is it'", "agents.a.env"),
        ("[channels.c]\nkind = 'webhook'\nsecret_env = 'hunter2-is-it'", "channels.c.secret_env"),
        ("[gateway]\nowner = ''\nhost = 'password=hunter2hunter2'", "gateway.host"),
    ],
)
def test_what_is_refused_shows_no_secret(tmp_path: Path, document: str, where: str) -> None:
    write(tmp_path, "holdfast.toml", document)

    says = refused(tmp_path)

    assert re.match(rf"{re.escape(where)} in HOME/holdfast\.toml(, line \d,)? is ", says)
    assert "hunter2" not in says


def test_a_document_that_cannot_be_parsed_shows_no_line_of_it(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.yaml", "store: 'postgresql://ada:hunter2@h/d\ntasks: [")

    says = refused(tmp_path)

    assert says.startswith("HOME/holdfast.yaml is not valid YAML: ")
    assert "hunter2" not in says


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("holdfast.json", '{"store": "memory:", "store": "memory:"}', "the key 'store' is given twice"),
        (
            "holdfast.yaml",
            "store: 'memory:'\nstore: 'memory:'",
            "the key 'store' is given twice below line 1",
        ),
        ("holdfast.json", "[1]", "has no keys at its top level"),
        ("holdfast.yaml", "- 1", "has no keys at its top level"),
        ("holdfast.yaml", "1: 2", "1 in HOME/holdfast.yaml, line 1, is not a setting"),
        (
            "holdfast.yaml",
            "agents: {1: {command: [cat]}}",
            "agents in HOME/holdfast.yaml is 1: write the name in",
        ),
        (
            "holdfast.yaml",
            "store: 2026-01-01",
            "store.url in HOME/holdfast.yaml is '…': a string in quotes",
        ),
        ("holdfast.yaml", "store: !!binary eA==", "store.url in HOME/holdfast.yaml is "),
        ("holdfast.json", f'{{"tasks": {"[" * 500}{"]" * 500}}}', "tasks in HOME/holdfast.json, line 1, is "),
        ("holdfast.json", f'{{"{"x" * 5000}": 1}}', f"{'x' * 100}… in HOME/holdfast.json, line 1, is not a"),
        ("holdfast.yaml", "? [1]\n: 2", "is not valid YAML: found unhashable key"),
        ("holdfast.yaml", "a: \x00", "is not valid YAML: "),
        ("holdfast.json", "[" * 100_000, "HOME/holdfast.json is not valid JSON: "),
        (
            "holdfast.json",
            '{"gateway": {"port": "\\ud800"}}',
            "is not valid JSON: it contains half of a surrogate pair",
        ),
        ("holdfast.json", '{"\\udfff": 1}', "is not valid JSON: it contains half of a surrogate pair"),
        ("holdfast.yaml", 'tasks: ["\\ud800"]', "is not valid YAML: it contains half of a surrogate pair"),
        ("holdfast.toml", "#" * (1024**2 + 1), "is larger than 1,048,576 bytes"),
        (
            "config/agent.toml",
            "",
            "HOME/config/agent.toml would have no effect, only agents, schedules, channels",
        ),
    ],
)
def test_a_document_that_would_mislead_is_refused(tmp_path: Path, name: str, content: str, says: str) -> None:
    write(tmp_path, name, content)

    assert says in refused(tmp_path)


def test_yaml_cannot_make_objects(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.yaml", "tasks: !!python/object/apply:os.getcwd []")

    assert "is not valid YAML" in refused(tmp_path)


@pytest.mark.parametrize("where", ["holdfast", "config/agents"])
def test_two_documents_of_one_name_are_refused(tmp_path: Path, where: str) -> None:
    write(tmp_path, f"{where}.toml", "")
    write(tmp_path, f"{where}.yaml", "")

    name = where.rpartition("/")[2]
    assert f"has {name}.toml and {name}.yaml: keep one of them" in refused(tmp_path)


def test_bytes_that_are_no_text_are_refused_and_a_mark_of_order_is_not(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_bytes(b"store = '\xff'")
    assert "byte 9 is not UTF-8" in refused(tmp_path)

    (tmp_path / "holdfast.toml").write_bytes(b"\xef\xbb\xbftasks = ['a']")
    assert load(tmp_path, {}).config.tasks == ["a"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_document_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    write(tmp_path, "holdfast.toml", "").chmod(0)

    assert "HOME/holdfast.toml: Permission denied" in refused(tmp_path)


@pytest.mark.parametrize(("mode", "who"), [(0o666, "any user"), (0o602, "any user"), (0o664, "its group")])
@pytest.mark.parametrize("name", ["holdfast.toml", "config/agents.toml", "config"])
def test_settings_that_others_may_write_are_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int, who: str
) -> None:
    """A user who may write them may have us start any command."""
    write(tmp_path, "config/agents.toml", "")
    write(tmp_path, "holdfast.toml", "")
    monkeypatch.setattr(trust, "_is_own_group", lambda _found: False)
    (tmp_path / name).chmod(mode | 0o100 * (name == "config"))

    assert f"HOME/{name} can be written by {who}" in refused(tmp_path)


def test_a_group_of_our_own_may_write_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "holdfast.toml", "tasks = ['a']").chmod(0o664)
    monkeypatch.setattr(trust, "_is_own_group", lambda _found: True)

    assert load(tmp_path, {}).config.tasks == ["a"]


def test_hidden_and_other_files_beside_the_documents_do_not_matter(tmp_path: Path) -> None:
    for name in ("config/.agents.toml", "config/agents.toml~", "config/README.md", "agents.toml"):
        write(tmp_path, name, "nonsense") if not name.endswith("toml") else write(tmp_path, name, "")

    assert load(tmp_path, {}).config == Config()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted({part for key in KEYS for part in key.name.split(".")} - {"*"})
TREES = st.recursive(
    JSON, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=4), max_leaves=12
)


@pytest.mark.slow
@given(tree=st.dictionaries(st.sampled_from(NAMES), TREES, max_size=5))
@settings(max_examples=100, deadline=None)
def test_whatever_a_document_holds_it_is_taken_or_refused_as_settings(
    tree: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("home")
    (home / "holdfast.json").write_bytes(msgspec.json.encode(tree))

    with contextlib.suppress(SettingsError):
        assert isinstance(load(home, {}).config, Config)


# --- who looks for changes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("holdfast.toml", True),
        ("holdfast.yml", True),
        ("config/agents.json", True),
        ("config/agents.toml~", False),
        ("ledger.db", False),
        ("ledger.db-wal", False),
        ("restart-manifest.json", False),
        ("state/holdfast.toml", False),
    ],
)
def test_a_watcher_knows_the_documents_from_everything_else_in_the_home(
    tmp_path: Path, name: str, *, expected: bool
) -> None:
    assert is_settings_file(tmp_path, tmp_path / name) is expected
