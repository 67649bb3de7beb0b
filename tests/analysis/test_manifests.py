"""Dependencies of real manifests, and what is said of broken and hostile ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from holdfast.analysis.manifests import ManifestUnreadable, is_manifest, python_name, read_manifest


def counted_ids(what: str) -> Iterator[str]:
    """The contents themselves are too long for ids."""
    return (f"{what} {number}" for number in count(1))


def needs(name: str, text: str) -> dict[str, str]:
    return {one.name: one.kind for one in read_manifest(name, text.encode()).needs}


def test_pyproject() -> None:
    text = """
        [project]
        name = "My_Package"
        dependencies = ["Requests>=2", "zope.interface ; python_version < '4'", "a @ https://example.org/a.whl"]
        [project.optional-dependencies]
        web = ["starlette"]
        [dependency-groups]
        dev = ["pytest", {include-group = "web"}]
        [tool.poetry.dependencies]
        python = "^3.11"
        rich = "*"
    """
    assert needs("pyproject.toml", text) == {
        "requests": "runtime",
        "zope-interface": "runtime",
        "a": "runtime",
        "starlette": "optional",
        "pytest": "dev",
        "rich": "runtime",
    }
    (own,) = read_manifest("pyproject.toml", text.encode()).provides
    assert (own.ecosystem, own.name) == ("pypi", "my-package")


def test_requirements() -> None:
    text = "-r other.txt\n# comment\nfoo==1 # why\n--hash=x\nbar[extra]>=2\n-e git+https://x\n\n"

    assert needs("requirements-dev.txt", text) == {"foo": "runtime", "bar": "runtime"}


def test_setup_cfg() -> None:
    text = (
        "[metadata]\nname = one\n[options]\ninstall_requires =\n  foo>=1\n  bar%(x)s\n"
        "[options.extras_require]\ntest =\n  pytest\n"
    )
    assert needs("setup.cfg", text) == {"foo": "runtime", "bar": "runtime", "pytest": "optional"}


def test_package_json() -> None:
    text = '{"name": "@me/app", "dependencies": {"react": "1"}, "devDependencies": {"jest": "1", "": "1"}}'

    assert needs("package.json", text) == {"react": "runtime", "jest": "dev"}
    assert read_manifest("package.json", text.encode()).provides[0].name == "@me/app"


def test_go_mod() -> None:
    text = (
        "module example.org/app // mine\n\ngo 1.21\n\nrequire example.org/one v1.0.0\n"
        "require (\n\texample.org/two v0.1.0 // indirect\n\texample.org/three/v2 v2.0.0\n)\n"
    )
    facts = read_manifest("go.mod", text.encode())

    assert facts.provides[0].name == "example.org/app"
    assert set(needs("go.mod", text)) == {"example.org/one", "example.org/two", "example.org/three/v2"}
    assert needs("go.mod", text)["example.org/two"] == "optional"


def test_cargo() -> None:
    text = """
        [package]
        name = "app"
        [dependencies]
        serde = "1"
        [dev-dependencies]
        proptest = "1"
        [target.'cfg(unix)'.dependencies]
        nix = "1"
    """
    assert needs("Cargo.toml", text) == {"serde": "runtime", "proptest": "dev", "nix": "runtime"}


def test_pom() -> None:
    text = """
        <project><parent><groupId>org.up</groupId><artifactId>up</artifactId></parent>
        <groupId>org.me</groupId><artifactId>app</artifactId>
        <dependencies>
          <dependency><groupId>org.one</groupId><artifactId>one</artifactId></dependency>
          <dependency><groupId>junit</groupId><artifactId>junit</artifactId><scope>test</scope></dependency>
        </dependencies></project>
    """
    assert needs("pom.xml", text) == {"org.one:one": "runtime", "junit:junit": "dev"}
    assert read_manifest("pom.xml", text.encode()).provides[0].name == "org.me:app"


@pytest.mark.parametrize(
    ("name", "content"),
    ids=counted_ids("broken"),
    argvalues=[
        ("pyproject.toml", b"[project\n"),
        ("pyproject.toml", b"a = " + b"[" * 100_000),
        ("package.json", b"{"),
        ("package.json", b"[]"),
        ("package.json", b"[" * 100_000),
        ("setup.cfg", b"no section\n"),
        ("pom.xml", b"<dependency>" * 10_000),
        ("Cargo.toml", b"\x00"),
        ("Cargo.toml", b"a." * 500_000 + b"a = 1\n"),
    ],
)
def test_a_broken_manifest_is_told_by_its_name(name: str, content: bytes) -> None:
    with pytest.raises(ManifestUnreadable, match=name):
        read_manifest(name, content)


@pytest.mark.parametrize(
    ("name", "content"),
    ids=counted_ids("odd"),
    argvalues=[
        ("pyproject.toml", b'project = 1\n[tool]\npoetry = "x"\n'),
        ("pyproject.toml", b"[project]\nname = 1\ndependencies = {a = 1}\n"),
        ("package.json", b'{"name": 1, "dependencies": ["x"]}'),
        ("requirements.txt", b"\xff\xfe\x1b[31m\n"),
        ("go.mod", b"require " * 10_000),
        ("pom.xml", b"<dependency></dependency><artifactId>" * 10_000),
        ("requirements.txt", b"x" * 100_000),
        ("requirements.txt", (b"a;" + b";" * 998 + b"\n") * 1000),
        ("go.mod", b"a." * 500_000),
        ("setup.cfg", b"[a]\nb" + b" " * 1_000_000 + b"c\n"),
    ],
)
def test_a_manifest_of_another_shape_declares_nothing(name: str, content: bytes) -> None:
    assert read_manifest(name, content).provides == ()
    assert all(len(one.name) <= 200 for one in read_manifest(name, content).needs)


def test_a_name_that_could_be_markup_or_an_escape_is_no_dependency() -> None:
    text = '{"dependencies": {"<b>": "1", "\\u001b[31m": "1", "a\\nb": "1", "fine": "1"}}'

    assert set(needs("package.json", text)) == {"fine"}


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("Foo_Bar.baz>=1", "foo-bar-baz"), (" a ", "a"), ("", None), ("-e .", None), ("@x", None)],
)
def test_python_names_are_normalized(requirement: str, name: str | None) -> None:
    assert python_name(requirement) == name


def test_only_manifests_are_read() -> None:
    names = ["requirements.txt", "requirements-dev.txt", "requirements.in", "pom.xml", "xpom.xml", "go.sum"]

    assert [name for name in names if is_manifest(name)] == [names[0], names[1], names[3]]
