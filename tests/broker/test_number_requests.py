"""Every number of every request, at and beyond the borders of Java's ranges, on a whole broker: it
is answered with one of Apache's codes, nothing of the store is half done, and others are served."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from roquet.errors import CallTimeout, ConnectionClosed
from roquet.protocol.records.record import check, decode
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.storage.store import Store
from tests.broker.apache_requests import MAY_NOT_BE_ANSWERED, variants
from tests.broker.harness import Client
from tests.broker.served import send, serving, started
from tests.simulation.nodes import BrokerNode
from tests.simulation.simulation import Simulation

ADDRESS: Final = "10.0.0.1"


@pytest.fixture
def node() -> Iterator[tuple[BrokerNode, Client]]:
    with Simulation(1) as sim:
        node = started(
            sim,
            ADDRESS,
            brokerRole="ASYNC_MASTER",
            enablePropertyFilter="true",
            messageDelayLevel="1s 2s",
        )
        client = Client(sim, sim.host("10.0.0.9"))
        for number in range(3):
            assert send(client, b"before %d" % number).code == ResponseCode.SUCCESS
        yield node, client


def bodies_of(store: Store) -> list[bytes]:
    """Of the whole log, which its queues agree with."""
    bodies, entries = [], 0
    for at, data in store.log.walk(store.log.start):
        check(data, at, verify=True)
        record = decode(data)
        bodies.append(record.body)
        if not record.sys_flag & 4:
            entry = store.queue(record.topic, record.queue_id).entry(record.queue_offset)
            assert entry is not None
            assert entry[:2] == (at, len(data))
            entries += 1
    assert entries == sum(queue.max_offset for queue in store.queues)
    assert store.dispatch.position == store.log.end
    return bodies


@pytest.mark.parametrize("code", RequestCode, ids=lambda code: f"{code.value}-{code.name}")
def test_any_number_is_answered_and_leaves_the_store_whole(
    node: tuple[BrokerNode, Client], caplog: pytest.LogCaptureFixture, code: RequestCode
) -> None:
    broker, client = node
    store = serving(broker).store
    for request, is_no_number in variants(code):
        end = store.log.end
        caplog.clear()
        try:
            answer = client.host.call(partial(client.channels.call, client.broker, request, 3000))
        except CallTimeout:
            assert code in MAY_NOT_BE_ANSWERED, (
                f"nobody answered {request.fields} {request.body[:200]!r}"
            )
            continue
        except ConnectionClosed:
            pytest.fail(f"the connection was closed by {request.fields} {request.body[:200]!r}")
        assert answer.code in set(ResponseCode), f"{answer.code}: {answer.remark}"
        bugs = [
            record
            for record in caplog.records
            if record.levelno >= logging.ERROR or record.exc_info
        ]
        assert not bugs, [
            (record.getMessage(), record.exc_info, request.fields, request.body[:200])
            for record in bugs
        ]
        if is_no_number and answer.code == ResponseCode.SYSTEM_ERROR:
            assert store.log.end == end
        bodies_of(store)
    for number in range(3):
        assert send(client, b"after %d" % number).code == ResponseCode.SUCCESS
    bodies = dict.fromkeys(bodies_of(store))  # one that was sent back is there twice
    assert [body for body in bodies if body.startswith((b"before", b"after"))] == [
        b"%b %d" % (word, number) for word in (b"before", b"after") for number in range(3)
    ]


def test_a_prepared_message_is_answered_with_the_offset_0(node: tuple[BrokerNode, Client]) -> None:
    """It is in no queue (Apache's broker says 0 as well)."""
    broker, client = node
    fields = {"a": "P", "b": "T", "c": "TBW102", "d": 4, "e": 0, "g": 1, "h": 0, "i": ""}
    offsets = [
        client.call(310, b"body", **fields, f=sys_flag).fields["queueOffset"]
        for sys_flag in (4, 0, 12, 0, 4)
    ]
    assert offsets == ["0", "3", "0", "4", "0"]
    assert serving(broker).store.max_offset("T", 0) == 5


def test_what_was_acknowledged_beside_impossible_sends_is_there_after_a_kill(
    node: tuple[BrokerNode, Client],
) -> None:
    broker, client = node
    sent = [b"before %d" % number for number in range(3)]
    for number, (request, _) in enumerate(variants(RequestCode.SEND_MESSAGE_V2)):
        client.host.call(partial(client.channels.call, client.broker, request, 3000))
        sent.append(b"between %d" % number)
        assert send(client, sent[-1]).code == ResponseCode.SUCCESS
    broker.host.kill()
    broker.start()
    client.sim.run_until(lambda: broker.broker is not None, 10)
    found = [
        body
        for body in bodies_of(serving(broker).store)
        if body.startswith((b"before", b"between"))
    ]
    assert found == sent
    assert len(sent) > 50
