"""Finds a document of settings by its name and reads it: TOML, JSON or YAML, all with the same keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import SettingsError

if TYPE_CHECKING:
    import yaml

SUFFIXES = (".toml", ".json", ".yaml", ".yml")
MAIN = "holdfast"
MAX_BYTES = 1024**2


def find(directory: Path, stem: str) -> Path | None:
    """The one document of that name in the directory. Two of them are refused: which one would count?"""
    found = [path for suffix in SUFFIXES if _is_file(path := directory / f"{stem}{suffix}")]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise SettingsError(f"{directory} has {names}: keep one of them, and move the other away")
    return found[0] if found else None


def read(path: Path) -> dict[str, Any]:
    """The whole document. Raises SettingsError with the place of what cannot be read."""
    parse = {".toml": _read_toml, ".json": _read_json}.get(path.suffix, _read_yaml)
    try:
        with path.open("rb") as file:
            # Looked at after it was opened: between two looks at a name, somebody may put another file there.
            check_writers(path, os.fstat(file.fileno()))
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; let its owner and us read it") from error
    if len(content) > MAX_BYTES:
        raise SettingsError(
            f"{path} is larger than {MAX_BYTES:,} bytes: settings are not; look what it holds"
        )
    try:
        value = _parse(parse, content)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or "it is nested too deeply"
        raise SettingsError(f"{path} is no {path.suffix[1:].upper()}: {why}") from error
    if not isinstance(value, dict):
        raise SettingsError(f"{path} holds no table: write keys with their values")
    return value


def check_writers(path: Path, found: os.stat_result) -> None:
    """Whoever may write settings may have us start any command. Raises SettingsError when that is anyone."""
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        raise SettingsError(f"{path} can be written by anyone (mode {mode:04o}): chmod go-w {path}")
    if mode & stat.S_IWGRP and not _is_own_group(found):
        raise SettingsError(f"{path} can be written by its group (mode {mode:04o}): chmod go-w {path}")


def _is_own_group(found: os.stat_result) -> bool:
    """Many systems give each user a group of the same name, and let it write by default."""
    import grp
    import pwd

    try:
        return grp.getgrgid(found.st_gid).gr_name == pwd.getpwuid(found.st_uid).pw_name
    except KeyError:  # no such name here
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # whoever may not look into the home is told so by whatever opens it
        return False


def _parse(parse: Callable[[str], Any], content: bytes) -> Any:
    try:
        return parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error


def _read_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _read_json(text: str) -> Any:
    import json

    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON's own reader would take the last of two values, and nobody would know of the first."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


def _read_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """As safe as its parent, and no key may stand twice."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1 and key != "<<":
                    raise ValueError(f"the key {key!r} stands twice below line {node.start_mark.line + 1}")
            return super().construct_mapping(node, deep)

    try:
        value = yaml.load(text, Loader)  # noqa: S506 - it is a safe loader
    except yaml.MarkedYAMLError as error:
        # Without the line itself, which the whole message quotes: it may hold a password.
        place = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ValueError(f"{error.problem}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError("it holds signs that no YAML may hold") from error
    return {} if value is None else value
