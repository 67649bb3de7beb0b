"""Config and its sections: every setting with its default and its limits."""

from __future__ import annotations

import ipaddress
import math
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeAlias

import msgspec

from holdfast.config.alerts import AlertSettings, default_alerts
from holdfast.config.flows import FlowSettings
from holdfast.config.policies import MAX_KEEP_DAYS, MIN_KEEP_DAYS, PolicySettings
from holdfast.core.alert import AlertRule
from holdfast.core.checkpoint import DEFAULT_MAX_IDLE_ATTEMPTS
from holdfast.core.errors import BadInput
from holdfast.core.keep_limits import KEEP_RESULTS_BYTES, MAX_KEEP_RESULTS_BYTES
from holdfast.core.retention import KINDS, RetentionLimits
from holdfast.core.schedule_spec import MAX_CATCH_UP, MissedPolicy, OverlapPolicy, ScheduleSpec
from holdfast.core.secret import is_own_variable
from holdfast.core.smart_wake import SmartWake, WakeOptions

DEFAULT_PORT = 4653
# The channel of `gateway.alert_urls`: no declared channel can have this name.
ALERT_CHANNEL = "gateway.alert_urls"
MAX_SEND_S = 25.0  # less than the claim of a delivery allows
MAX_TIMEOUT_S = 10 * 366 * 86_400.0  # ten years: more is likely a wrong unit

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_SECRET = re.compile(r"[A-Z][A-Z0-9_]{0,99}")  # the same as in hf.secret
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_OBJECT = re.compile(rf"{_MODULE.pattern}:{_MODULE.pattern}")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_HTTP = re.compile(r"https?://[^\s/]\S*")

Scope: TypeAlias = Literal["operator.read", "operator.write", "operator.admin"]
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
_Positive = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIMEOUT_S)]


class InvalidField(ValueError):
    """A field with an invalid value, and the fix."""

    def __init__(self, field: str, value: object, fix: str) -> None:
        super().__init__(f"{field}: {fix}")
        self.field, self.value, self.fix = field, value, fix


class _Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section of the settings. An unknown key is an error, never ignored."""

    def _refuse(self, field: str, fix: str) -> NoReturn:
        value = self
        for name in field.split("."):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
        raise InvalidField(field, value, fix)

    def _check_all(self, pattern: re.Pattern[str], fix: str, *fields: str) -> None:
        """Check the strings of these fields, single or in lists; unset fields pass."""
        for field in fields:
            value = getattr(self, field)
            texts = value if isinstance(value, list) else [] if value is None else [value]
            if not all(pattern.fullmatch(text) for text in texts):
                self._refuse(field, fix)

    def _check_path(self, field: str, fix: str) -> None:
        value = getattr(self, field)
        if value is None:
            return
        if not value.strip() or "\0" in value:
            self._refuse(field, fix)
        try:
            Path(value).expanduser()
        except RuntimeError:
            self._refuse(field, "there is no such user; write the full path")

    def _check_networks(self, field: str) -> None:
        for text in getattr(self, field):
            try:
                ipaddress.ip_network(text)
            except ValueError:
                fix = "write each as an address or a network, such as 10.0.0.5, 10.0.0.0/24 or fd00::/64"
                self._refuse(field, fix)

    def _check_finite(self, *fields: str) -> None:
        for field in fields:
            value = getattr(self, field)
            if value is not None and not math.isfinite(value):
                self._refuse(field, "write a number of seconds")


class RestartSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to work in flight when the gateway restarts."""

    session_recovery: bool = True
    cron_retry_on_interrupt: bool = True
    readiness_gate: bool = True
    readiness_gate_threshold: _Count = 0
    drain_queue_messages: bool = True
    manifest_path: str = "restart-manifest.json"
    drain_timeout_s: _Seconds = 90.0
    max_attempts_without_progress: _Positive = DEFAULT_MAX_IDLE_ATTEMPTS
    # More than the store has writers would only wait for each other.
    resume_concurrency: Annotated[int, msgspec.Meta(ge=1, le=100)] = 2

    def __post_init__(self) -> None:
        self._check_finite("drain_timeout_s")
        self._check_path("manifest_path", "name a file; a relative path starts at the home")


class TlsSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator's own certificate and its key; without both the doors speak plain HTTP."""

    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if (self.cert is None) != (self.key is None):
            missing, given = ("cert", "key") if self.cert is None else ("key", "cert")
            self._refuse(missing, f"{given} is set, so set both; or remove both for plain HTTP")
        for field in ("cert", "key"):
            self._check_path(field, "name a file; a relative path begins at the home")

    @property
    def is_on(self) -> bool:
        return self.cert is not None


class GatewaySettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The gateway: where it listens, which clients it accepts, and its limits."""

    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = DEFAULT_PORT
    allowed_hosts: list[str] = []
    allowed_origins: list[str] = []
    trusted_proxies: list[str] = []
    rate_limit_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 50.0
    max_body_bytes: Annotated[int, msgspec.Meta(ge=1024, le=64 * 1024**2)] = 1024**2
    capacity: _Positive = 1000
    alert_urls: list[str] = []
    alert_after_s: _Seconds = 60.0
    owner: str = "system"
    python_path: list[str] = []
    tls: TlsSettings = TlsSettings()
    restart: RestartSettings = RestartSettings()

    def __post_init__(self) -> None:
        self._check_finite("rate_limit_per_s", "alert_after_s")
        if not self.host or not re.fullmatch(r"[\w.:%-]+", self.host):
            self._refuse("host", "name one address to listen on, such as 127.0.0.1 or ::1")
        fix = "write each as in a Host header: name or name:port"
        self._check_all(re.compile(r"[\w.-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?"), fix, "allowed_hosts")
        fix = "write each as a browser sends it: https://name or https://name:port, without a path"
        self._check_all(re.compile(r"https?://[^\s/?#]+"), fix, "allowed_origins")
        self._check_networks("trusted_proxies")
        self._check_all(_URL, "write each as a URL: https://… or one that apprise knows", "alert_urls")
        self._check_all(
            re.compile(r"\S(.{0,198}\S)?"), "name the owner of tasks that are created without one", "owner"
        )
        for place in self.python_path:
            if not place.strip() or "\0" in place:
                self._refuse("python_path", "name directories; a relative path starts at the home")
            try:
                Path(place).expanduser()
            except RuntimeError:
                self._refuse("python_path", "there is no such user; write the full path")

    @property
    def burst(self) -> float:
        """How many requests may come at once before the rate limit applies."""
        return 4 * self.rate_limit_per_s


class UpkeepSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often the ledger is swept, and when recorded work is lost."""

    sweep_every_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 60.0
    lost_after_s: Annotated[float, msgspec.Meta(ge=60, le=MAX_TIMEOUT_S)] = 300.0
    # By the names of runtimes, and `lost`.
    keep_days: dict[str, Annotated[float, msgspec.Meta(ge=MIN_KEEP_DAYS, le=MAX_KEEP_DAYS)]] = {}
    alerts_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 15.0

    def __post_init__(self) -> None:
        self._check_finite("sweep_every_s", "lost_after_s", "alerts_every_s")
        for kind, days in self.keep_days.items():
            if kind not in KINDS:
                self._refuse(f"keep_days.{kind}", f"name one of {', '.join(KINDS)}")
            if not MIN_KEEP_DAYS <= days <= MAX_KEEP_DAYS:
                self._refuse(f"keep_days.{kind}", f"write a number from {MIN_KEEP_DAYS} to {MAX_KEEP_DAYS}")

    @property
    def limits(self) -> RetentionLimits:
        return RetentionLimits(kinds={kind: timedelta(days=days) for kind, days in self.keep_days.items()})


class WakeSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a run may take, and how it is saved and woken before that; tasks may set the first two."""

    smart_wake: Literal["auto", "always", "never"] = "auto"
    run_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None
    # Shares of the limit: left when the run is asked to stop; estimated, so that smart wake is switched on.
    stop_before: Annotated[float, msgspec.Meta(ge=0.01, le=0.9)] = 0.15
    on_above: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.7
    chunk_s: Annotated[float, msgspec.Meta(ge=1, le=MAX_TIMEOUT_S)] | None = None
    delay_min_s: _Seconds = 120.0
    delay_max_s: _Seconds = 600.0

    def __post_init__(self) -> None:
        self._check_finite(
            "run_timeout_s", "stop_before", "on_above", "chunk_s", "delay_min_s", "delay_max_s"
        )
        if self.delay_max_s < self.delay_min_s:
            fix = f"it is shorter than delay_min_s ({self.delay_min_s:g}); set both, such as 120 and 600"
            self._refuse("delay_max_s", fix)

    @property
    def options(self) -> WakeOptions:
        return WakeOptions(
            smart_wake=SmartWake(self.smart_wake),
            run_timeout=_span(self.run_timeout_s),
            stop_before=self.stop_before,
            on_above=self.on_above,
            chunk=_span(self.chunk_s),
            delay_least=timedelta(seconds=self.delay_min_s),
            delay_most=timedelta(seconds=self.delay_max_s),
        )


class AgentSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One agent: a Python callable, a command or a pydantic-ai agent, exactly one of them."""

    callable: str | None = None
    command: list[str] = []
    # What a command reads on stdin: only the text, a JSON document, or the text after a paragraph that tells
    # a model its time limit and how to hand over a checkpoint.
    stdin: Literal["text", "json", "guided"] = "text"
    pydantic_ai: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None
    # How long it may work without a break; then it is saved and woken.
    run_timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None
    # How a command is warned before that; None: not at all.
    warn: Literal["stdin", "SIGUSR1"] | None = None
    # What must hold before a command's answer counts: files, and a command that ends with status 0.
    done_files: list[str] = []
    done_command: list[str] = []
    directory: str | None = None
    # The agent's variable, and the name of the gateway's variable with its value; never a value.
    env: dict[str, str] = {}
    session: str = "main"

    def __post_init__(self) -> None:
        ways = [way for way in ("callable", "command", "pydantic_ai") if getattr(self, way)]
        if len(ways) != 1:
            fix = 'set exactly one of callable = "module:function", command = ["program"] and pydantic_ai'
            self._refuse(ways[1] if ways else "callable", fix)
        fix = 'write "module:name"'
        self._check_all(_OBJECT, fix, "callable", "pydantic_ai")
        self._check_finite("timeout_s")
        if self.command and (not self.command[0].strip() or any("\0" in word for word in self.command)):
            self._refuse("command", "start with the program, then one string for each argument")
        if self.stdin != "text" and not self.command:
            self._refuse("stdin", "only a command reads stdin; remove this key")
        self._check_run_timeout()
        self._check_path("directory", "name a directory; a relative path starts at the home")
        for name, ours in self.env.items():
            if not _VARIABLE.fullmatch(name) or not _SECRET.fullmatch(ours):
                # Do not show the value: it may be the secret itself.
                fix = "write the name of a variable of the gateway, in capitals, such as OPENAI_API_KEY"
                raise InvalidField("env", "…", fix)
            if is_own_variable(ours):
                raise InvalidField(
                    "env", {name: ours}, f"{ours} is reserved for the gateway: use another variable"
                )
        _check_session(self)

    def _check_run_timeout(self) -> None:
        self._check_finite("run_timeout_s")
        limit = self.run_timeout_s
        if limit is not None and self.timeout_s is not None and limit > self.timeout_s:
            fix = f"one run may not take longer than the whole answer (timeout_s = {self.timeout_s:g})"
            self._refuse("run_timeout_s", f"{fix}; set a shorter one, such as {self.timeout_s / 10:g}")
        for key in ("done_files", "done_command"):
            given: list[str] = getattr(self, key)
            if given and (not self.command or limit is None):
                fix = "only a command with a run_timeout_s is started again until it is done"
                self._refuse(key, f"{fix}; set both, or remove this key")
            if any(not one.strip() or "\0" in one for one in given):
                self._refuse(key, 'write a list of words, such as ["report.md"] or ["pytest", "-q"]')
        if self.stdin == "guided" and limit is None:
            self._refuse("stdin", "guided tells a command about its time limit; set run_timeout_s, too")
        if self.warn is None:
            return
        if not self.command or limit is None:
            self._refuse(
                "warn", "only a command with a run_timeout_s is warned; set both, or remove this key"
            )
        if self.warn == "stdin" and self.stdin != "json":
            fix = 'the warning is a line after the document, so the command must read lines: stdin = "json"'
            self._refuse("warn", fix)


class ScheduleSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One schedule: when it fires, and for what: an agent's prompt, a task or a command."""

    cron: str | None = None
    every: str | float | None = None
    at: str | None = None
    tz: str = "UTC"
    agent: str | None = None
    # The default from a file is `cron-<name>`, so that no two schedules share a session.
    session: str = "cron"
    prompt: str | None = None
    # `module:task`, or the name of a task that the gateway knows.
    task: str | None = None
    args: dict[str, Any] = {}
    command: list[str] = []
    directory: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] | None = None
    missed: Literal["skip", "latest", "all"] = "latest"
    max_missed: Annotated[int, msgspec.Meta(ge=1, le=MAX_CATCH_UP)] = 10
    overlap: Literal["skip", "queue", "replace"] = "queue"
    jitter: str | float = 0
    # None: what gateway.restart.cron_retry_on_interrupt says.
    retry: bool | None = None
    is_enabled: bool = True

    def __post_init__(self) -> None:
        from holdfast.config.timetable import check_spec

        self._check_finite("timeout_s")
        self._check_path("directory", "name a directory; a relative path starts at the home")
        try:
            check_spec(self.spec)
        except BadInput as error:
            field = {"arguments": "args"}.get(error.field, error.field)
            self._refuse(field if hasattr(self, field) else "cron", error.problem)
        if self.agent is not None:
            _check_session(self)

    @property
    def spec(self) -> ScheduleSpec:
        """The same, as the ledger has it. Raises BadInput."""
        from holdfast.config.timetable import moment_in, seconds_of

        return ScheduleSpec(
            cron=self.cron,
            every_s=None if self.every is None else seconds_of("every", self.every),
            at=None if self.at is None else moment_in(self.at, self.tz),
            tz=self.tz,
            agent=self.agent,
            session=None if self.agent is None else self.session,
            prompt=self.prompt,
            task=None if self.task is None else self.task.rpartition(":")[2],
            arguments=self.args,
            command=self.command,
            directory=self.directory,
            timeout_s=self.timeout_s,
            missed=MissedPolicy(self.missed),
            max_missed=self.max_missed,
            overlap=OverlapPolicy(self.overlap),
            jitter_s=seconds_of("jitter", self.jitter),
            retry=self.retry,
            is_enabled=self.is_enabled,
        )


class CronSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of schedules: what agents may schedule themselves, and when a name is free again."""

    max_per_agent: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 20
    min_agent_interval_s: Annotated[float, msgspec.Meta(ge=1, le=MAX_TIMEOUT_S)] = 300.0
    max_retries: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 5
    release_after_s: Annotated[float, msgspec.Meta(ge=60, le=MAX_TIMEOUT_S)] = 86_400.0

    def __post_init__(self) -> None:
        self._check_finite("min_agent_interval_s", "release_after_s")


class ChannelSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One channel: signed webhooks in and out, or notices through apprise."""

    kind: Literal["webhook", "apprise"]
    # For a webhook: where the secret is, never the secret; the URL for answers; the agent for messages.
    secret_env: str | None = None
    secret_file: str | None = None
    url: str | None = None
    agent: str | None = None
    # The peers that may use chat commands; None for the one who began the session.
    command_peers: list[str] | None = None
    # For apprise: the URLs, or the file that holds them, one per line.
    urls: list[str] = []
    urls_file: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=MAX_SEND_S)] = 20.0

    def __post_init__(self) -> None:
        self._check_finite("timeout_s")
        own, other = ("secret_env secret_file url agent command_peers", "urls urls_file")
        if self.kind == "apprise":
            own, other = other, own
        for field in other.split():
            if getattr(self, field) not in (None, []):
                self._refuse(
                    field, f"a channel of kind {self.kind} has only {', '.join(own.split())}; remove this key"
                )
        if self.kind == "apprise":
            if bool(self.urls) == (self.urls_file is not None):
                fix = "set either urls, a list of URLs that apprise knows, or urls_file, their file"
                self._refuse("urls", fix)
            self._check_file("urls_file")
            self._check_all(_URL, "write each as a URL that apprise knows, such as mailto://…", "urls")
        else:
            self._check_webhook()

    def _check_file(self, field: str) -> None:
        path = getattr(self, field)
        if path is not None and (not path.strip() or "\0" in path):
            self._refuse(field, "name a file; a relative path starts at the home")

    def _check_webhook(self) -> None:
        if (self.secret_env is None) == (self.secret_file is None):
            self._refuse(
                "secret_env", "set either secret_env, the name of a variable, or secret_file, a path"
            )
        if self.secret_env is not None and not _VARIABLE.fullmatch(self.secret_env):
            raise InvalidField("secret_env", "…", "write the name of a variable, never the secret itself")
        self._check_file("secret_file")
        self._check_all(_HTTP, "write an http:// or https:// URL", "url")
        if self.agent is None and self.url is None:
            self._refuse(
                "agent", "name the agent that answers incoming messages, or the url for outgoing ones"
            )


class TokenSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One API token: where it is stored, and what it allows."""

    token_env: str | None = None
    token_file: str | None = None
    scopes: list[Scope] = msgspec.field(default_factory=lambda: ["operator.read"])
    # The only owner whose tasks it may reach; None for all owners.
    owner: str | None = None
    # The only task names that it may reach, and the only methods that it may call; None for all.
    tasks: list[str] | None = None
    methods: list[str] | None = None
    expires_at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.token_env is None) == (self.token_file is None):
            self._refuse("token_env", "set either token_env, the name of a variable, or token_file, a path")
        if self.token_env is not None and not _VARIABLE.fullmatch(self.token_env):
            raise InvalidField("token_env", "…", "write the name of a variable, never the token itself")
        self._check_path("token_file", "name a file; a relative path starts at the home")
        if not self.scopes:
            self._refuse("scopes", "name at least one of operator.read, operator.write and operator.admin")
        self._check_all(re.compile(r"\S(.{0,198}\S)?"), "name the owner of the tasks", "owner")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            self._refuse("expires_at", "write a time with its UTC offset, such as 2030-01-31T00:00:00Z")
        self._check_all(re.compile(r"\S(.{0,198}\S)?"), "write names of tasks", "tasks")
        fix = "write names of methods, such as ledger.create; the guide to RPC lists them"
        self._check_all(re.compile(r"[a-z_]+(\.[a-z_]+)*"), fix, "methods")
        if (self.owner is not None or self.tasks is not None) and "operator.admin" in self.scopes:
            fix = "a token that is limited to an owner or to tasks cannot have operator.admin; leave it out"
            self._refuse("scopes", fix)


class SecretSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One secret for programs: its environment variable, and the tasks and agents that may use it."""

    env: str
    # Names of tasks and agents. If neither is set, every task of the gateway may use it.
    tasks: list[str] | None = None
    agents: list[str] | None = None

    def __post_init__(self) -> None:
        if not _VARIABLE.fullmatch(self.env):
            raise InvalidField("env", "…", "write the name of a variable, never the secret itself")
        if is_own_variable(self.env):
            self._refuse("env", "this variable is reserved for the gateway: name another")
        self._check_all(re.compile(r"\S(.{0,198}\S)?"), "write names of tasks", "tasks")
        self._check_all(_NAME, "write names of agents", "agents")

    def is_for(self, agent: str) -> bool:
        if self.tasks is None and self.agents is None:
            return True
        return agent in (self.agents or ()) or f"agent.{agent}" in (self.tasks or ())


class StoreSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the ledger is, and which values are sealed. `store = "URL"` is the short form."""

    url: str | None = None
    seal: Literal["secrets", "all", "never"] = "secrets"
    key_command: list[str] = []
    keep_results: Annotated[int, msgspec.Meta(ge=0, le=MAX_KEEP_RESULTS_BYTES)] = KEEP_RESULTS_BYTES

    def __post_init__(self) -> None:
        argv = self.key_command
        if argv and (not argv[0].strip() or any("\0" in word for word in argv)):
            self._refuse("key_command", "start with the program, then one string for each argument")


class PluginSettings(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One installed plug-in: whose tasks it may reach, and whether it runs."""

    # None: its own, `plugin:<name>`.
    owner: str | None = None
    is_enabled: bool = True

    def __post_init__(self) -> None:
        self._check_all(re.compile(r"\S(.{0,198}\S)?"), "name the owner of the tasks", "owner")


class Config(_Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings."""

    store: StoreSettings = StoreSettings()
    tasks: list[str] = []
    gateway: GatewaySettings = GatewaySettings()
    upkeep: UpkeepSettings = UpkeepSettings()
    cron: CronSettings = CronSettings()
    wakes: WakeSettings = WakeSettings()
    agents: dict[str, AgentSettings] = {}
    schedules: dict[str, ScheduleSettings] = {}
    channels: dict[str, ChannelSettings] = {}
    tokens: dict[str, TokenSettings] = {}
    secrets: dict[str, SecretSettings] = {}
    plugins: dict[str, PluginSettings] = {}
    workflows: dict[str, FlowSettings] = {}
    # Without any, those of the default; see `named_rules` for a list of rules.
    alerts: dict[str, AlertSettings] = msgspec.field(default_factory=default_alerts)
    policies: PolicySettings = PolicySettings()

    def __post_init__(self) -> None:
        self._check_all(
            re.compile(f"{_MODULE.pattern}(:{_MODULE.pattern})?"),
            'write "package.module" or "module:task"',
            "tasks",
        )
        for section in ("agents", "schedules", "channels", "tokens", "workflows", "alerts"):
            for name in getattr(self, section):
                if not _NAME.fullmatch(name):
                    fix = "use 1 to 64 letters, digits, - and _, starting with a letter or digit"
                    raise InvalidField(f"{section}.{name}", name, fix)
        for section, parts in (("schedules", self.schedules), ("channels", self.channels)):
            for name, part in parts.items():
                if part.agent is not None and part.agent not in self.agents:
                    known = ", ".join(sorted(self.agents)) or "there are none"
                    self._refuse(f"{section}.{name}.agent", f"name one of the agents ({known})")
        self._check_secrets()
        for name, flow in self.workflows.items():
            try:
                flow.definition(name)
            except BadInput as error:
                raise InvalidField(f"workflows.{name}.nodes", list(flow.nodes), str(error)) from error
        self._check_alerts()
        self._check_policies()

    def _check_alerts(self) -> None:
        """Try every rule that is not one of the default: a wrong one is refused with its name."""
        default = default_alerts()
        for name, one in self.alerts.items():
            if one == default.get(name):
                continue
            try:
                one.tried_rule(name)
            except BadInput as error:
                field = error.field if error.field in one.__struct_fields__ else "condition"
                self._refuse(f"alerts.{name}.{field}", error.problem)
            if unknown := [one for one in one.channels if one not in self.channels]:
                known = ", ".join(sorted(self.channels)) or "there are none"
                self._refuse(
                    f"alerts.{name}.channels",
                    f"there is no channel {unknown[0][:64]!a}; name one of the channels ({known})",
                )

    def _check_policies(self) -> None:
        if not set(self.policies.retention) <= set(KINDS):
            self._refuse("policies.retention", f"name one of {', '.join(KINDS)}")
        try:
            _ = self.policies.quiet_hours.hours
        except BadInput as error:
            self._refuse(f"policies.quiet_hours.{error.field}", error.problem)

    @property
    def alert_rules(self) -> tuple[AlertRule, ...]:
        """Those that are evaluated."""
        return tuple(one.rule(name) for name, one in self.alerts.items() if one.is_enabled)

    @property
    def alert_channels(self) -> tuple[str, ...]:
        """Where notices of alerts go if their rule names no channel."""
        if self.gateway.alert_urls:
            return (ALERT_CHANNEL,)
        return tuple(name for name, one in self.channels.items() if one.kind == "apprise")

    def _check_secrets(self) -> None:
        """Refuse secrets that are the gateway's own tokens or channel secrets."""
        own = {one.token_env: f"tokens.{name}.token_env" for name, one in self.tokens.items()}
        own |= {one.secret_env: f"channels.{name}.secret_env" for name, one in self.channels.items()}
        for name, one in self.secrets.items():
            if not _SECRET.fullmatch(name):
                fix = 'write the name in capitals, as in hf.secret("NAME"): letters, digits and _'
                raise InvalidField(f"secrets.{name}", "…", fix)
            if is_own_variable(name):
                raise InvalidField(
                    f"secrets.{name}", name, "this name is reserved for the gateway: choose another"
                )
            if one.env in own:
                fix = f"{own[one.env]} uses this variable, so it is reserved for the gateway: name another"
                self._refuse(f"secrets.{name}.env", fix)
            if unknown := set(one.agents or ()) - set(self.agents):
                known = ", ".join(sorted(self.agents)) or "there are none"
                fix = f"there is no agent {min(unknown)!r}; name one of the agents ({known})"
                self._refuse(f"secrets.{name}.agents", fix)
        for name, agent in self.agents.items():
            for ours in agent.env.values():
                if ours in own:
                    fix = f"{own[ours]} uses {ours}, so it is reserved for the gateway: use another variable"
                    self._refuse(f"agents.{name}.env", fix)
                secret = self.secrets.get(ours)
                if secret is not None and not secret.is_for(name):
                    fix = f"secrets.{ours}.agents does not name {name}; add it there if it may use the secret"
                    self._refuse(f"agents.{name}.env", fix)


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _check_session(part: AgentSettings | ScheduleSettings) -> None:
    if not re.fullmatch(r"[^\s:]{1,100}", part.session):
        raise InvalidField("session", part.session, "write a name without spaces and colons")
