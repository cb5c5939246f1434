"""Requests of a write's journal: what they say of a queue, and what a broker lacks for them."""

from __future__ import annotations

import pytest

from roquet.protocol.records.message import BENCHMARK_TOPIC, MessageQueue
from roquet.spark._write.broker import INTENT_TOPIC, MasterRequests
from roquet.spark._write.send import SinkError
from tests.spark._write.journal_world import asking, served


async def queue_of(masters: MasterRequests) -> MessageQueue:
    """A queue beside which intents are written."""
    return (await masters.routes.queues(BENCHMARK_TOPIC, 1000))[0]


def test_intents_are_stored_one_after_the_other_and_can_be_pulled_at_once() -> None:
    async def work(masters: MasterRequests) -> None:
        beside = await queue_of(masters)
        intents = MessageQueue(INTENT_TOPIC, beside.broker_name, 0)
        for number in range(3):
            assert await masters.write_intent(beside, b"%d" % number) == number
            assert await masters.end_of(intents) == number + 1
        pulled = await masters.pull(intents, 1)
        assert [message.body for message in pulled.messages] == [b"1", b"2"]
        assert pulled.next_offset == 3

    with served() as cluster:
        asking(cluster, work)


def test_intents_are_found_by_their_key_and_no_others() -> None:
    """The index has hashes of keys, and these two are equal."""

    async def work(masters: MasterRequests) -> None:
        beside = await queue_of(masters)
        mine = [await masters.write_intent(beside, b"mine", "run:Aa") for _ in range(2)]
        await masters.write_intent(beside, b"other", "run:BB")

        found = await masters.find_intents(beside, "run:Aa", mine[-1])

        assert sorted(record.queue_offset for record in found) == mine
        assert {record.body for record in found} == {b"mine"}

    with served() as cluster:
        asking(cluster, work)


def test_a_broker_that_creates_no_topics_needs_one_for_intents() -> None:
    async def work(masters: MasterRequests) -> None:
        beside = await queue_of(masters)
        with pytest.raises(SinkError, match=f"has no topic {INTENT_TOPIC} and does not create"):
            await masters.write_intent(beside, b"{}")

    with served(autoCreateTopicEnable=False) as cluster:
        asking(cluster, work)


def test_a_broker_without_an_index_is_told() -> None:
    async def work(masters: MasterRequests) -> None:
        beside = await queue_of(masters)
        offset = await masters.write_intent(beside, b"{}", "key")
        with pytest.raises(SinkError, match=r"does not find messages by key, .*messageIndexEnable"):
            await masters.find_intents(beside, "key", offset)

    with served(messageIndexEnable=False) as cluster:
        asking(cluster, work)
