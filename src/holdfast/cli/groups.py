"""Groups of commands: imported when they are used, and with `list` as the command that may be left out."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

# Shared options may stand before a command.
_WITH_VALUE = ("--home", "--store")
_FLAGS = ("--json", "--wide")
_HELP = ("-h", "--help")


class LazyGroup(click.Group):
    """A group that imports a command only when it is used; a command without a help line is hidden."""

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return [name for name, (_, line) in self._table.items() if line]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the closest name: click itself knows only commands that are imported."""
        name = args[0]
        if name not in self._table and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, self.list_commands(ctx), n=1)
            ctx.fail(f"No such command '{name}'." + (f" Did you mean '{near[0]}'?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._table.items() if line])


class OrderedGroup(click.Group):
    """Its help shows the commands in the order in which they are declared: that of the work."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's own signature
        return list(self.commands)


class ListGroup(OrderedGroup):
    """A group of a noun: without a command it lists, so that `holdfast tasks` is `holdfast tasks list`."""

    def __init__(self, *args: Any, help: str, **kwargs: Any) -> None:  # noqa: A002 - click's own name
        super().__init__(*args, help=f"{help} Without a command: list.", **kwargs)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_list(args))


class LazyListGroup(ListGroup, LazyGroup):
    """Both."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return LazyGroup.list_commands(self, ctx)


def with_list(args: list[str]) -> list[str]:
    """Insert `list` if no command is given. Shared options may stand before a command."""
    place = 0
    while place < len(args):
        word = args[place]
        if word in _WITH_VALUE:
            place += 2
        elif word in _FLAGS or word.partition("=")[0] in _WITH_VALUE:
            place += 1
        else:
            break
    if place < len(args) and (args[place] in _HELP or not args[place].startswith("-")):
        return args
    return [*args[:place], "list", *args[place:]]
