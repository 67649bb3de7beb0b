"""Who may use commands in a session: the person who began it, peers that the settings name, operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from holdfast.channels.webhook import own_session_key
from holdfast.chat.commands import run_command
from holdfast.core.message import Role
from holdfast.core.task import Origin
from holdfast.gateway.inbox import Inbox
from holdfast.store import Store
from holdfast.testing import FakeClock
from tests.chat.test_commands import answer_to
from tests.gateway.chats import ADA as OPERATOR

SHARED = "agent:scholar:hook:team"
ADA, BEN = (Origin(channel="hook", peer=name, account_id="team") for name in ("ada", "ben"))


async def is_obeyed(
    store: Store, clock: FakeClock, origin: Origin, text: str = "/tasks", *, key: str = SHARED, **options: Any
) -> bool:
    inbox = Inbox(store, clock, commands=partial(run_command, **options))
    posted = await inbox.post(key, text, origin)
    return "was not carried out" not in answer_to(store, posted.message, key)


async def say(store: Store, clock: FakeClock, origin: Origin, key: str = SHARED) -> None:
    await Inbox(store, clock, commands=run_command).post(key, "good morning", origin)


@pytest.mark.parametrize("command", ["/tasks", "/status", "/stop", "/new", "/answer 7", "/help"])
async def test_who_spoke_last_in_a_shared_session_may_not_use_commands_for_that(
    store: Store, clock: FakeClock, command: str
) -> None:
    await say(store, clock, ADA)
    await say(store, clock, BEN)

    # The person that is asked may answer; a plain message would do as well.
    assert await is_obeyed(store, clock, BEN, command) is (command == "/answer 7")
    assert await is_obeyed(store, clock, ADA, command)
    assert await is_obeyed(store, clock, OPERATOR, command)


async def test_the_account_is_part_of_the_person(store: Store, clock: FakeClock) -> None:
    await say(store, clock, ADA)

    assert not await is_obeyed(store, clock, Origin(channel="hook", peer="ada", account_id="other"))
    assert not await is_obeyed(store, clock, Origin(channel="mail", peer="ada", account_id="team"))


async def test_a_person_has_commands_in_the_session_that_is_hers_alone_whoever_began_it(
    store: Store, clock: FakeClock
) -> None:
    key = own_session_key("scholar", ADA)
    await Inbox(store, clock).post(key, "round", Origin(channel="cron"), role=Role.SYSTEM)

    assert await is_obeyed(store, clock, ADA, key=key)
    assert not await is_obeyed(store, clock, BEN, key=key)


async def test_nobody_has_begun_a_session_whose_first_message_is_gone_or_is_the_gateways(
    store: Store, clock: FakeClock
) -> None:
    await Inbox(store, clock).note(SHARED, "[System] begun", key="begun")

    assert not await is_obeyed(store, clock, ADA)


async def test_the_settings_name_the_peers_that_may(store: Store, clock: FakeClock) -> None:
    await say(store, clock, ADA)

    assert await is_obeyed(store, clock, BEN, allowed={"hook": ["ben"]})
    assert not await is_obeyed(store, clock, ADA, allowed={"hook": ["ben"]})
    assert not await is_obeyed(store, clock, ADA, allowed={"hook": []})
    assert await is_obeyed(store, clock, BEN, allowed={"hook": ["*"]})
    assert await is_obeyed(store, clock, ADA, allowed={"hook": None})
