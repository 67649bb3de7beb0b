"""gateway unit: prints a systemd unit or a launchd plist for the gateway."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from holdfast.cli.invocation import Invocation, shared_options, user_name
from holdfast.config import HOME_VARIABLE, STORE_VARIABLE, PostgresPlace
from holdfast.views.up import UnitView

if TYPE_CHECKING:
    from holdfast.gateway.units import Service


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


def _service(call: Invocation, user: str | None) -> Service:
    from holdfast.config.files import load
    from holdfast.gateway.units import Service

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
    return Service(
        command=[sys.executable, "-P", "-m", "holdfast", "up"],
        home=str(home),
        user=user,
        environment=environment,
        drain_timeout_s=load(home, os.environ).config.gateway.restart.drain_timeout_s,
    )
