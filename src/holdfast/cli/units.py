"""gateway unit: prints a systemd unit or a launchd plist for the gateway."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation, shared_options, user_name
from holdfast.config import HOME_VARIABLE, STORE_VARIABLE, PostgresPlace, SqlitePlace, in_home
from holdfast.views.up import UnitView

if TYPE_CHECKING:
    from holdfast.config.sections import Config
    from holdfast.gateway.units import ServiceUnit


@click.command("unit", short_help="Print a systemd unit, or a launchd plist for macOS.")
@click.option("--launchd", "is_launchd", is_flag=True, help="Print a launchd plist instead.")
@click.option("--user", metavar="NAME", help="User that runs the gateway. [default: the current user]")
@click.option(
    "--user-unit", "is_users_own", is_flag=True, help="For the user's own service manager, not the system's."
)
@shared_options
@click.pass_obj
def unit(call: Invocation, *, is_launchd: bool, user: str | None, is_users_own: bool) -> None:
    """Print a systemd unit, or a launchd plist, that keeps `holdfast up` running in this home.

    This changes nothing: save the output to the file that its first line names.
    """
    from holdfast.gateway.units import launchd_plist, systemd_unit

    if is_users_own and user is not None:
        raise click.UsageError(
            "--user is for a system unit, and --user-unit always runs as you; give only one of them"
        )
    service = _service(call, None if is_users_own else user_name(user))
    if is_launchd:  # a plist cannot contain these instructions
        where = "~/Library/LaunchAgents" if is_users_own else "/Library/LaunchDaemons"
        call.output.say(
            f"save it as {where}/holdfast.gateway.plist, and first run `mkdir -p {service.home}/log`"
        )
    kind, text = ("launchd", launchd_plist(service)) if is_launchd else ("systemd", systemd_unit(service))
    call.output.show(UnitView(kind=kind, text=text), lambda: call.output.line(text.rstrip("\n")))


def _service(call: Invocation, user: str | None) -> ServiceUnit:
    from holdfast.config.files import load
    from holdfast.gateway.units import ServiceUnit

    home = call.settings.home
    environment = {HOME_VARIABLE: str(home)}
    place = call.settings.store
    if call.store is not None and not (isinstance(place, PostgresPlace) and place.shown != place.url):
        environment[STORE_VARIABLE] = place.url
    elif call.store is not None:
        call.output.say(
            "the --store URL contains a password, which every user could read in the unit; it was left out: "
            f"write {STORE_VARIABLE}=… into {home / 'environment'} (chmod 600), or store into holdfast.toml"
        )
    config = load(home, os.environ).config
    return ServiceUnit(
        command=[sys.executable, "-P", "-m", "holdfast", "up"],
        home=str(home),
        user=user,
        environment=environment,
        drain_timeout_s=config.gateway.restart.drain_timeout_s,
        writable=_writable(call, config),
        code=_code(config, home),
    )


def _writable(call: Invocation, config: Config) -> list[str]:
    """Outside of the home: the ledger, and where agents work."""
    home, place = call.settings.home, call.settings.store
    found = [in_home(home, config.gateway.restart.manifest_path, key="gateway.restart.manifest_path").parent]
    if isinstance(place, SqlitePlace):
        found.append(place.path.parent)
    for name, agent in config.agents.items():
        if agent.directory is not None:
            found.append(in_home(home, agent.directory, key=f"agents.{name}.directory"))
    outside = [str(one) for one in found if one != home and home not in one.parents]
    return list(dict.fromkeys(outside))


def _code(config: Config, home: Path) -> list[str]:
    """What must stay readable: Python, its packages, and the modules that the settings name."""
    here = [sys.executable, str(Path(sys.executable).resolve()), sys.prefix, sys.base_prefix]
    modules = [in_home(home, one, key="gateway.python_path") for one in config.gateway.python_path]
    return list(dict.fromkeys([*here, str(Path(__file__).parents[2]), *map(str, modules)]))
