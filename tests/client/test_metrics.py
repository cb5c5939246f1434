"""What `metrics()` of clients tells: of sends, deliveries, queues, connections and routes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf

import pytest

import roquet
from roquet.client.metrics import (
    ClientMetrics,
    ConsumerMetrics,
    LatencyHistogram,
    PartMetrics,
    ProducerMetrics,
    PullConsumerMetrics,
    QueueMetrics,
    TopicMetrics,
    together,
    with_ended,
)
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import ClientStateError, MessageError, ResponseError, RoquetError
from roquet.protocol.records.message import Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.client.consumers import consumer, fill, ordered, queue
from tests.client.producers import producer
from tests.simulation.network import LinkQuality

SEND = RequestCode.SEND_MESSAGE_V2
RETRY = "%RETRY%G"


def session(cluster: FakeCluster) -> roquet.Client:
    runtime = cluster.client.runtime()
    return roquet.connect(NAME_SERVER, client_id=f"{CLIENT}@test", runtime=runtime)


def of_g(client: roquet.Consumer) -> ConsumerMetrics:
    return client.metrics().consumers["G"]


# sends


def test_sends_are_counted_with_their_bytes_and_latencies(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> ProducerMetrics:
        async with producer(cluster) as p:
            await p.send("T", b"12345")
            await p.send_batch([Message("T", b"1"), Message("T", b"2")])
            await p.send_one_way("T", b"x")
            return p.metrics().producers["P"]

    broker.create("T", 1)
    found = cluster.run(work)
    assert (found.sent, found.sent_one_way) == (3, 1)
    assert found.sent_bytes == 5 + 2  # a batch has a header per message, which is not counted
    assert (found.failures, found.retries, found.in_flight, found.waiting) == ({}, 0, 0, 0)
    assert found.latency.count == 2


def test_the_latency_of_a_send_is_in_its_bucket(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> LatencyHistogram:
        async with producer(cluster) as p:
            await p.send("T", b"1")  # connects
            cluster.sim.network.quality = LinkQuality(latency_s=(0.015, 0.015))
            await p.send("T", b"2")
            return p.metrics().producers["P"].latency

    broker.create("T", 1)
    found = cluster.run(work)
    assert found.counts[found.bounds_ms.index(50.0)] == 1
    assert 30 <= found.total_ms < 40


def test_failures_are_counted_by_the_name_of_the_error_and_retries_apart(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> ProducerMetrics:
        async with producer(cluster, timeout_ms=1000) as p:
            broker.script[SEND] = [ResponseCode.SYSTEM_BUSY, 0, ResponseCode.MESSAGE_ILLEGAL]
            broker.script[SEND].remove(0)
            with pytest.raises(ResponseError):
                await p.send("T", b"1")
            broker.script[SEND] = [SILENCE]
            with pytest.raises(RoquetError):
                await p.send("T", b"2", timeout_ms=500)
            broker.script[RequestCode.SEND_BATCH_MESSAGE] = [ResponseCode.MESSAGE_ILLEGAL]
            with pytest.raises(ResponseError):
                await p.send_batch([Message("T", b"3"), Message("T", b"4")])
            with pytest.raises(MessageError):
                await p.send("T", b"x" * 5_000_000)
            return p.metrics().producers["P"]

    broker.create("T", 1)
    found = cluster.run(work)
    assert found.failures == {"ResponseError": 3, "CallTimeout": 1}
    assert (found.sent, found.retries, found.latency.count) == (0, 1, 0)


def test_what_is_under_way_and_what_waits_for_a_slot_are_told(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> list[tuple[int, int]]:
        async with producer(cluster, max_in_flight=2) as p:
            await p.send("T", b"1")
            broker.script[SEND] = [SILENCE] * 2
            sends = [asyncio.create_task(p.send("T", b"2")) for _ in range(5)]
            await asyncio.sleep(0)
            seen = p.metrics().producers["P"]
            for each in sends:
                each.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
            then = p.metrics().producers["P"]
            assert then.failures == {"CancelledError": 5}
            return [(each.in_flight, each.waiting) for each in (seen, then)]

    broker.create("T", 1)
    assert cluster.run(work) == [(2, 3), (0, 0)]


def test_gathered_sends_are_counted_once_each(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> list[ProducerMetrics]:
        async with producer(cluster, linger_ms=5) as p:
            await asyncio.gather(*(p.send("T", b"%d" % number) for number in range(10)))
            stored = p.metrics().producers["P"]
            broker.script[RequestCode.SEND_BATCH_MESSAGE] = [ResponseCode.MESSAGE_ILLEGAL]
            sends = (p.send("T", b"x") for _ in range(4))
            await asyncio.gather(*sends, return_exceptions=True)
            return [stored, p.metrics().producers["P"]]

    broker.create("T", 1)
    stored, failed = cluster.run(work)
    assert (stored.sent, stored.latency.count, stored.failures) == (10, 1, {})
    assert stored.sent_bytes == 10
    assert (failed.sent, failed.failures) == (10, {"ResponseError": 4})


@pytest.mark.parametrize("wait_s", [0.001, 1.0])
def test_a_gathered_send_that_is_cancelled_is_counted_once(
    cluster: FakeCluster, broker: FakeBroker, wait_s: float
) -> None:
    """Whether it is cancelled before the request leaves, or before its answer comes."""

    async def work() -> ProducerMetrics:
        async with producer(cluster, linger_ms=5, timeout_ms=60_000) as p:
            await p.send("T", b"12")
            cluster.sim.network.quality = LinkQuality(latency_s=(2.0, 2.0))
            sends = [asyncio.create_task(p.send("T", b"123")) for _ in range(5)]
            await asyncio.sleep(wait_s)
            for each in sends[:3]:
                each.cancel()
            await asyncio.gather(*sends, return_exceptions=True)
            return p.metrics().producers["P"]

    broker.create("T", 1)
    found = cluster.run(work)
    assert (found.sent, found.sent_bytes) == (3, 2 + 2 * 3)
    assert found.failures == {"CancelledError": 3}


@pytest.mark.parametrize("linger_ms", [0, 5])
def test_a_send_whose_queue_function_fails_is_not_counted(
    cluster: FakeCluster, broker: FakeBroker, linger_ms: int
) -> None:
    def fail(_: Sequence[MessageQueue]) -> MessageQueue:
        raise KeyError("no such customer")

    async def work() -> ProducerMetrics:
        async with producer(cluster, linger_ms=linger_ms) as p:
            with pytest.raises(KeyError):
                await p.send("T", b"1", queue=fail)
            with pytest.raises(MessageError, match="it must return one of the queues"):
                await p.send("T", b"1", queue=lambda _: queue(99))
            with pytest.raises(MessageError):
                await p.send_batch([Message("T", b"1")], queue=lambda _: queue(99))
            return p.metrics().producers["P"]

    broker.create("T", 1)
    assert cluster.run(work).failures == {}


# deliveries


def test_deliveries_are_counted_by_topic(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> tuple[ConsumerMetrics, ConsumerMetrics]:
        async with consumer(cluster) as c:
            (await c.get()).ack()
            (await c.get()).retry()
            held = await c.get()
            await asyncio.sleep(1)
            seen = of_g(c)
            held.ack()
            (await c.get()).ack()  # the one that was sent back
            return seen, of_g(c)

    fill(broker, 3)
    seen, then = cluster.run(work)
    assert seen.topics["T"] == TopicMetrics(3, 3, 3, 1, 1, 1, 1, seen.topics["T"].timed_ms)
    assert seen.in_progress == 1
    assert (then.topics["T"].acknowledged, then.topics[RETRY].acknowledged) == (2, 1)
    assert then.in_progress == 0


def test_a_failed_message_of_an_ordered_consumer_stays_with_it(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> TopicMetrics:
        async with ordered(cluster, max_reconsume_times=1) as c:
            for _ in range(2):
                (await c.get()).retry()
            seen.append(of_g(c).topics["T"])
            (await c.get()).ack()
            return of_g(c).topics["T"]

    seen: list[TopicMetrics] = []
    fill(broker, 2)
    found = cluster.run(work)
    assert (seen[0].failed, seen[0].sent_back) == (2, 0)
    assert (found.delivered, found.failed, found.sent_back) == (3, 2, 1)


def test_an_assigned_queue_tells_where_it_is(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> list[QueueMetrics]:
        async with consumer(cluster, batch_size=4, auto_commit=False) as c:
            for _ in range(3):
                (await c.get()).ack()
            await c.get()
            await asyncio.sleep(1)
            before = of_g(c).queues[queue(0)]
            await c.commit()
            c.pause(queue(0))
            return [before, of_g(c).queues[queue(0)]]

    fill(broker, 10)
    before, then = cluster.run(work)
    assert (before.position, before.consumer_offset, before.committed) == (4, 3, None)
    assert (before.lag, before.prefetched, before.prefetched_bytes) == (7, 7, 7)
    assert (then.committed, before.is_paused, then.is_paused) == (3, False, True)
    assert before.last_pull_time_ms == then.last_pull_time_ms > 0


def test_positions_are_those_that_the_consumer_tells(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> None:
        async with ordered(cluster) as c:
            await asyncio.sleep(5)
            (await c.get()).ack()
            c.pause(queue(1))
            with suppress(RoquetError):
                await c.get(100)
            told = {each: metrics.position for each, metrics in of_g(c).queues.items()}
            assert told == {each: c.position(each) for each in c.assigned()}
            assert len(told) == 4

    fill(broker, 30, queues=3)
    cluster.run(work)


def test_the_lag_stays_known_while_a_pull_waits(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> int | None:
        async with consumer(cluster) as c:
            (await c.get()).ack()
            await asyncio.sleep(12)
            return of_g(c).queues[queue(0)].lag

    fill(broker, 1)
    assert cluster.run(work) == 0


def test_each_change_of_its_queues_is_a_rebalance(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> list[int]:
        async with consumer(cluster) as c:
            found = [of_g(c).rebalances]
            await asyncio.sleep(100)
            found.append(of_g(c).rebalances)
            cluster.topics["T"]["broker-a"] = 3
            await asyncio.sleep(100)
            found.append(of_g(c).rebalances)
            return found

    fill(broker, 1)
    first, later, grown = cluster.run(work)
    assert first >= 1
    assert (later, grown) == (first, first + 1)


def test_pulls_without_a_group_are_counted(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> ClientMetrics:
        async with PullConsumer(NAME_SERVER, runtime=cluster.client.runtime()) as reader:
            await reader.pull(queue(0), 0)
            await reader.pull_all(queue(0), [0, 1])
            broker.script[RequestCode.PULL_MESSAGE] = [ResponseCode.NO_PERMISSION]
            with pytest.raises(ResponseError):
                await reader.pull(queue(0), 0)
            return reader.metrics()

    fill(broker, 3)
    found = cluster.run(work).pull_consumers["roquet-pull"]
    assert (found.pulls, found.failures) == (3, {"ResponseError": 1})
    assert found.pulled_bytes > 0


# sessions


def test_a_session_has_all_its_clients_also_those_that_are_closed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> list[ClientMetrics]:
        async with session(cluster) as mq:
            await mq.send("T", b"0")
            async with mq.producer("P") as p:
                await p.send("T", b"1")
                async with mq.producer("P") as same, mq.consumer("G", "T", start="earliest") as c:
                    await same.send("T", b"2")
                    await c.get()
                    found = [mq.metrics(), p.metrics()]
            found.append(mq.metrics())
            return found

    broker.create("T", 1)
    both, own, closed = cluster.run(work)
    assert {group: each.sent for group, each in both.producers.items()} == {"roquet": 1, "P": 2}
    assert {group: each.sent for group, each in own.producers.items()} == {"P": 1}
    assert (own.consumers, own.client_id) == ({}, both.client_id)
    assert own.connections.keys() == both.connections.keys()
    assert closed.producers["P"].sent == 2
    assert both.consumers["G"].in_progress == 1
    assert closed.consumers["G"].topics["T"].delivered == 1
    assert (closed.consumers["G"].in_progress, closed.consumers["G"].queues) == (0, {})


def test_a_client_that_is_not_open_has_no_metrics(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> None:
        p = producer(cluster)
        with pytest.raises(ClientStateError, match="was not started"):
            p.metrics()
        async with p:
            p.metrics()
        with pytest.raises(ClientStateError, match="was closed"):
            p.metrics()

    cluster.run(work)


def test_connections_tell_their_state_and_what_went_over_them(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> Iterator[ClientMetrics]:
        async with producer(cluster, timeout_ms=60_000) as p:
            await p.send("T", b"x" * 1000)
            found = [p.metrics()]
            broker.host.kill()
            sending = asyncio.create_task(p.send("T", b"x" * 1000))
            await asyncio.sleep(2)
            found.append(p.metrics())
            cluster.restart(broker)
            await sending
            found.append(p.metrics())
            return iter(found)

    broker.create("T", 1)
    of_broker = [each.connections[broker.address] for each in cluster.run(work)]
    assert [each.state for each in of_broker] == ["open", "silent", "open"]
    first, _, again = of_broker
    assert (first.is_name_server, first.opened, again.opened) == (False, 1, 2)
    assert (first.in_flight, first.unsent_bytes) == (0, 0)
    assert 1000 < first.sent_bytes < again.sent_bytes - 1000
    assert 0 < first.received_bytes < again.received_bytes


def test_a_request_that_waits_for_its_answer_is_in_flight(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> tuple[int, bool]:
        async with consumer(cluster) as c:
            await asyncio.sleep(10)
            found = c.metrics().connections
            return found[broker.address].in_flight, found[NAME_SERVER].is_name_server

    fill(broker, 0)
    assert cluster.run(work) == (2, True)  # pulls of the queue and of the retry topic's


def test_the_age_of_a_route_grows_while_no_name_server_answers(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def work() -> list[int]:
        async with producer(cluster) as p:
            await p.send("T", b"1")
            ages = [p.metrics().route_ages_ms["T"]]
            await asyncio.sleep(100)
            ages.append(p.metrics().route_ages_ms["T"])
            cluster.name_server_host.kill()
            await asyncio.sleep(100)
            ages.append(p.metrics().route_ages_ms["T"])
            return ages

    broker.create("T", 1)
    new, refreshed, old = cluster.run(work)
    assert new < 1000
    assert refreshed <= 31_000
    assert old >= 100_000


# numbers


def test_a_quantile_is_the_end_of_its_bucket() -> None:
    histogram = LatencyHistogram((0, 50, 0, 49, *(0,) * 9, 1), 1234.5)
    assert histogram.count == 100
    assert histogram.quantile_ms(0.5) == 2.0
    assert histogram.quantile_ms(0.99) == 10.0
    assert histogram.quantile_ms(1.0) == inf
    assert LatencyHistogram().quantile_ms(0.99) == 0.0


def test_metrics_of_one_kind_and_group_are_added() -> None:
    one = ProducerMetrics("P", 1, 10, failures={"A": 1}, latency=LatencyHistogram((1,) * 14, 5.0))
    other = ProducerMetrics("P", 2, 20, failures={"A": 2, "B": 1}, latency=one.latency)
    consumed = ConsumerMetrics("P", {"T": TopicMetrics(received=1), "U": TopicMetrics()}, 1)
    again = ConsumerMetrics("P", {"T": TopicMetrics(received=2), "V": TopicMetrics(failed=1)}, 2)

    sends, deliveries = together([one, consumed, None, other, again])

    latency = LatencyHistogram((2,) * 14, 10.0)
    assert sends == ProducerMetrics("P", 3, 30, failures={"A": 3, "B": 1}, latency=latency)
    topics = {"T": TopicMetrics(3), "U": TopicMetrics(), "V": TopicMetrics(failed=1)}
    assert deliveries == ConsumerMetrics("P", topics, 3)


def test_the_sums_of_closed_clients_only_grow_however_many_groups_there_were() -> None:
    ended: list[PartMetrics] = []
    for number in range(300):
        ended = with_ended(ended, ProducerMetrics(f"P{number}", sent=1, failures={"A": 1}))
        topics = {f"T{number}": TopicMetrics(received=1), "R": TopicMetrics(received=2)}
        ended = with_ended(ended, ConsumerMetrics(f"G{number}", topics))
        ended = with_ended(ended, PullConsumerMetrics(f"R{number}", pulls=1))

    assert len(ended) < 110
    sends = [each for each in ended if isinstance(each, ProducerMetrics)]
    assert sum(each.sent for each in sends) == 300
    assert sum(each.failures["A"] for each in sends) == 300
    members = [each for each in ended if isinstance(each, ConsumerMetrics)]
    assert sum(topic.received for each in members for topic in each.topics.values()) == 900
    assert {"", "G299"} <= {each.group for each in members}
    assert sum(len(each.topics) for each in members) < 100
    assert sum(each.pulls for each in ended if isinstance(each, PullConsumerMetrics)) == 300


def test_a_session_keeps_the_sums_of_many_groups(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def work() -> tuple[int, int]:
        async with session(cluster) as mq:
            for number in range(102):
                async with mq.producer(f"P{number}") as p:
                    await p.send("T", b"1")
            found = mq.metrics().producers
            return sum(each.sent for each in found.values()), found[""].sent

    broker.create("T", 1)
    assert cluster.run(work) == (102, 2)
