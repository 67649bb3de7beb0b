"""A token that was bound, replaced, removed or revoked is refused at once, on open connections, too."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from holdfast.api import websocket
from holdfast.api.contract import READ, WRITE, Caller
from holdfast.api.token_methods import TokenAsked, TokenCreateAsked, create_token, revoke_token
from holdfast.api.tokens import Bearer, Tokens, TokenWatch
from holdfast.config.sections import Config, TokenSettings
from holdfast.config.token_file import read_uses
from holdfast.core.errors import SettingsError
from holdfast.testing import FakeClock
from tests.api.stand_in import OWNER, READ_TOKEN, TOKEN, Client, ServedDoors, served_doors
from tests.conftest import quick_directory
from tests.security.running_gateway import eventually

BOARD = "hf_test_board_" + "e5" * 32
OTHER = "hf_test_other_" + "f6" * 32


@pytest.fixture
def house(tmp_path: Path) -> Iterator[ServedDoors]:
    with quick_directory(tmp_path) as home, served_doors(home) as house:
        yield house


def private(path: Path, text: str) -> None:
    """As a person replaces a file: in place."""
    path.write_text(text)
    path.chmod(0o600)


def with_files(house: ServedDoors, **tokens: str) -> Config:
    for name, text in tokens.items():
        private(house.home / name, text)
    named = {name: TokenSettings(token_file=name, scopes=["operator.read"]) for name in (*tokens, "absent")}
    config = Config(tokens=named)
    house.tokens.replace(Tokens.read(config, house.home, {"HOLDFAST_TOKEN": TOKEN}, is_strict=False))
    return config


def status(house: ServedDoors, token: str) -> int:
    return house.post("health", token=token).status_code


# --- files


def test_a_token_file_that_is_replaced_counts_at_the_next_request(house: ServedDoors) -> None:
    with_files(house, board=BOARD)
    assert status(house, BOARD) == 200

    # Of the same length, and at once after the first: neither its size nor its time may tell.
    private(house.home / "board", OTHER)

    assert (status(house, BOARD), status(house, OTHER)) == (401, 200)


def test_a_token_file_that_is_removed_or_opened_to_others_lets_its_bearer_in_no_more(
    house: ServedDoors,
) -> None:
    with_files(house, board=BOARD, other=OTHER)
    assert (status(house, BOARD), status(house, OTHER)) == (200, 200)

    (house.home / "board").unlink()
    assert (status(house, BOARD), status(house, OTHER), status(house, TOKEN)) == (401, 200, 200)
    private(house.home / "board", BOARD)
    assert status(house, BOARD) == 200
    (house.home / "board").chmod(0o644)
    assert (status(house, BOARD), status(house, OTHER)) == (401, 200)


def test_a_token_file_that_is_missing_harms_no_other_and_counts_as_soon_as_it_is_there(
    house: ServedDoors,
) -> None:
    with_files(house, board=BOARD)
    assert status(house, BOARD) == 200

    private(house.home / "absent", OTHER)

    assert status(house, OTHER) == 200


def test_the_file_of_the_home_s_own_token_is_revoked_by_removing_it_and_not_made_anew(
    house: ServedDoors,
) -> None:
    private(house.home / "token", BOARD)
    house.tokens.replace(Tokens.read(Config(), house.home, {}))
    assert status(house, BOARD) == 200

    (house.home / "token").unlink()
    assert status(house, BOARD) == 401
    house.tokens.replace(Tokens.read(Config(), house.home, {}, is_strict=False))  # a reload of the settings
    assert not (house.home / "token").exists()


def test_two_files_with_the_same_token_open_nothing(house: ServedDoors) -> None:
    with_files(house, board=BOARD, other=OTHER)

    private(house.home / "other", BOARD)

    assert (status(house, BOARD), status(house, TOKEN)) == (401, 200)


def test_a_start_refuses_a_token_that_cannot_be_trusted_and_not_one_that_is_missing(tmp_path: Path) -> None:
    absent = Config(tokens={"absent": TokenSettings(token_file="absent")})
    unset = Config(tokens={"unset": TokenSettings(token_env="UNSET")})
    private(tmp_path / "short", "short")
    short = Config(tokens={"short": TokenSettings(token_file="short")})
    wrong = Config(tokens={"wrong": TokenSettings(token_env="A", methods=["ledger.creat"])})

    for config in (absent, unset):
        assert Tokens.read(config, tmp_path, {}).find(BOARD) is None
    with pytest.raises(SettingsError, match=r"tokens\.short\.token_file"):
        Tokens.read(short, tmp_path, {})
    with pytest.raises(SettingsError, match=r"did you mean ledger\.create"):
        Tokens.read(wrong, tmp_path, {"A": BOARD})


# --- expiry


def test_a_token_that_has_expired_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    caller = Caller(who="board", scopes=frozenset({READ}))
    until = Bearer(caller=caller, expires_at=clock.now() + timedelta(hours=1))
    tokens = Tokens.of(TOKEN, {BOARD: until}, clock=clock)
    digest = tokens.find(BOARD)
    assert digest is not None
    assert tokens.caller_of(digest) == caller

    clock.advance(hours=1)

    assert tokens.caller_of(digest) is None
    assert tokens.find(BOARD) is None
    assert tokens.find(TOKEN) is not None


# --- issued ones


def test_a_token_that_is_issued_counts_at_once_and_is_refused_at_once_when_it_is_revoked(
    house: ServedDoors,
) -> None:
    with_files(house)
    config = house.gateway.config
    asked = TokenCreateAsked(name="shop", scopes=["operator.write"], tasks=["buy"], methods=["ledger.create"])
    made = create_token(house.home, config, asked, house.gateway.clock.now())

    bought = house.post("ledger.create", {"name": "buy", "goal": "x"}, token=made.text)
    sold = house.post("ledger.create", {"name": "sell", "goal": "x"}, token=made.text)
    looked = house.post("ledger.list", token=made.text)
    revoke_token(house.home, config, TokenAsked(name="shop"))
    after = house.post("ledger.create", {"name": "buy", "goal": "x"}, token=made.text)

    assert [one.status_code for one in (bought, sold, looked, after)] == [200, 409, 403, 401]
    assert made.text not in (house.home / "tokens.json").read_text()


def test_a_file_of_issued_tokens_that_is_damaged_lets_none_of_them_in_and_harms_no_other(
    house: ServedDoors,
) -> None:
    with_files(house, board=BOARD)
    asked = TokenCreateAsked(name="shop")
    made = create_token(house.home, house.gateway.config, asked, house.gateway.clock.now())
    assert status(house, made.text) == 200

    private(house.home / "tokens.json", "{")

    assert (status(house, made.text), status(house, BOARD)) == (401, 200)


def test_the_last_use_of_each_token_is_written_down(house: ServedDoors) -> None:
    status(house, READ_TOKEN)
    watch = TokenWatch(house.tokens, house.home)

    assert watch.save()
    assert not watch.save()

    found = read_uses(house.home)
    assert set(found) == {"board"}
    assert (house.home / "token-uses.json").stat().st_mode & 0o777 == 0o600


async def test_what_is_wrong_with_a_token_is_told_until_it_is_right(tmp_path: Path) -> None:
    config = Config(tokens={"board": TokenSettings(token_file="board")})
    tokens = Tokens.read(config, tmp_path, {})
    told: list[str | None] = []
    watch = TokenWatch(tokens, tmp_path, on_problem=told.append)

    await watch.run_once()
    private(tmp_path / "board", BOARD)
    await watch.run_once()

    assert "tokens.board.token_file" in str(told[0])
    assert told[1] is None


def test_no_token_makes_tokens_not_even_one_that_administers(house: ServedDoors) -> None:
    for method in ("tokens.list", "tokens.create", "tokens.revoke", "tokens.rotate"):
        refused = house.post(method, {"name": "more"})
        with house.websocket() as client:
            client.connect()
            over_websocket = client.call(method, {"name": "more"})

        assert refused.status_code == 403
        assert "unix socket" in refused.json()["error"]["message"]
        assert over_websocket["error"]["code"] == "FORBIDDEN"
        assert f"/rpc/{method}" not in house.get("/openapi.json").text


# --- open connections


def until_told(house: ServedDoors, client: Client, name: str) -> None:
    """Again and again, for the feed looks for where it stands before it tells anything."""
    for _ in range(400):
        house.post("ledger.create", {"name": name, "goal": "x"})
        with contextlib.suppress(TimeoutError):
            client.events.append(client.read(timeout=0.05))
        if any(one["event"] == "task" for one in client.events):
            return
    raise AssertionError("nothing was told")


def test_a_websocket_whose_token_is_bound_meanwhile_hears_of_the_owner_s_tasks_alone(
    house: ServedDoors,
) -> None:
    with house.websocket() as client:
        client.connect(READ_TOKEN)
        until_told(house, client, "before")
        bound = Caller(who="board", scopes=frozenset({READ, WRITE}), owner=OWNER)
        house.tokens.replace(Tokens.of(TOKEN, {READ_TOKEN: bound}))
        client.events.clear()
        house.post("ledger.create", {"name": "theirs", "goal": "x", "owner": "somebody else"})
        house.post("ledger.create", {"name": "mine", "goal": "x", "owner": OWNER})
        while "mine" not in kinds(client):
            client.events.append(client.read())

    # What was told before it was bound may still be on its way.
    assert set(kinds(client)) - {"before"} == {"mine"}


def kinds(client: Client) -> list[str]:
    return [one["payload"]["task"]["kind"] for one in client.events if one["event"] == "task"]


def test_a_websocket_that_asks_nothing_is_closed_when_its_token_is_taken_away(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "LOOK_EVERY_S", 0.05)
    with house.websocket() as client:
        client.connect(READ_TOKEN)
        house.tokens.replace(Tokens.of(TOKEN))
        with contextlib.suppress(ConnectionClosed):
            while True:
                client.read()

    assert client.way.close_code == 1008


def test_a_stream_of_events_ends_when_its_token_is_bound(house: ServedDoors) -> None:
    headers = {"authorization": f"Bearer {READ_TOKEN}"}
    with house.http.stream("GET", f"{house.url}/events", headers=headers) as stream:
        lines = stream.iter_lines()
        next(lines)
        bound = Caller(who="board", scopes=frozenset({READ}), owner=OWNER)
        house.tokens.replace(Tokens.of(TOKEN, {READ_TOKEN: bound}))
        house.post("ledger.create", {"name": "theirs", "goal": "a canary", "owner": "somebody else"})
        rest = list(lines)

    assert "canary" not in "".join(rest)


@pytest.mark.parametrize("after", ["removed", "bound"])
def test_an_answer_that_was_waited_for_is_not_given_to_a_token_that_changed_meanwhile(
    house: ServedDoors, after: str
) -> None:
    house.tokens.replace(Tokens.of(TOKEN, {READ_TOKEN: Caller(who="board", scopes=frozenset({READ, WRITE}))}))
    task_id = house.post("ledger.create", {"name": "buy", "goal": "x"}).json()["taskId"]
    found: list[Any] = []
    with house.websocket() as client:
        client.connect(READ_TOKEN)
        client.call("health")
        ask = threading.Thread(
            target=lambda: found.append(
                client.call("ledger.result", {"taskId": task_id, "waitMs": 20_000})
                if after == "bound"
                else house.post("ledger.result", {"taskId": task_id, "waitMs": 20_000}, token=READ_TOKEN)
            )
        )
        before = house.tokens.uses.get("board")
        ask.start()
        bound = {READ_TOKEN: Caller(who="board", scopes=frozenset({READ, WRITE}), owner=OWNER)}
        # The request is under way as soon as its token was used once more.
        eventually(lambda: house.tokens.uses.get("board") != before)
        house.tokens.replace(Tokens.of(TOKEN, bound if after == "bound" else {}))
        house.post("ledger.cancel", {"taskId": task_id})
        ask.join(30)

    (answer,) = found
    if after == "bound":
        assert answer["error"]["details"]["code"] == "token_changed"
    else:
        assert answer.status_code == 401
    assert "has_ended" not in str(answer if after == "bound" else answer.text)
