"""tokens list, create, revoke, rotate: tokens for the gateway's API."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
import msgspec

from holdfast import app
from holdfast.api.token_methods import (
    TokenAsked,
    TokenCreateAsked,
    TokenRotateAsked,
    create_token,
    read_page,
    revoke_token,
    rotate_token,
)
from holdfast.cli.groups import ListGroup
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options
from holdfast.cli.output import Output, ago, clock_time
from holdfast.core.errors import BadInput, HoldfastError, NoLedger
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView, TokenView

if TYPE_CHECKING:
    from holdfast.config.sections import Config

V = TypeVar("V", bound=msgspec.Struct)

_SCOPES = {"read": "operator.read", "write": "operator.write", "admin": "operator.admin"}


@click.group("tokens", cls=ListGroup)
@shared_options
def tokens() -> None:
    """API tokens of the gateway, each with a name, scopes and an expiry."""


# --- list


@tokens.command("list", short_help="All tokens, with their last use.")
@shared_options
@click.pass_obj
def list_tokens(call: Invocation) -> None:
    """All tokens of this home and of the settings, with the time of their last use."""
    home, settings = _here(call)
    view = read_page(home, settings, call.clock.now())
    call.output.show(view, lambda: _print_page(call.output, view, call.clock.now()))


def _print_page(output: Output, view: TokenPageView, now: datetime) -> None:
    rows = [
        (
            one.name,
            one.source,
            ", ".join(scope.removeprefix("operator.") for scope in one.scopes),
            _limits(one),
            _end(one),
            "never" if one.last_used_at is None else ago(one.last_used_at, now),
        )
        for one in view.tokens
    ]
    headers = ("NAME", "FROM", "SCOPES", "LIMITS", "EXPIRES", "LAST USED")
    output.table(headers, rows, leave=("FROM", "LAST USED", "EXPIRES"), matters="LIMITS")


def _limits(one: TokenView) -> str:
    parts = [] if one.owner is None else [f"owner {one.owner}"]
    for what, names in (("tasks", one.tasks), ("methods", one.methods)):
        if names is not None:
            parts.append(f"{what} {', '.join(names) or 'none'}")
    return "; ".join(parts) or "-"


def _end(one: TokenView) -> str:
    if one.expires_at is None:
        return "-"
    return f"{clock_time(one.expires_at)}{' (expired)' if one.is_expired else ''}"


# --- create


@tokens.command("create", short_help="Create a token and print it once.")
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(_SCOPES)),
    help="What the token allows; repeatable. [default: read]",
)
@click.option("--read-only", is_flag=True, help="Allow reads only. [default]")
@click.option("--owner", metavar="OWNER", help="Restrict to tasks of this owner.")
@click.option(
    "--task", "tasks_", multiple=True, metavar="NAME", help="Restrict to tasks with this name; repeatable."
)
@click.option(
    "--method", "methods", multiple=True, metavar="METHOD", help="Restrict to this API method; repeatable."
)
@click.option(
    "--expires-in",
    callback=maybe_duration,
    metavar="DURATION",
    help="Lifetime, such as 12h or 30d. [default: no expiry]",
)
@click.option("--expires-at", metavar="MOMENT", help="Expiry time, such as 2030-01-31T00:00:00Z.")
@shared_options
@click.pass_obj
def create(
    call: Invocation,
    name: str,
    scopes: tuple[str, ...],
    owner: str | None,
    tasks_: tuple[str, ...],
    methods: tuple[str, ...],
    expires_in: timedelta | None,
    expires_at: str | None,
    *,
    read_only: bool,
) -> None:
    """Create a token called NAME and print it. Save it: only its digest is stored.

    \b
    holdfast tokens create board --scope read
    holdfast tokens create ci --scope read --scope write --expires-in 90d

    It is valid at once, also in a running gateway.
    """
    if read_only and set(scopes) - {"read"}:
        raise click.UsageError("--read-only allows no other --scope than read; leave out one of them")
    home, settings = _here(call)
    asked = _checked(
        TokenCreateAsked,
        {
            "name": name,
            "scopes": [_SCOPES[one] for one in scopes or ("read",)],
            "owner": owner,
            "tasks": list(tasks_) or None,
            "methods": list(methods) or None,
            "expiresAt": _moment(call, expires_in, expires_at),
        },
    )
    view = _change(
        call,
        "tokens.create",
        asked,
        lambda: create_token(home, settings, asked, call.clock.now()),
        TokenMadeView,
    )
    call.output.show(view, lambda: _print_made(call.output, view, "created"))


def _print_made(output: Output, view: TokenMadeView, what: str) -> None:
    # Only the token goes to stdout, so that a script can read it.
    output.line(view.text)
    end = "" if view.token.expires_at is None else f", until {clock_time(view.token.expires_at)}"
    output.say(f"the token {view.token.name} is {what}{end}; save it now, it is not shown again")


# --- revoke and rotate


@tokens.command("revoke", short_help="Revoke a token.")
@click.argument("name", metavar="NAME")
@shared_options
@click.pass_obj
def revoke(call: Invocation, name: str) -> None:
    """Revoke the token NAME. It is refused at once, also on open connections."""
    home, settings = _here(call)
    asked = _checked(TokenAsked, {"name": name})
    view = _change(
        call, "tokens.revoke", asked, lambda: revoke_token(home, settings, asked), TokenRevokedView
    )
    call.output.show(view, lambda: call.output.line(f"the token {view.token.name} is revoked"))


@tokens.command("rotate", short_help="Replace a token by a new one.")
@click.argument("name", metavar="NAME")
@click.option("--expires-in", callback=maybe_duration, metavar="DURATION", help="New lifetime, such as 30d.")
@click.option("--expires-at", metavar="MOMENT", help="New expiry time, such as 2030-01-31T00:00:00Z.")
@shared_options
@click.pass_obj
def rotate(call: Invocation, name: str, expires_in: timedelta | None, expires_at: str | None) -> None:
    """Replace the token NAME by a new one with the same scopes, and print it. The old one is refused at once.

    `operator` is the token of this home, in its file `token`.
    """
    home, settings = _here(call)
    asked = _checked(TokenRotateAsked, {"name": name, "expiresAt": _moment(call, expires_in, expires_at)})
    view = _change(
        call,
        "tokens.rotate",
        asked,
        lambda: rotate_token(home, settings, asked, call.clock.now()),
        TokenMadeView,
    )
    call.output.show(view, lambda: _print_made(call.output, view, "replaced"))


# --- shared by all


def _here(call: Invocation) -> tuple[Path, Config]:
    """The home and its settings. Tokens can only be changed on the gateway's own host."""
    from holdfast.config.files import load

    call.must_be_here()
    home = call.settings.home
    return home, load(home, os.environ).config


def _change(call: Invocation, method: str, asked: msgspec.Struct, act: Callable[[], V], answer: type[V]) -> V:
    """Make the change through the running gateway; if there is none, make it here."""
    from holdfast.cli.client import is_listening

    if is_listening(call.settings.home):
        return call.ask(method, asked, answer)
    app.make_home(call.settings.home)
    _record(call, method, asked)
    return act()


def _record(call: Invocation, method: str, asked: msgspec.Struct) -> None:
    """Write the audit entry, if there is a ledger. If that fails, the token is still changed."""
    try:
        with call.reading():
            pass  # opening it for writing would create a missing ledger
        with call.writing() as store:
            call.record(store, method, asked)
    except NoLedger:
        pass
    except HoldfastError as error:
        call.output.say(f"the audit log has no entry for this change: {error}")


def _checked(kind: type[V], given: dict[str, object]) -> V:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        if "`$.name`" in str(error):
            why = "use 1 to 64 letters, digits, - and _, starting with a letter or digit"
            raise BadInput("NAME", why) from error
        raise BadInput("token", str(error)) from error


def _moment(call: Invocation, expires_in: timedelta | None, expires_at: str | None) -> datetime | None:
    if expires_in is not None and expires_at is not None:
        raise click.UsageError("--expires-in and --expires-at exclude each other; give only one of them")
    if expires_in is not None:
        return (call.clock.now() + expires_in).astimezone(UTC)
    if expires_at is None:
        return None
    try:
        moment = datetime.fromisoformat(expires_at)
    except ValueError as error:
        raise BadInput(
            "--expires-at", f"{expires_at!r:.60} is not a time; write 2030-01-31T00:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise BadInput("--expires-at", "add the UTC offset, such as 2030-01-31T00:00:00Z")
    return moment
