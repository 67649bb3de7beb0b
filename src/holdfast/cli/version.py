"""version: the versions of Holdfast, Python and SQLite."""

from __future__ import annotations

import sys

import click

from holdfast import __version__, app
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.views.health import VersionView


@click.command("version")
@shared_options
@click.pass_obj
def version(call: Invocation) -> None:
    """Print the versions of Holdfast, Python and SQLite."""
    python = ".".join(map(str, sys.version_info[:3]))
    view = VersionView(holdfast=__version__, python=python, sqlite=app.sqlite_version())
    call.output.show(
        view,
        lambda: call.output.line(f"holdfast {view.holdfast} (Python {view.python}, SQLite {view.sqlite})"),
    )
