"""One call of the CLI: its settings, its output, and the ledger that it reads or writes."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast import app
from holdfast.cli.commands import with_place
from holdfast.cli.output import Output
from holdfast.core.campaign_checkpoint import ID_PREFIX
from holdfast.core.clock import Clock, SystemClock
from holdfast.core.errors import (
    BadInput,
    GatewaySilent,
    HoldfastError,
    HomeInUse,
    NoLedger,
    Refused,
    SettingsError,
)

if TYPE_CHECKING:
    import msgspec

    from holdfast.app import Settings
    from holdfast.core.audit import Actor
    from holdfast.store.boot_proofs import BootProofs
    from holdfast.store.contract import Reader, Store, Write
    from holdfast.store.transaction import Tx
    from holdfast.upkeep.projection import Projection

F = TypeVar("F", bound=Callable[..., Any])
V = TypeVar("V", bound="msgspec.Struct")

# How long `chat` and `tasks wait` retry while the gateway restarts.
AWAY_PATIENCE_S = 180.0
WAIT_TIMEOUT_S = 35.0
_ASK_AGAIN_S = 0.5

# At most five digits: a longer duration would overflow the calendar.
_DURATION = re.compile(r"(\d{1,5})([smhdw])")
_ID = re.compile(r"[a-z0-9_-]{1,64}")
MAX_TARGET_CHARS = 200
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Invocation:
    """The shared options, wherever they stand on the command line; filled while it is parsed."""

    def __init__(self) -> None:
        self.home: str | None = None
        self.store: str | None = None
        self.as_json = False
        self.is_wide = False
        # What a person typed as an id, by the id or prefix that it stands for.
        self._typed: dict[str, str] = {}
        # The ledger's clock once it is open, because stored times are compared with it.
        self.clock: Clock = SystemClock()

    @cached_property
    def settings(self) -> Settings:
        return app.read_settings(os.environ, home=self.home, store=self.store)

    @cached_property
    def output(self) -> Output:
        return Output(as_json=self.as_json, is_wide=self.is_wide, place=self.place_options)

    @cached_property
    def boot_proofs(self) -> BootProofs:
        """What this process can prove about the workers of its ledger."""
        from holdfast.store.boot_proofs import BootProofs

        return BootProofs.beside(app.locks_of(self.settings), is_shared=app.is_shared(self.settings))

    def projection(self) -> Projection:
        """How tasks are shown now: those whose worker is gone do not read as running."""
        from holdfast.upkeep.projection import Projection

        return Projection(self.boot_proofs, self.clock.now())

    @property
    def gateway_url(self) -> str | None:
        """HOLDFAST_URL: the remote gateway to call over HTTP; None to use the home on this machine.

        If it is set, commands read and write only that gateway's ledger. Raises UsageError if --store is
        also given.
        """
        url = os.environ.get("HOLDFAST_URL") or None
        if url is not None and self.store is not None:
            raise click.UsageError(
                "--store names a local ledger, but HOLDFAST_URL names a remote gateway; leave out --store, "
                "or run `unset HOLDFAST_URL`"
            )
        return url

    @property
    def place(self) -> str:
        """Where the ledger of this call is, for messages: a home, or the address of a gateway."""
        from holdfast.config import without_password

        return str(self.settings.home) if self.gateway_url is None else without_password(self.gateway_url)

    def must_be_here(self) -> None:
        """Raises Refused if HOLDFAST_URL is set: the command needs the database itself."""
        if self.gateway_url is not None:
            raise Refused(
                f"this command opens the ledger directly, but HOLDFAST_URL is set to the gateway at "
                f"{self.place}; run it on that gateway's host, or `unset HOLDFAST_URL` to use the ledger here"
            )

    def command(self, *words: str) -> str:
        """A command for a person to copy, with the same --home and --store as this call."""
        import shlex

        # Leave `done|retry|skip` unquoted, so that it stays readable.
        shown = " ".join(word if "|" in word else shlex.quote(word) for word in ("holdfast", *words))
        return f"{shown}{self.place_options}"

    @property
    def place_options(self) -> str:
        """` --home X --store Y`, as far as this call named them; without the password of the database."""
        if self.home is None and self.store is None:
            return ""
        import shlex

        where = [] if self.home is None else ["--home", self.home]
        if self.store is not None:
            with contextlib.suppress(SettingsError):  # an invalid URL helps in no other command
                where += ["--store", self.settings.store.shown]
        return "".join(f" {shlex.quote(word)}" for word in where)

    def stands_for(self, typed: str, full: str) -> str:
        """The full form of what a person typed as an id; messages quote what was typed."""
        self._typed[full] = typed
        return full

    def worded(self, message: str) -> str:
        """An error's message for the person who typed this call: with ids as they were typed, and with the
        --home and --store of the call in its commands."""
        for full, typed in self._typed.items():
            message = message.replace(f"{full!r}", f"{typed!r}")
        return with_place(message, self.place_options)

    @contextlib.contextmanager
    def reading(self, *, must_be_current: bool = True, may_be_damaged: bool = False) -> Iterator[Reader]:
        """Open the ledger read-only; a gateway may write to it meanwhile. Raises NoLedger, Refused."""
        self.must_be_here()
        vault = app.vault_of(self.settings, is_lenient=True)
        reader = app.open_reader(
            self.settings.store, must_be_current=must_be_current, may_be_damaged=may_be_damaged, vault=vault
        )
        self.clock = reader.clock
        try:
            yield reader
        finally:
            reader.close()

    @contextlib.contextmanager
    def listing(self) -> Iterator[Reader | None]:
        """Open the ledger for a list: if there is none yet, say so and yield None."""
        self.must_be_here()
        try:
            reader = app.open_reader(self.settings.store, vault=app.vault_of(self.settings, is_lenient=True))
        except NoLedger as error:
            self.output.say(str(error))
            yield None
            return
        self.clock = reader.clock
        try:
            yield reader
        finally:
            reader.close()

    @contextlib.contextmanager
    def writing(self, *, may_upgrade: bool = False) -> Iterator[Store]:
        """Open the ledger for writing. Raises HomeInUse if a gateway runs in this home."""
        self.must_be_here()
        with app.writing(self.settings, clock=self.clock, may_upgrade=may_upgrade) as store:
            self.clock = store.clock
            yield store

    def is_new(self) -> bool:
        """Whether there is no ledger yet. The first task creates it; an existing one is not migrated here."""
        try:
            with self.reading():
                return False
        except NoLedger:
            return True

    @contextlib.contextmanager
    def writing_or_asking(self, *, may_upgrade: bool = False) -> Iterator[Store | None]:
        """Open the ledger for writing; None if a gateway holds the home and can make the change.

        Raises HomeInUse if another process holds the home and no gateway answers.
        """
        if self.gateway_url is not None:
            yield None
            return
        with contextlib.ExitStack() as held:
            store = self._take(held, may_upgrade=may_upgrade)
            self.clock = self.clock if store is None else store.clock
            yield store

    def _take(self, held: contextlib.ExitStack, *, may_upgrade: bool) -> Store | None:
        may_ask = (self.settings.home / "gateway.sock").exists()
        try:
            return held.enter_context(
                app.writing(self.settings, clock=self.clock, may_upgrade=may_upgrade, is_patient=not may_ask)
            )
        except HomeInUse:
            if not may_ask:
                raise
        from holdfast.cli.client import is_listening

        if is_listening(self.settings.home):
            return None
        # The socket is left from a gateway that died: another command holds the home.
        return held.enter_context(app.writing(self.settings, clock=self.clock, may_upgrade=may_upgrade))

    def look(self, method: str, asked: msgspec.Struct, read: Callable[[Tx], V], answer: type[V]) -> V:
        """One read: of the local ledger, or through the gateway at HOLDFAST_URL. Raises NoLedger."""
        if self.gateway_url is not None:
            return self.ask(method, asked, answer)
        with self.reading() as ledger:
            return ledger.read_now(read)

    def look_at_list(self, method: str, asked: msgspec.Struct, read: Callable[[Tx], V], empty: V) -> V:
        """The same for a list: if there is no ledger yet, say so and return `empty`."""
        if self.gateway_url is not None:
            return self.ask(method, asked, type(empty))
        with self.listing() as ledger:
            return empty if ledger is None else ledger.read_now(read)

    def change(
        self,
        method: str,
        asked: msgspec.Struct,
        writing: Callable[..., Write[V]],
        answer: type[V],
        *,
        is_audited: bool = True,
        before: Callable[[Store], dict[str, object]] | None = None,
    ) -> V:
        """One write with its audit entry: here if no process holds the home, else through the gateway.
        `before` is called here only; its answer goes to `writing`."""
        with self.writing_or_asking() as store:
            if store is not None:
                from holdfast.api.audit import recorded

                now = self.clock.now()
                write = writing(asked, now=now, **({} if before is None else before(store)))
                return store.write_now(
                    recorded(write, self.actor, method, asked, now=now) if is_audited else write
                )
        return self.ask(method, asked, answer)

    @property
    def actor(self) -> Actor:
        """The user of this process, as the audit log names them."""
        from holdfast.core.audit import Actor, Door

        return Actor(who=user_name(None), door=Door.COMMAND)

    def record(self, store: Store, action: str, asked: msgspec.Struct) -> None:
        """Write the audit entry before an action that takes several writes here."""
        from holdfast.api.audit import asking

        entry = asking(self.actor, action, asked, now=self.clock.now())

        def record(tx: Tx) -> None:
            tx.audit.add(entry)

        store.write_now(record)

    def ask(
        self, method: str, asked: msgspec.Struct, answer: type[V], *, timeout_s: float | None = None
    ) -> V:
        """Call the gateway of the home, which must use the same ledger. Raises GatewaySilent."""
        from holdfast.cli import client

        patience = client.ANSWER_TIMEOUT_S if timeout_s is None else timeout_s
        if self.gateway_url is not None:
            token = self._remote_token()
            return client.call_url(self.gateway_url, token, method, asked, answer, timeout_s=patience)
        return client.call(
            self.settings.home, method, asked, answer, ledger=self._ledger_id(), timeout_s=patience
        )

    def _remote_token(self) -> str:
        from holdfast.config.token import TOKEN_NAME, TOKEN_VARIABLE, read_token

        home = self.settings.home
        if not os.environ.get(TOKEN_VARIABLE) and not os.path.lexists(home / TOKEN_NAME):
            raise SettingsError(
                f"no token for the gateway at {self.place}: set {TOKEN_VARIABLE} to a token of that gateway "
                "(on its host, `holdfast tokens create NAME` prints one)"
            )
        return read_token(home, os.environ, may_make=False)

    def ask_patiently(self, method: str, asked: msgspec.Struct, answer: type[V]) -> V:
        """Call the gateway, and retry while it restarts; only for an idempotent request."""
        import time

        from holdfast.cli.client import Relayed

        give_up_at = time.monotonic() + AWAY_PATIENCE_S
        has_said = False
        while True:
            try:
                return self.ask(method, asked, answer, timeout_s=WAIT_TIMEOUT_S)
            except GatewaySilent as silent:
                # Without a supervisor that holds the socket, no gateway will come back.
                if time.monotonic() >= give_up_at or not silent.was_there:
                    raise
            except Relayed as refusal:
                if time.monotonic() >= give_up_at or refusal.code != "starting":
                    raise
            if not has_said:
                has_said = True
                self.output.say("the gateway is restarting; waiting for it")
            time.sleep(_ASK_AGAIN_S)

    def _ledger_id(self) -> str | None:
        try:
            with self.reading(must_be_current=False) as ledger:
                return ledger.read_now(lambda tx: tx.boots.fact("ledger_id"))
        except HoldfastError:  # no ledger yet, or unreadable: let the gateway use its own
            return None


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Store a shared option; the one nearest to the subcommand wins, because it is parsed last."""
    if value not in (None, False):
        setattr(context.find_root().obj, str(parameter.name), value)


def shared_options(command: F) -> F:
    """Add --home, --store, --json and --wide, which work before and after every subcommand."""
    options = [
        click.option(
            "--home",
            metavar="DIR",
            expose_value=False,
            callback=_remember,
            help="Home directory (HOLDFAST_HOME).",
        ),
        click.option(
            "--store",
            metavar="URL",
            expose_value=False,
            callback=_remember,
            help="Ledger database (HOLDFAST_STORE).",
        ),
        click.option(
            "--json",
            "as_json",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Print JSON on stdout.",
        ),
        click.option(
            "--wide",
            "is_wide",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Do not fit tables to the terminal: whole ids, every column.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def read_duration(context: click.Context, parameter: click.Parameter, value: str) -> timedelta:
    """`30d`, `12h`, `45m`, `10s`, `2w`."""
    found = _DURATION.fullmatch(value)
    if found is None:
        raise click.BadParameter(
            f"{value!r:.40} is not a duration; write 30d, 12h, 45m or 10s", context, parameter
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def maybe_duration(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    return None if value is None else read_duration(context, parameter, value)


def maybe_minutes(context: click.Context, parameter: click.Parameter, value: str | None) -> timedelta | None:
    """A duration; a bare number is minutes."""
    is_bare = value is not None and value.isascii() and value.isdecimal()
    return maybe_duration(context, parameter, f"{value}m" if is_bare else value)


def read_json(option: str, text: str) -> object:
    """Decode the JSON value of an option. Raises BadInput with what is wrong with it."""
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadInput(
            option, f"invalid JSON ({error}); a string needs its own quotes: '\"like this\"'"
        ) from error


def user_name(name: str | None) -> str:
    """The name for the audit log: the given one, or the user of this process."""
    if name is not None:
        return name
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def task_target(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """What names a task: its id or a prefix, a run id, a key or a session key. The ledger finds it."""
    if value is None:
        return None
    if not 0 < len(value) <= MAX_TARGET_CHARS or not value.isprintable():
        why = f"a task is named by 1 to {MAX_TARGET_CHARS} printable characters"
        raise click.BadParameter(why, context, parameter)
    return value


def task_argument(command: F) -> F:
    """Add the argument TASK: an id, a unique prefix of it, a run id, a key or a session key."""
    return click.argument("task_id", metavar="TASK", callback=task_target)(command)


def page_option(command: F) -> F:
    """Add --page, the one way to the next page of a list."""
    return click.option(
        "--page", metavar="TOKEN", help="The page after this one: the token printed under it."
    )(command)


def task_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return _id_prefix("task", context, parameter, value)


def flow_argument(command: F) -> F:
    """Add the argument FLOW: an id, a unique prefix of it, or the id that it had before an import."""
    return click.argument("flow_id", metavar="FLOW", callback=_flow_prefix)(command)


def _flow_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and "-" in value and _ID.fullmatch(value):
        return value  # no id of ours has a hyphen: OpenClaw made it
    return _id_prefix("flow", context, parameter, value)


def checkpoint_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and value.startswith(ID_PREFIX) and _ID.fullmatch(value):
        return value  # of a campaign
    return _id_prefix("ckpt", context, parameter, value)


def milestone_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The id of a campaign's checkpoint or a prefix of it; `checkpoint-` may be left out, as in the name of a
    milestone."""
    if value is None or not _ID.fullmatch(value) or value.startswith(ID_PREFIX):
        return checkpoint_prefix(context, parameter, value)
    call: Invocation = context.find_root().obj
    return call.stands_for(value, f"{ID_PREFIX}{value}")


def wake_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return _id_prefix("wake", context, parameter, value)


def effect_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return _id_prefix("eff", context, parameter, value)


def question_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return _id_prefix("ques", context, parameter, value)


def delivery_prefix(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return _id_prefix("dlv", context, parameter, value)


def _id_prefix(
    prefix: str, context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """A full id or a prefix of one; the `task_` part may be left out."""
    if value is None:
        return None
    if not _ID.fullmatch(value):
        raise click.BadParameter("an id has 1 to 64 characters of a-z, 0-9, _ and -", context, parameter)
    if "_" in value or prefix.startswith(value):
        return value
    call: Invocation = context.find_root().obj
    return call.stands_for(value, f"{prefix}_{value}")
