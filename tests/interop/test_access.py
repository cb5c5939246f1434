"""Our client, admin tools and Spark's jobs on Apache's 4.9.7 brokers that check who asks, or take
TLS only.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from roquet.admin.backlog import backlog
from roquet.admin.cluster import AdminClient
from roquet.client.consumer import Consumer
from roquet.client.producer import Producer
from roquet.client.pull_consumer import PullConsumer
from roquet.client.received import ReceivedMessage
from roquet.client.transactions import TransactionProducer, TransactionState
from roquet.errors import AccessDenied, ConnectionClosed, RouteNotFound, TlsError
from roquet.protocol.records.message import Message
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.signing import Credentials
from roquet.spark._arrow.schema import SPARK_SCHEMA, arrow_schema
from roquet.spark._options.read import ReadOptions
from roquet.spark._options.write import DeliveryGuarantee, WriteOptions
from roquet.spark._read.batch import plan, read
from roquet.spark._read.cluster_queries import ClusterQueries, opened
from roquet.spark._write.task import Task, write
from roquet.transport.tls import Tls
from tests.interop.apache import ApacheNameServer, require_java, wait_until
from tests.interop.guarded import ADMIN, ENFORCING, KEYS, WITH_KEYS, Guarded, signing
from tests.interop.processes import SECONDS
from tests.interop.taken import take
from tests.spark.written import numbered
from tests.transport.certificates import Authority

pytestmark = pytest.mark.interop

WITH_TOKEN = Credentials("application", "application-secret", "lent for an hour")
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def signed() -> Iterator[str]:
    """The name server of a broker that takes signed requests only."""
    with signing() as address:
        yield address


async def taken(consumer: Consumer, count: int) -> list[bytes]:
    """The bodies of the next so many messages, sorted."""
    return sorted(message.body for message in await take(consumer, count))


# keys


@pytest.mark.parametrize("keys", [KEYS, WITH_TOKEN], ids=["keys", "and a token"])
async def test_all_kinds_of_sends_are_taken_and_consumed(signed: str, keys: Credentials) -> None:
    topic = f"Sent{bool(keys.security_token)}"
    async with Producer(signed, "P", timeout_ms=TIMEOUT_MS, credentials=keys) as producer:
        await producer.send(
            topic, b"single", tags="標籤", keys=("k1", "k2"), properties={"color": "röt"}
        )
        await producer.send(topic, b"large " * 10_000)
        await producer.send_batch([Message(topic, b"batch-%d" % number) for number in range(3)])
        await producer.send_one_way(topic, b"one way")
    async with Consumer(signed, f"G-{topic}", topic, "earliest", credentials=keys) as consumer:
        assert await taken(consumer, 6) == sorted(
            [b"single", b"large " * 10_000, b"batch-0", b"batch-1", b"batch-2", b"one way"]
        )
    async with PullConsumer(signed, credentials=keys) as reader:
        queues = await reader.queues(topic)
        progress = [await reader.committed(f"G-{topic}", queue) for queue in queues]
        assert progress == [await reader.max_offset(queue) for queue in queues]


async def test_what_fails_is_handed_back_and_comes_again(signed: str) -> None:
    async with Producer(signed, "P", timeout_ms=TIMEOUT_MS, credentials=KEYS) as producer:
        await producer.send("Again", b"twice")
    async with (
        Consumer(signed, "G-again", "Again", "earliest", credentials=KEYS) as consumer,
        asyncio.timeout(SECONDS),
    ):
        seen: list[int] = []
        async for message in consumer:
            seen.append(message.reconsume_times)
            if message.reconsume_times:
                break
            message.retry(delay_level=1)
        assert seen == [0, 1]


async def test_a_transaction_is_committed_at_once_and_by_a_later_answer(signed: str) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def local(message: Message, transaction_id: str) -> TransactionState:
        return TransactionState.COMMIT if message.body == b"now" else TransactionState.UNKNOWN

    async with TransactionProducer(
        signed, "T", check, timeout_ms=TIMEOUT_MS, credentials=KEYS
    ) as producer:
        now = await producer.send_in_transaction(Message("Booked", b"now"), local)
        await producer.send_in_transaction(Message("Booked", b"later"), local)
        assert now.confirmed
        async with Consumer(signed, "G-booked", "Booked", "earliest", credentials=KEYS) as consumer:
            assert await taken(consumer, 2) == [b"later", b"now"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            None,
            "No accessKey is configured; the broker takes signed requests only: give credentials",
        ),
        (
            Credentials("application", "another"),
            "Check signature failed for accessKey=application; the secret key",
        ),
        (
            Credentials("nobody-known", "another"),
            "No acl config for nobody-known; the broker knows no such access key",
        ),
    ],
    ids=["none", "wrong", "unknown"],
)
async def test_wrong_keys_are_an_error_at_the_first_try(
    signed: str, keys: Credentials | None, words: str
) -> None:
    async with Producer(signed, "P", credentials=keys, timeout_ms=TIMEOUT_MS) as producer:
        with pytest.raises(AccessDenied, match=words):
            await producer.send("ReadOnly", b"x")
    async with PullConsumer(signed, credentials=keys) as reader:
        (queue, *_) = await reader.queues("ReadOnly")
        with pytest.raises(AccessDenied, match=words):
            await reader.pull(queue, 0)
    with pytest.raises(AccessDenied, match=words):
        async with Consumer(signed, "G-wrong", "ReadOnly", credentials=keys):
            pass


async def test_a_topic_without_permission_is_refused(signed: str) -> None:
    async with Producer(signed, "P", credentials=KEYS, timeout_ms=TIMEOUT_MS) as producer:
        for topic in ("ReadOnly", "Refused"):
            with pytest.raises(AccessDenied, match=f"{topic}.*; the account lacks this permission"):
                await producer.send(topic, b"x")
    with pytest.raises(AccessDenied, match=r"Refused.*; the account lacks"):
        async with Consumer(signed, "G-refused", "Refused", credentials=KEYS):
            pass
    async with Consumer(
        signed, "G-read-only", "ReadOnly", "earliest", credentials=KEYS
    ) as consumer:
        assert await taken(consumer, 1) == [b"made"]


async def test_admin_tools_ask_with_keys(signed: str) -> None:
    async with AdminClient(signed, credentials=ADMIN) as cluster:
        (broker,) = (await cluster.brokers()).values()
        assert not (await backlog(cluster)).failures
        await cluster.ask(broker.addresses[0], RequestCode.GET_BROKER_CONFIG)
        await cluster.ask(broker.addresses[0], RequestCode.UPDATE_BROKER_CONFIG)
    async with AdminClient(signed, credentials=KEYS) as cluster:
        with pytest.raises(AccessDenied, match=r"Need admin permission .*admin: true"):
            await cluster.ask(broker.addresses[0], RequestCode.UPDATE_BROKER_CONFIG)
    async with AdminClient(signed) as cluster:
        assert "No accessKey" in "".join((await backlog(cluster, ["G"])).failures)


# Spark's jobs, without Spark


def rows_of(options: ReadOptions) -> list[bytes]:
    batches = [
        batch for part in plan(options) for batch in read(part, options, arrow_schema(SPARK_SCHEMA))
    ]
    return sorted(pa.Table.from_batches(batches)["body"].to_pylist()) if batches else []


def test_sink_and_source_have_keys(signed: str) -> None:
    """Effectively once, as the sink then asks for messages by their keys, and reads them."""
    named = {"nameServer": signed, **WITH_KEYS}
    options = WriteOptions.of(
        named | {"topic": "Rows", "delivery": "effectively-once", "sendTimeoutMs": "20000"}
    )
    assert options.delivery is DeliveryGuarantee.EFFECTIVELY_ONCE
    task = Task("a" * 32, 0, 0)
    assert write(numbered(300), task, options).rows == 300
    wait_until(lambda: _knows(signed, "Rows"), "the route")
    again = write(numbered(300), task, options)
    assert (again.rows, again.found) == (0, 300)
    assert len(rows_of(ReadOptions.of_batch(named | {"subscribe": "Rows"}))) == 300


def _knows(name_server: str, topic: str) -> bool:
    async def known() -> bool:
        async with PullConsumer(name_server) as reader:
            return topic in await reader.topics()

    return asyncio.run(known())


@pytest.mark.parametrize("keys", [{}, WITH_KEYS | {"secretKey": "another"}], ids=["none", "wrong"])
def test_a_job_with_wrong_keys_ends_at_once(signed: str, keys: dict[str, str]) -> None:
    """Not after the patience that it has with brokers that are away."""
    named = {"nameServer": signed, **keys}
    began = time.monotonic()
    with pytest.raises(AccessDenied, match=r"denies access: .*; "):
        write(numbered(10), Task("b" * 32, 0, 0), WriteOptions.of(named | {"topic": "ReadOnly"}))
    with pytest.raises(AccessDenied, match=r"denies access: .*; "):
        rows_of(ReadOptions.of_batch(named | {"subscribe": "ReadOnly"}))
    assert time.monotonic() - began < 10


# TLS


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with Guarded(tmp_path_factory.mktemp("guarded")) as place:
        yield place


async def test_messages_go_over_tls(guarded: Guarded) -> None:
    async with Producer(
        guarded.name_server, "P", timeout_ms=TIMEOUT_MS, tls=guarded.tls
    ) as producer:
        await producer.send("Hidden", b"large " * 100_000)
        await producer.send_one_way("Hidden", b"one way")
    async with Consumer(
        guarded.name_server, "G", "Hidden", "earliest", tls=guarded.tls
    ) as consumer:
        assert await taken(consumer, 2) == [b"large " * 100_000, b"one way"]


def test_sink_and_source_go_over_tls(guarded: Guarded) -> None:
    named = {"nameServer": guarded.name_server, **guarded.options}
    options = WriteOptions.of(named | {"topic": "HiddenRows", "sendTimeoutMs": "20000"})
    assert write(numbered(100), Task("c" * 32, 0, 0), options).rows == 100
    read_options = ReadOptions.of_batch(named | {"subscribe": "HiddenRows"})
    wait_until(lambda: asyncio.run(_is_routed(read_options)), "the route")
    assert len(rows_of(read_options)) == 100


async def _is_routed(options: ReadOptions) -> bool:
    async with await opened(options) as consumer:
        with contextlib.suppress(RouteNotFound):
            return bool(await ClusterQueries(consumer, options).queues())
    return False


async def _topics(name_server: str, tls: Tls | None) -> list[str]:
    async with PullConsumer(name_server, tls=tls) as reader:
        return await reader.topics()


async def test_a_plain_client_learns_that_the_server_takes_tls_only(guarded: Guarded) -> None:
    with pytest.raises(ConnectionClosed, match="before it answered anything: it may take TLS only"):
        await _topics(guarded.name_server, None)


async def test_an_unknown_authority_a_wrong_name_and_a_missing_certificate_are_told_apart(
    guarded: Guarded, tmp_path: Path
) -> None:
    with pytest.raises(TlsError, match="is not trusted"):
        await _topics(guarded.name_server, Tls(Authority(tmp_path).file))
    by_name = guarded.name_server.replace("127.0.0.1", "localhost")
    with pytest.raises(TlsError, match="is for another host"):
        await _topics(by_name, guarded.tls)
    with pytest.raises(
        ConnectionClosed, match=r"right after the TLS handshake.*client certificate"
    ):
        await _topics(guarded.name_server, Tls(guarded.authority.file))


async def test_apache_s_test_mode_is_reached_by_who_verifies_nothing() -> None:
    require_java()
    with ApacheNameServer(java_options=[ENFORCING]) as names:
        assert isinstance(await _topics(names.address, Tls(verify="none")), list)
        with pytest.raises(TlsError, match="is not trusted"):
            await _topics(names.address, Tls())


async def test_a_server_without_tls_ends_a_handshake(tmp_path: Path) -> None:
    require_java()
    with ApacheNameServer(java_options=["-Dtls.server.mode=disabled"]) as names:
        with pytest.raises(TlsError, match="it may not accept TLS"):
            await _topics(names.address, Tls(verify="none"))
        assert isinstance(await _topics(names.address, None), list)
