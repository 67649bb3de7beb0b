"""Reads all settings: files in the home, the environment, the command line; the last one wins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.config import documents
from holdfast.config.alerts import named_rules
from holdfast.config.keys import ENTRIES, SECTIONS, SHORT_FORMS, SettingChanges, changed, key_of, values
from holdfast.config.places import SEAL_VARIABLE, STORE_VARIABLE, read_store_url
from holdfast.config.policies import PolicySettings
from holdfast.config.refusals import expected, meaning, refusal, unknown
from holdfast.config.secret_registration import keep_secrets
from holdfast.config.sections import Config, InvalidField
from holdfast.core.errors import BadInput, SettingsError
from holdfast.core.retention import KINDS

COMMAND_LINE = "the command line"
DEFAULT = "default"
FOLDER = "config"
# Sections that are one table, and may stand in a file of their own, too.
_TABLES = ("policies",)
# Where settings of `policies` are used, unless the setting itself is there.
_POLICIES = {"policies.concurrency.gateway": "gateway.capacity"}
S = TypeVar("S", bound=msgspec.Struct)
Tree = dict[str, Any]


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, the source of each key that is set, and the files that were read."""

    config: Config
    sources: dict[str, str]
    paths: list[Path]

    def source_of(self, key: str) -> str:
        return self.sources.get(key, DEFAULT)


def load(home: Path, environ: Mapping[str, str], overrides: Mapping[str, object] | None = None) -> Loaded:
    """All settings of this home. Raises SettingsError with the key, the value and the fix.

    `overrides` are keys and values from the command line, such as `{"gateway.port": 4700}`; None means not
    given.
    """
    reading = _Reading(home)
    reading.take_documents()
    for variable, key in ((STORE_VARIABLE, "store.url"), (SEAL_VARIABLE, "store.seal")):
        if environ.get(variable):
            reading.take(key, environ[variable], variable)
    for key, value in (overrides or {}).items():
        if value is not None:
            reading.take(key, value, COMMAND_LINE)
    loaded = reading.finish()
    keep_secrets(loaded.config, environ)
    return loaded


def is_settings_file(home: Path, path: Path) -> bool:
    """Whether a changed file may contain settings; for the watcher of the home."""
    if path.suffix not in documents.SUFFIXES:
        return False
    return path.parent == home / FOLDER or (path.parent == home and path.stem == documents.MAIN)


class _Reading:
    """One pass over all sources: the keys found so far in snake_case, and where."""

    def __init__(self, home: Path) -> None:
        self._home = home
        # Without any rule of alerts, the default ones hold; with an empty list, none.
        self._tree: Tree = {section: {} for section in SECTIONS if section != "alerts"}
        self._sources: dict[str, str] = {}
        self._paths: list[Path] = []

    # --- reading

    def take_documents(self) -> None:
        main = documents.find(self._home, documents.MAIN)
        if main is not None:
            self._take_document(main, documents.read(main))
        for section, path in _section_files(self._home / FOLDER).items():
            document = documents.read(path)
            if section == "alerts" and not document:
                # An editor that truncates the file before it writes must not switch every rule off.
                raise SettingsError(
                    f"{path} is empty: write `alerts: []` to switch all rules off, or remove the file to "
                    "have the default ones"
                )
            # The file may repeat the section's name above its entries, or not.
            self._take_document(path, document if set(document) == {section} else {section: document})

    def take(self, key: str, value: object, where: str) -> None:
        """Set one value; it replaces an earlier one."""
        key = SHORT_FORMS.get(key, key)
        if key_of(key) is None:
            raise SettingsError(
                f"{key} in {where} is not a setting; list all settings with `holdfast config explain`"
            )
        table = self._tree
        *parts, last = key.split(".")
        for part in parts:
            table = table.setdefault(part, {})
        table[last] = value
        self._sources[key] = where

    def _take_document(self, path: Path, document: Tree) -> None:
        self._paths.append(path)
        if "alerts" in document:
            try:
                document = document | {"alerts": named_rules(document["alerts"])}
            except BadInput as error:
                raise SettingsError(f"alerts in {path}: {error}") from error
        found = self._spell(Config, document, "", str(path))
        for section in SECTIONS:
            if section not in found:
                continue
            known = self._tree.setdefault(section, {})
            for name, entry in found.pop(section).items():
                if name in known:
                    raise SettingsError(f"{section}.{name} is in two files, one is {path}: keep one")
                known[name] = entry
        for table in _TABLES:
            if table in found and table in self._tree:
                raise SettingsError(f"{table} is in two files, one is {path}: keep one")
        self._tree |= found

    def _spell(self, kind: type[msgspec.Struct], table: object, prefix: str, where: str) -> Tree:
        """Convert the keys of a table to snake_case, and note the source of each value."""
        if not isinstance(table, dict):
            raise refusal(prefix.rstrip("."), table, "write a table of keys and values", where)
        fields = {field.name: field for field in msgspec.structs.fields(kind)}
        known = {spelling: name for name in fields for spelling in (camel(name), name)}
        found: Tree = {}
        for written, value in table.items():
            key = f"{prefix}{written}"
            name = known.get(written) if isinstance(written, str) else None
            if name is None:
                raise unknown(key, self._line_of(where, key), [f"{prefix}{name}" for name in fields])
            if name in found:
                raise SettingsError(f"{prefix}{name} is given twice in {where}, in two spellings: keep one")
            found[name] = self._spell_value(fields[name].type, value, f"{prefix}{name}", where)
        return found

    def _spell_value(self, kind: Any, value: object, key: str, where: str) -> object:
        if key in SECTIONS:
            if not isinstance(value, dict):
                raise refusal(key, value, "write a table with a name for each entry", where)
            for name in value:
                if not isinstance(name, str):
                    raise refusal(key, name, "write the name in quotes", where)
            return {
                name: self._spell(ENTRIES[key], one, f"{key}.{name}.", where) for name, one in value.items()
            }
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            if key in SHORT_FORMS and not isinstance(value, dict):
                self._sources[SHORT_FORMS[key]] = where
                return {SHORT_FORMS[key].rpartition(".")[2]: value}
            return self._spell(kind, value, f"{key}.", where)
        self._sources[key] = where
        return value

    def _line_of(self, where: str, key: str) -> str:
        """The file with the line of the key in it, if `where` is a file and the line can be found."""
        path = next((path for path in self._paths if str(path) == where), None)
        line = None if path is None else documents.line_of(path, key.split("."))
        return where if line is None else f"{where}, line {line},"

    # --- checking

    def finish(self) -> Loaded:
        self._apply_policies()
        for name, entry in self._tree["schedules"].items():
            entry.setdefault("session", f"cron-{name}")
            if isinstance(entry.get("at"), datetime):  # as TOML and YAML have it without quotes
                entry["at"] = entry["at"].isoformat()
        config = self._build(Config, self._tree, "")
        if config.store.url is not None:
            where = self._sources["store.url"]
            base = self._home if where in map(str, self._paths) else None
            read_store_url(config.store.url, key=f"store.url in {where}", base=base)
        return Loaded(config=config, sources=self._sources, paths=self._paths)

    def _apply_policies(self) -> None:
        """Let policies be the defaults of the settings that they are about."""
        policies = self._tree.get("policies", {})
        # So that a wrong value is refused where it was written.
        self._build(PolicySettings, policies, "policies.")
        for policy, key in _POLICIES.items():
            _, part, name = policy.split(".")
            section, field = key.split(".")
            value = policies.get(part, {}).get(name)
            table = self._tree.setdefault(section, {})
            if value is not None and field not in table:
                table[field] = value
                self._sources[key] = self._sources[policy]
        kept = policies.get("retention")
        table = self._tree.setdefault("upkeep", {})
        own = table.get("keep_days", {})
        if kept and isinstance(kept, dict) and isinstance(own, dict):
            table["keep_days"] = {kind: days for kind, days in kept.items() if kind in KINDS} | own
            self._sources.setdefault("upkeep.keep_days", self._sources["policies.retention"])

    def _build(self, kind: type[S], table: Tree, prefix: str) -> S:
        """Convert field by field, so that an error names its key."""
        given: Tree = {}
        for field in msgspec.structs.fields(kind):
            key = f"{prefix}{field.name}"
            if field.name not in table:
                if field.required:
                    raise SettingsError(f"{key} is missing in {self._where(prefix)}: {meaning(key)}")
            elif key in SECTIONS:
                entries = table[field.name].items()
                given[field.name] = {
                    name: self._build(ENTRIES[key], one, f"{key}.{name}.") for name, one in entries
                }
            elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
                given[field.name] = self._build(field.type, table[field.name], f"{key}.")
            else:
                given[field.name] = self._convert(table[field.name], field.type, key)
        try:
            return kind(**given)
        except InvalidField as wrong:
            key = f"{prefix}{wrong.field}"
            raise refusal(key, wrong.value, wrong.fix, self._where_is(key)) from wrong

    def _convert(self, value: object, kind: Any, key: str) -> object:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise refusal(key, value, expected(key, str(error), value, kind), self._where_is(key)) from error

    def _where_is(self, key: str) -> str:
        """The source of a key, with its line if a document sets it."""
        where = self._where(key)
        return self._line_of(where, key) if key in self._sources else where

    def _where(self, key: str) -> str:
        """The source of a key, or of the nearest key around it."""
        for known, where in self._sources.items():
            if f"{known}.".startswith(f"{key.rstrip('.')}.") or key.startswith(f"{known}."):
                return where
        around = key.rstrip(".").rpartition(".")[0]
        return self._where(around) if around else ", ".join(map(str, self._paths)) or DEFAULT


def _section_files(folder: Path) -> dict[str, Path]:
    """The files of single sections. A file of another section is refused: it would have no effect."""
    try:
        documents.check_trusted(folder)
        names = {path.stem for path in folder.iterdir() if path.suffix in documents.SUFFIXES}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}; make it readable for the gateway's user") from error
    sections = (*SECTIONS, *_TABLES)
    for name in sorted(names):
        if name.startswith(".") or name in sections:
            continue
        why = f"only {', '.join(sections)} are read"
        raise SettingsError(f"{documents.find(folder, name)} would have no effect, {why}: move it elsewhere")
    found = {section: documents.find(folder, section) for section in sections}
    return {section: path for section, path in found.items() if path is not None}


def camel(name: str) -> str:
    """`sessionRecovery` for `session_recovery`; both spellings are accepted."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


__all__ = [
    "COMMAND_LINE",
    "DEFAULT",
    "Loaded",
    "SettingChanges",
    "camel",
    "changed",
    "is_settings_file",
    "load",
    "values",
]
