"""tokens list, create, revoke, rotate: what opens the gateway's doors, for what, and until when."""

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
from holdfast.cli.invocation import Invocation, maybe_duration, shared_options
from holdfast.cli.output import Output, ago, clock_time
from holdfast.core.errors import BadInput, HoldfastError, NoLedger
from holdfast.views.tokens import TokenMadeView, TokenPageView, TokenRevokedView, TokenView

if TYPE_CHECKING:
    from holdfast.config.gateway import Config

V = TypeVar("V", bound=msgspec.Struct)

_SCOPES = {"read": "operator.read", "write": "operator.write", "admin": "operator.admin"}


@click.group("tokens")
@shared_options
def tokens() -> None:
    """Tokens for the gateway's doors: each with a name, what it may do, and an end."""


# --- list


@tokens.command("list", short_help="All tokens, with their last use.")
@shared_options
@click.pass_obj
def list_tokens(call: Invocation) -> None:
    """All tokens of this home, those of the settings as well, and when each was last used."""
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
    output.table(("NAME", "FROM", "SCOPES", "LIMITS", "EXPIRES", "LAST USED"), rows)


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


@tokens.command("create", short_help="Make a token, and show it once.")
@click.argument("name", metavar="NAME")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(sorted(_SCOPES)),
    help="What its bearer may do; may be given several times. [default: read]",
)
@click.option("--read-only", is_flag=True, help="It may look, and change nothing. [default]")
@click.option("--owner", metavar="OWNER", help="Only tasks of this owner.")
@click.option("--task", "tasks_", multiple=True, metavar="NAME", help="Only tasks of this name.")
@click.option("--method", "methods", multiple=True, metavar="METHOD", help="Only this method of the API.")
@click.option("--expires-in", callback=maybe_duration, metavar="DURATION", help="Such as 12h or 30d.")
@click.option("--expires-at", metavar="MOMENT", help="Such as 2030-01-31T00:00:00Z.")
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
    """Make a token called NAME, and print it: it is shown this once, and only its digest is kept.

    It counts at once, also in a gateway that runs.
    """
    if read_only and set(scopes) - {"read"}:
        raise click.UsageError("--read-only and a --scope that is more exclude each other")
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
    # Alone on stdout, so that a script can take it.
    output.line(view.text)
    end = "" if view.token.expires_at is None else f", until {clock_time(view.token.expires_at)}"
    output.say(f"the token {view.token.name} is {what}{end}; it is shown this once, keep it safe")


# --- revoke and rotate


@tokens.command("revoke", short_help="Let a token open nothing any more.")
@click.argument("name", metavar="NAME")
@shared_options
@click.pass_obj
def revoke(call: Invocation, name: str) -> None:
    """The bearer of the token NAME is refused at once, also on connections that are open."""
    home, settings = _here(call)
    asked = _checked(TokenAsked, {"name": name})
    view = _change(
        call, "tokens.revoke", asked, lambda: revoke_token(home, settings, asked), TokenRevokedView
    )
    call.output.show(view, lambda: call.output.line(f"the token {view.token.name} opens nothing any more"))


@tokens.command("rotate", short_help="Another text for a token.")
@click.argument("name", metavar="NAME")
@click.option("--expires-in", callback=maybe_duration, metavar="DURATION", help="Another end, such as 30d.")
@click.option("--expires-at", metavar="MOMENT", help="Another end, such as 2030-01-31T00:00:00Z.")
@shared_options
@click.pass_obj
def rotate(call: Invocation, name: str, expires_in: timedelta | None, expires_at: str | None) -> None:
    """Give the token NAME another text, and print it once; the one before is refused at once.

    What it may do stays. `operator` is the token of this home, in its file `token`.
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
    call.output.show(view, lambda: _print_made(call.output, view, "made anew"))


# --- what they share


def _here(call: Invocation) -> tuple[Path, Config]:
    """The home, and what is set there. Tokens are made where the gateway runs, and nowhere else."""
    from holdfast.config.files import load

    call.must_be_here()
    home = call.settings.home
    return home, load(home, os.environ).config


def _change(call: Invocation, method: str, asked: msgspec.Struct, act: Callable[[], V], answer: type[V]) -> V:
    """Through the gateway that runs in this home; else here."""
    from holdfast.cli.client import is_listening

    if is_listening(call.settings.home):
        return call.ask(method, asked, answer)
    app.make_home(call.settings.home)
    _record(call, method, asked)
    return act()


def _record(call: Invocation, method: str, asked: msgspec.Struct) -> None:
    """In the audit log, if there is a ledger. If it cannot be written, the token is changed all the same."""
    try:
        with call.reading():
            pass  # to open it for writing would make one that is not there
        with call.writing() as store:
            call.record(store, method, asked)
    except NoLedger:
        pass
    except HoldfastError as error:
        call.output.say(f"the audit log does not tell of this: {error}")


def _checked(kind: type[V], given: dict[str, object]) -> V:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        if "`$.name`" in str(error):
            why = "a name has letters, digits, - and _, at most 64, and begins with neither sign"
            raise BadInput("NAME", why) from error
        raise BadInput("token", str(error)) from error


def _moment(call: Invocation, expires_in: timedelta | None, expires_at: str | None) -> datetime | None:
    if expires_in is not None and expires_at is not None:
        raise click.UsageError("--expires-in and --expires-at exclude each other")
    if expires_in is not None:
        return (call.clock.now() + expires_in).astimezone(UTC)
    if expires_at is None:
        return None
    try:
        moment = datetime.fromisoformat(expires_at)
    except ValueError as error:
        raise BadInput(
            "--expires-at", f"{expires_at!r:.60} is no moment; write 2030-01-31T00:00:00Z"
        ) from error
    if moment.tzinfo is None:
        raise BadInput("--expires-at", "write the moment with its offset, such as 2030-01-31T00:00:00Z")
    return moment
