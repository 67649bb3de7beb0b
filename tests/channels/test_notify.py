"""Notices through apprise: to every place once, and never a URL in an error."""

from __future__ import annotations

import pytest

from holdfast.channels.contract import CannotTell, Channel, Mouth
from holdfast.channels.notify import Notify
from holdfast.core.errors import SettingsError
from tests.channels.receiver import Receiver


def places(receiver: Receiver, *names: str) -> list[str]:
    return [
        receiver.url.replace("http://", "json://").replace("/hook?team=sea", f"/{name}") for name in names
    ]


async def test_a_notice_reaches_every_place(receiver: Receiver) -> None:
    notify = Notify("alarm", places(receiver, "one", "two"))

    await notify.send("anybody", "the tide is high", key="k")

    assert sorted(request.path.strip("/") for request in receiver.requests) == ["one", "two"]
    assert receiver.requests[0].json["message"] == "the tide is high"
    assert await notify.find_sent("k") == "k"


async def test_what_failed_is_tried_again_where_it_failed_only(receiver: Receiver) -> None:
    notify = Notify("alarm", places(receiver, "one", "two"))
    receiver.answer = lambda request: (500 if "two" in request.path else 204, {}, b"")
    with pytest.raises(RuntimeError, match="1 of 2"):
        await notify.send("anybody", "hello", key="k")
    assert isinstance(await notify.find_sent("k"), CannotTell)

    receiver.answer = lambda _request: (204, {}, b"")
    await notify.send("anybody", "hello", key="k")

    assert [request.path.strip("/") for request in receiver.requests] == ["one", "two", "two"]


async def test_what_an_earlier_life_sent_nobody_can_tell() -> None:
    notify = Notify("alarm", ["json://127.0.0.1:1/"])

    assert isinstance(notify, Mouth)
    assert isinstance(notify, Channel)
    assert not notify.is_keyed
    assert isinstance(await notify.find_sent("k"), CannotTell)


def test_a_url_that_apprise_does_not_know_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match=r"channels\.alarm\.urls: number 2") as error:
        Notify("alarm", ["json://127.0.0.1:1/", "nosuch://user:password@host"]).check()

    assert "password" not in str(error.value)
