"""Finds a document of settings by its name and reads it: TOML, JSON or YAML, all with the same keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import trust
from holdfast.core.errors import SettingsError

if TYPE_CHECKING:
    import yaml

SUFFIXES = (".toml", ".json", ".yaml", ".yml")
MAIN = "holdfast"
MAX_BYTES = 1024**2
# Of one YAML document, with its aliases written out.
MAX_VALUES = 100_000


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
        # Without waiting: a FIFO would keep us until another process writes into it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            check_trusted(path, os.fstat(file.fileno()))
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}; let its owner and us read it") from error
    if len(content) > MAX_BYTES:
        raise SettingsError(
            f"{path} is larger than {MAX_BYTES:,} bytes: settings are not; look what it holds"
        )
    try:
        value = _parse(parse, content)
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"{path} cannot be read without PyYAML: pip install 'holdfast-agents[gateway]', "
            "or write these settings as TOML or JSON"
        ) from error
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split()) or "it is nested too deeply"
        raise SettingsError(f"{path} is no {path.suffix[1:].upper()}: {why}") from error
    if not isinstance(value, dict):
        raise SettingsError(f"{path} holds no table: write keys with their values")
    return value


def check_trusted(path: Path, opened: os.stat_result | None = None) -> None:
    """A user who can write settings can have us start any command. Raises SettingsError if others can."""
    problem = trust.why_not_trusted(path, opened=opened)
    if problem is not None:
        raise SettingsError(f"the settings in {path} are not obeyed: {problem}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # whoever may not look into the home is told so by whatever opens it
        return False


def _parse(parse: Callable[[str], Any], content: bytes) -> Any:
    try:
        value = parse(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from error
    if any(_is_half(text) for text in _texts(value)):
        raise ValueError("it holds half of a surrogate pair, such as \\ud800; write the whole character")
    return value


def _texts(value: Any) -> Iterator[str]:
    """All keys and values that are texts, those of what YAML shares only once."""
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
            known: set[Hashable] = set()
            for pair, _ in node.value:
                key = self.construct_object(pair, deep=True)
                if not isinstance(key, Hashable):
                    continue  # which its parent refuses
                if key in known and key != "<<":
                    raise ValueError(f"the key {key!r} stands twice below line {node.start_mark.line + 1}")
                known.add(key)
            return super().construct_mapping(node, deep)

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is not None:
            _count(node, {}, set())
        value = None if node is None else loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        # Without the line itself, which the whole message quotes: it may hold a password.
        place = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        raise ValueError(f"{error.problem}{place}") from error
    except yaml.YAMLError as error:
        raise ValueError("it holds signs that no YAML may hold") from error
    return {} if value is None else value


def _count(node: yaml.Node, counts: dict[int, int], above: set[int]) -> int:
    """How many values there are with every alias written out: a few lines can stand for billions of them."""
    if id(node) in above:
        raise ValueError(f"an alias holds itself, below line {node.start_mark.line + 1}")
    if id(node) in counts:
        return counts[id(node)]
    above.add(id(node))
    inner = node.value if isinstance(node.value, list) else []
    parts = [part for one in inner for part in (one if isinstance(one, tuple) else (one,))]
    count = 1 + sum(_count(part, counts, above) for part in parts)
    above.discard(id(node))
    if count > MAX_VALUES:
        raise ValueError(f"its aliases stand for more than {MAX_VALUES:,} values: write them out, or fewer")
    counts[id(node)] = count
    return count
