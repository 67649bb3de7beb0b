"""config.get: the settings in effect, without secrets."""

from __future__ import annotations

from typing import Annotated

import msgspec

from holdfast.api.contract import Caller, GatewayDoor
from holdfast.api.params import Params
from holdfast.core.errors import NotFound
from holdfast.views.config import ConfigView


class ConfigAsked(Params, frozen=True, kw_only=True):
    """One key, a section such as `gateway.restart` or `agents.main`, or all of them."""

    key: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_.-]{1,200}$", max_length=200)] | None = None


async def get(gateway: GatewayDoor, asked: ConfigAsked, caller: Caller) -> ConfigView:  # noqa: ARG001 - a method
    view = ConfigView.of(gateway.config, gateway.sources)
    if asked.key is None:
        return view
    found = [one for one in view.settings if f"{one.key}.".startswith(f"{asked.key}.")]
    if not found:
        raise NotFound("setting", asked.key)
    return ConfigView(settings=found)
