"""`holdfast dashboard`: for which tokens it makes a link."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.config import token_file
from holdfast.config.token_file import terms_of
from holdfast.core.clock import SystemClock
from tests.api.stand_in import served_doors
from tests.doors.calls import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def gateway(home: Path) -> Iterator[None]:
    with served_doors(home):
        yield


def create_token(home: Path, *, lasts: timedelta | None = None, age: timedelta = timedelta(0)) -> None:
    now = SystemClock().now() - age
    terms = terms_of(
        scopes=["operator.read"],
        owner=None,
        tasks=None,
        methods=None,
        expires_at=None if lasts is None else now + lasts,
    )
    token_file.create(home, "board", terms, taken=set(), now=now)


@pytest.mark.usefixtures("gateway")
def test_a_link_has_the_rights_of_the_named_token(home: Path, run: Run) -> None:
    create_token(home)

    found = run("dashboard", "--print", "--token", "board", "--json")

    assert (found.status, found.json["token"]) == (0, "board")


@pytest.mark.usefixtures("gateway")
def test_no_link_is_made_for_a_token_that_does_not_exist(home: Path, run: Run) -> None:
    found = run("dashboard", "--print", "--token", "nope")

    assert (found.status, found.out) == (4, "")
    assert found.err.startswith("holdfast: no token 'nope'; run `holdfast tokens list")
    assert not (home / "sign-in").exists()


@pytest.mark.usefixtures("gateway")
def test_no_link_is_made_for_a_token_that_has_expired(home: Path, run: Run) -> None:
    create_token(home, age=timedelta(hours=2), lasts=timedelta(hours=1))

    found = run("dashboard", "--print", "--token", "board")

    assert (found.status, found.out) == (3, "")
    assert "the token board has expired" in found.err
