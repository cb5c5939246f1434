"""A running benchmark class and its broker, looked at again and again: rates, CPU, memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from bench import procfs
from bench.loads import Load
from bench.reports import Report, parse_report, rate_within
from tests.interop.processes import Program

POLL_S: Final = 0.05
REPORT_LATE_S: Final = 5.0
_MICRO: Final = 1e6


@dataclass(frozen=True, slots=True)
class Window:
    """CPU times are µs per message; `others` is the share of all cores that neither broker nor
    client used.
    """

    messages_per_s: float
    average_ms: float | None
    broker_cpu_us: float
    client_cpu_us: float
    failed: int
    others: float


@dataclass(frozen=True, slots=True)
class _Look:
    """What was counted at one moment."""

    at_s: float
    broker_s: float
    client_s: float
    busy_s: float
    failed: int


class Readings:
    """What the class reports, and what it and the broker cost meanwhile."""

    def __init__(self, load: Load, client: Program, broker: Program) -> None:
        self._load = load
        self._client = client
        self._broker = broker
        self._lines_seen = 0
        self._reports: list[Report] = []

    def wait(self, seconds: float) -> None:
        self._poll_until(time.monotonic() + seconds)

    def window(self, seconds: float) -> Window:
        """The figures of the next so many seconds."""
        begin = self._look()
        until = begin.at_s + seconds
        self._poll_until(until)
        while (rate := rate_within(self._reports, begin.at_s, time.monotonic())) is None:
            if time.monotonic() > until + REPORT_LATE_S:
                raise TimeoutError(
                    f"{self._load.name}: no report of a whole window:\n{self._client.log()[-2000:]}"
                )
            self._poll_until(time.monotonic() + POLL_S)
        end = self._look()
        elapsed = end.at_s - begin.at_s
        messages = rate.messages_per_s * elapsed
        if not messages:
            raise RuntimeError(
                f"nothing got through, {end.failed - begin.failed:,} requests failed: a starved client?"
            )
        broker_s, client_s = end.broker_s - begin.broker_s, end.client_s - begin.client_s
        return Window(
            rate.messages_per_s,
            rate.average_ms,
            broker_s / messages * _MICRO,
            client_s / messages * _MICRO,
            end.failed - begin.failed,
            (end.busy_s - begin.busy_s - broker_s - client_s) / elapsed / procfs.CORES,
        )

    def _look(self) -> _Look:
        return _Look(
            time.monotonic(),
            procfs.cpu_s(self._broker.pid),
            procfs.cpu_s(self._client.pid),
            procfs.busy_s(),
            self._reports[-1].failed if self._reports else 0,
        )

    def _poll_until(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            for program in (self._client, self._broker):
                if not program.alive:
                    raise RuntimeError(
                        f"{program.name} ended with {program.status}:\n{program.log()[-4000:]}"
                    )
            self._read_reports()
            time.sleep(POLL_S)

    def _read_reports(self) -> None:
        *complete, _ = self._client.output().split("\n")
        now = time.monotonic()
        for line in complete[self._lines_seen :]:
            if report := parse_report(line, self._load, now):
                self._reports.append(report)
        self._lines_seen = len(complete)
