"""One table of every key that may be set: what it means, and what a change of it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from holdfast.config.commands import command_to_show
from holdfast.config.gateway import (
    AgentSettings,
    ChannelSettings,
    Config,
    ScheduleSettings,
    SecretSettings,
    TokenSettings,
)
from holdfast.config.places import without_password
from holdfast.core.redaction import redact

# A key that may be written alone, for the one below it that is set most often.
SHORT_FORMS = {"store": "store.url"}
# What stands for the name of an agent, a schedule, a channel, a token or a secret.
ANY = "*"
# What one entry of each section is made of.
ENTRIES: dict[str, type[msgspec.Struct]] = {
    "agents": AgentSettings,
    "schedules": ScheduleSettings,
    "channels": ChannelSettings,
    "tokens": TokenSettings,
    "secrets": SecretSettings,
}
SECTIONS = tuple(ENTRIES)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_S = TypeVar("_S", bound=msgspec.Struct)


class Applies(StrEnum):
    """When a changed setting counts."""

    # At once, or the next time that it is used.
    LIVE = "live"
    # With the next life of the gateway, which drains and restarts for it.
    RESTART = "restart"
    # With the next `holdfast up`: the supervisor holds it, and outlives restarts.
    UP = "up"


class Key(msgspec.Struct, frozen=True):
    """One key: `gateway.port`, or `agents.*.command` for that of every agent."""

    name: str
    applies: Applies
    meaning: str
    # Its value may hold a password or a token, and is never shown whole.
    is_secret: bool = False


_LIVE, _RESTART, _UP = Applies.LIVE, Applies.RESTART, Applies.UP

# In the order of the structs; a test compares the two.
KEYS: tuple[Key, ...] = (
    Key(
        "store.url",
        _RESTART,
        "The ledger's URL; a relative path begins at the home. Without it, `ledger.db` there",
        is_secret=True,
    ),
    Key(
        "store.seal",
        _RESTART,
        "Which values of programs are sealed: those that hold `secrets`, `all`, or `never` any",
    ),
    Key(
        "store.key_command",
        _RESTART,
        "A program and its arguments that prints the key of sealed values; without it, a file holds the key",
    ),
    Key("tasks", _RESTART, "Python modules, or `module:task`, whose tasks the gateway carries"),
    Key("gateway.host", _UP, "The address to listen on"),
    Key("gateway.port", _UP, "The port to listen on; 0 lets the system choose"),
    Key("gateway.allowed_hosts", _LIVE, "Host headers that are answered besides those of the loopback"),
    Key("gateway.allowed_origins", _LIVE, "Origins of web pages that may call besides our own"),
    Key(
        "gateway.trusted_proxies",
        _LIVE,
        "Addresses and networks of proxies whose `X-Forwarded-For` or `Forwarded` header is believed",
    ),
    Key(
        "gateway.rate_limit_per_s",
        _LIVE,
        "Requests per second with one token, or from one address without a token; four times as many at once",
    ),
    Key("gateway.max_body_bytes", _LIVE, "The largest body or frame that is read"),
    Key("gateway.capacity", _RESTART, "How many runs the gateway carries at a time"),
    Key("gateway.alert_urls", _LIVE, "Where alerts go: webhooks, or URLs that apprise knows", is_secret=True),
    Key("gateway.alert_after_s", _LIVE, "How long the gateway may be away before the supervisor alerts"),
    Key("gateway.owner", _RESTART, "Who owns what nobody else owns"),
    Key(
        "gateway.python_path",
        _RESTART,
        "Directories of modules of agents and tasks, searched after what is installed and before the home; "
        "relative to the home",
    ),
    Key(
        "gateway.tls.cert",
        _LIVE,
        "The certificate of the doors with its chain, a PEM file; relative to the home. A renewed file "
        "counts without a restart",
    ),
    Key(
        "gateway.tls.key",
        _LIVE,
        "Its private key, a PEM file without a password, for its owner alone; relative to the home",
    ),
    Key(
        "gateway.restart.session_recovery",
        _LIVE,
        "Tell interrupted sessions that have no run to resume that the gateway restarted",
    ),
    Key("gateway.restart.cron_retry_on_interrupt", _LIVE, "Queue interrupted firings again"),
    Key("gateway.restart.readiness_gate", _LIVE, "Refuse a restart that would interrupt work, unless forced"),
    Key(
        "gateway.restart.readiness_gate_threshold",
        _LIVE,
        "How many interruptions the readiness gate lets pass",
    ),
    Key(
        "gateway.restart.drain_queue_messages",
        _LIVE,
        "Store messages that come during a drain and answer them afterwards; else refuse them",
    ),
    Key("gateway.restart.manifest_path", _LIVE, "Where the manifest is written; relative to the home"),
    Key("gateway.restart.drain_timeout_s", _LIVE, "How long a drain waits for runs before it pauses them"),
    Key(
        "gateway.restart.max_attempts_without_progress",
        _RESTART,
        "After so many attempts one after another that saved nothing a run is not resumed again, if its task "
        "names no `attempts`; never before it was carried alone",
    ),
    Key(
        "gateway.restart.resume_concurrency",
        _LIVE,
        "How many batches of paused runs, each of at most 500, are resumed side by side",
    ),
    Key("agents.*.callable", _RESTART, "A Python function or task, as `module:name`"),
    Key("agents.*.command", _RESTART, "A program and its arguments; it gets the message on its stdin"),
    Key("agents.*.stdin", _RESTART, "What a command reads: the message as `text`, or one `json` document"),
    Key("agents.*.pydantic_ai", _RESTART, "A pydantic-ai agent, as `module:name`"),
    Key("agents.*.timeout_s", _RESTART, "How long one answer may take; without it there is no limit"),
    Key(
        "agents.*.directory", _RESTART, "Where the agent works; relative to the home, and without it the home"
    ),
    Key("agents.*.env", _RESTART, "Variables that a command sees, each with the name of ours that it gets"),
    Key("agents.*.session", _RESTART, "The session of messages that name none"),
    Key("schedules.*.cron", _LIVE, "When it fires: minute, hour, day, month, weekday"),
    Key("schedules.*.tz", _LIVE, "The time zone of these times"),
    Key("schedules.*.agent", _LIVE, "Which agent gets the prompt"),
    Key("schedules.*.session", _LIVE, "In which of its sessions"),
    Key("schedules.*.prompt", _LIVE, "What the agent is told"),
    Key("schedules.*.is_enabled", _LIVE, "Whether it fires at all"),
    Key("channels.*.kind", _RESTART, "`webhook` or `apprise`"),
    Key("channels.*.secret_env", _RESTART, "A webhook's secret: the name of the variable that holds it"),
    Key(
        "channels.*.secret_file", _RESTART, "A webhook's secret: the file that holds it; relative to the home"
    ),
    Key("channels.*.url", _RESTART, "Where a webhook's answers are posted", is_secret=True),
    Key("channels.*.agent", _RESTART, "Which agent answers what comes in by a webhook"),
    Key("channels.*.urls", _RESTART, "Where apprise sends answers", is_secret=True),
    Key("tokens.*.token_env", _LIVE, "One more token for the doors: the name of the variable that holds it"),
    Key("tokens.*.token_file", _LIVE, "The same: the file that holds it; relative to the home"),
    Key(
        "tokens.*.scopes",
        _LIVE,
        "What its bearer may do: `operator.read`, `operator.write`, `operator.admin`",
    ),
    Key("tokens.*.owner", _LIVE, "Whose tasks its bearer sees and touches, and nothing else"),
    Key("tokens.*.tasks", _LIVE, "The names of the tasks that its bearer sees and touches, and nothing else"),
    Key(
        "tokens.*.methods",
        _LIVE,
        "The methods that its bearer may call; without it all that its scopes allow",
    ),
    Key("tokens.*.expires_at", _LIVE, "From when on it opens nothing: a moment with its offset"),
    Key(
        "secrets.*.env",
        _LIVE,
        'A secret that programs use as `hf.secret("NAME")`: the name of the variable that holds it',
    ),
    Key(
        "secrets.*.tasks",
        _LIVE,
        "Which tasks may use it; without `tasks` and `agents`, every task of the gateway may",
    ),
    Key("secrets.*.agents", _LIVE, "Which agents may use it"),
)
_BY_NAME = {key.name: key for key in KEYS}


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys differ, by what the change of each needs."""

    live: list[str] = []
    restart: list[str] = []
    up: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.live or self.restart or self.up)


def changed(old: Config, new: Config) -> Changes:
    """What differs between two settings. An agent, schedule or channel that came or went is one change."""
    before, after = values(old), values(new)
    names = list(dict.fromkeys([*_entries(old), *_entries(new)]))
    moved = [name for name in names if (name in _entries(old)) != (name in _entries(new))]
    keys = [key for key in after if key in before and before[key] != after[key]]
    found: dict[Applies, list[str]] = {one: [] for one in Applies}
    for name in [*keys, *moved]:
        found[applies(name)].append(name)
    return Changes(live=found[_LIVE], restart=found[_RESTART], up=found[_UP])


def with_live(old: Config, new: Config) -> Config:
    """The old settings, with all that applies live as the new ones have it.

    A schedule of an agent that comes only with a restart comes with it.
    """
    late = {name for name, one in new.schedules.items() if one.agent not in old.agents}
    schedules = {name: one for name, one in new.schedules.items() if name not in late}
    schedules |= {name: one for name, one in old.schedules.items() if name in late}
    # Whole settings are checked, and so they are whole before they are taken apart.
    whole = msgspec.structs.replace(new, agents=old.agents, channels=old.channels, schedules=schedules)
    return _with_live(old, whole, "")


def _with_live(old: _S, new: _S, prefix: str) -> _S:
    taken: dict[str, Any] = {}
    for field in old.__struct_fields__:
        name, mine, theirs = f"{prefix}{field}", getattr(old, field), getattr(new, field)
        if isinstance(mine, msgspec.Struct):
            taken[field] = _with_live(mine, theirs, f"{name}.")
        elif applies(f"{name}.{ANY}" if not prefix and field in SECTIONS else name) is _LIVE:
            taken[field] = theirs
    return msgspec.structs.replace(old, **taken)


def key_of(name: str) -> Key | None:
    """The entry of the table for a key as it is written: `agents.main.command`."""
    section, _, rest = name.partition(".")
    if section in SECTIONS:
        name = f"{section}.{ANY}.{rest.rpartition('.')[2]}" if rest.count(".") == 1 else ""
    return _BY_NAME.get(name)


def applies(name: str) -> Applies:
    """Of a key; of a whole agent, schedule or channel, which needs what the neediest of its keys does."""
    key = key_of(name)
    if key is not None:
        return key.applies
    section = name.partition(".")[0]
    found = {key.applies for key in KEYS if key.name.startswith(f"{section}.{ANY}.")}
    return next(one for one in (_UP, _RESTART, _LIVE) if one in found)


def values(config: Config) -> dict[str, Any]:
    """Every key that these settings have, with its value, in the order of the table."""
    return dict(_values(config, ""))


def defaults() -> dict[str, Any]:
    """The value of each key of the table that nobody has set; a key without a default is not among them."""
    found = values(Config())
    for section, kind in ENTRIES.items():
        for field in msgspec.structs.fields(kind):
            name = f"{section}.{ANY}.{field.name}"
            if field.default_factory is not msgspec.NODEFAULT:
                found[name] = field.default_factory()
            elif field.default is not msgspec.NODEFAULT:
                found[name] = field.default
    # Its own for each, so that no two schedules share a session.
    return found | {f"schedules.{ANY}.session": "cron-<name>"}


def fit_to_show(name: str, value: Any) -> Any:
    """The value of a key without what nobody should see: passwords, tokens, whatever looks like one."""
    key = key_of(name)
    what = name.rpartition(".")[2]
    if what.endswith("command") and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return command_to_show(value)
    if what == "env" and isinstance(value, dict):
        # The names of variables; whatever else stands there may be a value.
        return {one: ours if _VARIABLE.fullmatch(str(ours)) else "…" for one, ours in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if key is None or not key.is_secret:
        return redact(value)
    if isinstance(value, list):
        return [fit_to_show(name, one) for one in value]
    if not isinstance(value, str):
        return value if value is None else "…"
    if name == "store.url":
        return without_password(value)
    # For many services the whole rest of the URL is the secret.
    scheme, sign, _ = value.partition("://")
    return f"{scheme}{sign}…" if sign else "…"


def _values(part: msgspec.Struct, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in part.__struct_fields__:
        value = getattr(part, field)
        if isinstance(value, msgspec.Struct):
            yield from _values(value, f"{prefix}{field}.")
        elif not prefix and field in SECTIONS:
            for name, entry in value.items():
                yield from _values(entry, f"{field}.{name}.")
        else:
            yield f"{prefix}{field}", value


def _entries(config: Config) -> list[str]:
    return [f"{section}.{name}" for section in SECTIONS for name in getattr(config, section)]
