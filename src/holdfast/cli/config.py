"""config check, explain: validates the settings, and shows where each comes from."""

from __future__ import annotations

import ipaddress
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import click
import msgspec

from holdfast.app.module_search import places_of
from holdfast.cli.doctor import check, print_checks, worst
from holdfast.cli.errors import FAILED
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.modules import look_for
from holdfast.cli.output import Output, counted
from holdfast.config import in_home, read_home
from holdfast.config.files import Loaded, camel, load
from holdfast.config.sections import (
    AgentSettings,
    ChannelSettings,
    Config,
    ScheduleSettings,
    SecretSettings,
    TokenSettings,
)
from holdfast.config.tls import read_certificate
from holdfast.config.token import TOKEN_NAME, read_named_token, read_secret, read_token, read_urls
from holdfast.core.alert import AlertActionKind
from holdfast.core.errors import BadInput, HoldfastError, SettingsError
from holdfast.views.config import ConfigCheckView, ExplainedView, SettingView
from holdfast.views.health import CheckStatus, CheckView
from holdfast.views.text import one_line

OK, WARN, FAIL = CheckStatus.OK, CheckStatus.WARN, CheckStatus.FAIL
WEB = ("http://", "https://")


@click.group("config", cls=OrderedGroup)
@shared_options
def config() -> None:
    """Check the settings, and explain where each comes from."""


def read(call: Invocation) -> tuple[Path, Loaded]:
    """The home and its settings. Raises SettingsError with the key, the value and the fix."""
    home = read_home(os.environ, home=call.home)
    return home, load(home, os.environ, {"store": call.store})


# --- check


@config.command("check", short_help="Validate the settings.")
@shared_options
@click.pass_context
def check_config(context: click.Context) -> None:
    """Validate all settings, and check that the programs, files and variables they name exist here.

    Exit status 2 if a setting is invalid, 1 if something that they name is missing.
    """
    call: Invocation = context.obj
    home, loaded = read(call)
    checks = [*_look(home, loaded, call.clock.now()), *_key(call, loaded.config), *_gateway(call)]
    view = ConfigCheckView(
        verdict=worst(checks),
        home=one_line(str(home), 1000),
        documents=[one_line(str(path), 1000) for path in loaded.paths],
        checks=checks,
    )
    call.output.show(view, lambda: _print_checked(call.output, view))
    if view.verdict is FAIL:
        context.exit(FAILED)


def _print_checked(output: Output, view: ConfigCheckView) -> None:
    documents = "\n".join(view.documents) or "none: every setting has its default"
    output.fields([("home", view.home), ("documents", documents)])
    output.line()
    print_checks(output, view.checks)


def _look(home: Path, loaded: Loaded, now: datetime) -> Iterator[CheckView]:
    settings = loaded.config
    yield check("settings", OK, f"{counted(len(loaded.sources), 'key')} set, all others have their defaults")
    yield from _token(home)
    yield from _address(settings)
    if settings.gateway.tls.is_on:
        yield from _safely("gateway.tls", partial(_certificate, settings, home, now))
    if settings.gateway.alert_urls:
        # Apprise accepts any web address, as a webhook.
        urls = [url for url in settings.gateway.alert_urls if not url.lower().startswith(WEB)]
        yield from _safely("gateway.alert_urls", partial(_places, "gateway.alert_urls", urls))
    for module in settings.tasks:
        yield from _safely("tasks", partial(_module, settings, home, module))
    for name, agent in settings.agents.items():
        yield from _safely(f"agents.{name}", partial(_agent, settings, home, agent))
    for name, schedule in settings.schedules.items():
        yield from _safely(f"schedules.{name}", partial(_schedule, schedule, now))
    for name, channel in settings.channels.items():
        yield from _safely(f"channels.{name}", partial(_channel, name, channel, home))
    for name, token in settings.tokens.items():
        yield from _safely(f"tokens.{name}", partial(_named_token, name, token, home))
    for name, secret in settings.secrets.items():
        yield from _safely(f"secrets.{name}", partial(_secret, name, secret))
    yield _alerts(loaded)
    for name in settings.workflows:
        yield from _safely(f"workflows.{name}", partial(_flow, settings, home, name))


def _key(call: Invocation, settings: Config) -> Iterator[CheckView]:
    """Check the key of sealed values as the gateway finds it. A key_command is only looked up, not run: it
    may prompt a person, or write an audit entry of its own."""
    from holdfast.cli.doctor import look_at_key
    from holdfast.cli.keys import read_wanted
    from holdfast.store.outer_keys import KEY_VARIABLE

    if settings.store.key_command and KEY_VARIABLE not in os.environ:
        yield from _safely("store.key_command", partial(_program, settings.store.key_command[0]))
        return
    try:
        yield from look_at_key(call, read_wanted(call))
    except HoldfastError as error:  # `holdfast doctor` checks the ledger itself
        yield check("key", WARN, str(error), "holdfast doctor")


def _gateway(call: Invocation) -> Iterator[CheckView]:
    """Whether the running gateway has applied these settings; its environment may differ from ours."""
    from holdfast.cli.gateway import ask_status

    view, _ = ask_status(call)
    if view is None:
        return
    if view.settings_refused is None:
        yield check("gateway", OK, f"process {view.pid} runs with these settings")
    else:
        remedy = "fix the cause; the gateway then retries by itself; check it with `holdfast status`"
        yield check("gateway", FAIL, f"it keeps its previous settings: {view.settings_refused}", remedy)


def _safely(name: str, look: Callable[[], str]) -> Iterator[CheckView]:
    """Report one failing part without hiding the others."""
    try:
        yield check(name, OK, look())
    except SettingsError as error:
        what, _, remedy = str(error).rpartition(": ")
        yield check(name, FAIL, what, remedy)


def _token(home: Path) -> Iterator[CheckView]:
    if not os.environ.get("HOLDFAST_TOKEN") and not (home / TOKEN_NAME).exists():
        yield check("token", OK, "none yet; the first start of the gateway creates it")
        return

    def look() -> str:
        read_token(home, os.environ, may_make=False)
        return "only its owner can read it"

    yield from _safely("token", look)


def _address(settings: Config) -> Iterator[CheckView]:
    host, port = settings.gateway.host, settings.gateway.port
    if is_loopback(host):
        yield check("address", OK, f"{host} port {port}, reachable from this machine only")
    elif settings.gateway.tls.is_on:
        yield check("address", OK, f"{host} port {port}, reachable from other machines, by TLS")
    else:
        what = f"{host} port {port} can be reached from other machines, and the token travels unencrypted"
        remedy = "set gateway.tls.cert and gateway.tls.key, or listen on 127.0.0.1 behind a proxy with TLS"
        yield check("address", WARN, what, remedy)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there. A name other than `localhost` may lead anywhere."""
    host = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _certificate(settings: Config, home: Path, now: datetime) -> str:
    found = read_certificate(settings.gateway.tls, home, now=now)
    assert found is not None
    names = ", ".join(found.names) or "no name"
    return f"for {names}, until {found.expires_at:%Y-%m-%d}; its key is private"


def _alerts(loaded: Loaded) -> CheckView:
    """The rules were checked when they were read; here, whether their notices lead to a person."""
    config = loaded.config
    rules = config.alert_rules
    named = {one for rule in rules for one in rule.channels or config.alert_channels}
    what = counted(len(rules), "rule")
    if named or all(AlertActionKind.NOTIFY_HUMAN not in rule.actions for rule in rules):
        return check("alerts", OK, f"{what}; notices go to {', '.join(sorted(named)) or 'no channel'}")
    # The default rules alone are no reason to warn.
    own = any(key.startswith("alerts.") for key in loaded.sources)
    message = f"{what}, and no channel leads to a person, so notices are not sent"
    remedy = "set gateway.alert_urls, or declare a channel of kind apprise"
    return check("alerts", WARN if own else OK, message, remedy if own else None)


def _flow(settings: Config, home: Path, name: str) -> str:
    nodes = settings.workflows[name].nodes
    for node in nodes.values():
        if ":" in node.task:
            _module(settings, home, node.task)
    # Without an import, the parameters of a task are not known.
    later = "; their arguments are checked when the flow starts"
    return counted(len(nodes), "node") + (later if any(":" in node.task for node in nodes.values()) else "")


def _agent(settings: Config, home: Path, agent: AgentSettings) -> str:
    directory = in_home(home, agent.directory or ".", key="directory")
    if agent.directory is not None and not directory.is_dir():
        raise SettingsError(f"there is no directory {directory}: create it, or name another")
    missing = [ours for ours in agent.env.values() if ours not in os.environ]
    if missing:
        raise SettingsError(
            f"the environment variable {missing[0]} is not set: set it where the gateway starts"
        )
    if agent.command:
        program = agent.command[0]
        # A relative path is resolved from the agent's working directory.
        where = str(directory / program) if "/" in program else program
        if shutil.which(where) is None:
            raise SettingsError(f"program {program!r} not found: install it, or write its full path")
        return f"the command {program}"
    return _module(settings, home, agent.callable or agent.pydantic_ai or "")


def _module(settings: Config, home: Path, spec: str) -> str:
    return look_for(spec, places_of(settings, home))


def _program(program: str) -> str:
    if shutil.which(program) is None:
        raise SettingsError(f"program {program!r} not found: install it, or write its full path")
    return f"the command {program}"


def _schedule(schedule: ScheduleSettings, now: datetime) -> str:
    if not schedule.is_enabled:
        return "off"
    from holdfast.config.timetable import next_after

    following = next_after(schedule.spec, now)
    if following is None:
        return f"over, for {schedule.spec.target}"
    local = following.astimezone(ZoneInfo(schedule.tz))
    return f"next at {local:%Y-%m-%d %H:%M} {schedule.tz}, for {schedule.agent or schedule.spec.target}"


def _channel(name: str, channel: ChannelSettings, home: Path) -> str:
    if channel.kind == "apprise":
        return _places(f"channels.{name}.urls", read_urls(name, channel, home))
    read_secret(name, channel, home, os.environ)
    into = "" if channel.agent is None else f", in to {channel.agent}"
    return f"its secret is set{into}{'' if channel.url is None else ', out by POST'}"


def _named_token(name: str, token: TokenSettings, home: Path) -> str:
    from holdfast.api.tokens import unknown_method_in

    problem = unknown_method_in(token.methods or ())
    if problem is not None:
        raise SettingsError(f"tokens.{name}.methods: {problem}")
    read_named_token(name, token, home, os.environ)
    whose = "" if token.owner is None else f", for the tasks of {token.owner}"
    return f"only its owner can read it; scopes {', '.join(token.scopes)}{whose}"


def _secret(name: str, secret: SecretSettings) -> str:
    if secret.env not in os.environ:
        fix = "set it before you start the gateway"
        raise SettingsError(f"secrets.{name}.env is {secret.env!r}, which is not set here: {fix}")
    users = [*(secret.tasks or ()), *(f"agent {one}" for one in secret.agents or ())]
    if secret.tasks is None and secret.agents is None:
        users = ["every task"]
    return f"{secret.env} is set; {', '.join(users) or 'no task'} may use it"


def _places(key: str, urls: list[str]) -> str:
    """Whether apprise knows each service; nothing is sent, and no URL is shown."""
    for place, url in enumerate(urls, start=1):
        if not _is_known(url):
            fix = "see the formats at github.com/caronc/apprise"
            raise SettingsError(f"{key}: apprise does not know the service of the {_th(place)} URL: {fix}")
    return "apprise knows every service"


def _is_known(url: str) -> bool:
    import logging
    import warnings

    with warnings.catch_warnings(action="ignore"):  # ignore warnings about its own imports
        import apprise

        logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its log lines would contain the URL
        return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


def _th(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


# --- explain


@config.command("explain", short_help="Show a setting's value and where it comes from.")
@click.argument("key", required=False)
@shared_options
@click.pass_obj
def explain(call: Invocation, key: str | None) -> None:
    """Show the value of KEY, where it comes from, and whether a change applies live or needs a restart.

    KEY is a key such as `gateway.port`, or a section such as `gateway.restart` or `agents.main`; without
    KEY, all keys are shown.
    """
    home, loaded = read(call)
    view = ExplainedView.of(loaded, home=str(home))
    if key is not None:
        view = msgspec.structs.replace(view, settings=_matching(view.settings, key))
    call.output.show(view, lambda: _print_explained(call.output, view.settings))


def _matching(settings: list[SettingView], wanted: str) -> list[SettingView]:
    """Find settings by key or section, in either spelling."""

    def spellings(key: str) -> tuple[str, str]:
        return key, ".".join(map(camel, key.split(".")))

    found = [
        one
        for one in settings
        if any(f"{spelling}.".startswith(f"{wanted}.") for spelling in spellings(one.key))
    ]
    if not found:
        import difflib

        near = difflib.get_close_matches(wanted, [one.key for one in settings], n=1)
        fix = f"did you mean {near[0]}?" if near else "list all settings with `holdfast config explain`"
        raise BadInput("KEY", f"{one_line(wanted, 100)!r} is not a setting; {fix}")
    return found


def _print_explained(output: Output, settings: list[SettingView]) -> None:
    if len(settings) > 1:
        rows = [[one.key, _in_words(one.value), one.applies.value, one.source] for one in settings]
        headers = ["KEY", "VALUE", "CHANGE", "SOURCE"]
        output.table(headers, rows, leave=("CHANGE", "SOURCE"), matters="VALUE")
        return
    (one,) = settings
    output.fields(
        [
            ("key", one.key),
            ("value", _in_words(one.value)),
            ("source", one.source),
            ("default", _in_words(one.default)),
            ("change", CHANGE[one.applies.value]),
            ("meaning", one.meaning),
        ]
    )


CHANGE = {
    "live": "live: applies without a restart",
    "restart": "restart: the gateway drains and restarts to apply it",
    "up": "up: applies when you stop and start `holdfast up`",
}


def _in_words(value: Any) -> str:
    return "not set" if value is None else one_line(msgspec.json.encode(value).decode())
