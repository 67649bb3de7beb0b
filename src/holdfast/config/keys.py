"""The table of all settings: what each means, and what a change of it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from holdfast.config.alerts import AlertSettings
from holdfast.config.command_redaction import command_to_show
from holdfast.config.flows import FlowSettings
from holdfast.config.places import without_password
from holdfast.config.sections import (
    AgentSettings,
    ChannelSettings,
    Config,
    PluginSettings,
    ScheduleSettings,
    SecretSettings,
    TokenSettings,
)
from holdfast.core.redaction import redact

# Short forms: a section may be written as the value of its most frequent key.
SHORT_FORMS = {"store": "store.url"}
# The placeholder for the name of an agent, a schedule, a channel, a token or a secret.
ANY = "*"
# The struct of one entry of each section.
ENTRIES: dict[str, type[msgspec.Struct]] = {
    "agents": AgentSettings,
    "schedules": ScheduleSettings,
    "channels": ChannelSettings,
    "tokens": TokenSettings,
    "secrets": SecretSettings,
    "plugins": PluginSettings,
    "workflows": FlowSettings,
    "alerts": AlertSettings,
}
SECTIONS = tuple(ENTRIES)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_S = TypeVar("_S", bound=msgspec.Struct)


class ApplyMode(StrEnum):
    """When a changed setting takes effect."""

    # At once, or at its next use.
    LIVE = "live"
    # After a restart of the gateway, which drains and restarts to apply it.
    RESTART = "restart"
    # At the next `holdfast up`: the supervisor uses it, and does not end in a restart.
    UP = "up"


class Key(msgspec.Struct, frozen=True):
    """One key: `gateway.port`, or `agents.*.command` for that of every agent."""

    name: str
    applies: ApplyMode
    meaning: str
    # Its value may contain a password or a token, and is never shown in full.
    is_secret: bool = False


_LIVE, _RESTART, _UP = ApplyMode.LIVE, ApplyMode.RESTART, ApplyMode.UP

# In the order of the structs; a test compares the two.
KEYS: tuple[Key, ...] = (
    Key(
        "store.url",
        _RESTART,
        "The ledger's URL; a relative path starts at the home. Default: `ledger.db` in the home",
        is_secret=True,
    ),
    Key(
        "store.seal",
        _RESTART,
        "Which values of programs are sealed: those with `secrets`, `all`, or `never` any",
    ),
    Key(
        "store.key_command",
        _RESTART,
        "A program and its arguments that prints the key of sealed values; without it, the key is in a file",
    ),
    Key(
        "store.keep_results",
        _RESTART,
        "Results of steps of finished turns stay up to this size in bytes, until the task's retention; "
        "0 keeps only how each begins",
    ),
    Key("tasks", _RESTART, "Python modules, or `module:task`, whose tasks the gateway runs"),
    Key("gateway.host", _UP, "The address to listen on"),
    Key("gateway.port", _UP, "The port to listen on; 0 lets the system choose"),
    Key("gateway.allowed_hosts", _LIVE, "Host headers that are allowed besides those of the loopback"),
    Key("gateway.allowed_origins", _LIVE, "Origins of web pages that may call the API besides our own"),
    Key(
        "gateway.trusted_proxies",
        _LIVE,
        "Addresses and networks of proxies whose `X-Forwarded-For` or `Forwarded` header is trusted",
    ),
    Key(
        "gateway.rate_limit_per_s",
        _LIVE,
        "Requests per second with one token, or from one address without a token; four times as many at once",
    ),
    Key("gateway.max_body_bytes", _LIVE, "The largest accepted body or frame"),
    Key("gateway.capacity", _RESTART, "How many runs the gateway executes at a time"),
    Key("gateway.alert_urls", _LIVE, "Where alerts go: webhooks, or URLs that apprise knows", is_secret=True),
    Key(
        "gateway.alert_after_s",
        _LIVE,
        "How long the gateway may be down before the supervisor sends an alert",
    ),
    Key("gateway.owner", _RESTART, "The owner of tasks that are created without one"),
    Key(
        "gateway.python_path",
        _RESTART,
        "Directories with modules of agents and tasks, searched after installed packages and before the "
        "home; relative to the home",
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
        "How many interruptions the readiness gate allows",
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
        "After this many consecutive attempts without progress a run is not resumed again, unless its task "
        "sets `attempts`; never before an attempt on an idle worker",
    ),
    Key(
        "gateway.restart.resume_concurrency",
        _LIVE,
        "How many batches of paused runs, each of at most 500, are resumed in parallel",
    ),
    Key("upkeep.sweep_every_s", _RESTART, "How often the gateway sweeps the ledger"),
    Key(
        "upkeep.lost_after_s",
        _RESTART,
        "How long work that another program executes may give no sign of life before it is lost",
    ),
    Key(
        "upkeep.keep_days",
        _RESTART,
        "For how many days ended tasks are kept, by runtime, or `lost` for lost ones; all others for 30 days",
    ),
    Key("upkeep.alerts_every_s", _LIVE, "How often the gateway evaluates the rules of alerts"),
    Key("cron.max_per_agent", _LIVE, "How many schedules an agent may have made for itself"),
    Key("cron.min_agent_interval_s", _LIVE, "How often a schedule that an agent made may fire at most"),
    Key("cron.max_retries", _LIVE, "How often an interrupted firing is queued again before it fails"),
    Key(
        "cron.release_after_s",
        _LIVE,
        "After how long without a gateway the names of its schedules are free for others",
    ),
    Key(
        "wakes.smart_wake",
        _RESTART,
        "What happens when a run reaches its run_timeout, unless its task says it: save and wake it "
        "(`always`), let it time out (`never`), or decide by its estimate and its progress (`auto`)",
    ),
    Key(
        "wakes.run_timeout_s",
        _RESTART,
        "How long one run of a Python task may take, unless its task sets `run_timeout`; without it "
        "there is no limit",
    ),
    Key(
        "wakes.stop_before",
        _RESTART,
        "The share of the run_timeout that is left when a run is asked to stop",
    ),
    Key(
        "wakes.on_above",
        _RESTART,
        "Smart wake is on from the start if a run is estimated to take more than this share of its "
        "run_timeout",
    ),
    Key(
        "wakes.chunk_s",
        _RESTART,
        "How often a run with smart wake records a checkpoint; without it every 5 to 15 minutes, by its "
        "run_timeout",
    ),
    Key(
        "wakes.delay_min_s",
        _RESTART,
        "How long after the save a run is woken, when nothing else is to be done",
    ),
    Key("wakes.delay_max_s", _RESTART, "The same when 100 tasks or more are queued or running"),
    Key("agents.*.callable", _RESTART, "A Python function or task, as `module:name`"),
    Key("agents.*.command", _RESTART, "A program and its arguments; it gets the message on its stdin"),
    Key(
        "agents.*.stdin",
        _RESTART,
        "What a command reads: the message as `text`, one `json` document, or `guided`: the text after a "
        "paragraph about its time limit",
    ),
    Key("agents.*.pydantic_ai", _RESTART, "A pydantic-ai agent, as `module:name`"),
    Key("agents.*.timeout_s", _RESTART, "How long one answer may take; without it there is no limit"),
    Key(
        "agents.*.run_timeout_s",
        _RESTART,
        "How long the agent may work without a break; then it is saved, and woken to go on",
    ),
    Key(
        "agents.*.warn",
        _RESTART,
        "How a command is warned before its run_timeout_s: a line on its `stdin`, or the signal `SIGUSR1`",
    ),
    Key(
        "agents.*.done_files",
        _RESTART,
        "Files that must exist before a command's answer counts; until then it is woken to go on",
    ),
    Key(
        "agents.*.done_command",
        _RESTART,
        "A command that must end with status 0 before the answer counts; it only looks",
    ),
    Key(
        "agents.*.directory",
        _RESTART,
        "The agent's working directory, relative to the home; default: the home",
    ),
    Key(
        "agents.*.env",
        _RESTART,
        "Environment variables of a command, each with the name of the gateway's variable that it gets",
    ),
    Key("agents.*.session", _RESTART, "The session for messages that name none"),
    Key("schedules.*.cron", _LIVE, "When it fires: minute, hour, day, month, weekday"),
    Key("schedules.*.every", _LIVE, 'At a fixed interval, such as "15m", counted from 1970'),
    Key("schedules.*.at", _LIVE, "Once, at this moment"),
    Key("schedules.*.tz", _LIVE, "The time zone of these times"),
    Key("schedules.*.agent", _LIVE, "Which agent gets the prompt"),
    Key("schedules.*.session", _LIVE, "Which of its sessions gets the prompt"),
    Key("schedules.*.prompt", _LIVE, "The prompt for the agent"),
    Key("schedules.*.task", _LIVE, "The task to start, as `module:task` or by its name"),
    Key("schedules.*.args", _LIVE, "The arguments of the task, by name"),
    Key("schedules.*.command", _LIVE, "The program to run, then its arguments"),
    Key("schedules.*.directory", _LIVE, "The command's working directory, relative to the home"),
    Key("schedules.*.timeout_s", _LIVE, "For how long a command may run"),
    Key("schedules.*.missed", _LIVE, "What fires after a time without a gateway: `skip`, `latest` or `all`"),
    Key("schedules.*.max_missed", _LIVE, "With `all`: how many missed occurrences fire, the latest ones"),
    Key(
        "schedules.*.overlap",
        _LIVE,
        "What an occurrence does while the firing before it runs: `skip`, `queue` or `replace`",
    ),
    Key("schedules.*.jitter", _LIVE, "Fire up to this much later, the same for every gateway"),
    Key(
        "schedules.*.retry",
        _LIVE,
        "Whether an interrupted firing is queued again; default: `gateway.restart.cron_retry_on_interrupt`",
    ),
    Key("schedules.*.is_enabled", _LIVE, "Whether it fires at all"),
    Key("channels.*.kind", _RESTART, "`webhook` or `apprise`"),
    Key("channels.*.secret_env", _RESTART, "A webhook's secret: the name of the variable that holds it"),
    Key(
        "channels.*.secret_file", _RESTART, "A webhook's secret: the file that holds it; relative to the home"
    ),
    Key("channels.*.url", _RESTART, "Where a webhook's answers are posted", is_secret=True),
    Key("channels.*.agent", _RESTART, "Which agent answers incoming webhook messages"),
    Key(
        "channels.*.command_peers",
        _RESTART,
        "Which peers may use chat commands; `*` for all; default: the one who began the session",
    ),
    Key("channels.*.urls", _RESTART, "Where apprise sends answers", is_secret=True),
    Key(
        "channels.*.urls_file",
        _RESTART,
        "The private file that holds those URLs, one per line; relative to the home",
    ),
    Key("channels.*.timeout_s", _RESTART, "How long one send may take"),
    Key("tokens.*.token_env", _LIVE, "An API token: the environment variable that contains it"),
    Key("tokens.*.token_file", _LIVE, "An API token: the file that contains it; relative to the home"),
    Key(
        "tokens.*.scopes",
        _LIVE,
        "What the token allows: `operator.read`, `operator.write`, `operator.admin`",
    ),
    Key("tokens.*.owner", _LIVE, "The only owner whose tasks the token may reach"),
    Key("tokens.*.tasks", _LIVE, "The only task names that the token may reach"),
    Key(
        "tokens.*.methods",
        _LIVE,
        "The only methods that the token may call; default: all that its scopes allow",
    ),
    Key("tokens.*.expires_at", _LIVE, "When the token expires: a time with its UTC offset"),
    Key(
        "secrets.*.env",
        _LIVE,
        'A secret that programs use as `hf.secret("NAME")`: the environment variable that contains it',
    ),
    Key(
        "secrets.*.tasks",
        _LIVE,
        "Which tasks may use it; without `tasks` and `agents`, every task of the gateway may",
    ),
    Key("secrets.*.agents", _LIVE, "Which agents may use it"),
    Key("plugins.*.owner", _RESTART, "Whose tasks an installed plug-in may reach; default: `plugin:<name>`"),
    Key("plugins.*.is_enabled", _RESTART, "Whether an installed plug-in runs"),
    Key("workflows.*.goal", _LIVE, "What the flow is for"),
    Key(
        "workflows.*.nodes",
        _LIVE,
        "The nodes of the flow, each with its `task`, `args`, `needs`, `goal` and `priority`",
    ),
    Key("alerts.*.condition", _LIVE, "When the alert is raised: a comparison of figures"),
    Key("alerts.*.severity", _LIVE, "`info`, `warning` or `critical`"),
    Key(
        "alerts.*.action",
        _LIVE,
        "What is done then, joined with `+`: `notify_human`, `restart_agent`, `force_checkpoint`, "
        "`pause_campaign`",
    ),
    Key("alerts.*.raise_after", _LIVE, "How long the condition must be true first; also spelled `for`"),
    Key("alerts.*.clear_after", _LIVE, "How long it must be over before the alert is cleared"),
    Key(
        "alerts.*.clear_when",
        _LIVE,
        "Another condition that must be true before the alert is cleared; default: the opposite",
    ),
    Key("alerts.*.campaigns", _LIVE, "The only campaigns that it is about, with `*` and `?`; default: all"),
    Key(
        "alerts.*.channels",
        _LIVE,
        "The channels of its notices; default: `gateway.alert_urls`, else all channels of kind apprise",
    ),
    Key("alerts.*.is_enabled", _LIVE, "Whether it is evaluated at all"),
    Key(
        "policies.retention",
        _RESTART,
        "For how many days ended tasks are kept, by runtime, or `lost`; `upkeep.keep_days` goes first",
    ),
    Key(
        "policies.concurrency.gateway",
        _RESTART,
        "How many runs the gateway executes at a time; `gateway.capacity` goes first",
    ),
    Key(
        "policies.concurrency.campaign",
        _LIVE,
        "How many items of a new campaign are in flight at a time, unless it says it itself",
    ),
    Key("policies.concurrency.host", _LIVE, "The same on one host"),
    Key(
        "policies.retry.attempts",
        _RESTART,
        "How often a Python task is tried that does not set `attempts` itself",
    ),
    Key(
        "policies.quiet_hours.start",
        _LIVE,
        'From when notices of alerts are held back, such as "22:00"; default: they are not held back',
    ),
    Key("policies.quiet_hours.end", _LIVE, "Until when"),
    Key("policies.quiet_hours.tz", _LIVE, "The time zone of these times"),
    Key("policies.quiet_hours.let_through", _LIVE, "Severities whose notices are sent at once all the same"),
    Key(
        "policies.approval.effects",
        _RESTART,
        "Classes of effects that a person approves before each is performed: `holdfast reviews list`",
    ),
)
_BY_NAME = {key.name: key for key in KEYS}


class SettingChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changed keys, grouped by what their change needs."""

    live: list[str] = []
    restart: list[str] = []
    up: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.live or self.restart or self.up)


def changed(old: Config, new: Config) -> SettingChanges:
    """The difference between two settings. An added or removed agent, schedule or channel is one change."""
    before, after = values(old), values(new)
    names = list(dict.fromkeys([*_entries(old), *_entries(new)]))
    moved = [name for name in names if (name in _entries(old)) != (name in _entries(new))]
    keys = [key for key in after if key in before and before[key] != after[key]]
    found: dict[ApplyMode, list[str]] = {one: [] for one in ApplyMode}
    for name in [*keys, *moved]:
        found[applies(name)].append(name)
    return SettingChanges(live=found[_LIVE], restart=found[_RESTART], up=found[_UP])


def with_live(old: Config, new: Config) -> Config:
    """The old settings, with the live keys of the new ones.

    A new schedule of an agent that needs a restart waits for that restart; so does a rule of alerts with a
    new channel.
    """
    late = {
        name for name, one in new.schedules.items() if one.agent is not None and one.agent not in old.agents
    }
    schedules = {name: one for name, one in new.schedules.items() if name not in late}
    schedules |= {name: one for name, one in old.schedules.items() if name in late}
    # Config checks itself when it is built, so first build a consistent one.
    whole = msgspec.structs.replace(
        new, agents=old.agents, channels=old.channels, schedules=schedules, alerts=_alerts_until(old, new)
    )
    return _with_live(old, whole, "")


def _alerts_until(old: Config, new: Config) -> dict[str, AlertSettings]:
    """The new rules; one that names a new channel stays as it was until the restart."""
    late = {name for name, one in new.alerts.items() if not old.channels.keys() >= set(one.channels)}
    found = {name: one for name, one in new.alerts.items() if name not in late}
    return found | {name: old.alerts[name] for name in late if name in old.alerts}


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
    """The table entry of a concrete key such as `agents.main.command`."""
    section, _, rest = name.partition(".")
    if section in SECTIONS:
        name = f"{section}.{ANY}.{rest.rpartition('.')[2]}" if rest.count(".") == 1 else ""
    return _BY_NAME.get(name)


def applies(name: str) -> ApplyMode:
    """What a change of a key needs; for a whole agent, schedule or channel, the most that any key needs."""
    key = key_of(name)
    if key is not None:
        return key.applies
    section = name.partition(".")[0]
    found = {key.applies for key in KEYS if key.name.startswith(f"{section}.{ANY}.")}
    return next(one for one in (_UP, _RESTART, _LIVE) if one in found)


def values(config: Config) -> dict[str, Any]:
    """Every key of these settings with its value, in the order of the table."""
    return dict(_values(config, ""))


def defaults() -> dict[str, Any]:
    """The default of each key of the table; keys without a default are left out."""
    found = {name: value for name, value in values(Config()).items() if not name.startswith("alerts.")}
    for section, kind in ENTRIES.items():
        for field in msgspec.structs.fields(kind):
            name = f"{section}.{ANY}.{field.name}"
            if field.default_factory is not msgspec.NODEFAULT:
                found[name] = field.default_factory()
            elif field.default is not msgspec.NODEFAULT:
                found[name] = field.default
    # A session of its own for each schedule.
    return found | {f"schedules.{ANY}.session": "cron-<name>"}


def fit_to_show(name: str, value: Any) -> Any:
    """The value of a key without secrets: passwords, tokens, and what looks like one."""
    key = key_of(name)
    what = name.rpartition(".")[2]
    if what.endswith("command") and isinstance(value, list) and all(isinstance(one, str) for one in value):
        return command_to_show(value)
    if what == "env" and isinstance(value, dict):
        # Show only names of variables; anything else may be a secret value.
        return {one: ours if _VARIABLE.fullmatch(str(ours)) else "…" for one, ours in value.items()}
    if isinstance(value, datetime):
        return value.isoformat()
    if what == "nodes":
        value = msgspec.to_builtins(value)
    if key is None or not key.is_secret:
        return redact(value)
    if isinstance(value, list):
        return [fit_to_show(name, one) for one in value]
    if not isinstance(value, str):
        return value if value is None else "…"
    if name == "store.url":
        return without_password(value)
    # For many services the rest of the URL is the secret.
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
