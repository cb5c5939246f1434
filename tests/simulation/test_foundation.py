"""The simulated world keeps its promises about time, order and crashes; test_network and test_disk
have the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection
from roquet.transport.server import Server
from tests.simulation.loop import DeadlockError, NotReachedError, RunawayError, UnhandledError
from tests.simulation.recorder import PORT, A, B, Recorder, connect
from tests.simulation.simulation import Host, Simulation
from tests.simulation.threads import block


async def tick_for_ever(pause_s: float = 1.0) -> None:
    while True:
        await asyncio.sleep(pause_s)


def on_a_host(work: Callable[[Simulation], Awaitable[Any]], seed: int = 1) -> Any:
    with Simulation(seed) as sim:

        async def run() -> Any:
            return await work(sim)

        return sim.host(A).call(run, within_s=10_000)


# time and order


def test_time_jumps_to_the_next_timer_and_stands_still_while_something_runs() -> None:
    async def sleep_long(sim: Simulation) -> list[float]:
        times = [sim.now_s]
        await asyncio.sleep(0)
        times.append(sim.now_s)
        await asyncio.sleep(3_600)
        times.append(sim.now_s)
        return times

    assert on_a_host(sleep_long) == [0, 0, 3_600]


def test_run_for_passes_time_even_when_nothing_happens() -> None:
    with Simulation(1) as sim:
        sim.run_for(12.5)
        assert sim.now_s == 12.5


def test_timers_run_by_their_time_and_those_of_one_time_as_they_were_set() -> None:
    async def race(sim: Simulation) -> list[int]:
        order: list[int] = []
        for number, delay_s in enumerate((2.0, 1.0, 2.0, 1.0, 2.0)):
            sim.loop.call_later(delay_s, order.append, number)
        await asyncio.sleep(3)
        return order

    assert on_a_host(race) == [1, 3, 0, 2, 4]


def test_cancelled_timers_are_forgotten() -> None:
    async def cancel_many(sim: Simulation) -> int:
        for _ in range(10_000):
            async with asyncio.timeout(5_000):
                await asyncio.sleep(0.001)
        return len(sim.loop._timers)

    assert on_a_host(cancel_many) < 500


def test_the_tools_of_asyncio_work() -> None:
    async def use_them(sim: Simulation) -> list[str]:
        done: list[str] = []
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        lock, ready = asyncio.Lock(), asyncio.Event()

        async def produce() -> None:
            async with lock:
                for word in ("one", "two", "three"):
                    await queue.put(word)
            ready.set()

        async def consume() -> None:
            while not (ready.is_set() and queue.empty()):
                done.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            group.create_task(consume())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await sim.loop.create_future()
        done.append(str(await asyncio.to_thread(sum, (1, 2))))
        done.extend(
            await asyncio.gather(*(asyncio.sleep(delay, str(delay)) for delay in (3, 1, 2)))
        )
        return done

    assert on_a_host(use_them) == ["one", "two", "three", "3", "3", "1", "2"]


def test_blocking_work_takes_virtual_time_and_holds_up_nobody_else() -> None:
    ticks: list[float] = []

    def work() -> str:
        block(2.0)
        return "done"

    async def tick(sim: Simulation) -> None:
        while True:
            await asyncio.sleep(0.5)
            ticks.append(sim.now_s)

    async def wait(sim: Simulation) -> float:
        ticking = asyncio.create_task(tick(sim))
        assert await sim.loop.run_in_executor(None, work) == "done"
        ticking.cancel()
        return sim.now_s

    assert 2.0 <= on_a_host(wait) <= 2.1
    assert len(ticks) == 4


def test_blocking_work_gives_way_before_each_operation_on_a_drive() -> None:
    happened: list[str] = []

    async def interleave(sim: Simulation) -> None:
        disk = sim.host(A).disk

        def work(name: str) -> None:
            for _ in range(10):
                disk.read(Path("/none"))
                happened.append(name)

        async def spin() -> None:
            for _ in range(200):
                await asyncio.sleep(0)
                happened.append("loop")

        await asyncio.gather(
            asyncio.to_thread(work, "a"), asyncio.to_thread(work, "b"), spin(), asyncio.sleep(0.001)
        )

    def turns(seed: int) -> list[str]:
        happened.clear()
        with Simulation(seed) as sim:
            sim.host(A).blocking_delay_s = (0.0, 0.0)
            sim.host(A).call(lambda: interleave(sim))
        return list(happened)

    first = turns(1)
    assert first == turns(1)
    assert [name for name, _ in groupby(first)].count("a") > 5
    assert [name for name, _ in groupby(first)].count("b") > 5


def test_blocking_work_of_a_dead_process_gets_no_further_than_its_next_operation() -> None:
    happened: list[str] = []

    async def work_long() -> None:
        await asyncio.to_thread(work)

    def work() -> None:
        happened.append("began")
        block(5.0)
        happened.append("went on")

    with Simulation(1) as sim:
        sim.host(A).start(work_long)
        sim.run_for(1)
        sim.host(A).kill()
        sim.run_for(10)
    assert happened == ["began"]


def test_blocking_work_that_nothing_ends_is_ended_with_the_simulation() -> None:
    ended: list[bool] = []

    async def work_for_ever() -> None:
        await asyncio.to_thread(work)

    def work() -> None:
        try:
            while True:
                block(1.0)
        finally:
            ended.append(True)

    with Simulation(1) as sim:
        sim.host(A).start(work_for_ever)
        sim.run_for(10.5)
    assert ended == [True]


def test_an_exception_of_blocking_work_reaches_its_caller() -> None:
    async def fail(sim: Simulation) -> None:
        with pytest.raises(ZeroDivisionError):
            await sim.loop.run_in_executor(None, lambda: 1 // 0)

    on_a_host(fail)


def test_async_generators_are_closed_at_the_end() -> None:
    closed: list[bool] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(1)
            closed.append(True)

    async def take_one(_: Simulation) -> AsyncIterator[int]:
        generator = numbers()
        await anext(generator)
        return generator

    assert on_a_host(take_one) is not None
    assert closed == [True]


def chatter(seed: int) -> Simulation:
    """A small world with traffic, blocking work, a crash and a restart; over when it is
    returned.
    """
    with Simulation(seed) as sim:
        server, client = sim.host(B), sim.host(A)

        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            last = Path(f"/last-{writer.get_extra_info('peername')[1]}")
            with closing(writer), suppress(ConnectionError):
                while data := await reader.read(4096):
                    await asyncio.to_thread(server.disk.replace, last, data)
                    writer.write(data)

        async def serve() -> None:
            async with await asyncio.start_server(echo, B, PORT) as listener:
                await listener.serve_forever()

        async def talk() -> None:
            while True:
                with suppress(OSError, asyncio.IncompleteReadError):
                    reader, writer = await asyncio.open_connection(B, PORT)
                    with closing(writer):
                        for number in range(20):
                            word = b"%d" % number * client.random.randrange(1, 50)
                            writer.write(word)
                            await reader.readexactly(len(word))
                await asyncio.sleep(0.1)

        server.start(serve)
        for _ in range(5):
            client.start(talk)
        sim.run_for(3)
        server.restart(serve)
        sim.run_for(3)
    return sim


def test_the_same_seed_gives_the_same_world_and_another_seed_another() -> None:
    digests = [chatter(seed).digest() for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_a_task_group_cancels_its_tasks_in_the_order_of_their_age() -> None:
    order: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(100)
        finally:
            order.append(number)

    async def fail() -> None:
        await asyncio.sleep(1)
        raise LookupError

    async def run(_: Simulation) -> None:
        with suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(wait(number))
                group.create_task(fail())

    on_a_host(run)
    assert order == [0, 1, 2, 3, 4]


# what fails a simulation


def test_a_deadlock_is_told_with_who_waits_where() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    with (
        Simulation(1) as sim,
        pytest.raises(DeadlockError, match=r"10\.0\.0\.1 .*wait_for_nobody line \d+"),
    ):
        sim.host(A).call(wait_for_nobody)


def test_what_is_not_reached_in_time_is_told_with_the_seed() -> None:
    with Simulation(17) as sim:
        sim.host(A).start(tick_for_ever)
        with pytest.raises(NotReachedError) as caught:
            sim.run_until(lambda: False, within_s=5)
        assert "seed 17, 5.000000 virtual seconds" in caught.value.__notes__[0]


def test_a_program_that_never_rests_is_stopped() -> None:
    with Simulation(1) as sim, pytest.raises(RunawayError, match="tick_for_ever"):
        sim.host(A).call(lambda: tick_for_ever(pause_s=0))


def test_too_much_virtual_time_is_a_runaway() -> None:
    with Simulation(1, seconds_max=100) as sim, pytest.raises(RunawayError):
        sim.host(A).call(lambda: asyncio.sleep(101), within_s=1_000)


def test_an_exception_in_a_callback_fails_the_simulation() -> None:
    async def plant() -> None:
        asyncio.get_running_loop().call_later(1, [].pop)

    with Simulation(1) as sim:
        sim.host(A).call(plant)
        with pytest.raises(UnhandledError) as caught:
            sim.run_for(2)
        assert isinstance(caught.value.__cause__, IndexError)


def test_an_exception_of_what_a_host_was_started_with_fails_the_simulation() -> None:
    async def fail() -> None:
        raise LookupError("main")

    with Simulation(1) as sim:
        sim.host(A).start(fail)
        with pytest.raises(UnhandledError):
            sim.run_for(1)


def test_an_exception_in_a_task_that_nobody_asks_fails_the_simulation_at_its_end() -> None:
    kept: list[asyncio.Task[None]] = []

    async def fail() -> None:
        raise LookupError("in the background")

    async def plant() -> None:
        kept.append(asyncio.create_task(fail()))

    def run() -> None:
        with Simulation(1) as sim:
            sim.host(A).call(plant)
            sim.run_for(1)

    with pytest.raises(UnhandledError):
        run()


def test_an_invariant_is_checked_after_every_event() -> None:
    checked_at: list[float] = []

    def time_is_short() -> None:
        checked_at.append(sim.now_s)
        assert sim.now_s < 5

    with Simulation(1) as sim:
        sim.check_always(time_is_short)
        sim.host(A).start(tick_for_ever)
        with pytest.raises(AssertionError):
            sim.run_for(100)
    assert checked_at[-1] == 5
    assert len(set(checked_at)) == 6


# hosts


async def _listen(sim: Simulation, host: Host) -> None:
    await sim.loop.create_server(lambda: Recorder(sim), host.address, PORT)


def test_a_crash_takes_tasks_timers_servers_and_connections() -> None:
    happened: list[str] = []

    async def live() -> None:
        loop = asyncio.get_running_loop()
        loop.run_in_executor(None, happened.append, "thread")
        try:
            await asyncio.sleep(1)
        finally:
            happened.append("cancelled")
        happened.append("slept")

    with Simulation(1) as sim:
        client, server = connect(sim)
        running = sim.host(B).start(live)
        sim.run_for(0)
        server.transport.write(b"the last words")
        sim.host(B).crash()
        sim.run_for(10)
        assert running.cancelled()
        assert happened == ["cancelled"]
        assert server.lost == [None]
        assert isinstance(client.lost[0], ConnectionResetError)
        sim.host(B).boot()
        with pytest.raises(ConnectionRefusedError):
            sim.host(A).call(lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT))


def test_what_is_left_of_a_crashed_process_reaches_nothing() -> None:
    refusals: list[BaseException] = []

    async def clean_up() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            for attempt in (
                lambda: _listen(sim, sim.host(B)),
                lambda: asyncio.open_connection(A, PORT),
            ):
                with suppress(OSError):
                    await attempt()
                    refusals.append(AssertionError("network"))
            disk.replace(Path("/state"), b"from the grave")

    with Simulation(1) as sim:
        sim.host(A).call(lambda: _listen(sim, sim.host(A)))
        sim.host(B).start(clean_up)
        disk = sim.host(B).disk
        sim.run_for(1)
        sim.host(B).crash()
        sim.host(B).boot()
        sim.run_for(1)
        assert refusals == []
        assert sim.host(B).disk.read(Path("/state")) is None


def test_a_silent_crash_shows_only_to_those_who_send_after_the_restart() -> None:
    with Simulation(1) as sim:
        client, _ = connect(sim)
        sim.host(B).crash(silently=True)
        client.transport.write(b"anybody there?")
        sim.run_for(300)
        assert client.lost == []
        sim.host(B).restart(lambda: _listen(sim, sim.host(B)))
        sim.run_for(200)
        assert isinstance(client.lost[0], ConnectionResetError)


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_ends_its_connections_and_frees_its_port(seed: int) -> None:
    with Simulation(seed) as sim:
        client, _ = connect(sim)
        sim.host(B).kill()
        sim.run_for(1)
        assert len(client.lost) == 1
        sim.host(B).start(lambda: _listen(sim, sim.host(B)))
        sim.host(A).call(lambda: sim.loop.create_connection(lambda: Recorder(sim), B, PORT))


def test_hosts_have_their_own_clocks_and_randomness() -> None:
    with Simulation(1) as sim:
        a, b = sim.host(A), sim.host(B)
        b.clock_ahead_ms = 5_000
        a.boot()
        b.boot()
        sim.run_for(1.5)
        assert b.runtime().now_ms() - a.runtime().now_ms() == 5_000
        assert a.runtime().random.random() != b.runtime().random.random()


@pytest.mark.parametrize("seed", range(5))
def test_the_real_transport_runs_unchanged(seed: int) -> None:
    answered: list[bytes] = []

    def echo(request: Command, _: Connection) -> Command:
        response = request.answer(0, None)
        response.body = request.body
        return response

    async def serve() -> None:
        server = Server({7: echo})
        await server.listen(B, PORT)
        await asyncio.sleep(5)
        await server.close()

    async def ask() -> None:
        channels = Channels()
        for number in range(50):
            body = b"%d" % number * 100
            answer = await channels.call(f"{B}:{PORT}", Command(7, body=body), timeout_ms=3_000)
            answered.append(answer.body or b"")
        await channels.close()

    with Simulation(seed) as sim:
        sim.host(B).start(serve)
        sim.host(A).call(ask)
    assert answered == [b"%d" % number * 100 for number in range(50)]
