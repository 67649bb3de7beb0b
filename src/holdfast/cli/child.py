"""gateway child: the hidden command by which `holdfast up` starts the gateway's own process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from holdfast.cli.errors import report
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.up import COMMAND, log_to, log_to_stderr
from holdfast.core.errors import (
    HomeInUse,
    KeyProblem,
    PageDamaged,
    SchemaMismatch,
    SettingsError,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from holdfast.gateway.supervisor_protocol import Supervised


@click.command("child", hidden=True)
@click.option("--trial", "is_trial", is_flag=True, help="Only check whether the gateway could start.")
@shared_options
@click.pass_context
def child(context: click.Context, *, is_trial: bool) -> None:
    """Be the gateway. `holdfast up` starts this; do not run it yourself."""
    from holdfast.app.gateway import run_gateway
    from holdfast.app.trial import check_start
    from holdfast.gateway.supervisor_protocol import LEDGER_AWAY, SETTINGS_UNUSABLE

    call: Invocation = context.find_root().obj
    if is_trial:
        log_to_stderr()
    else:
        log_to(call.settings.home, replaces=True)
    supervised: Supervised | None = None
    try:
        if is_trial:
            check_start(call.settings, os.environ)
            return
        supervised = _supervised()
        trial_command = (*COMMAND, "--trial")
        status = run_gateway(call.settings, supervised, dict(os.environ), trial_command=trial_command)
    except (SettingsError, HomeInUse, SchemaMismatch, KeyProblem) as error:
        report(error, as_json=False)
        status = SETTINGS_UNUSABLE
    except (StoreUnavailable, PageDamaged, ExceptionGroup) as error:
        away = _away(error)
        if away is None:
            raise
        if supervised is None or not supervised.is_quiet:
            report(away, as_json=False)
        status = LEDGER_AWAY
    context.exit(status)


def _supervised() -> Supervised:
    from holdfast.gateway.supervisor_protocol import read_supervised

    found = read_supervised(os.environ)
    if found is None:
        raise SettingsError("no supervisor has started this; use `holdfast up`")
    return found


def _away(error: Exception) -> StoreUnavailable | PageDamaged | None:
    """The error of the ledger, if nothing else ended the gateway; None if it crashed."""
    if isinstance(error, ExceptionGroup):
        found = [_away(one) for one in error.exceptions]
        return None if None in found else found[0]
    return error if isinstance(error, (StoreUnavailable, PageDamaged)) else None
