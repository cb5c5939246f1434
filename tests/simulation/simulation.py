"""A world by seed: hosts with drives, the network between them, one virtual clock; real servers run in it unchanged.

    with Simulation(seed=7) as sim:
        broker = sim.host("10.0.0.1")
        broker.start(lambda: serve(broker.disk, broker.runtime()))
        sim.run_until(lambda: ..., within_s=10)
        broker.crash()
        broker.start(lambda: serve(broker.disk, broker.runtime()))

Two runs of a seed are the same to the last byte: `digest()` says so. Whatever leaves `sim` as an exception carries the
seed, the virtual time and the last facts as notes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from roquet.common.runtime import Runtime
from tests.simulation.disk import Drive, MountedDisk
from tests.simulation.loop import SimulationError
from tests.simulation.network import Network, NetworkedLoop
from tests.simulation.threads import Process, current_process

T = TypeVar("T")

TIME_ZONE: Final = "UTC"
WALL_CLOCK_AT_START_MS: Final = 1_700_000_000_000
FACTS_SHOWN: Final = 30
STEP_DELAY_CHANCE: Final = 0.2
"""That blocking work lets time pass before an operation of its drive."""
CLEANING_UP_S_MAX: Final = 3_600.0
"""What is cancelled at the end may wait so long, in virtual time, before it counts as stuck."""


class Host:
    """A machine: its drive outlives its processes.

    Invariant: at most one process at a time; `disk` and `random` belong to it and are new with each
    one.
    """

    def __init__(self, simulation: Simulation, address: str) -> None:
        self.address = address
        self.clock_ahead_ms = 0
        self.blocking_delay_s = (0.0, 0.002)
        self.drive = Drive(
            simulation.chance(f"drive {address}"), self.now_ms, simulation.note, self._fail
        )
        self.drive.on_power_loss = self.crash
        self.process: Process | None = None
        self.disk: MountedDisk
        self.random: random.Random
        self._simulation = simulation
        self._lives = 0
        self._started: list[asyncio.Task[Any]] = []
        self._context = Context()

    def _fail(self, fault: SimulationError) -> None:
        self._simulation.loop.call_exception_handler(
            {"message": f"on {self.address}", "exception": fault}
        )

    def now_ms(self) -> int:
        """This host's wall clock."""
        return WALL_CLOCK_AT_START_MS + self.clock_ahead_ms + int(self._simulation.now_s * 1000)

    def runtime(self) -> Runtime:
        return Runtime(self.now_ms, self.random, lambda: self._simulation.now_s * 1000)

    @property
    def is_running(self) -> bool:
        return self.process is not None

    def boot(self) -> None:
        """Begin a process without anything in it yet; `start` and `call` do so by themselves."""
        assert self.process is None, f"{self.address} is running"
        self._lives += 1
        self._started.clear()
        self.random = self._simulation.chance(f"{self.address} life {self._lives}")
        self.disk = self.drive.mount()
        self.process = Process(
            self.address, lambda: self.random.uniform(*self.blocking_delay_s), self._step_delay_s
        )
        self._context = Context()
        self._context.run(current_process.set, self.process)
        self._simulation.network.boot(self.process)

    def _step_delay_s(self) -> float:
        return (
            self.random.uniform(*self.blocking_delay_s)
            if self.random.random() < STEP_DELAY_CHANCE
            else 0.0
        )

    def start(self, main: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Run `main` here, beside whatever runs here already; the simulation fails if it does."""
        task = self._spawn(main)
        task.add_done_callback(self._simulation.fail_with_task)
        return task

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], within_s: float = 60.0) -> T:
        """Run `work` here to its end while the whole world goes on; gives its result or raises its
        exception.
        """
        task = self._spawn(work)
        self._simulation.run_until(task.done, within_s)
        return task.result()

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        if self.process is None:
            self.boot()
        task = self._simulation.loop.create_task(
            self._context.run(work), context=self._context.copy()
        )
        self._started.append(task)
        return task

    def crash(self, silently: bool = False) -> None:
        """The power fails: tasks, connections and unsynced pages are gone. Others see resets, or
        silently nothing.
        """
        process = self._end_process()
        self.drive.crash()
        self._simulation.network.crash(process, silently)

    def kill(self) -> None:
        """The process dies (SIGKILL), the machine goes on: files keep what was written, connections
        end.
        """
        process = self._end_process()
        self.drive.unmount()
        self._simulation.network.kill(process)

    def restart(
        self, main: Callable[[], Coroutine[Any, Any, T]], silently: bool = False
    ) -> asyncio.Task[T]:
        """A crash, if it runs, and `main` anew on what the drive still has."""
        if self.is_running:
            self.crash(silently)
        return self.start(main)

    def _end_process(self) -> Process:
        process = self.process
        assert process is not None, f"{self.address} is not running"
        self.process = None
        process.alive = False
        for task in self._simulation.loop.pending_tasks(process):
            task.cancel()
        return process


def _set_time_zone(name: str | None) -> None:
    """Of this machine. Message ids and names of index files tell local time, as Apache's do."""
    if name is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = name
    time.tzset()


class Simulation:
    """Invariant: everything random comes from `seed`, every fact goes into `digest`.

    :param seconds_max: virtual time, and `events_max` callbacks, after which the program counts as
        a runaway.
    """

    def __init__(
        self, seed: int | str, seconds_max: float = 86_400.0, events_max: int = 20_000_000
    ) -> None:
        self.seed = seed
        self.facts: deque[tuple[object, ...]] = deque(maxlen=FACTS_SHOWN)
        self.random = self.chance("test")
        self.loop = NetworkedLoop(seconds_max, events_max)
        self.network = self.loop.network = Network(self.loop, self.chance("network"), self.note)
        self._hosts: dict[str, Host] = {}
        self._hash = hashlib.blake2b(digest_size=16)
        self._time_zone_before: str | None = None

    def chance(self, purpose: str) -> random.Random:
        """A source of randomness that nothing else draws from."""
        return random.Random(f"{self.seed} {purpose}")

    @property
    def now_s(self) -> float:
        return self.loop.time()

    def host(self, address: str) -> Host:
        """The machine with this address; it is not running before something is started on it."""
        if address not in self._hosts:
            self._hosts[address] = Host(self, address)
        return self._hosts[address]

    # facts

    def note(self, *fact: object) -> None:
        """Remember what happened: part of the digest, and shown when something fails soon after."""
        stamped = (self.loop.events, self.loop.time(), *fact)
        self.facts.append(stamped)
        self._hash.update(repr(stamped).encode())

    def digest(self) -> str:
        """The same for two runs that did the same."""
        return self._hash.hexdigest()

    def check_always(self, invariant: Callable[[], None]) -> None:
        """Call this after every event; it raises when something is wrong."""
        self.loop.after_event.append(invariant)

    @contextmanager
    def _annotated(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            facts = "\n".join(f"  {fact}" for fact in self.facts)
            error.add_note(
                f"seed {self.seed!r}, {self.now_s:.6f} virtual seconds, last facts:\n{facts}"
            )
            raise

    # running

    def run_until(self, reached: Callable[[], bool], within_s: float) -> None:
        """Go on until `reached` is true, which is asked after every event.

        :raises NotReachedError: it is not within that virtual time.
        :raises SimulationError: a deadlock, a runaway, or an exception nobody took.
        """
        with self._annotated():
            self.loop.run_until(reached, within_s)

    def run_for(self, seconds: float) -> None:
        """Go on for so much virtual time.

        :raises SimulationError: a runaway, or an exception nobody took.
        """
        with self._annotated():
            self.loop.run_for(seconds)

    def fail_with_task(self, task: asyncio.Task[Any]) -> None:
        """What a host was started with has ended: its exception is nobody's but the
        simulation's.
        """
        if not task.cancelled() and task.exception() is not None:
            message = "what the host was started with failed"
            self.loop.call_exception_handler(
                {"message": message, "exception": task.exception(), "task": task}
            )

    # the end

    def __enter__(self) -> Self:
        self._time_zone_before = os.environ.get("TZ")
        _set_time_zone(TIME_ZONE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._fail_with_what_is_left()
        except SimulationError as left:
            error = left
            raise
        finally:
            self._end(is_failing=error is not None)

    def _end(self, *, is_failing: bool) -> None:
        """Cancel what still runs; what comes of it is of interest only where nothing else is."""
        try:
            self._cancel_everything()
        except SimulationError:
            if not is_failing:
                raise
        finally:
            self.loop.close()
            _set_time_zone(self._time_zone_before)

    def _fail_with_what_is_left(self) -> None:
        """Exceptions that lie in tasks which nobody asked for their result."""
        with self._annotated():
            for task in list(self.loop.tasks.values()):
                if task.done() and task._log_traceback:
                    message = "nobody asked how this task ended"
                    self.loop.call_exception_handler(
                        {"message": message, "exception": task.exception(), "task": task}
                    )
            self.loop.raise_unhandled()

    def _cancel_everything(self) -> None:
        self.loop.after_event.clear()
        for host in self._hosts.values():
            if host.is_running:
                host.kill()
        for task in self.loop.pending_tasks():
            task.cancel()
        with self._annotated():
            self.loop.run_until(lambda: not self.loop.pending_tasks(), CLEANING_UP_S_MAX)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
