"""The methods of producers: work that others execute and Holdfast records."""

from __future__ import annotations

from holdfast.api import producers
from holdfast.api.method_kinds import Method, reports_own, writes_own
from holdfast.api.task_methods import cancels_own
from holdfast.views.recorded import RecordedView

PRODUCER_METHODS: list[Method] = [
    writes_own(
        "producer.create",
        producers.RecordAsked,
        RecordedView,
        producers.recording_work,
        "Record work that the caller executes itself, queued or already running.",
    ),
    writes_own(
        "producer.start",
        producers.RunAsked,
        RecordedView,
        producers.starting_work,
        "Recorded work has started.",
    ),
    reports_own(
        "producer.progress",
        producers.ProgressAsked,
        RecordedView,
        producers.progressing_work,
        "The progress of recorded work; it counts as a sign of life.",
    ),
    reports_own(
        "producer.beat",
        producers.RunAsked,
        RecordedView,
        producers.beating_work,
        "A sign of life; the answer tells whether a cancel was requested.",
    ),
    reports_own(
        "producer.dropped",
        producers.DroppedAsked,
        RecordedView,
        producers.noting_dropped,
        "The producer could not send some reports: they are counted, and an audit tells of them.",
    ),
    writes_own(
        "producer.finish",
        producers.FinishAsked,
        RecordedView,
        producers.finishing_work,
        "Recorded work has succeeded; the same call again changes nothing.",
    ),
    writes_own(
        "producer.fail",
        producers.FailAsked,
        RecordedView,
        producers.failing_work,
        "Recorded work has failed, timed out, or was stopped by its producer.",
    ),
    cancels_own(
        "producer.cancel",
        producers.RunCancelAsked,
        RecordedView,
        producers.cancelling_work,
        "Let the runtime stop recorded work, and end its record.",
    ),
]
