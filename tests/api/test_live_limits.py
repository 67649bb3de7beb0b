"""The limits of live pages: each token has its share, and what is refused says when to ask again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import httpx
import pytest

from holdfast.api import live_limits
from holdfast.api.live_limits import MAX_STREAMS, MAX_STREAMS_OF_TOKEN, LiveLimits
from holdfast.api.rpc import RATE_LIMITED, UNAVAILABLE, RpcError
from tests.api.stand_in import READ_TOKEN, TOKEN, ServedDoors

LIVE = "/dashboard/live"
PATIENCE_S = 20


def hold(streams: LiveLimits, held: contextlib.ExitStack, token: str, number: int) -> None:
    for _ in range(number):
        held.enter_context(streams.one_of(token))


def refusal(streams: LiveLimits, token: str) -> RpcError:
    with pytest.raises(RpcError) as raised, streams.one_of(token):
        pass
    with pytest.raises(RpcError):
        streams.check_room(token)
    return raised.value


def test_a_token_with_all_its_streams_leaves_room_for_the_others() -> None:
    streams = LiveLimits()
    with contextlib.ExitStack() as held:
        hold(streams, held, "board", MAX_STREAMS_OF_TOKEN)

        refused = refusal(streams, "board")
        assert refused.body.code == RATE_LIMITED
        assert refused.body.retry_after_ms == live_limits.RETRY_AFTER_MS
        assert "token board" in refused.body.message
        with streams.one_of("operator"):
            pass

    with streams.one_of("board"):
        pass


def test_all_tokens_together_have_a_limit() -> None:
    streams = LiveLimits()
    with contextlib.ExitStack() as held:
        for number in range(MAX_STREAMS // MAX_STREAMS_OF_TOKEN):
            hold(streams, held, f"wall {number}", MAX_STREAMS_OF_TOKEN)

        assert refusal(streams, "operator").body.code == UNAVAILABLE

    streams.check_room("operator")


@contextlib.contextmanager
def signed_in(house: ServedDoors, token: str = TOKEN) -> Iterator[httpx.Client]:
    headers = {"origin": house.url, "hx-request": "true"}
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=house.url, timeout=PATIENCE_S, trust_env=False, limits=limits) as http:
        assert http.post("/dashboard/sign-in", data={"token": token}, headers=headers).status_code == 200
        yield http


def opened(http: httpx.Client, held: contextlib.ExitStack) -> httpx.Response:
    """A stream that stays open, or its refusal."""
    response = held.enter_context(http.stream("GET", LIVE))
    if response.status_code != 200:
        response.read()
    return response


def until_there_is_room(http: httpx.Client) -> None:
    """The gateway notices closed connections in its own time."""
    tries = threading.Event()
    for _ in range(PATIENCE_S * 20):
        if http.head(LIVE).status_code == 200:
            return
        tries.wait(0.05)
    raise AssertionError("the streams that were closed are still counted")


@pytest.mark.slow
def test_of_many_streams_those_beyond_the_limit_are_refused_until_others_are_closed(
    house: ServedDoors,
) -> None:
    with signed_in(house) as operator, signed_in(house, READ_TOKEN) as reader:
        with contextlib.ExitStack() as held:
            streams = [opened(operator, held) for _ in range(MAX_STREAMS_OF_TOKEN + 5)]
            assert [one.status_code for one in streams] == [200] * MAX_STREAMS_OF_TOKEN + [429] * 5
            refused = streams[-1]
            assert refused.headers["retry-after"] == "15"
            assert refused.json()["code"] == "too_many_live_pages"
            assert "close some of them" in refused.json()["error"]
            assert operator.head(LIVE).status_code == 429
            # Pages are still answered, and another token has streams of its own.
            assert operator.get("/").status_code == 200
            assert reader.head(LIVE).status_code == 200
            assert opened(reader, held).status_code == 200

        until_there_is_room(operator)
        with contextlib.ExitStack() as held:
            streams = [opened(operator, held) for _ in range(MAX_STREAMS_OF_TOKEN)]
            assert {one.status_code for one in streams} == {200}


@pytest.mark.slow
def test_to_ask_whether_there_is_room_takes_none(house: ServedDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_limits, "MAX_STREAMS", 1)
    with signed_in(house) as operator:
        for _ in range(3):
            assert operator.head(LIVE).status_code == 200
        with contextlib.ExitStack() as held:
            assert opened(operator, held).status_code == 200
            refused = operator.head(LIVE)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "15")
