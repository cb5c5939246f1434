"""Sends that are gathered: which share a request, and what each of them gets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from roquet.client.producer import Producer
from roquet.errors import CallTimeout, ConfigError, ConnectionClosed, MessageError, ResponseError
from roquet.protocol.records.message import Message, MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from tests.client.cluster import SILENCE, FakeBroker, FakeCluster
from tests.client.producers import bodies, producer

SEND = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE


def lingering(cluster: FakeCluster, **options: Any) -> Producer:
    return producer(cluster, **{"linger_ms": 20, **options})


async def all_of(p: Producer, bodies: list[bytes], **fields: Any) -> list[Any]:
    """Results and errors of sends that were called at once."""
    sends = [p.send("T", body, **fields) for body in bodies]
    return await asyncio.gather(*sends, return_exceptions=True)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_sends_within_the_linger_are_one_request_and_each_gets_its_own_result(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            began = cluster.sim.now_s
            results = await all_of(p, numbered(10), tags="a", flag=7)
            assert 0.02 <= cluster.sim.now_s - began < 0.1
            (queue,) = {result.queue for result in results}
            records = broker.log.queues["T", queue.queue_id]
            for result, record in zip(results, records, strict=True):
                assert record.properties["UNIQ_KEY"] == result.message_id
                assert record.offset_message_id == result.offset_message_id
                assert record.queue_offset == result.queue_offset
                assert (record.flag, record.properties["TAGS"]) == (7, "a")

    cluster.run(send)
    assert bodies(broker) == numbered(10)
    assert (len(broker.requests[BATCH]), len(broker.requests[SEND])) == (1, 0)


def test_a_send_without_company_is_sent_alone_after_the_linger(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            await p.send("T", b"alone")

    cluster.run(send)
    assert (len(broker.requests[BATCH]), len(broker.requests[SEND])) == (0, 1)


def test_a_request_is_sent_as_soon_as_it_is_full(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> float:
        async with lingering(cluster, linger_ms=2000, batch_size=5) as p:
            await p.queues("T")
            began = cluster.sim.now_s
            await all_of(p, numbered(10))
            return cluster.sim.now_s - began

    assert cluster.run(send) < 0.1
    assert len(broker.requests[BATCH]) == 2


def test_large_messages_are_bounded_in_bytes(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with lingering(cluster, compress_from_size=1 << 30) as p:
            await all_of(p, [bytes(300_000)] * 7 + [bytes(2_000_000)])

    cluster.run(send)
    assert [len(request.body) // 300_000 for request in broker.requests[BATCH]] == [3, 3]
    assert len(broker.requests[SEND]) == 2


def test_what_cannot_be_in_a_batch_goes_alone(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            await asyncio.gather(
                p.send("T", b"delayed", delay_level=2),
                p.send("T", b"x" * 5000),
                p.send("T", b"properties", properties={"p": "x" * 9000}),
                p.send("T", b"key", delay_level=2, sharding_key="k"),
            )

    cluster.run(send)
    assert (len(broker.requests[BATCH]), len(broker.requests[SEND])) == (0, 4)


def test_each_topic_each_queue_and_each_kind_has_its_own_requests(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            await p.queues("T")
            await asyncio.gather(
                *(p.send("T", b"1", queue=MessageQueue("T", "broker-a", 1)) for _ in range(2)),
                *(p.send("T", b"2", queue=lambda queues: queues[2]) for _ in range(2)),
                *(p.send("T", b"any") for _ in range(2)),
                *(p.send("T", b"unsafe", wait_stored=False) for _ in range(2)),
                *(p.send("T", b"longer", timeout_ms=9000) for _ in range(2)),
                *(p.send("U", b"u") for _ in range(2)),
            )

    cluster.run(send)
    assert len(broker.requests[BATCH]) == 6
    assert broker.requests[SEND] == []
    assert sum(record.body == b"1" for record in broker.log.queues["T", 1]) == 2
    assert sum(record.body == b"2" for record in broker.log.queues["T", 2]) == 2


def test_an_error_reaches_each_send_as_an_error_of_its_own(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> list[Any]:
        async with lingering(cluster) as p:
            broker.script[BATCH] = [ResponseCode.MESSAGE_ILLEGAL]
            return await all_of(p, numbered(3))

    errors = cluster.run(send)
    assert {type(error) for error in errors} == {ResponseError}
    assert [error.code for error in errors] == [13] * 3
    assert len({id(error) for error in errors}) == 3


def test_a_refusal_is_tried_again_for_all(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            broker.script[BATCH] = [ResponseCode.SYSTEM_BUSY]
            assert all(result.queue for result in await all_of(p, numbered(3)))

    cluster.run(send)
    assert bodies(broker) == numbered(3)


@pytest.mark.parametrize("after_s", [0.0, 0.01])
def test_a_send_that_is_cancelled_before_it_leaves_is_not_sent_and_the_others_are(
    cluster: FakeCluster, broker: FakeBroker, after_s: float
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            await p.queues("T")
            sends = [asyncio.create_task(p.send("T", body)) for body in numbered(3)]
            await asyncio.sleep(after_s)
            sends[0].cancel()
            await asyncio.wait(sends)
            assert [each.cancelled() for each in sends] == [after_s >= 0, False, False]

    cluster.run(send)
    assert bodies(broker) == [b"1", b"2"]


def test_a_send_that_is_cancelled_on_its_way_does_not_hurt_the_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            broker.script[BATCH] = [SILENCE]
            sends = [
                asyncio.create_task(p.send("T", body, timeout_ms=1000)) for body in numbered(3)
            ]
            await asyncio.sleep(0.5)
            assert len(broker.requests[BATCH]) == 1
            sends[1].cancel()
            await asyncio.wait(sends)
            assert sends[1].cancelled()
            assert {type(sends[number].exception()) for number in (0, 2)} == {CallTimeout}

    cluster.run(send)


@pytest.mark.parametrize("flushed_by", ["flush", "close"])
def test_flush_and_close_send_what_waits(
    cluster: FakeCluster, broker: FakeBroker, flushed_by: str
) -> None:
    async def send() -> None:
        p = await lingering(cluster, linger_ms=3000).start()
        await p.queues("T")
        began = cluster.sim.now_s
        sends = [asyncio.create_task(p.send("T", body)) for body in numbered(3)]
        await asyncio.sleep(0)
        await (p.flush() if flushed_by == "flush" else p.close())
        assert cluster.sim.now_s - began < 1
        await asyncio.wait(sends)
        assert [each.exception() for each in sends] == [None] * 3
        await p.close()

    cluster.run(send)
    assert bodies(broker) == numbered(3)


def test_a_send_during_the_close_does_not_wait_for_others(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        p = await lingering(cluster, linger_ms=900).start()
        await p.queues("T")
        broker.script[SEND] = [SILENCE]
        first = asyncio.create_task(p.send("T", b"first", timeout_ms=1000))
        await asyncio.sleep(0)
        closing = asyncio.create_task(p.close())
        await asyncio.sleep(0.5)
        began = cluster.sim.now_s
        await p.send("T", b"late")
        assert cluster.sim.now_s - began < 0.1
        await asyncio.wait([first, closing])
        assert isinstance(first.exception(), CallTimeout)

    cluster.run(send)
    assert bodies(broker) == [b"late"]


def test_a_send_during_the_close_comes_after_those_of_its_key(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        p = await lingering(cluster, linger_ms=900).start()
        await p.queues("T")
        first = asyncio.create_task(p.send("T", b"first", sharding_key="k"))
        await asyncio.sleep(0)
        broker.script[SEND] = [ResponseCode.SYSTEM_BUSY]  # a retry follows
        closing = asyncio.create_task(p.close())
        await asyncio.sleep(0.05)
        await asyncio.gather(p.send("T", b"second", sharding_key="k"), first, closing)

    cluster.run(send)
    assert bodies(broker) == [b"first", b"second"]


@pytest.mark.parametrize("after_s", [0.0, 0.5])
def test_a_send_that_a_cancelled_close_gives_up_fails_and_is_not_cancelled(
    cluster: FakeCluster, broker: FakeBroker, after_s: float
) -> None:
    """A task group takes a cancelled task for one that was ended on purpose."""

    async def send() -> None:
        p = await lingering(cluster, timeout_ms=60_000).start()
        await p.send("T", b"a route")
        broker.script[SEND] = [SILENCE] * 99
        sending = asyncio.create_task(p.send("T", b"1"))
        await asyncio.sleep(after_s)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await p.close()
        with pytest.raises(ConnectionClosed):
            await sending

    cluster.run(send)


def test_a_send_whose_time_is_over_while_it_waits_for_others_is_not_sent(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            with pytest.raises(CallTimeout, match="was not sent: its 10 ms were over"):
                await p.send("T", b"hi", timeout_ms=10)

    cluster.run(send)
    assert bodies(broker) == []


def test_flush_without_sends_and_without_linger_does_nothing(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        for linger_ms in (0, 20):
            async with lingering(cluster, linger_ms=linger_ms) as p:
                await p.flush()

    cluster.run(send)
    assert bodies(broker) == []


def test_messages_of_one_key_stay_in_order_over_requests_that_fail(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster, linger_ms=1, batch_size=3) as p:
            broker.script[BATCH] = [ResponseCode.SYSTEM_BUSY] * 2
            sends = []
            for number in range(60):
                body = b"%04d" % number + (b"x" * 5000 if number % 7 == 0 else b"")
                sends.append(asyncio.create_task(p.send("T", body, sharding_key="k")))
                if number % 5 == 0:
                    await asyncio.sleep(0.002)
            await asyncio.gather(*sends)

    cluster.run(send)
    (queue,) = [records for key, records in broker.log.queues.items() if key[0] == "T"]
    flags = [record.sys_flag for record in queue]
    assert len(queue) == 60
    assert [record.properties["UNIQ_KEY"] for record in queue] == sorted(
        record.properties["UNIQ_KEY"] for record in queue
    )
    assert any(flags), "large ones were sent alone, compressed"


def test_requests_that_wait_behind_a_silent_queue_end_with_their_time(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            await p.queues("T")
            broker.script[SEND] = [SILENCE] * 99
            first = asyncio.create_task(p.send("T", b"1", sharding_key="k", timeout_ms=10_000))
            await asyncio.sleep(0.1)
            began = cluster.sim.now_s
            with pytest.raises(CallTimeout, match="was not sent: it waited 500 ms behind earlier"):
                await p.send("T", b"2", sharding_key="k", timeout_ms=500)
            assert cluster.sim.now_s - began == pytest.approx(0.5, abs=0.01)
            first.cancel()

    cluster.run(send)


def test_a_function_that_fails_hurts_its_own_send_only(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    def refuse(_: object) -> MessageQueue:
        raise LookupError("no shard")

    async def send() -> None:
        async with lingering(cluster) as p:
            ends = await asyncio.gather(
                p.send("T", b"refused", queue=refuse),
                p.send("T", b"sent", queue=lambda queues: queues[0]),
                return_exceptions=True,
            )
            assert isinstance(ends[0], LookupError)
            assert not isinstance(ends[1], BaseException)

    cluster.run(send)
    assert bodies(broker) == [b"sent"]


def test_a_message_that_breaks_a_rule_is_refused_at_once(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            good = asyncio.create_task(p.send("T", b"good"))
            with pytest.raises(MessageError):
                await p.send(Message("T", b"x" * (4 * 1024 * 1024 + 1)))
            await good

    cluster.run(send)
    assert bodies(broker) == [b"good"]


@pytest.mark.parametrize(
    "options", [{"linger_ms": -1}, {"linger_ms": 3001}, {"linger_ms": 0.5}, {"batch_size": 0}]
)
def test_numbers_that_cannot_be_used_are_refused(
    cluster: FakeCluster, options: dict[str, Any]
) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"{name} is"):
        producer(cluster, **options)


def test_a_send_does_not_wait_longer_for_a_route_because_others_have_more_time(
    cluster: FakeCluster,
) -> None:
    async def send() -> None:
        async with lingering(cluster) as p:
            cluster.sim.network.isolate(cluster.name_server_host.address)
            began = cluster.sim.now_s
            patient = [
                asyncio.create_task(p.send("T", b"1", sharding_key="k", timeout_ms=3000))
                for _ in range(2)
            ]
            same = asyncio.create_task(p.send("T", b"2", sharding_key="k", timeout_ms=500))
            await asyncio.sleep(0.2)
            later = asyncio.create_task(p.send("T", b"3", sharding_key="k", timeout_ms=500))
            for impatient, ends_s in ((same, 0.5), (later, 0.7)):
                with pytest.raises(CallTimeout, match="its 500 ms were over"):
                    await impatient
                assert cluster.sim.now_s - began < ends_s + 0.1
            for each in patient:
                with pytest.raises(CallTimeout):
                    await each

    cluster.run(send)
