"""security check: what an operator should tighten; it changes nothing."""

from __future__ import annotations

import click

from holdfast.cli.errors import FAILED
from holdfast.cli.groups import OrderedGroup
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import Output, counted
from holdfast.views.security import SecurityView
from holdfast.views.text import one_line


@click.group("security", cls=OrderedGroup)
@shared_options
def security() -> None:
    """What in this home should be tightened."""


@security.command("check", short_help="What should be tightened, why, and the command for it.")
@shared_options
@click.pass_context
def check_security(context: click.Context) -> None:
    """Look at owners, modes, tokens, TLS, paths, agents and units of this home. Nothing is changed.

    Run it as the user of the gateway, and with the gateway's environment. Status 0 when nothing was found,
    1 when there is something to tighten.
    """
    from holdfast.cli.weaknesses import MachineFacts, home_of, look

    call: Invocation = context.obj
    call.must_be_here()
    home = home_of(call)
    found = list(look(call, MachineFacts.here(home)))
    view = SecurityView(is_clean=not found, home=one_line(str(home), 1000), findings=found)
    call.output.show(view, lambda: _print(call.output, view))
    if found:
        context.exit(FAILED)


def _print(output: Output, view: SecurityView) -> None:
    for number, one in enumerate(view.findings):
        if number:
            output.line()
        output.line(f"{output.paint(one.code, 'bold')}: {one.what}")
        output.line(f"  why: {one.why}")
        output.line(f"  do:  {one.remedy}")
    count = len(view.findings)
    output.say("nothing to tighten was found" if not count else f"{counted(count, 'thing')} to tighten")
