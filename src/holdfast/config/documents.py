"""Finds and reads a settings file: TOML, JSON or YAML, all with the same keys."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import trust
from holdfast.core.errors import SettingsError

if TYPE_CHECKING:
    import yaml

SUFFIXES = (".toml", ".json", ".yaml", ".yml")
MAIN = "holdfast"
MAX_BYTES = 1024**2
# The limit for one YAML document with all aliases expanded.
MAX_VALUES = 100_000


def find(directory: Path, stem: str) -> Path | None:
    """The one settings file of that name in the directory. Raises SettingsError if there are two."""
    found = [path for suffix in SUFFIXES if _is_file(path := directory / f"{stem}{suffix}")]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise SettingsError(f"{directory} has {names}: keep one of them, and remove the other")
    return found[0] if found else None


def read(path: Path) -> dict[str, Any]:
    """Read the whole file. Raises SettingsError with the place of the problem."""
    parse = {".toml": _read_toml, ".json": _read_json}.get(path.suffix, _read_yaml)
    try:
        # Non-blocking: opening a FIFO would otherwise wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            check_trusted(path, os.fstat(file.fileno()))
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; make it readable for the gateway's user") from error
    if len(content) > MAX_BYTES:
        raise SettingsError(
            f"{path} is larger than {MAX_BYTES:,} bytes, so it is no settings file: check what it contains"
        )
    try:
        value = _parse(parse, content)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{path} cannot be read without PyYAML: pip install '.[gateway]' in a checkout, "
            "or write these settings as TOML or JSON"
        ) from error
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or "it is nested too deeply"
        raise SettingsError(f"{path} is not valid {path.suffix[1:].upper()}: {why}") from error
    if not isinstance(value, dict):
        raise SettingsError(f"{path} has no keys at its top level: write keys with values")
    return value


def line_of(path: Path, parts: Sequence[str]) -> int | None:
    """The number of the line with the last of these keys, each found below the one before it."""
    try:
        lines = path.read_text(encoding="utf-8-sig")[:MAX_BYTES].splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    place = 0
    for part in parts:
        word = re.compile(rf"(?<![\w-]){re.escape(part)}(?![\w-])")
        found = next((number for number in range(place, len(lines)) if word.search(lines[number])), None)
        if found is None and part == parts[-1]:
            return None
        # A file of one section need not repeat the section's name.
        place = place if found is None else found
    return place + 1 if lines else None


def check_trusted(path: Path, opened: os.stat_result | None = None) -> None:
    """Raises SettingsError if other users can write the file: settings can start any command."""
    problem = trust.why_not_trusted(path, opened=opened)
    if problem is not None:
        raise SettingsError(f"the settings in {path} are refused: {problem}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # no access to the home: opening it later reports that
        return False


def _parse(parse: Callable[[str], Any], content: bytes) -> Any:
    try:
        value = parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    if any(_is_half(text) for text in _texts(value)):
        raise ValueError("it contains half of a surrogate pair, such as \\ud800; write the whole character")
    return value


def _texts(value: Any) -> Iterator[str]:
    """All strings in keys and values; parts that YAML aliases share are visited once."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, (dict, list)) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one, *one.values()] if isinstance(one, dict) else one


def _is_half(text: str) -> bool:
    return any("\ud800" <= sign <= "\udfff" for sign in text) if not text.isascii() else False


def _read_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


def _read_json(text: str) -> Any:
    import json

    return json.loads(text, object_pairs_hook=_without_doubles)


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: the JSON parser would silently keep the last value."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} is given twice")
        found[key] = value
    return found


def _read_yaml(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """A SafeLoader that refuses duplicate keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
            known: set[Hashable] = set()
            for pair, _ in node.value:
                key = self.construct_object(pair, deep=True)
                if not isinstance(key, Hashable):
                    continue  # the parent class refuses it
                if key in known and key != "<<":
                    raise ValueError(f"the key {key!r} is given twice below line {node.start_mark.line + 1}")
                known.add(key)
            return super().construct_mapping(node, deep)

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _count(node, {}, set())
        value = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        # Do not quote the line, as the full message does: it may contain a password.
        place = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ValueError(f"{error.problem}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError("it contains characters that YAML does not allow") from error
    return {} if value is None else value


def _count(node: yaml.Node, counts: dict[int, int], above: set[int]) -> int:
    """The number of values with all aliases expanded: a few lines can expand to billions."""
    if id(node) in above:
        raise ValueError(f"an alias contains itself, below line {node.start_mark.line + 1}")
    if id(node) in counts:
        return counts[id(node)]
    above.add(id(node))
    inner = node.value if isinstance(node.value, list) else []
    parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
    count = 1 + sum(_count(part, counts, above) for part in parts)
    above.discard(id(node))
    if count > MAX_VALUES:
        raise ValueError(f"its aliases expand to more than {MAX_VALUES:,} values: use fewer aliases")
    counts[id(node)] = count
    return count
