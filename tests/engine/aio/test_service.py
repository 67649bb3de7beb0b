"""Services: run_once again and again; safe to stop before the start, safe to stop twice."""

from __future__ import annotations

import asyncio
import logging

import pytest

from holdfast.core.errors import StoreUnavailable
from holdfast.engine.aio.service import Service


class Counting(Service):
    """Counts its passes and fails in some of them."""

    def __init__(self, *, fails_with: Exception | None = None) -> None:
        super().__init__(every_s=0.001)
        self.passes = 0
        self.passed = asyncio.Event()
        self._fails_with = fails_with

    async def run_once(self) -> int:
        self.passes += 1
        if self.passes >= 3:
            self.passed.set()
        if self._fails_with is not None:
            raise self._fails_with
        return self.passes


async def run_until_it_passed(service: Counting) -> None:
    async with asyncio.TaskGroup() as group, asyncio.timeout(10):
        group.create_task(service.run())
        await service.passed.wait()
        service.stop()


async def test_a_service_works_until_it_is_stopped() -> None:
    service = Counting()

    await run_until_it_passed(service)

    assert service.passes >= 3


async def test_a_service_that_was_stopped_before_it_ran_does_nothing() -> None:
    service = Counting()
    service.stop()

    await service.run()

    assert service.passes == 0


async def test_stopping_twice_is_stopping() -> None:
    service = Counting()
    service.stop()
    service.stop()

    await service.run()

    assert service.passes == 0


async def test_a_service_outlives_a_store_that_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    service = Counting(fails_with=StoreUnavailable("the disk is full"))

    with caplog.at_level(logging.WARNING, "holdfast"):
        await run_until_it_passed(service)

    assert service.passes >= 3
    assert "the disk is full" in caplog.text


async def test_a_mistake_of_ours_is_told_and_does_not_end_the_service(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Counting(fails_with=ZeroDivisionError("ours"))

    with caplog.at_level(logging.ERROR, "holdfast"):
        await run_until_it_passed(service)

    assert service.passes >= 3
    assert "ZeroDivisionError: ours" in caplog.text


@pytest.mark.parametrize("every_s", [0, -1])
def test_a_service_needs_time_between_its_passes(every_s: float) -> None:
    class Hasty(Counting):
        def __init__(self) -> None:
            Service.__init__(self, every_s=every_s)

    with pytest.raises(ValueError, match="positive"):
        Hasty()
