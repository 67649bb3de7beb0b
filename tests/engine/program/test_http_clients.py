"""Opaque effects with the HTTP clients that people use, against a real server that misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import httpx
import pytest
import requests

import holdfast as hf
from holdfast.core.transitions import EffectStatus, TaskStatus
from tests.backends import on_sqlite
from tests.engine.stage import Stage
from tests.payments import Payments, taking_payments

TIMEOUT_S = 0.2


@pytest.fixture
def payments() -> Iterator[Payments]:
    with taking_payments() as server:
        yield server


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests whose server answers, which may take a busy machine longer than a test of a timeout waits."""
    monkeypatch.setitem(globals(), "TIMEOUT_S", 30.0)


async def pay_by_httpx(url: str) -> str:
    async with httpx.AsyncClient(timeout=TIMEOUT_S) as client:
        answer = await client.post(url, json={"amount": 1})
        answer.raise_for_status()
        return str(answer.json()["id"])


def pay_by_requests(url: str) -> str:
    answer = requests.post(url, json={"amount": 1}, timeout=TIMEOUT_S)
    answer.raise_for_status()
    return str(answer.json()["id"])


async def pay_by_aiohttp(url: str) -> str:
    limit = aiohttp.ClientTimeout(total=TIMEOUT_S)
    async with (
        aiohttp.ClientSession(timeout=limit) as session,
        session.post(url, json={"amount": 1}, raise_for_status=True) as answer,
    ):
        return str((await answer.json())["id"])


CLIENTS = [pay_by_httpx, pay_by_requests, pay_by_aiohttp]
WAYS = ["resets", "closes", "stalls", "answers half", "answers 500", "answers nonsense"]


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
@on_sqlite
async def test_one_payment_stays_one_however_the_server_answers(
    stage: Stage, payments: Payments, client: Callable[[str], Any], how: str
) -> None:
    payments.how = how

    @hf.task(backoff="1s")  # with the attempts that every task has
    async def pays(run: hf.Run) -> str:
        return str(await run.tool(client, {"url": payments.url}, id="call-1"))

    await stage.open(pays)
    handle = await stage.start(pays())
    for _ in range(10):
        await stage.settle()
        if not await stage.pass_time():
            break

    assert len(payments.taken) == 1
    assert await handle.status() is TaskStatus.NEEDS_REVIEW
    assert (await stage.review()).status is EffectStatus.UNKNOWN


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("client", CLIENTS)
async def test_an_answer_that_says_no_is_told_to_the_model(
    quick: Stage, payments: Payments, client: Callable[[str], Any]
) -> None:
    payments.how = "answers 500"

    @hf.task
    async def agent(run: hf.Run) -> str:
        try:
            return str(await run.tool(client, {"url": payments.url}, id="call-1"))
        except hf.StepFailed as error:
            return f"the model hears: {error.kind}"

    await quick.open(agent)

    assert "the model hears: " in await quick.run(agent())
    assert len(payments.taken) == 1


@pytest.mark.usefixtures("_patient")
@pytest.mark.parametrize("client", CLIENTS)
async def test_what_the_author_is_certain_of_is_tried_again(
    quick: Stage, payments: Payments, client: Callable[[str], Any]
) -> None:
    """No server listens at port 1, so no payment was taken; the author says so of connections that fail."""
    refused = (httpx.ConnectError, requests.ConnectionError, aiohttp.ClientConnectorError)
    pay = hf.tool(client, effect=hf.opaque(did_not_happen=refused))
    urls = iter(["http://127.0.0.1:1/pay", payments.url])

    @hf.task(attempts=2, backoff="1s")
    async def pays(run: hf.Run) -> str:
        return str(await run.tool(pay, {"url": next(urls)}, id="call-1"))

    await quick.open(pays)

    assert await quick.run(pays()) == "pay-1"
    assert len(payments.taken) == 1
