"""Producers and consumers with keys, against brokers that look at every signature."""

from __future__ import annotations

import pytest

from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import AccessDenied, Refused
from roquet.protocol.records.message import Message
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.signing import ACCESS_KEY, SIGNATURE, Credentials
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster

KEYS = Credentials("account", "its-secret")
CLASS = "org.apache.rocketmq.acl.common.AclException: "
SEND = RequestCode.SEND_MESSAGE_V2


def check(request: Command) -> None:
    """As Apache's broker does.

    :raises Refused: the signature is missing, or is not that of the account.
    """
    fields = dict(request.fields)
    signature = fields.pop(SIGNATURE, None)
    if ACCESS_KEY not in fields:
        raise Refused(1, f"{CLASS}No accessKey is configured, org.apache.rocketmq.acl")
    if signature != KEYS.signed(Command(request.code, fields, request.body)).fields[SIGNATURE]:
        raise Refused(
            1, f"{CLASS}Check signature failed for accessKey=account, org.apache.rocketmq.acl"
        )


@pytest.fixture
def checking(broker: FakeBroker) -> FakeBroker:
    broker.create("T", 4)
    broker.on_request = check
    return broker


def producer(cluster: FakeCluster, keys: Credentials | None) -> Producer:
    runtime = cluster.client.runtime()
    return Producer(
        NAME_SERVER, "P", credentials=keys, client_id=f"{CLIENT}@producer", runtime=runtime
    )


def consumer(cluster: FakeCluster, keys: Credentials | None) -> Consumer:
    runtime = cluster.client.runtime()
    return Consumer(
        NAME_SERVER,
        "G",
        "T",
        "earliest",
        credentials=keys,
        client_id=f"{CLIENT}@consumer",
        runtime=runtime,
    )


def test_whatever_a_client_asks_is_signed(cluster: FakeCluster, checking: FakeBroker) -> None:
    async def work() -> list[bytes]:
        async with producer(cluster, KEYS) as p:
            await p.send("T", b"1", keys="k")
            await p.send_batch([Message("T", b"2"), Message("T", b"3")])
            await p.send_one_way("T", b"4")
        async with consumer(cluster, KEYS) as c:
            messages = [await anext(aiter(c)) for _ in range(4)]
            for message in messages:
                message.ack()
        return sorted(message.body for message in messages)

    assert cluster.run(work) == [b"1", b"2", b"3", b"4"]
    asked = {code for code, requests in checking.requests.items() if requests}
    assert asked >= {
        SEND,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.PULL_MESSAGE,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UNREGISTER_CLIENT,
    }
    assert all(
        SIGNATURE in request.fields
        for requests in checking.requests.values()
        for request in requests
    )


def test_each_of_many_pulls_at_once_is_signed(cluster: FakeCluster, checking: FakeBroker) -> None:
    for number in range(3):
        checking.store("T", 0, b"%d" % number)

    async def pull() -> list[bytes]:
        reader = PullConsumer(NAME_SERVER, credentials=KEYS, runtime=cluster.client.runtime())
        async with reader:
            (queue, *_) = await reader.queues("T")
            results = await reader.pull_all(queue, range(3), max_messages=1)
        return [message.body for result in results for message in result.messages]

    assert cluster.run(pull) == [b"0", b"1", b"2"]
    assert (
        len({request.fields[SIGNATURE] for request in checking.requests[RequestCode.PULL_MESSAGE]})
        == 3
    )


def test_a_try_after_a_failure_is_signed_anew(cluster: FakeCluster, checking: FakeBroker) -> None:
    checking.script[SEND] = [2, 2]

    async def send() -> None:
        async with producer(cluster, KEYS) as p:
            await p.send("T", b"x")

    cluster.run(send)
    signatures = {request.fields[SIGNATURE] for request in checking.requests[SEND]}
    assert len(signatures) == len(checking.requests[SEND]) == 3


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (None, "No accessKey is configured; .*give credentials"),
        (Credentials("account", "x"), "Check signature failed"),
    ],
)
def test_who_is_denied_access_is_told_at_once(
    cluster: FakeCluster, checking: FakeBroker, keys: Credentials | None, words: str
) -> None:
    async def send() -> None:
        async with producer(cluster, keys) as p:
            with pytest.raises(AccessDenied, match=words):
                await p.send("T", b"x")

    async def consume() -> None:
        with pytest.raises(AccessDenied, match=words):
            async with consumer(cluster, keys):
                pass

    cluster.run(send)
    cluster.run(consume)
    assert len(checking.requests[SEND]) == 1


def test_nothing_is_signed_without_keys(cluster: FakeCluster, broker: FakeBroker) -> None:
    async def send() -> None:
        async with producer(cluster, None) as p:
            await p.send("T", b"x")

    cluster.run(send)
    (request,) = broker.requests[SEND]
    assert {ACCESS_KEY, SIGNATURE}.isdisjoint(request.fields)
