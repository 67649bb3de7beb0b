"""POST /channels/<name>: a signed message is durable before it is acknowledged; no other is heard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.api.server import Webhooks
from holdfast.channels.webhook import SIGNATURE_HEADER, sign
from holdfast.config.sections import ChannelSettings
from holdfast.core.clock import SystemClock
from holdfast.gateway.hooks import WebhookChannels
from holdfast.views.sessions import PostedView
from tests.api.stand_in import TOKEN, ServedDoors, served_doors

pytestmark = pytest.mark.slow

SECRET = b"a secret that both ends know"


@pytest.fixture
def hooked(home: Path) -> Iterator[ServedDoors]:
    hooks: list[WebhookChannels] = []

    async def receive(name: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> PostedView:
        posted = await hooks[0].receive(name, headers, body)
        return PostedView.of(posted.message, is_duplicate=posted.is_duplicate)

    channels = {"hook": ChannelSettings(kind="webhook", secret_env="HOOK_SECRET", agent="ada")}

    def check(name: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
        hooks[0].check(name, headers)

    with served_doors(home, webhooks=Webhooks(check=check, receive=receive)) as house:
        hooks.append(WebhookChannels(house.gateway.inbox, house.gateway.clock, channels, {"hook": [SECRET]}))
        yield house


def post(
    house: ServedDoors, body: bytes, *, secret: bytes = SECRET, at: datetime | None = None, name: str = "hook"
) -> httpx.Response:
    signature = sign(secret, body, SystemClock().now() if at is None else at)
    headers = {"content-type": "application/json", SIGNATURE_HEADER: signature}
    return house.http.post(f"{house.url}/channels/{name}", content=body, headers=headers)


def a_body(**changes: object) -> bytes:
    return msgspec.json.encode({"messageId": "m1", "text": "hello", "peer": "bob"} | changes)


def test_a_signed_message_is_posted_once(hooked: ServedDoors) -> None:
    first, again = post(hooked, a_body()), post(hooked, a_body())

    assert (first.status_code, again.status_code) == (202, 202)
    assert (first.json()["isDuplicate"], again.json()["isDuplicate"]) == (False, True)
    told = hooked.post("chat.history", {"sessionKey": first.json()["sessionKey"]}).json()
    assert [message["text"] for message in told["messages"]] == ["hello"]


def test_a_message_that_is_not_signed_right_is_not_heard(hooked: ServedDoors) -> None:
    wrong = post(hooked, a_body(), secret=b"another secret altogether")
    old = post(hooked, a_body(), at=SystemClock().now() - timedelta(hours=1))
    plain = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    unsigned = hooked.http.post(f"{hooked.url}/channels/hook", content=a_body(), headers=plain)

    assert [one.status_code for one in (wrong, old, unsigned)] == [401, 401, 401]
    assert hooked.post("sessions.list").json()["sessions"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{}", 400), (b"not json", 400), (a_body(bogus=1), 400), (a_body(text=7), 400), (b"[" * 9999, 400)],
    ids=str,
)
def test_a_signed_body_that_makes_no_sense_is_told_so(hooked: ServedDoors, body: bytes, status: int) -> None:
    assert post(hooked, body).status_code == status


def test_the_same_id_with_another_text_is_refused(hooked: ServedDoors) -> None:
    post(hooked, a_body())

    assert post(hooked, a_body(text="bye")).status_code == 409


@pytest.mark.parametrize("name", ["nobody", "%2e%2e", "%2e%2e%2ftoken"])
def test_a_channel_that_is_not_there_is_not_found(hooked: ServedDoors, name: str) -> None:
    assert post(hooked, a_body(), name=name).status_code == 404
