"""Clients against the same broker, in turn: roquet's, Apache's for Java and Go, and the C++ one that
PyPI's `rocketmq` has inside.

python -m bench.client [--write] [--broker apache] [--loads A,B] [--rounds N]
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import machine, procfs
from bench.client_loads import (
    BATCH,
    LOADS,
    STORED,
    Client,
    Kind,
    Load,
    Way,
    find_loads,
    way_of,
)
from bench.client_page import NAMES, Reading, replaced, text
from bench.client_process import Done, Driver, command
from bench.options import Side
from bench.programs import (
    RoquetServer,
    apache_broker,
    compile_roquet,
    create_topic,
    name_server,
    roquet_broker,
)
from tests.interop import wire
from tests.interop.apache import ApacheBroker
from tests.interop.processes import wait_until

PAGE: Final = Path(__file__).with_name("CLIENT.md")
TOPIC: Final = "Bench"
QUEUES: Final = 8
HEAP: Final = "1g"


@dataclass(frozen=True, slots=True)
class Ground:
    """A broker with an empty store, and the topic."""

    names: str
    broker: RoquetServer | ApacheBroker
    home: Path

    def driver(self, client: Client, way: Way, under_way: int) -> Driver:
        return Driver(client, self.names, TOPIC, way, under_way, self.home / client)


def prepared(stack: ExitStack, side: Side, folder: Path) -> Ground:
    home = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="roquet-client-", dir=folder))
    )
    names = stack.enter_context(name_server(home / "namesrv"))
    names.start()
    broker: RoquetServer | ApacheBroker = (
        roquet_broker(home / "broker", names.address)
        if side is Side.ROQUET
        else apache_broker(home / "broker", names.address, HEAP)
    )
    stack.callback(broker.close)
    broker.start()
    wait_until(lambda: wire.has_broker(names.address, broker.address), "the broker to be listed")
    create_topic(broker.address, TOPIC, QUEUES)
    wait_until(lambda: wire.has_topic(names.address, TOPIC), f"a route for {TOPIC}")
    return Ground(names.address, broker, home)


class Meter:
    """What a client and the broker used since it was made."""

    def __init__(self, ground: Ground, driver: Driver) -> None:
        self._broker = ground.broker.pid
        self._client = driver.pid
        self._begin = self._look()

    def reading(
        self, load: Load, client: Client, number: int, done: Done, from_start_ms: float
    ) -> Reading:
        """Before the end of the client; `whole_s` is not known yet."""
        elapsed_s, client_s, broker_s, busy_s = (
            now - then for now, then in zip(self._look(), self._begin, strict=True)
        )
        if not done.messages:
            raise RuntimeError(f"nothing got through, {done.failed:,} requests failed")
        return Reading(
            load.name,
            client,
            number,
            done.messages / done.seconds,
            client_s * 1e6 / done.messages,
            0.0,
            from_start_ms,
            done.first_ms,
            procfs.memory(self._client).resident / 1e6,
            (busy_s - client_s - broker_s) / elapsed_s / procfs.CORES,
            done.failed,
        )

    def _look(self) -> tuple[float, float, float, float]:
        return (
            time.perf_counter(),
            procfs.cpu_s(self._client),
            procfs.cpu_s(self._broker),
            procfs.busy_s(),
        )


def measured(
    load: Load, client: Client, number: int, ground: Ground, options: argparse.Namespace
) -> Reading:
    """One process of a client, from its start to its end."""
    began_s = time.perf_counter()
    with ground.driver(client, way_of(load, client), load.under_way) as driver:
        if load.kind in (Kind.SEND, Kind.CONSUME):
            _warm_up(load, driver, options.warmup)
        meter = Meter(ground, driver)
        match load.kind:
            case Kind.SEND:
                done = driver.do("seconds", options.window)
            case Kind.FIRST:
                done = driver.do("count", 1)
            case Kind.CONSUME | Kind.COLD:
                done = driver.do("count", load.count)
        from_start_ms = (time.perf_counter() - began_s) * 1e3
        reading = meter.reading(load, client, number, done, from_start_ms)
        driver.end()
        return reading._replace(whole_s=time.perf_counter() - began_s)


def _warm_up(load: Load, driver: Driver, seconds: float) -> None:
    """For so long, or until all stored messages were consumed once."""
    if load.kind is Kind.SEND:
        driver.do("seconds", seconds)
        return
    until_s = time.perf_counter() + seconds
    while True:
        driver.do("count", STORED)
        if time.perf_counter() > until_s:
            return


def round_of(
    load: Load, number: int, options: argparse.Namespace, failures: list[str]
) -> list[Reading]:
    """Each client once, against one broker; every other round in the opposite order."""
    clients = [client for client in load.clients if client in options.clients]
    found: list[Reading] = []
    with ExitStack() as stack:
        ground = prepared(stack, options.broker, options.folder)
        if load.kind is Kind.CONSUME:
            with ground.driver(Client.ROQUET, Way.BATCH, BATCH) as driver:
                driver.do("count", STORED // BATCH)
                driver.end()
        for client in clients if number % 2 else reversed(clients):
            try:
                reading = measured(load, client, number, ground, options)
            except RuntimeError as error:
                failures.append(f"`{load.name}` {NAMES[client]} round {number}: {error}")
                print(failures[-1], flush=True)
                continue
            print(
                f"round {number}, {load.name}, {client}: {reading.rate:,.0f}/s,"
                f" {reading.cpu_us:.1f} µs, first {reading.first_ms:.0f} ms,"
                f" {reading.memory_mb:.0f} MB, whole {reading.whole_s:.2f} s,"
                f" others {reading.others:.0%}",
                flush=True,
            )
            found.append(reading)
    return found


def prepare_clients(options: argparse.Namespace) -> None:
    """Build them and start each once, so that no measured start does what only a first one does."""
    compile_roquet()
    with ExitStack() as stack:
        ground = prepared(stack, options.broker, options.folder)
        for client in options.clients:
            command(client)
            with ground.driver(client, Way.WAITING, 1) as driver:
                driver.do("count", 1)
                driver.end()


def setting(options: argparse.Namespace) -> list[str]:
    broker = (
        "roquet's" if options.broker is Side.ROQUET else f"Apache's 4.9.7 with a heap of {HEAP}"
    )
    go = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    return [
        f"{datetime.now(UTC).date()}, `python -m bench.client --broker {options.broker}"
        f" --rounds {options.rounds} --warmup {options.warmup:g} --window {options.window:g}`",
        f"{machine.describe()}; all processes on it, over loopback; the broker: {broker}",
        f"{machine.describe_python()}; {machine.describe_java()}; {' '.join(go.split()[:3])}",
    ]


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Clients against the same broker, in turn.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    names = ",".join(load.name for load in LOADS)
    parser.add_argument("--loads", default=names, metavar="A,B")
    parser.add_argument("--clients", default=",".join(Client), metavar="A,B")
    parser.add_argument("--broker", choices=[*Side], type=Side, default=Side.ROQUET)
    parser.add_argument("--rounds", type=int, default=5, help="each with fresh processes")
    parser.add_argument("--warmup", type=float, default=10, metavar="S", help="of each process")
    parser.add_argument("--window", type=float, default=6, metavar="S", help="of sends")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where stores are"
    )
    parser.add_argument("--write", action="store_true", help=f"the tables into {PAGE.name}")
    options = parser.parse_args()
    try:
        options.loads = find_loads(options.loads)
        options.clients = [Client(name.strip()) for name in options.clients.split(",")]
    except ValueError as error:
        parser.error(str(error))
    return options


def main() -> None:
    options = read_options()
    prepare_clients(options)
    readings: list[Reading] = []
    failures: list[str] = []
    for number in range(1, options.rounds + 1):
        for load in options.loads:
            readings += round_of(load, number, options, failures)
    found = text(setting(options), readings, failures)
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(), found))
    else:
        print(found)


if __name__ == "__main__":
    main()
