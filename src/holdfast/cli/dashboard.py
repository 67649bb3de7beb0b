"""dashboard: a link that signs a browser in once, opened or printed."""

from __future__ import annotations

import sys
import webbrowser

import click

from holdfast.api.dashboard_methods import DashboardLinkAsked
from holdfast.cli.invocation import Invocation, shared_options
from holdfast.cli.output import is_terminal
from holdfast.config.sign_in import opening_file
from holdfast.config.token_file import OPERATOR
from holdfast.core.errors import Refused
from holdfast.views.up import DashboardLinkView


@click.command("dashboard", short_help="Open the dashboard in a browser, or print a link to it.")
@click.option("--print", "only_prints", is_flag=True, help="Print the link; open no browser.")
@click.option(
    "--token",
    "token",
    metavar="NAME",
    default=OPERATOR,
    show_default=True,
    help="Sign in with the rights of this token, such as a read-only one.",
)
@shared_options
@click.pass_obj
def dashboard(call: Invocation, *, only_prints: bool, token: str) -> None:
    """Open the dashboard of the running gateway in a browser.

    The link signs in one browser, once, within ten minutes. Without a terminal or a browser, and with --print
    or --json, it is printed. A browser on another machine reaches a gateway on this one through a tunnel:
    ssh -L 4653:127.0.0.1:4653 HOST.
    """
    if call.gateway_url is not None:
        raise Refused(
            f"links are made on the gateway's own host: open {call.gateway_url} in a browser and sign in "
            "with the token, or run this command there"
        )
    view = call.ask("dashboard.link", DashboardLinkAsked(token=token), DashboardLinkView)
    if only_prints or call.as_json or not is_terminal(sys.stdout) or not _opened(call, view.url):
        call.output.show(view, lambda: call.output.line(view.url))
        call.output.say("it works once, within ten minutes")


def _opened(call: Invocation, url: str) -> bool:
    """Open the link through a private file: arguments of processes are visible to other users."""
    try:
        browser = webbrowser.get()
        # A browser inside the terminal would replace this one; print the link instead.
        if isinstance(browser, webbrowser.GenericBrowser) and not isinstance(
            browser, webbrowser.BackgroundBrowser
        ):
            return False
        is_open = browser.open(opening_file(call.settings.home, url, call.clock.now()).as_uri())
    except webbrowser.Error:
        return False
    if is_open:
        call.output.say("opened the dashboard in your browser; if nothing opened, add --print")
    return is_open
