"""Long texts and values are searched beside the event loop, which answers others meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from holdfast.core.events import Event, EventKind
from holdfast.core.ids import new_question_id
from holdfast.core.message import clean_message
from holdfast.core.redaction import REDACT_OFF_LOOP_BYTES, holds_secret, redact, redact_text
from holdfast.core.transitions import RunStatus
from holdfast.views.events import EventView
from holdfast.views.tasks import TaskView
from tests.api.stand_in import ServedDoors
from tests.api.test_events import stream, told
from tests.api.test_webhook import a_body, hooked, post
from tests.builders import later, stored_run
from tests.doors.test_reviews import in_doubt
from tests.store.program_records import a_question

pytestmark = pytest.mark.slow

__all__ = ["hooked"]

# What it takes longest to look at, and what only a walk through its structure finds.
LONG_ANSWERS: list[Any] = [
    ["pwd"] * 20_000,
    "-u" * 20_000,
    {f"pwd=ab{number}": number for number in range(3_000)},
    {"password": ["hunter2Xy9Zq7"], "tides": "a tide " * 20_000},
]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every write may take the short cut on the event loop, however slow this machine is."""
    monkeypatch.setattr("holdfast.store.inline_write._LONELY_GROUPS", 0)
    monkeypatch.setattr("holdfast.store.inline_write.INLINE_COMMIT_S", 1e9)


class Searches:
    """Where long input was searched for secrets."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []

    def noting(self, search: Callable[[Any], Any], size: Callable[[Any], int] = len) -> Callable[[Any], Any]:
        def note(given: Any) -> Any:
            if size(given) > REDACT_OFF_LOOP_BYTES:
                self.threads.append(threading.current_thread())
            return search(given)

        return note


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Searches]:
    found = Searches()
    monkeypatch.setattr("holdfast.core.payload.redact_text", found.noting(redact_text))
    monkeypatch.setattr("holdfast.store.sealing.holds_secret", found.noting(holds_secret))
    monkeypatch.setattr(
        "holdfast.views.text.redact", found.noting(redact, lambda value: len(msgspec.json.encode(value)))
    )
    monkeypatch.setattr("holdfast.views.text.redact_text", found.noting(redact_text))
    yield found
    monkeypatch.undo()


def asked(house: ServedDoors, **changes: Any) -> str:
    question_id = new_question_id(later(seconds=1))
    waits_on = f"answer:{question_id}"
    run = stored_run(house.gateway.store, RunStatus.WAITING, task={"waits_on": waits_on}, waits_on=waits_on)
    question = a_question(run, id=question_id, choices=None, **changes)
    house.gateway.store.write_now(lambda tx: tx.questions.create(question))
    return question_id


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ledger.create", {"name": "tides", "goal": "a tide " * 20_000}),
        ("ledger.create", {"name": "tides", "goal": "tides", "arguments": LONG_ANSWERS[0]}),
        ("chat.send", {"sessionKey": "ada", "message": "a tide, password: hunter2Xy9 " * 8_000}),
    ],
)
def test_no_long_text_is_searched_on_the_loop(
    house: ServedDoors, alone: None, searches: Searches, method: str, params: dict[str, Any]
) -> None:
    answer = house.post(method, params)

    assert answer.status_code == 200
    assert searches.threads
    assert house._thread not in searches.threads


@pytest.mark.parametrize("answer", LONG_ANSWERS, ids=["list", "text", "keys", "named"])
def test_no_long_answer_is_searched_on_the_loop(
    house: ServedDoors, alone: None, searches: Searches, answer: Any
) -> None:
    question_id = asked(house)

    answered = house.post("questions.answer", {"questionId": question_id, "answer": answer})

    assert answered.status_code == 200
    assert searches.threads
    assert house._thread not in searches.threads
    stored = house.gateway.store.read_now(lambda tx: tx.questions.get(question_id))
    assert msgspec.json.decode(stored.answer or b"") == answer


def test_no_long_default_is_searched_on_the_loop(house: ServedDoors, alone: None, searches: Searches) -> None:
    """It is stored already, and shown beside a short answer."""
    question_id = asked(house, default_answer=msgspec.json.encode(LONG_ANSWERS[0]))
    searches.threads.clear()

    answered = house.post("questions.answer", {"questionId": question_id, "answer": "no"})

    assert answered.status_code == 200
    assert searches.threads
    assert house._thread not in searches.threads


def test_a_long_answer_is_shown_by_its_beginning_and_without_its_secrets(house: ServedDoors) -> None:
    question_id = asked(house)

    shown = house.post("questions.answer", {"questionId": question_id, "answer": LONG_ANSWERS[3]}).json()

    assert isinstance(shown["question"]["answer"], str)
    assert len(shown["question"]["answer"]) <= 2000
    assert "hunter2Xy9Zq7" not in shown["question"]["answer"]


def test_the_answer_to_a_question_is_shown_after_its_commit(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that waits does not wait for the redaction of a long answer, too."""
    question_id, seen = asked(house), []

    def looking(value: object) -> object:
        seen.append(house.gateway.store.read_now(lambda tx: tx.questions.get(question_id)).answered_at)
        return redact(value)

    monkeypatch.setattr("holdfast.views.text.redact", looking)
    house.post("questions.answer", {"questionId": question_id, "answer": ["a", "tide"]})

    assert seen
    assert None not in seen


def test_no_long_result_of_a_review_is_searched_on_the_loop(
    house: ServedDoors, alone: None, searches: Searches
) -> None:
    effect = in_doubt(house.gateway.store)

    params = {"effectId": effect.id, "decision": "done", "result": LONG_ANSWERS[0]}
    resolved = house.post("reviews.resolve", params)

    assert resolved.status_code == 200
    assert searches.threads
    assert house._thread not in searches.threads


def test_what_a_cancel_shows_is_made_beside_the_loop(
    house: ServedDoors, alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The goal of the task may be long, whatever was asked."""
    task_id, where, shape = stored_run(house.gateway.store).task_id, [], TaskView.of

    def noting(task: Any) -> TaskView:
        where.append(threading.current_thread())
        return shape(task)

    monkeypatch.setattr(TaskView, "of", noting)
    house.post("ledger.cancel", {"taskId": task_id})

    assert where
    assert house._thread not in where


def test_a_long_webhook_is_cleaned_and_searched_beside_the_loop_and_searched_once(
    hooked: ServedDoors, alone: None, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[threading.Thread] = []

    def noting(text: object, role: Any) -> str:
        cleaned.append(threading.current_thread())
        return clean_message(text, role)

    monkeypatch.setattr("holdfast.engine.conversation.transcripts.clean_message", noting)
    text = "a tide, password: hunter2Xy9 "
    post(hooked, a_body(text=text, messageId="m0"))  # a write that needs the first key runs again
    cleaned.clear()
    text *= 8_000
    first = post(hooked, a_body(text=text))
    found = list(searches.threads)
    again = post(hooked, a_body(text=text))

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["isDuplicate"] is True
    assert len(found) == 1
    # One that was there before is compared, and searched no more.
    assert searches.threads == found
    assert hooked._thread not in [*found, *cleaned]


def test_an_inbox_that_is_closed_while_a_long_message_is_cleaned_takes_it_no_more(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closing(text: object, role: Any) -> str:
        house.gateway.inbox.is_closed = True
        return clean_message(text, role)

    monkeypatch.setattr("holdfast.engine.conversation.transcripts.clean_message", closing)
    refused = house.post("chat.send", {"sessionKey": "ada", "message": "a tide " * 20_000})

    assert refused.json()["error"]["details"]["code"] == "draining"
    assert house.post("sessions.list").json()["sessions"] == []


def test_events_are_shaped_for_a_stream_beside_the_loop(
    house: ServedDoors, monkeypatch: pytest.MonkeyPatch
) -> None:
    where: list[threading.Thread] = []
    shape = EventView.of

    def noting(event: Event) -> EventView:
        where.append(threading.current_thread())
        return shape(event)

    monkeypatch.setattr(EventView, "of", noting)
    facts = {"question": "a tide, password: hunter2Xy9 " * 2_000}
    now = house.gateway.clock.now()
    house.gateway.store.write_now(lambda tx: tx.emit(EventKind.QUESTION_ASKED, "ques_x", at=now, **facts))
    with stream(house, last_event_id="0.0") as response:
        found = next(one for one in told(response) if one.id)

    assert found.kind == "question_asked"
    assert where
    assert house._thread not in where


def test_of_a_long_error_only_the_beginning_is_looked_at(house: ServedDoors, searches: Searches) -> None:
    refused = house.post("ledger.list", {"-u" * 50_000: 1})

    assert refused.status_code == 400
    assert house._thread not in searches.threads
