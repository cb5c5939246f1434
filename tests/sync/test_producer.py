"""The blocking producer: what it is given is read in the thread of the caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from roquet import Message, MessageError, sync


def test_the_messages_of_a_batch_are_made_in_the_thread_of_the_caller(
    mq: sync.Client, topic: str
) -> None:
    makers: list[threading.Thread] = []

    def made() -> Iterator[Message]:
        for number in range(2):
            makers.append(threading.current_thread())
            yield Message(topic, b"%d" % number)

    with mq.producer() as producer:
        results = producer.send_batch(made())
    assert len({result.message_id for result in results}) == 2
    assert makers == [threading.current_thread()] * 2


def test_what_is_no_batch_is_refused_as_by_the_asyncio_client(mq: sync.Client) -> None:
    with pytest.raises(MessageError, match="messages is 7"):
        mq.send_batch(7)  # type: ignore[arg-type]
    with mq.producer() as producer, pytest.raises(MessageError, match="messages is 7"):
        producer.send_batch(7)  # type: ignore[arg-type]


def test_any_thread_may_ask_for_metrics(mq: sync.Client, topic: str) -> None:
    found: list[int] = []

    def ask() -> None:
        found.append(mq.metrics().producers["of-threads"].sent)

    with mq.producer("of-threads") as producer:
        producer.send(topic, b"1")
        assert producer.metrics().producers["of-threads"].sent == 1
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
    assert found == [1]
    assert mq.metrics().producers["of-threads"].sent == 1
