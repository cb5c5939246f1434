"""Pieces on their way to brokers that do as scripted, on virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterator
from typing import Final

import pytest

from roquet.client._net.session import Session
from roquet.client._send.topic_routes import TopicRoutes
from roquet.client.config import ClientConfig
from roquet.errors import AccessDenied, CallTimeout, Refused, ResponseError
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.spark._options.write import WriteOptions
from roquet.spark._write.encoding import Piece, encode_pieces, row_number
from roquet.spark._write.rows import ROW_ID, sink_rows, targets
from roquet.spark._write.send import PieceSender, Written
from tests.client.cluster import CLIENT, NAME_SERVER, SILENCE, FakeBroker, FakeCluster
from tests.simulation.simulation import Simulation
from tests.spark.written import numbered

BATCH: Final = RequestCode.SEND_BATCH_MESSAGE
OPTIONS: Final = WriteOptions(NAME_SERVER, "T", timeout_ms=1000, retries=4)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with Simulation("sink") as sim:
        yield FakeCluster(sim)


@pytest.fixture
def broker(cluster: FakeCluster) -> FakeBroker:
    made = cluster.broker()
    made.create("T", 2)
    return made


class Looking:
    """Sees what a broker has."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker
        self.looks = 0

    async def stored(self, queue: MessageQueue) -> Container[int]:
        self.looks += 1
        return stored_rows(self._broker, queue)

    def went_to(self, queue: MessageQueue, end: int) -> None:
        assert end <= len(self._broker.log.queues[queue.topic, queue.queue_id])


def stored_rows(broker: FakeBroker, *queues: MessageQueue) -> list[int]:
    keys = [(queue.topic, queue.queue_id) for queue in queues] or sorted(broker.log.queues)
    return [
        row_number(record.properties[ROW_ID]) for key in keys for record in broker.log.queues[key]
    ]


def send(
    cluster: FakeCluster,
    do: Callable[[PieceSender, list[Piece]], Awaitable[None]],
    journal: Looking | None = None,
    key: str | None = None,
) -> Written:
    """Let `do` send pieces of ten rows each."""
    written = Written()

    async def work() -> None:
        runtime = cluster.client.runtime()
        async with Session(
            ClientConfig(NAME_SERVER, client_id=f"{CLIENT}@sink", runtime=runtime)
        ) as session:
            routes = TopicRoutes(session)
            queues = await routes.queues("T", 1000)
            (batch,) = numbered(20, key=key)
            rows = sink_rows(batch, 0, 0)
            options = WriteOptions(NAME_SERVER, "T", batch_rows=10)
            made = list(
                encode_pieces(
                    rows, targets(rows, queues), "T", options, lambda _: ("A" * 28, 0), "run:0:0:"
                )
            )
            await do(PieceSender(session, routes, queues, OPTIONS, written, journal), made)

    cluster.run(work)
    return written


async def first(sender: PieceSender, made: list[Piece]) -> None:
    await sender.send(made[0])


async def one_after_the_other(sender: PieceSender, made: list[Piece]) -> None:
    for piece in made:
        await sender.send(piece)


def test_a_piece_whose_answer_is_lost_is_sent_again(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.script[BATCH] = [SILENCE]
    written = send(cluster, first)
    assert stored_rows(broker) == list(range(10))
    assert (written.rows, written.retries) == (10, 1)


def test_what_the_journal_finds_is_not_sent_again_nor_is_the_rest_lost(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    """A crash left four rows of a batch; the broker comes back, is busy first, and takes the
    others.
    """

    def crash(request: Command) -> None:
        if request.code == BATCH and not broker.requests[BATCH][1:]:
            for _, body, properties in list(split_batch(request.body))[:4]:
                broker.store("T", int(request.fields["e"]), body, properties.decode())

    broker.on_request = crash
    broker.script[BATCH] = [SILENCE, ResponseCode.SYSTEM_BUSY]
    journal = Looking(broker)
    written = send(cluster, first, journal)
    assert sorted(stored_rows(broker)) == list(range(10))
    assert (written.found, written.rows, journal.looks) == (4, 6, 1)


def test_a_piece_goes_to_another_broker_than_the_one_that_failed(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    other = cluster.broker("10.0.2.1:10911", "broker-b")
    other.create("T", 2)
    broker.script[BATCH] = [ResponseCode.SYSTEM_BUSY] * 99

    async def in_turn(sender: PieceSender, made: list[Piece]) -> None:
        await one_after_the_other(sender, made * 2)

    send(cluster, in_turn)
    assert broker.requests[BATCH]
    assert stored_rows(broker) == []
    assert sorted(stored_rows(other)) == sorted([*range(20), *range(20)])


def test_rows_of_a_key_stay_in_their_queue_whatever_fails(
    cluster: FakeCluster, broker: FakeBroker
) -> None:
    broker.script[BATCH] = [SILENCE, ResponseCode.SYSTEM_BUSY]
    send(cluster, one_after_the_other, key="k")
    assert {request.fields["e"] for request in broker.requests[BATCH]} == {
        broker.requests[BATCH][0].fields["e"]
    }
    assert stored_rows(broker) == list(range(20))


def test_a_refusal_is_not_tried_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.script[BATCH] = [ResponseCode.MESSAGE_ILLEGAL]
    with pytest.raises(ResponseError):
        send(cluster, first)
    assert len(broker.requests[BATCH]) == 1


def test_a_denial_of_access_is_not_tried_again(cluster: FakeCluster, broker: FakeBroker) -> None:
    """Brokers give it the code of what may pass."""

    def deny(request: Command) -> None:
        if request.code == BATCH:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "org.apache.rocketmq.acl.common.AclException: No accessKey",
            )

    broker.on_request = deny
    with pytest.raises(AccessDenied, match="denies access: No accessKey"):
        send(cluster, first)
    assert len(broker.requests[BATCH]) == 1


def test_tries_end(cluster: FakeCluster, broker: FakeBroker) -> None:
    broker.script[BATCH] = [SILENCE] * 9
    with pytest.raises(CallTimeout):
        send(cluster, first)
    assert len(broker.requests[BATCH]) == 1 + OPTIONS.retries
