"""Metrics for Prometheus: requests by method and code, connections, and counts from the ledger."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from holdfast.api.contract import GatewayDoor
from holdfast.core.recorded import ReportProblem
from holdfast.store.clock import skew_of, uncertainty_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# The nouns that the ledger counts.
NOUNS = ("task", "run", "checkpoint", "alert")


class Metrics:
    """The metrics of one gateway, in a registry of its own."""

    def __init__(self) -> None:
        self._all = CollectorRegistry()
        self.requests = Counter(
            "holdfast_requests", "Requests by method and code.", ("method", "code"), registry=self._all
        )
        self.connections = Gauge("holdfast_websockets", "Open WebSockets.", registry=self._all)
        self._ledger = _LedgerCounts()
        self._all.register(self._ledger)

    async def text(self, gateway: GatewayDoor) -> bytes:
        status = await gateway.look()
        self._ledger.counts, self._ledger.reports = {}, None
        if status.ledger_problem is None:  # without the ledger, only the gateway's own metrics
            self._ledger.counts = await gateway.store.read(
                lambda tx: {noun: tx.events.counts(noun) for noun in NOUNS}
            )
            self._ledger.reports = await gateway.store.read(lambda tx: tx.events.counts("report"))
        self._ledger.gateway = {
            "holdfast_ready": float(status.is_ready),
            "holdfast_ledger_up": float(status.ledger_problem is None),
            "holdfast_settings_refused": float(status.settings_refused is not None),
            "holdfast_resumes_held": float(status.holds_resumes),
            "holdfast_runs_in_flight": float(status.in_flight),
            "holdfast_started_at_seconds": status.started_at.timestamp(),
            "holdfast_clock_skew_seconds": skew_of(gateway.clock).total_seconds(),
            "holdfast_clock_uncertainty_seconds": uncertainty_of(gateway.clock).total_seconds(),
        }
        return generate_latest(self._all)


class _LedgerCounts(Collector):
    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}
        self.gateway: dict[str, float] = {}
        self.reports: dict[str, int] | None = None

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        if self.reports is not None:
            yield _reports(self.reports)
        for noun, by_status in self.counts.items():
            family = GaugeMetricFamily(
                f"holdfast_{noun}s", f"Number of {noun}s by status.", labels=["status"]
            )
            for status, number in by_status.items():
                family.add_metric([status], number)
            yield family
        for name, value in self.gateway.items():
            yield GaugeMetricFamily(name, "Status of the gateway.", value=value)


def _reports(counts: dict[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(
        "holdfast_producer_reports",
        "Reports of producers that are not part of their records.",
        labels=["problem"],
    )
    for problem in ReportProblem:
        family.add_metric([problem.value], counts.get(problem.value, 0))
    return family
