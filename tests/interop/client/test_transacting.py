"""Transactions: delivered if and only if they are committed, whoever is asked."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest

from roquet import Message, MessageError, ReceivedMessage, TransactionProducer, TransactionState
from tests.interop.client.target import TIMEOUT_MS, Target, bodies, numbers
from tests.interop.taken import take

pytestmark = pytest.mark.interop

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT,
    TransactionState.ROLLBACK,
    TransactionState.UNKNOWN,
)


def local(state: TransactionState) -> Callable[[Message, str], Awaitable[TransactionState]]:
    async def decide(message: Message, transaction_id: str) -> TransactionState:
        return state

    return decide


def check(state: TransactionState) -> Callable[[ReceivedMessage], Awaitable[TransactionState]]:
    async def decide(message: ReceivedMessage) -> TransactionState:
        return state

    return decide


OPEN = check(UNKNOWN)


def transacting(
    target: Target,
    group: str,
    answer: Callable[[ReceivedMessage], Awaitable[TransactionState]] = OPEN,
    topics: tuple[str, ...] = (),
) -> TransactionProducer:
    return TransactionProducer(target.namesrv, group, answer, topics=topics, timeout_ms=TIMEOUT_MS)


async def test_a_committed_message_is_delivered(target: Target, topic: str, group: str) -> None:
    message = Message(topic, b"seat 12", "A", ("k1", "k2"), {"color": "red"}, 7)
    async with (
        transacting(target, f"P-{topic}") as producer,
        target.consumer(group, topic) as consumer,
    ):
        result = await producer.send_in_transaction(message, local(COMMIT))
        (found,) = await take(consumer, 1)
    assert (result.state, result.confirmed) == (COMMIT, True)
    assert (found.body, found.tags, found.keys, found.flag) == (b"seat 12", "A", ("k1", "k2"), 7)
    assert (found.topic, found.properties["color"]) == (topic, "red")
    assert found.message_id == result.transaction_id == result.send_result.message_id


async def test_a_message_that_was_rolled_back_is_never_delivered(
    target: Target, topic: str, group: str
) -> None:
    async with (
        transacting(target, f"P-{topic}") as producer,
        target.consumer(group, topic) as consumer,
    ):
        rolled = await producer.send_in_transaction(Message(topic, b"no"), local(ROLLBACK))
        await producer.send_in_transaction(Message(topic, b"yes"), local(COMMIT))
        (found,) = await take(consumer, 1)
    assert (rolled.state, rolled.confirmed, found.body) == (ROLLBACK, True, b"yes")


async def test_nothing_is_delivered_before_the_commit(
    target: Target, topic: str, group: str
) -> None:
    async with (
        transacting(target, f"P-{topic}") as producer,
        target.consumer(group, topic) as consumer,
    ):

        async def look(message: Message, transaction_id: str) -> TransactionState:
            await producer.send(topic, b"meanwhile")
            assert bodies(await take(consumer, 1)) == [b"meanwhile"]
            return COMMIT

        await producer.send_in_transaction(Message(topic, b"half"), look)
        assert bodies(await take(consumer, 1)) == [b"half"]


async def test_many_transactions_at_once_end_as_they_should(
    target: Target, wide: str, group: str
) -> None:
    async with transacting(target, f"P-{wide}") as producer:
        await asyncio.gather(
            *(
                producer.send_in_transaction(
                    Message(wide, b"%d" % number), local(ROLLBACK if number % 2 else COMMIT)
                )
                for number in range(100)
            )
        )
    assert sorted(map(int, bodies(await target.stored(wide, 50)))) == list(range(0, 100, 2))


async def test_an_open_transaction_is_asked_for_and_committed(
    target: Target, topic: str, group: str
) -> None:
    asked: list[ReceivedMessage] = []

    async def answer(message: ReceivedMessage) -> TransactionState:
        asked.append(message)
        return COMMIT if len(asked) > 1 else UNKNOWN

    async with (
        transacting(target, f"P-{topic}", answer) as producer,
        target.consumer(group, topic) as consumer,
    ):
        sent = await producer.send_in_transaction(
            Message(topic, b"open", "A", "k", {"color": "red"}), local(UNKNOWN)
        )
        (found,) = await take(consumer, 1)
    assert (sent.state, sent.confirmed) == (UNKNOWN, False)
    assert (found.body, found.message_id) == (b"open", sent.transaction_id)
    for half in asked:
        assert (half.body, half.tags, half.keys) == (b"open", "A", ("k",))
        assert (half.message_id, half.properties["color"]) == (sent.transaction_id, "red")


async def test_an_open_transaction_is_asked_for_and_rolled_back(
    target: Target, topic: str, group: str
) -> None:
    asked = asyncio.Event()

    async def answer(message: ReceivedMessage) -> TransactionState:
        asked.set()
        return ROLLBACK

    async with (
        transacting(target, f"P-{topic}", answer) as producer,
        target.consumer(group, topic) as consumer,
        asyncio.timeout(60),
    ):
        await producer.send_in_transaction(Message(topic, b"no"), local(UNKNOWN))
        await asked.wait()
        await producer.send_in_transaction(Message(topic, b"yes"), local(COMMIT))
        assert bodies(await take(consumer, 1)) == [b"yes"]


async def test_a_check_that_fails_is_asked_again(target: Target, topic: str, group: str) -> None:
    asked: list[str] = []

    async def answer(message: ReceivedMessage) -> TransactionState:
        asked.append(message.message_id)
        if len(asked) == 1:
            raise ValueError("no database")
        return COMMIT

    async with (
        transacting(target, f"P-{topic}", answer) as producer,
        target.consumer(group, topic) as consumer,
    ):
        sent = await producer.send_in_transaction(Message(topic, b"open"), local(UNKNOWN))
        assert bodies(await take(consumer, 1)) == [b"open"]
    assert asked[:2] == [sent.transaction_id] * 2


async def test_an_error_of_the_local_transaction_is_raised_and_the_check_decides(
    target: Target, topic: str, group: str
) -> None:
    async def fail(message: Message, transaction_id: str) -> TransactionState:
        raise ValueError("no seat")

    async with (
        transacting(target, f"P-{topic}", check(COMMIT)) as producer,
        target.consumer(group, topic) as consumer,
    ):
        with pytest.raises(ValueError, match="no seat"):
            await producer.send_in_transaction(Message(topic, b"open"), fail)
        assert bodies(await take(consumer, 1)) == [b"open"]


async def test_another_producer_is_asked_when_the_first_has_left(
    target: Target, topic: str, group: str
) -> None:
    async with transacting(target, f"P-{topic}") as producer:
        await producer.send_in_transaction(Message(topic, b"open"), local(UNKNOWN))
    async with (
        transacting(target, f"P-{topic}", check(COMMIT), (topic,)),
        target.consumer(group, topic) as consumer,
    ):
        assert bodies(await take(consumer, 1)) == [b"open"]


CRASH = """
import asyncio, os, signal, sys
from roquet import Message, TransactionProducer

async def never(message):
    raise AssertionError

async def crash(message, transaction_id):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(name_server, group, topic):
    async with TransactionProducer(name_server, group, never, timeout_ms=30_000) as producer:
        await producer.send_in_transaction(Message(topic, b"open"), crash)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_another_producer_is_asked_when_the_first_was_killed(
    target: Target, topic: str, group: str
) -> None:
    words = ("-c", CRASH, target.namesrv, f"P-{topic}", topic)
    program = await asyncio.create_subprocess_exec(sys.executable, *words)
    assert await program.wait() == -signal.SIGKILL
    async with (
        transacting(target, f"P-{topic}", check(COMMIT), (topic,)),
        target.consumer(group, topic) as consumer,
    ):
        assert bodies(await take(consumer, 1)) == [b"open"]


async def test_committed_messages_keep_their_queue(target: Target, wide: str, group: str) -> None:
    async with transacting(target, f"P-{wide}") as producer:
        results = [
            await producer.send_in_transaction(Message(wide, body), local(COMMIT))
            for body in numbers(4)
        ]
    found = {message.body: message for message in await target.stored(wide, 4)}
    for number, result in enumerate(results):
        assert found[b"%d" % number].queue == result.send_result.queue


async def test_a_transaction_has_no_delay(target: Target, topic: str) -> None:
    async with transacting(target, f"P-{topic}") as producer:
        with pytest.raises(MessageError, match="delay"):
            await producer.send_in_transaction(
                Message(topic, b"later", delay_level=1), local(COMMIT)
            )
        await producer.send(topic, b"next")
    assert bodies(await target.stored(topic, 1)) == [b"next"]
