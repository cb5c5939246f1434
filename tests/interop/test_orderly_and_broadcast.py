"""Our consumer in order and broadcasting, beside Apache's of 4.9.7, at our broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.protocol.records.message import MessageQueue
from tests.interop.apache import Version, require_java, run_driver, start_driver
from tests.interop.processes import SECONDS
from tests.interop.roquet_cluster import RoquetCluster

pytestmark = pytest.mark.interop

QUEUES = 4
EACH = 40
"""So many messages go to each queue while both members are there."""
TIMEOUT_MS = 20_000
ALL_SECONDS = 6 * SECONDS
"""A member that comes looks for its queues each 20 s, one that leaves may keep its locks for 60 s;
beside that a Java starts and deals with its messages, which on a busy machine takes a minute each.
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RoquetCluster]:
    require_java()
    with RoquetCluster() as running:
        yield running


async def test_we_and_java_share_a_group_in_order(cluster: RoquetCluster) -> None:
    """Java comes, takes its half of the queues, leaves after 60 messages, and we go on where it
    was.
    """
    topic, group, namesrv = "InOrder", "G-in-order", cluster.namesrv
    ours: defaultdict[int, list[int]] = defaultdict(list)
    cluster.create_topic(topic, QUEUES)

    async def consume(consumer: Consumer) -> None:
        async for message in consumer:
            async with message:
                ours[message.queue.queue_id].append(message.queue_offset)

    def of_topic(consumer: Consumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assigned())

    async with (
        Producer(namesrv, "P", timeout_ms=TIMEOUT_MS) as producer,
        asyncio.timeout(ALL_SECONDS),
    ):
        queues = await producer.queues(topic)
        async with Consumer(namesrv, group, topic, "earliest", ordered=True) as consumer:
            tasks = [asyncio.create_task(consume(consumer)) for _ in range(3)]
            await send_to_each(producer, queues, 1)
            while sum(map(len, ours.values())) < QUEUES:
                await asyncio.sleep(0.1)
            words = ("consume", namesrv, topic, group, 60, SECONDS, "--orderly", "--pause", 20)
            with start_driver(Version.V4, *words) as java:
                while of_topic(consumer) != QUEUES / 2:
                    await asyncio.sleep(0.1)
                await send_to_each(producer, queues, EACH)
                lines = await asyncio.to_thread(lambda: java.finish(SECONDS).check())
            while any(found[-1] < EACH for found in ours.values()):
                await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)

    theirs: defaultdict[int, list[int]] = defaultdict(list)
    for line in lines:
        theirs[int(line["queueId"])].append(int(line["queueOffset"]))
    assert len(theirs) == QUEUES / 2
    for queue in range(QUEUES):
        assert theirs[queue] == list(range(1, 1 + len(theirs[queue])))
        assert sorted({*ours[queue], *theirs[queue]}) == list(range(EACH + 1))
        assert ours[queue] == sorted(set(ours[queue])), "each once, in their order"


async def send_to_each(producer: Producer, queues: list[MessageQueue], count: int) -> None:
    for number in range(count):
        for queue in queues:
            await producer.send(queue.topic, b"%d" % number, queue=queue)


async def test_a_broadcasting_member_is_ours_or_java_s_in_turn(
    cluster: RoquetCluster, tmp_path: Path
) -> None:
    """Whoever starts with that client id goes on where the file says, and leaves it as the other
    one would.
    """
    topic, group, namesrv = "ToAll", "G-to-all", cluster.namesrv
    cluster.create_topic(topic, 1)

    def java(count: int) -> list[str]:
        words = (
            "consume",
            namesrv,
            topic,
            group,
            count,
            SECONDS,
            "--broadcast",
            "--instance",
            "one",
            "--linger",
            700,
        )
        options = [f"-Drocketmq.client.localOffsetStoreDir={tmp_path}"]
        return sorted(
            str(line["body"])
            for line in run_driver(Version.V4, *words, java_options=options).check()
        )

    def texts() -> dict[str, str]:
        return {
            path.parent.parent.name: path.read_text()
            for path in tmp_path.glob(f"*/{group}/offsets.json")
        }

    async def send(*bodies: bytes) -> None:
        async with Producer(namesrv, "P", timeout_ms=TIMEOUT_MS) as producer:
            for body in bodies:
                await producer.send(topic, body)

    await send(b"0", b"1", b"2")
    assert await asyncio.to_thread(java, 3) == ["0", "1", "2"]
    ((client_id, of_java),) = texts().items()
    assert client_id.endswith("@one")

    await send(b"3", b"4")
    async with Consumer(
        namesrv,
        group,
        topic,
        "earliest",
        broadcast=True,
        client_id=client_id,
        offsets_folder=tmp_path,
    ) as consumer:
        got: list[bytes] = []
        while len(got) < 2:
            async with consumer.batch() as messages:
                got += [message.body for message in messages]
        assert await consumer.get_many() == []
    assert got == [b"3", b"4"]
    assert texts() == {client_id: of_java.replace("}:3", "}:5")} != {client_id: of_java}

    await send(b"5")
    assert await asyncio.to_thread(java, 1) == ["5"]
