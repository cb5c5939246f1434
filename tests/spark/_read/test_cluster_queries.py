"""A cluster is asked for queues, bounds and times until it answers or the time is over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest

from roquet.client.pull_consumer import PullConsumer
from roquet.errors import AccessDenied, OptionError, RouteNotFound
from roquet.protocol.records.message import MessageQueue
from roquet.spark._options.ranges import Bounds, MasterAway
from roquet.spark._options.read import ReadOptions
from roquet.spark._read import cluster_queries
from roquet.spark._read.cluster_queries import ClusterQueries, opened
from roquet.spark._read.queue import NoProgress
from tests.simulation.loop import VirtualLoop
from tests.spark.stand_in import Broker, Queues, StandIn, cluster, record

ASSIGNED = '{"orders":{"broker-a":[1,7]}}'


def queue(queue_id: int, topic: str = "orders") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def held(*sizes: int, start: int = 0, topic: str = "orders") -> Queues:
    return {
        (topic, index): [record(index, start + at, topic=topic) for at in range(size)]
        for index, size in enumerate(sizes)
    }


def options(name_server: str, given: Mapping[str, str]) -> ReadOptions:
    defaults = {"nameserver": name_server, "noprogresstimeoutms": "60000"}
    topics = {} if "assign" in given or "subscribepattern" in given else {"subscribe": "orders"}
    return ReadOptions.of_batch(defaults | topics | dict(given))


@asynccontextmanager
async def querying(stand_in: StandIn, **given: str) -> AsyncIterator[ClusterQueries]:
    wanted = options(stand_in.name_server, given)
    async with await opened(wanted) as consumer:
        yield ClusterQueries(consumer, wanted)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real brokers are asked again at once."""
    monkeypatch.setattr(cluster_queries, "PAUSE_SECONDS_MAX", 0.001)


# queues


async def test_the_queues_of_the_topics_are_those_that_can_be_read() -> None:
    both = held(1, 1) | held(1, topic="stock")
    with cluster(Broker(0, both)) as stand_in:
        async with querying(stand_in, subscribe="stock,orders") as queries:
            assert await queries.queues() == [queue(0, "stock"), queue(0), queue(1)]
        async with querying(stand_in, subscribepattern="st.*|none") as queries:
            assert await queries.queues() == [queue(0, "stock")]


async def test_queues_that_are_assigned_and_not_there_are_an_error_or_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cluster(Broker(0, held(1, 1))) as stand_in:
        async with querying(stand_in, assign=ASSIGNED) as queries:
            with pytest.raises(OptionError, match="assign: there is no queue orders@broker-a:7"):
                await queries.queues()
        async with querying(stand_in, assign=ASSIGNED, failondataloss="false") as queries:
            assert await queries.queues() == [queue(1)]
    assert "queues skipped: error=assign: there is no queue orders@broker-a:7" in caplog.text


async def test_a_topic_that_is_not_there_is_an_error_or_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with cluster(Broker(0, held(1))) as stand_in:
        async with querying(stand_in, subscribe="nothing,orders") as queries:
            with pytest.raises(RouteNotFound, match="nothing"):
                await queries.queues()
        lenient = {"subscribe": "nothing,orders", "failondataloss": "false"}
        async with querying(stand_in, **lenient) as queries:
            assert await queries.queues({"nothing"}) == [queue(0)]
    assert "topic skipped: error=no broker has topic nothing" in caplog.text


async def test_a_topic_that_was_there_before_is_waited_for() -> None:
    broker = Broker(0, held(1))
    with cluster(broker) as stand_in:
        async with querying(stand_in) as queries:
            stand_in.listed.clear()
            stand_in.routes_asked += [lambda: stand_in.listed.append(broker), lambda: None]
            assert await queries.queues({"orders"}) == [queue(0)]
            assert not stand_in.routes_asked, "it was asked for until it was there"


async def test_a_topic_that_does_not_come_back_is_an_error_at_the_end_of_the_time() -> None:
    with cluster(Broker(0, held(1))) as stand_in:
        stand_in.listed.clear()
        async with querying(stand_in, noprogresstimeoutms="20") as queries:
            with pytest.raises(RouteNotFound):
                await queries.queues({"orders"})


# bounds


async def test_bounds_are_the_masters() -> None:
    stored = held(3, 0, start=5)
    with cluster(Broker(0, stored), Broker(1, held(9, 9))) as stand_in:
        async with querying(stand_in, readfrom="slave") as queries:
            assert await queries.bounds([queue(1), queue(0)]) == {
                queue(1): Bounds(0, 0),
                queue(0): Bounds(5, 8),
            }
            assert await queries.bounds([]) == {}


@pytest.mark.parametrize(
    ("given", "is_certain"),
    [
        ({}, False),
        ({"readfrom": "slave-only"}, False),
        ({"failondataloss": "false"}, False),
        ({"readfrom": "slave-only", "failondataloss": "false"}, True),
    ],
)
async def test_bounds_of_a_slave_are_not_certain_unless_the_options_want_no_others(
    given: dict[str, str], is_certain: bool
) -> None:
    with cluster(Broker(1, held(3))) as stand_in:
        async with querying(stand_in, **given) as queries:
            assert await queries.bounds([queue(0)]) == {queue(0): Bounds(0, 3, is_certain)}


async def test_a_broker_that_is_not_there_is_no_answer() -> None:
    with cluster(Broker(0, held(3))) as stand_in:
        stand_in.do(stand_in.brokers[0].die)
        async with querying(stand_in, noprogresstimeoutms="20") as queries:
            with pytest.raises(NoProgress, match=r"orders@broker-a:0: no answer in 0\.02 s, last"):
                await queries.bounds([queue(0)])


# times


async def test_the_first_message_of_a_time_is_found_whatever_was_deleted_between_others() -> None:
    """Compared with a search message by message, in queues of any times and holes."""
    some = random.Random(1)
    stored: Queues = {}
    for queue_id in range(12):
        offsets = sorted(some.sample(range(30), some.randint(1, 12)))
        times = sorted(some.choices(range(10), k=len(offsets)))
        stored["orders", queue_id] = [
            record(queue_id, at, store_ms=ms) for at, ms in zip(offsets, times, strict=True)
        ]
    wanted = [(queue(queue_id), ms) for queue_id in range(12) for ms in (0, 3, 4, 9, 10)]
    with cluster(Broker(0, stored)) as stand_in:
        async with querying(stand_in) as queries:
            bounds = await queries.bounds({each for each, _ in wanted})
            found = await queries.times(bounds, wanted)

    for (each, ms), at in found.items():
        young = [
            message.queue_offset
            for message in stored["orders", each.queue_id]
            if message.store_ms >= ms
        ]
        assert (at is None) == (not young)
        if at is not None:
            between = range(at, young[0])
            kept = {message.queue_offset for message in stored["orders", each.queue_id]}
            assert at <= young[0]
            assert not kept & set(between), "from there on the first message is that one"
    assert list(found) == wanted


async def test_a_broker_that_does_not_return_what_it_has_is_no_progress() -> None:
    stored = held(4)
    with cluster(Broker(0, stored)) as stand_in:
        async with querying(stand_in, noprogresstimeoutms="20") as queries:
            bounds = {queue(0): Bounds(0, 9)}
            with pytest.raises(NoProgress, match="does not return offset 4, its queue ends at 4"):
                await queries.times(bounds, [(queue(0), 2**60)])


async def test_a_name_server_that_cannot_be_reached_in_time_is_no_progress() -> None:
    with pytest.raises(
        NoProgress, match=r"^127\.0\.0\.1:1: no answer in 0\.02 s, last cannot conn"
    ):
        await opened(options("127.0.0.1:1", {"noprogresstimeoutms": "20"}))


# patience, on virtual time


def patiently(
    monkeypatch: pytest.MonkeyPatch, *failures: Exception
) -> tuple[str | Exception, list[float]]:
    """What work that fails so brings within 3.5 s, and when it was begun."""
    monkeypatch.setattr(cluster_queries, "PAUSE_SECONDS_MAX", 1.0)
    wanted = options("ns:1", {"noprogresstimeoutms": "3500"})
    begun: list[float] = []
    left = list(failures)

    async def work() -> str:
        begun.append(asyncio.get_running_loop().time())
        if left:
            raise left.pop(0)
        return "done"

    async def asking() -> str:
        return await ClusterQueries(PullConsumer("ns:1"), wanted).patiently(work)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        try:
            return runner.run(asking()), begun
        except Exception as error:
            return error, begun


def test_work_is_repeated_while_a_master_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    away = MasterAway("away")

    assert patiently(monkeypatch) == ("done", [0])
    assert patiently(monkeypatch, away, away) == ("done", [0, 1, 2])
    assert patiently(monkeypatch, *[away] * 9) == (away, [0, 1, 2, 3, 3.5]), "at last in time"


@pytest.mark.parametrize("error", [NoProgress("x"), OptionError("x"), AccessDenied(1, "", "", "")])
def test_work_that_fails_otherwise_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    assert patiently(monkeypatch, error) == (error, [0])
