"""Where the home and the ledger are: URLs, variables, defaults; and the wiring of the parts."""

from __future__ import annotations

import asyncio
import builtins
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs
import pytest

import holdfast
from holdfast import app
from holdfast.app import homes
from holdfast.config import (
    MemoryPlace,
    PostgresPlace,
    SqlitePlace,
    default_home,
    read_settings,
    read_store_url,
    without_password,
)
from holdfast.core.clock import SystemClock
from holdfast.core.errors import HomeInUse, NoLedger, SettingsError
from holdfast.engine.ledger.ledger import NewTask
from holdfast.store.locks import HomeLock
from holdfast.testing import FakeClock

# --- URLs


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:/var/lib/x.db", "/var/lib/x.db"),
        ("sqlite:////var/lib/a b%20c.db", "/var/lib/a b%20c.db"),
    ],
)
def test_a_url_names_an_absolute_path(url: str, path: str) -> None:
    assert read_store_url(url) == SqlitePlace(path=Path(path))


@pytest.mark.parametrize("url", ["sqlite:///some/ledger.db", "sqlite:some/ledger.db"])
def test_a_url_names_a_relative_path(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert read_store_url(url) == SqlitePlace(path=tmp_path / "some/ledger.db")


def test_a_link_is_resolved_so_that_all_agree_on_what_lies_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert read_store_url(f"sqlite:{tmp_path}/link/x.db") == read_store_url(f"sqlite:{tmp_path}/real/x.db")


def test_a_place_can_be_named_by_its_own_url() -> None:
    for url in ("sqlite:////var/lib/x.db", "postgresql://h/d", "postgres://h/d", "memory:"):
        place = read_store_url(url)

        assert read_store_url(place.url) == place


@pytest.mark.parametrize(
    ("url", "fix"),
    [
        ("", "write sqlite:"),
        ("ledger.db", "write sqlite:ledger.db"),
        ("sqlite:", "name a file"),
        ("sqlite://", "sqlite:///"),
        ("sqlite:///", "name a file"),
        ("sqlite://ledger.db", "write sqlite:///ledger.db"),
        ("sqlite:/", "name a file"),
        ("sqlite:/tmp", "sqlite:////tmp/ledger.db"),
        ("sqlite:a\x00b", "is not a valid path"),
        ("sqlite:~nobodyhere/x.db", "is not a valid path"),
        ("mysql://host/db", "postgresql://"),
        ("SQLITE:x", "use sqlite:"),
        ("memory", "write sqlite:memory"),
    ],
)
def test_a_url_that_cannot_be_used_names_the_key_and_the_fix(url: str, fix: str) -> None:
    with pytest.raises(SettingsError, match=r"^HOLDFAST_STORE is '") as found:
        read_store_url(url, key="HOLDFAST_STORE")

    assert fix in str(found.value)


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ada:hunter2@host/db",
        "mysql://ada:hu/nter2@host/db",
        "mysql://ada:hunter2@x@host/db",
        "mysql://:hunter2@host",
        "mysql://host/db?password=hunter2&x=1",
        "mysql://host/db?sslpassword=hunter2",
        "mysql://host/db?PASSWORD=h2",
    ],
)
def test_a_password_in_a_url_is_never_shown(url: str) -> None:
    with pytest.raises(SettingsError) as found:
        read_store_url(url)

    assert "h2" not in str(found.value)
    assert "nter" not in str(found.value)
    assert "nter" not in PostgresPlace(url=url).shown


def test_a_url_without_a_password_is_shown_as_it_is() -> None:
    assert without_password("postgresql://ada@host:5432/db?x=1") == "postgresql://ada@host:5432/db?x=1"
    assert without_password("sqlite:///a:b@c.db") == "sqlite:///a:b@c.db"


# --- the home


def test_the_default_home_is_the_platforms_directory_for_state(monkeypatch: pytest.MonkeyPatch) -> None:
    for base in ("/srv/state", "", "  "):
        monkeypatch.setenv("XDG_STATE_HOME", base)

        assert default_home({"XDG_STATE_HOME": base}) == platformdirs.user_state_path("holdfast").resolve()


@pytest.mark.skipif(sys.platform != "linux", reason="there it asks platformdirs anyway")
def test_elsewhere_platformdirs_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert default_home({}).name == "holdfast"


def test_the_environment_names_the_home_and_the_ledger_lies_in_it(tmp_path: Path) -> None:
    settings = read_settings({"HOLDFAST_HOME": str(tmp_path / "h")})

    assert settings.home == tmp_path / "h"
    assert settings.store == SqlitePlace(path=tmp_path / "h" / "ledger.db")


def test_an_empty_variable_says_nothing() -> None:
    assert read_settings({"HOLDFAST_HOME": "", "HOLDFAST_STORE": ""}) == read_settings({})


@pytest.mark.parametrize(("home", "fix"), [("", "name a directory"), ("/etc/passwd", "it is a file")])
def test_a_home_that_cannot_be_used_names_the_key_and_the_fix(home: str, fix: str) -> None:
    with pytest.raises(SettingsError, match=r"^--home is ") as found:
        read_settings({}, home=home)

    assert fix in str(found.value)


def test_a_new_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    app.make_home(tmp_path / "a" / "b")

    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_a_home_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(SettingsError, match="choose another --home"):
        app.make_home(tmp_path / "file" / "home")


def test_the_locks_of_boots_lie_where_everyone_on_the_machine_finds_them(tmp_path: Path) -> None:
    def locks(home: str, store: str) -> Path | None:
        return app.locks_of(read_settings({}, home=str(tmp_path / home), store=store))

    file = f"sqlite:{tmp_path}/x.db"
    assert locks("one", file) == locks("two", file) == tmp_path / "x.db-boots"
    assert locks("one", "postgresql://h/d") == tmp_path / "one" / "boots"
    assert locks("one", "memory:") is None


# --- stores


def test_a_store_is_opened_by_its_url(tmp_path: Path) -> None:
    for url in (f"sqlite:{tmp_path}/x.db", "memory:"):
        store = app.open_store(url, clock=FakeClock())

        assert store.verify() == []
        store.close()


@pytest.mark.parametrize("opens", [app.open_place, app.open_reader], ids=["store", "reader"])
def test_without_its_driver_postgresql_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, opens: Callable[..., Any]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("psycopg", "holdfast.store.postgres"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "holdfast.store.postgres_connection", raising=False)
    importing = builtins.__import__

    def without_driver(name: str, *rest: Any) -> Any:
        if name.split(".")[0] == "psycopg":
            raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
        return importing(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_driver)

    with pytest.raises(SettingsError, match=r"pip install '\.\[postgres\]' in a checkout") as found:
        opens(
            PostgresPlace(url="postgresql://ada:hunter2@h/d"), **({} if opens is app.open_reader else CLOCK)
        )

    assert "hunter2" not in str(found.value)


CLOCK = {"clock": FakeClock()}


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    for place in (SqlitePlace(path=tmp_path / "x" / "ledger.db"), MemoryPlace()):
        with pytest.raises(NoLedger):
            app.open_reader(place)

    assert list(tmp_path.iterdir()) == []


def test_a_write_waits_a_moment_for_another_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings({}, home=str(tmp_path))
    app.open_place(settings.store, clock=FakeClock()).close()
    other = HomeLock.take(tmp_path, role="cli")
    monkeypatch.setattr(homes, "LOCK_PATIENCE_S", 30.0)
    monkeypatch.setattr("time.sleep", lambda _: other.release())

    with app.writing(settings, clock=FakeClock()), pytest.raises(HomeInUse):
        HomeLock.take(tmp_path, role="gateway")

    HomeLock.take(tmp_path, role="gateway").release()


# --- the parts


def test_the_parts_of_one_life_work_together(tmp_path: Path) -> None:
    settings = read_settings({}, home=str(tmp_path))

    async def live() -> None:
        async with app.open_parts(settings, role="test") as parts:
            task = await parts.ledger.create(NewTask(name="n", goal="g"))
            (taken,) = await parts.claims.take()
            await parts.ledger.finish(taken.claim, "done")
            assert (await parts.ledger.get(task.id)).result == b'"done"'

    asyncio.run(live())

    store = app.open_place(settings.store, clock=SystemClock())
    assert store.read_now(lambda tx: tx.boots.alive()) == []
    store.close()


# --- the public names


def test_every_public_name_can_be_imported() -> None:
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None

    assert dir(holdfast) == sorted(holdfast.__all__)


def test_every_error_is_public() -> None:
    from holdfast.core import errors

    internal = {"LedgerFileOpened"}
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.HoldfastError)
    }

    assert ours - internal <= set(holdfast.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = holdfast.nonsense


def test_the_version_is_that_of_the_distribution() -> None:
    from importlib.metadata import version

    assert holdfast.__version__ == version("holdfast-agents")
