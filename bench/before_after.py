"""Two states of roquet's source under one load, side by side: what a change costs, also on a
machine that is shared.

Such a machine gets faster and slower by a third within a minute, so that runs one after the other
say nothing about a few hundredths. Here each state has its broker and its client for the whole
round. One of the two is stopped (SIGSTOP) while the other works for a second; then they change
places. Neighbours are compared: two seconds of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench import machine, procfs
from bench.loads import Load, find_loads
from bench.options import HERE
from bench.programs import RoquetServer, name_server, roquet_broker, start_benchmark
from bench.requests import write_backlog
from roquet.protocol.remoting.codes import RequestCode
from tests.interop import wire
from tests.interop.processes import Program, wait_until

SETTLE_S: Final = 0.15
"""After a change of places, before something is counted: both sides find their requests and answers
in the sockets.
"""
STOPPED_S_MAX: Final = 2.0
"""A client gives a send up after 3 s, also if it was stopped meanwhile."""
BACKLOG_RATE: Final = 900_000
"""Messages per second of measured time that a backlog lasts for."""
_SAMPLES: Final = 2000


class Seconds(NamedTuple):
    """One window of one state. CPU in µs per message."""

    messages_per_s: float
    broker_us: float
    client_us: float


@dataclass(frozen=True, slots=True)
class Team:
    """A state of the source at work: the broker, and the client that keeps it busy."""

    broker: RoquetServer
    client: Program
    counter: str

    def pause(self) -> None:
        for program in (self.client, self.broker):
            os.kill(program.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        for program in (self.broker, self.client):
            os.kill(program.pid, signal.SIGCONT)

    def work(self, seconds: float) -> Seconds:
        """Go on for so long; stopped again when this returns."""
        self.go_on()
        time.sleep(SETTLE_S)
        begin = self._look()
        time.sleep(seconds)
        end = self._look()
        self.pause()
        elapsed, messages, broker_s, client_s = (b - a for a, b in zip(begin, end, strict=True))
        if not messages:
            raise RuntimeError(f"nothing got through in a window:\n{self.client.log()[-2000:]}")
        return Seconds(messages / elapsed, broker_s / messages * 1e6, client_s / messages * 1e6)

    @property
    def count(self) -> int:
        """Messages that the broker has taken, or given, so far."""
        answer = wire.ask(self.broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return int(json.loads(answer.body)["table"][self.counter])

    def _look(self) -> tuple[float, int, float, float]:
        at_s, count = time.monotonic(), self.count
        return at_s, count, procfs.exact_cpu_s(self.broker.pid), procfs.exact_cpu_s(self.client.pid)


def team(load: Load, source: Path, home: Path, stack: ExitStack, backlog: int) -> Team:
    """One of this state of the source, stopped, with a client that sends or fetches already."""
    names = stack.enter_context(name_server(home / "namesrv"))
    names.start()
    broker = stack.enter_context(roquet_broker(home / "broker", names.address, source=source))
    broker.start()
    wait_until(
        lambda: wire.has_broker(names.address, broker.address), f"{broker.address} to be listed"
    )
    if load.drains:
        write_backlog(broker.address, backlog)
    client = stack.enter_context(start_benchmark(load, names.address, home / "client"))
    found = Team(broker, client, "msgGetTotalTodayNow" if load.drains else "msgPutTotalTodayNow")
    before = found.count
    wait_until(lambda: found.count > before, "the first messages")
    found.pause()
    return found


def pairs_of(two: Sequence[Team], pairs: int, seconds: float) -> Iterator[tuple[Seconds, Seconds]]:
    """Neighbours, of the first and of the second team; which of them begins changes from pair to
    pair.
    """
    for number in range(pairs):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        windows = {which: two[which].work(seconds) for which in order}
        yield windows[0], windows[1]


def measured(
    load: Load, sources: Sequence[Path], options: argparse.Namespace
) -> list[tuple[Seconds, Seconds]]:
    """One round: fresh processes and empty stores, a warm-up in turn, too."""
    backlog = int((options.warmup + options.pairs) * (options.window + SETTLE_S) * BACKLOG_RATE)
    with (
        tempfile.TemporaryDirectory(prefix="roquet-bench-", dir=options.folder) as folder,
        ExitStack() as stack,
    ):
        two = [
            team(load, source, Path(folder, str(side)), stack, backlog)
            for side, source in enumerate(sources)
        ]
        for _ in pairs_of(two, options.warmup, options.window):
            pass
        return list(pairs_of(two, options.pairs, options.window))


def ratio_of(pairs: Sequence[tuple[Seconds, Seconds]], figure: str) -> tuple[float, float, float]:
    """The median of after / before of neighbours, and between which values it lies with 95 % (by
    resampling).
    """
    ratios = [getattr(after, figure) / getattr(before, figure) for before, after in pairs]
    draw = random.Random(1)
    medians = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(_SAMPLES))
    return median(ratios), medians[_SAMPLES // 40], medians[-_SAMPLES // 40]


def row(load: str, pairs: Sequence[tuple[Seconds, Seconds]]) -> str:
    """Of the page."""
    cells = []
    for figure, digits in (("messages_per_s", 0), ("broker_us", 2), ("client_us", 2)):
        before, after = (median(getattr(pair[side], figure) for pair in pairs) for side in (0, 1))
        middle, low, high = ratio_of(pairs, figure)
        cells.append(
            f"{before:,.{digits}f} | {after:,.{digits}f} | **{middle:.3f}** ({low:.3f} – {high:.3f})"
        )
    return f"| `{load}` | {len(pairs)} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Two states of the source under one load.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--before", type=Path, required=True, help="the `src` folder of the one state"
    )
    parser.add_argument("--after", type=Path, default=HERE.parent / "src", help="and of the other")
    parser.add_argument("--loads", default="sync128,keyed,consume", metavar="A,B")
    parser.add_argument("--rounds", type=int, default=3, help="each with fresh processes")
    parser.add_argument("--warmup", type=int, default=12, metavar="PAIRS")
    parser.add_argument("--pairs", type=int, default=40, help="of neighbouring windows in a round")
    parser.add_argument("--window", type=float, default=1.0, metavar="S")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where stores are"
    )
    options = parser.parse_args()
    if options.window + SETTLE_S > STOPPED_S_MAX:
        parser.error(
            f"in a window of more than {STOPPED_S_MAX - SETTLE_S} s sends of the stopped client time out"
        )
    sources = [options.before.resolve(), options.after.resolve()]
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}, {machine.describe()}, {machine.describe_python()}",
        "",
        "| load | pairs | messages/s before | after | ratio | broker CPU, µs/message before | after | ratio "
        "| client CPU before | after | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for load in find_loads(options.loads):
        pairs: list[tuple[Seconds, Seconds]] = []
        for number in range(1, options.rounds + 1):
            found = measured(load, sources, options)
            print(f"round {number}: {row(load.name, found)}", flush=True)
            pairs += found
        lines.append(row(load.name, pairs))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
