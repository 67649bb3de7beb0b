"""Notices through apprise: to every place once, and never a URL in an error."""

from __future__ import annotations

import threading

import pytest

from holdfast.channels.contract import CannotTell, Channel, ChannelSender
from holdfast.channels.notify import Notify
from holdfast.core.errors import SettingsError
from tests.channels.receiver import Receiver, json_places


async def test_a_notice_reaches_every_place(receiver: Receiver) -> None:
    notify = Notify("alarm", json_places(receiver, "one", "two"))

    await notify.send("anybody", "the tide is high", key="k")

    assert sorted(request.path.strip("/") for request in receiver.requests) == ["one", "two"]
    assert receiver.requests[0].json["message"] == "the tide is high"
    assert await notify.find_sent("k") == "k"


async def test_a_place_that_says_no_leaves_it_in_doubt_and_the_others_are_told(receiver: Receiver) -> None:
    notify = Notify("alarm", json_places(receiver, "one", "two", "three"))
    receiver.answer = lambda request: (500 if "two" in request.path else 204, {}, b"")

    with pytest.raises(ConnectionError, match=r"2 of 3 places of channel alarm .* not number 2"):
        await notify.send("anybody", "hello", key="k")

    assert isinstance(await notify.find_sent("k"), CannotTell)
    assert [request.path.strip("/") for request in receiver.requests] == ["one", "two", "three"]


async def test_a_caller_that_sends_it_again_all_the_same_reaches_only_the_others(receiver: Receiver) -> None:
    notify = Notify("alarm", json_places(receiver, "one", "two"))
    receiver.answer = lambda request: (500 if "two" in request.path else 204, {}, b"")
    with pytest.raises(ConnectionError):
        await notify.send("anybody", "hello", key="k")

    receiver.answer = lambda _request: (204, {}, b"")
    await notify.send("anybody", "hello", key="k")

    assert [request.path.strip("/") for request in receiver.requests] == ["one", "two", "two"]


async def test_a_place_that_fails_in_its_own_way_leaves_it_in_doubt(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    notify = Notify("alarm", json_places(receiver, "one"))
    (place,) = notify._open()

    def fail(**_given: object) -> bool:
        raise LookupError("password")

    monkeypatch.setattr(place, "notify", fail)

    with pytest.raises(ConnectionError, match="0 of 1"):
        await notify.send("anybody", "hello", key="k")


async def test_a_place_that_takes_too_long_leaves_it_in_doubt_and_no_other_is_told_later(
    receiver: Receiver,
) -> None:
    answers = threading.Event()

    def late(_request: object) -> tuple[int, dict[str, str], bytes]:
        answers.wait(60)
        return (204, {}, b"")

    receiver.answer = late
    notify = Notify("alarm", json_places(receiver, "one", "two"), timeout_s=0.3)

    with pytest.raises(TimeoutError, match="0 of 2 places"):
        await notify.send("anybody", "hello", key="k")
    answers.set()
    notify._threads._pool.shutdown(wait=True)

    assert [request.path.strip("/") for request in receiver.requests] == ["one"]


async def test_what_an_earlier_life_sent_is_not_known() -> None:
    notify = Notify("alarm", ["json://127.0.0.1:1/"])

    assert isinstance(notify, ChannelSender)
    assert isinstance(notify, Channel)
    assert not notify.is_keyed
    assert isinstance(await notify.find_sent("k"), CannotTell)


def test_a_url_that_apprise_does_not_know_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match=r"channels\.alarm\.urls: number 2") as error:
        Notify("alarm", ["json://127.0.0.1:1/", "nosuch://user:password@host"]).check()

    assert "password" not in str(error.value)
