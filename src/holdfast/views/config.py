"""SettingView and ConfigCheckView: settings, their sources, and whether they are valid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.config.files import DEFAULT, Loaded
from holdfast.config.keys import ANY, KEYS, SECTIONS, ApplyMode, defaults, fit_to_show, key_of, values
from holdfast.config.sections import Config
from holdfast.views.health import CheckStatus, CheckView
from holdfast.views.text import clean_json, one_line


class SettingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One setting: its value, without secrets, and where it comes from."""

    key: str
    value: Any
    # A path, an environment variable, `the command line` or `default`.
    source: str
    default: Any
    applies: ApplyMode
    meaning: str

    @classmethod
    def of(cls, name: str, value: Any, *, source: str) -> SettingView:
        key = key_of(name)
        assert key is not None
        return cls(
            key=one_line(name),
            value=clean_json(fit_to_show(name, value)),
            source=one_line(source, 1000),
            default=defaults().get(key.name),
            applies=key.applies,
            meaning=key.meaning,
        )


class ExplainedView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Some or all settings, in the order of the guide."""

    home: str
    settings: list[SettingView]

    @classmethod
    def of(cls, loaded: Loaded, *, home: str) -> ExplainedView:
        found = [
            SettingView.of(name, value, source=loaded.source_of(name))
            for name, value in values(loaded.config).items()
        ]
        # For a section without entries, show the keys that an entry would have.
        empty = [section for section in SECTIONS if not getattr(loaded.config, section)]
        found += [
            SettingView.of(key.name, defaults().get(key.name), source=DEFAULT)
            for key in KEYS
            if key.name.partition(f".{ANY}.")[0] in empty
        ]
        places = list(dict.fromkeys(key.name.partition(".")[0] for key in KEYS))
        found.sort(key=lambda one: places.index(one.key.partition(".")[0]))
        return cls(home=one_line(home, 1000), settings=found)


class RunningSettingView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One setting in effect in a gateway, without secrets."""

    key: str
    value: Any
    # A path, an environment variable, or `default`.
    source: str
    default: Any
    applies: ApplyMode
    meaning: str


class ConfigView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings in effect in a gateway, in the order of the guide."""

    settings: list[RunningSettingView]

    @classmethod
    def of(cls, config: Config, sources: Mapping[str, str]) -> ConfigView:
        explained = [
            SettingView.of(name, value, source=sources.get(name, DEFAULT))
            for name, value in values(config).items()
        ]
        return cls(
            settings=[
                RunningSettingView(
                    key=one.key,
                    value=one.value,
                    source=one.source,
                    default=one.default,
                    applies=one.applies,
                    meaning=one.meaning,
                )
                for one in explained
            ]
        )


class ConfigCheckView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The documents that were read, the checks, and the worst result."""

    verdict: CheckStatus
    home: str
    documents: list[str]
    checks: list[CheckView]
