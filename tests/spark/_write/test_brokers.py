"""A sink's topic on two brokers, one of which dies."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pytest

from roquet.client.pull_consumer import PullConsumer
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._write.send import SinkError
from roquet.spark._write.task import Task, write
from tests.interop.processes import wait_until
from tests.interop.roquet_cluster import RoquetBroker, RoquetNameServer, create_topic
from tests.spark.written import numbered, numbers, stored, then

pytestmark = pytest.mark.process

TASK = Task("0" * 32, 0, 0)


class Died(Exception):  # noqa: N818
    """An attempt that is over before its time."""


class Pair:
    """A name server and two masters."""

    def __init__(self, names: RoquetNameServer, brokers: list[RoquetBroker]) -> None:
        self.name_server = names.address
        self.brokers = brokers

    def topic(self) -> str:
        """A new one, with two queues on each broker."""
        name = f"T-{uuid.uuid4().hex[:8]}"
        for broker in self.brokers:
            create_topic(broker, name, 2)
        self.wait_for(name, "a", "b")
        return name

    def wait_for(self, topic: str, *brokers: str) -> None:
        """Until these have the topic, and no others."""
        wait_until(
            lambda: asyncio.run(self._routed(topic)) == set(brokers), f"{topic} on {brokers}"
        )

    async def _routed(self, topic: str) -> set[str]:
        async with PullConsumer(self.name_server) as reader:
            return {queue.broker_name for queue in await reader.queues(topic)}


@pytest.fixture
def pair() -> Iterator[Pair]:
    with (
        RoquetNameServer() as names,
        RoquetBroker(names.address, name="a") as one,
        RoquetBroker(names.address, name="b") as other,
    ):
        yield Pair(names, [one, other])


def test_rows_go_to_the_other_broker_when_one_dies(pair: Pair) -> None:
    topic = pair.topic()
    batches = chain(then(numbered(200), pair.brokers[1].kill), numbered(600))
    written = write(
        batches, TASK, WriteOptions(pair.name_server, topic, batch_rows=20, timeout_ms=2000)
    )
    assert written.retries > 0
    pair.brokers[1].start()
    pair.wait_for(topic, "a", "b")
    assert Counter(numbers(stored(pair.name_server, topic))).keys() == set(range(600))


def test_a_batch_does_not_run_again_without_a_broker_that_may_have_rows_of_it(pair: Pair) -> None:
    def die() -> None:
        raise Died

    topic = pair.topic()
    options = WriteOptions(
        pair.name_server, topic, delivery=DeliveryGuarantee.EFFECTIVELY_ONCE, batch_rows=20
    )
    with pytest.raises(Died):
        write(then(numbered(400), die), TASK, options)
    pair.brokers[1].kill()
    pair.wait_for(topic, "a")
    with pytest.raises(
        SinkError, match="b may have stored rows of this batch and is not in the topic"
    ):
        write(numbered(600), TASK, options)
    pair.brokers[1].start()
    pair.wait_for(topic, "a", "b")
    assert write(numbered(600), TASK, options).found > 0
    assert Counter(numbers(stored(pair.name_server, topic))) == Counter(range(600))
