"""Dependencies that manifests declare: of Python, JavaScript, Go, Rust and Java; read, never executed."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from holdfast.views.text import one_line

MAX_POM_DEPTH = 20
_MAX_LINE_CHARS = 1000
_PYTHON_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]{0,199})")
_ANY_NAME = re.compile(r"@?[A-Za-z0-9._~-][A-Za-z0-9._~/:@-]{0,199}\Z")
_REQUIREMENTS = re.compile(r"requirements[\w.-]*\.txt\Z")
_GO_MODULE = re.compile(r"^module\s+(\S+)", re.MULTILINE)
_GO_REQUIRE = re.compile(r"^(?:require\s+)?([^\s()/]+\.[^\s()]+)\s+v\S+(\s*//\s*indirect)?", re.MULTILINE)
# Parts of a pom, and the values in them: one pass, whatever is left open.
_POM_TOKEN = re.compile(
    r"<(/?)(dependencyManagement|dependency|exclusion|parent|build|profile|plugin)>"
    r"|<(artifactId|groupId|scope)>\s{0,50}([^<\s]{1,200})"
)
_EXTRA = re.compile(r"\bextra\s?==")
_SPACES = re.compile(r"(?<=\S)[ \t]+")
# Parsers take quadratic time for keys of very many parts.
_MAX_DOTS = 1000


class Dependency(msgspec.Struct, frozen=True, order=True):
    """One thing that an item needs; `kind` is runtime, optional or dev."""

    ecosystem: str
    name: str
    kind: str = "runtime"


class ManifestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one manifest says: what its project is called, and what it needs."""

    provides: tuple[Dependency, ...] = ()
    needs: tuple[Dependency, ...] = ()


class ManifestUnreadable(ValueError):
    """The manifest is no valid document of its kind."""


def is_manifest(name: str) -> bool:
    return name in _READERS or _REQUIREMENTS.match(name) is not None


def read_manifest(name: str, content: bytes) -> ManifestFacts:
    """What a manifest with this file name says. Raises ManifestUnreadable."""
    read = _READERS.get(name, _requirements)
    try:
        return read(content.decode("utf-8-sig", "replace"))
    except (ValueError, TypeError, AttributeError, RecursionError, configparser.Error) as error:
        what = one_line(str(error).partition("\n")[0], 100)
        raise ManifestUnreadable(f"{name}: {what or type(error).__name__}") from error


def python_name(requirement: str) -> str | None:
    """The normalized name in a requirement: `Foo_Bar>=1; extra == "x"` is foo-bar."""
    found = _PYTHON_NAME.match(requirement[:_MAX_LINE_CHARS])
    return None if found is None else re.sub(r"[-_.]+", "-", found[1]).lower().strip("-")


def python_needs(requirements: Iterable[object], kind: str = "runtime") -> Iterator[Dependency]:
    for one in requirements:
        name = python_name(str(one))
        if name and name != "python":
            marker = str(one)[:_MAX_LINE_CHARS].partition(";")[2]
            is_extra = kind == "runtime" and _EXTRA.search(marker)
            yield Dependency("pypi", name, "optional" if is_extra else kind)


# --- one function for each manifest


def _pyproject(text: str) -> ManifestFacts:
    document = _toml(text)
    project, poetry = _table(document, "project"), _table(document, "tool", "poetry")
    needs = [*python_needs(_list(project.get("dependencies")))]
    for requirements in _table(project, "optional-dependencies").values():
        needs += python_needs(_list(requirements), "optional")
    for requirements in _table(document, "dependency-groups").values():
        needs += python_needs([one for one in _list(requirements) if isinstance(one, str)], "dev")
    needs += python_needs(_table(poetry, "dependencies"))
    needs += python_needs(_table(poetry, "dev-dependencies"), "dev")
    for group in _table(poetry, "group").values():
        needs += python_needs(_table(group, "dependencies"), "dev")
    return _facts("pypi", project.get("name") or poetry.get("name"), needs)


def _setup_cfg(text: str) -> ManifestFacts:
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    parser.read_string(_SPACES.sub(" ", text))
    needs = [*python_needs(_lines(parser.get("options", "install_requires", fallback=None)))]
    if parser.has_section("options.extras_require"):
        for _, requirements in parser.items("options.extras_require"):
            needs += python_needs(_lines(requirements), "optional")
    return _facts("pypi", parser.get("metadata", "name", fallback=None), needs)


def _requirements(text: str) -> ManifestFacts:
    lines = [line.partition(" #")[0].strip() for line in _lines(text)]
    return _facts("pypi", None, python_needs(line for line in lines if line[:1] not in ("#", "-", "")))


def _package_json(text: str) -> ManifestFacts:
    document = msgspec.json.decode(text)
    needs: list[Dependency] = []
    for key, kind in (
        ("dependencies", "runtime"),
        ("peerDependencies", "runtime"),
        ("optionalDependencies", "optional"),
        ("devDependencies", "dev"),
    ):
        needs += (Dependency("npm", str(name).lower(), kind) for name in _table(document, key))
    return _facts("npm", document.get("name"), needs)


def _cargo(text: str) -> ManifestFacts:
    document = _toml(text)
    tables = [document, _table(document, "workspace"), *_table(document, "target").values()]
    needs: list[Dependency] = []
    for table in tables:
        for key, kind in (
            ("dependencies", "runtime"),
            ("dev-dependencies", "dev"),
            ("build-dependencies", "dev"),
        ):
            needs += (Dependency("cargo", str(name), kind) for name in _table(table, key))
    return _facts("cargo", _table(document, "package").get("name"), needs)


def _go_mod(text: str) -> ManifestFacts:
    module = _GO_MODULE.search(text)
    lines = "\n".join(line.strip() for line in text.splitlines() if len(line) < _MAX_LINE_CHARS)
    needs = [
        Dependency("go", name, "optional" if indirect else "runtime")
        for name, indirect in _GO_REQUIRE.findall(lines)
    ]
    return _facts("go", None if module is None else module[1], needs)


def _pom(text: str) -> ManifestFacts:
    """By patterns: an XML parser would follow what the document asks it to expand."""
    needs: list[Dependency] = []
    inside: list[str] = []
    own: dict[str, str] = {}
    found: dict[str, str] = {}
    for token in _POM_TOKEN.finditer(text):
        closing, part, field, value = token.groups()
        if field:
            if inside[-1:] == ["dependency"]:
                found.setdefault(field, value)
            elif not inside:
                own.setdefault(field, value)
        elif not closing:
            inside.append(part)
            found = {} if part == "dependency" else found
        elif inside[-1:] == [part]:
            inside.pop()
            if part == "dependency" and "artifactId" in found and "dependencyManagement" not in inside:
                kind = "dev" if found.get("scope") in ("test", "provided") else "runtime"
                needs.append(Dependency("maven", _maven_name(found), kind))
        if len(inside) > MAX_POM_DEPTH:
            raise ManifestUnreadable("its parts are nested too deep")
    return _facts("maven", _maven_name(own) if "artifactId" in own else None, needs)


def _maven_name(fields: dict[str, str]) -> str:
    group = fields.get("groupId")
    return fields["artifactId"] if group is None else f"{group}:{fields['artifactId']}"


_READERS: dict[str, Callable[[str], ManifestFacts]] = {
    "pyproject.toml": _pyproject,
    "setup.cfg": _setup_cfg,
    "package.json": _package_json,
    "Cargo.toml": _cargo,
    "go.mod": _go_mod,
    "pom.xml": _pom,
}


def _facts(ecosystem: str, own: object, needs: Iterable[Dependency]) -> ManifestFacts:
    name = python_name(own) if ecosystem == "pypi" and isinstance(own, str) else own
    is_named = isinstance(name, str) and _ANY_NAME.match(name)
    kept = {one for one in needs if _ANY_NAME.match(one.name)}
    return ManifestFacts(
        provides=(Dependency(ecosystem, str(name)),) if is_named else (), needs=tuple(sorted(kept))
    )


def _toml(text: str) -> dict[str, Any]:
    if any(line.count(".") > _MAX_DOTS for line in text.splitlines()):
        raise ManifestUnreadable("a line has too many dots")
    return tomllib.loads(text)


def _table(document: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def _list(found: object) -> list[Any]:
    return found if isinstance(found, list) else []


def _lines(text: str | None) -> list[str]:
    return [line.strip() for line in (text or "").splitlines() if line.strip()]
