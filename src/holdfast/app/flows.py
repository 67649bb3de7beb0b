"""The flows that the settings define, with the names of their tasks."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import msgspec

from holdfast.app.module_search import places_of, search
from holdfast.app.programs import load_installed, split_place
from holdfast.config import read_settings
from holdfast.config.files import load
from holdfast.config.sections import Config
from holdfast.core.errors import BadInput, NotFound, SettingsError
from holdfast.core.flow_definition import FlowDefinition, NodeDefinition


def read_flows(home: Path | None = None) -> dict[str, FlowDefinition]:
    """The flows of `[workflows]` in the settings of a home, by name, for `holdfast.start_flow`.

    Raises SettingsError with the key and the fix.
    """
    settings = read_settings(os.environ, home=None if home is None else str(home))
    config = load(settings.home, os.environ).config
    search_for_tasks(config, settings.home)
    return {name: find_flow(config, name) for name in config.workflows}


def search_for_tasks(config: Config, home: Path) -> None:
    """Find the modules of flows where a gateway of this home finds them. Raises SettingsError."""
    if any(":" in node.task for flow in config.workflows.values() for node in flow.nodes.values()):
        search(places_of(config, home))


def find_flow(config: Config, name: str) -> FlowDefinition:
    """The flow with this name, ready to start. Raises NotFound, SettingsError.

    A process that is no gateway calls `search_for_tasks` before.
    """
    if name not in config.workflows:
        known = ", ".join(sorted(config.workflows)[:20])
        has = f"the settings define {known}" if known else "define it in config/workflows.yaml"
        raise NotFound("flow", name, remedy=has)
    definition = config.workflows[name].definition(name)
    nodes = tuple(_resolved(name, node) for node in definition.nodes)
    return msgspec.structs.replace(definition, nodes=nodes)


def _resolved(flow: str, node: NodeDefinition) -> NodeDefinition:
    """The node with the name of its task. Only `module:task` is imported; another name may be known to other
    processes only."""
    if ":" not in node.task:
        return node
    key = f"workflows.{flow}.nodes.{node.id}.task"
    place, name = split_place(node.task)
    try:
        task = load_installed(place).find(name)
    except BadInput as error:
        raise SettingsError(f"{key}: {error}") from error
    arguments = node.arguments if isinstance(node.arguments, dict) else {}
    parameters = list(inspect.signature(task.fn).parameters.values())[1:]
    known = [one.name for one in parameters]
    for argument in arguments:
        if argument not in known:
            raise SettingsError(
                f"workflows.{flow}.nodes.{node.id}.args.{argument}: {node.task} has no such parameter; "
                f"its parameters are {', '.join(known) or 'none'}"
            )
    needed = [one.name for one in parameters if one.default is one.empty and one.name not in arguments]
    if needed:
        raise SettingsError(
            f"workflows.{flow}.nodes.{node.id}.args: {node.task} needs {', '.join(needed)}, which is missing"
        )
    return msgspec.structs.replace(node, task=task.name)
