"""The name of a campaign, as an argument or an option of a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def campaign_name(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not _NAME.fullmatch(value):
        why = (
            f"{value!r:.80} is no name of a campaign: 1 to 100 letters, digits, dots, dashes, underscores, "
            "such as rd-os"
        )
        raise click.BadParameter(why, context, parameter)
    return value


def campaign_argument(command: F) -> F:
    """Add the argument NAME: the name of a campaign, its id or a unique prefix of that."""
    return click.argument("campaign", metavar="NAME", callback=campaign_name)(command)
