"""What a task's journal finds of earlier attempts, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from roquet.spark._write.broker import MasterRequests
from roquet.spark._write.encoding import encode_pieces
from roquet.spark._write.journal import TopicJournal
from roquet.spark._write.rows import SinkRows, targets
from roquet.spark._write.send import PieceSender, SinkError, Written
from tests.client.served import Served
from tests.spark._write.given_rows import rows
from tests.spark._write.journal_world import OPTIONS, asking, served

FRONT = "run:0:3:"


@pytest.fixture
def cluster() -> Iterator[Served]:
    with served() as running:
        yield running


def numbered(count: int, first: int = 0, text: str = "row") -> SinkRows:
    return rows(*({"body": f"{text} {first + at}".encode()} for at in range(count)), first=first)


def attempt(cluster: Served, *parts: SinkRows, front: str = FRONT) -> list[int]:
    """The numbers of the rows that an attempt sends, since no earlier one stored them."""

    async def work(masters: MasterRequests) -> list[int]:
        queues = await masters.routes.queues("TBW102", 1000)
        journal = TopicJournal(masters, front, queues)
        await journal.open()
        sender = PieceSender(masters.session, masters.routes, queues, OPTIONS, Written(), journal)
        sent: list[int] = []
        for part in parts:
            left = journal.left(part)
            sent += left.numbers.tolist()
            where = targets(left, queues)
            keys = masters.unique_keys.run
            for piece in encode_pieces(left, where, queues[0].topic, OPTIONS, keys, front):
                await sender.send(piece)
        journal.close()
        return sent

    return asking(cluster, work)


def test_an_attempt_sends_what_those_before_it_did_not_store(cluster: Served) -> None:
    assert attempt(cluster, numbered(7)) == list(range(7))
    assert attempt(cluster, numbered(7), numbered(20, first=7)) == list(range(7, 27))
    assert attempt(cluster, numbered(27)) == []
    assert len(cluster.records("TBW102")) == 27


@pytest.mark.parametrize("front", ["run:0:31:", "run:1:3:", "nur:0:3:"])
def test_rows_of_other_tasks_are_not_found(cluster: Served, front: str) -> None:
    assert attempt(cluster, numbered(5), front=front) == list(range(5))
    assert attempt(cluster, numbered(9)) == list(range(9))
    assert attempt(cluster, numbered(7), front=front) == [5, 6]


def test_a_row_with_another_body_is_refused(cluster: Served) -> None:
    attempt(cluster, numbered(5))

    with pytest.raises(
        SinkError, match="row 0 of partition 3: an earlier attempt stored another body for it"
    ):
        attempt(cluster, numbered(5, text="other"))


def test_rows_that_are_not_given_again_are_missing(cluster: Served) -> None:
    attempt(cluster, numbered(5))

    with pytest.raises(SinkError, match="2 rows that an earlier attempt stored are missing"):
        attempt(cluster, numbered(3))


def test_rows_stored_in_a_queue_since_its_last_answer_are_found(cluster: Served) -> None:
    async def work(masters: MasterRequests) -> None:
        queues = await masters.routes.queues("TBW102", 1000)
        journal = TopicJournal(masters, FRONT, queues)
        await journal.open()
        sender = PieceSender(masters.session, masters.routes, queues, OPTIONS, Written())
        first, second = (numbered(2, first=at) for at in (0, 2))
        queue = queues[0]
        for part in (first, second):
            (piece,) = encode_pieces(
                part,
                targets(part, queues) * 0,
                queue.topic,
                OPTIONS,
                masters.unique_keys.run,
                FRONT,
            )
            await sender.send(piece)
            stored = await journal.stored(queue)
            assert [row for row in range(9) if row in stored] == part.numbers.tolist()
            journal.went_to(queue, await masters.end_of(queue))
        stored = await journal.stored(queue)
        assert [row for row in range(9) if row in stored] == []

    asking(cluster, work)
