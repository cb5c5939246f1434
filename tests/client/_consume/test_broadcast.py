"""A consumer that gets every message for itself and keeps its offsets in a file.

See docs/protocol/consuming.md#broadcasting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roquet.client.consumer import Consumer
from roquet.errors import ConfigError, StoreError
from roquet.protocol.bodies.tables import BROADCASTING, Heartbeat, parse
from roquet.protocol.headers.pull import COMMIT_OFFSET
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import OTHER_CLIENT, bodies, consumer, fill, reset, within

AS_APACHE_WRITES_IT = """{
	"offsetTable":{{
			"brokerName":"broker-a",
			"queueId":0,
			"topic":"T"
		}:2,{
			"brokerName":"broker-a",
			"queueId":1,
			"topic":"T"
		}:1
	}
}"""

Member = Callable[..., Consumer]


@pytest.fixture
def member(cluster: FakeCluster, tmp_path: Path) -> Member:
    def member(**options: Any) -> Consumer:
        return consumer(cluster, broadcast=True, offsets_folder=tmp_path, **options)

    return member


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The offset file of the first client."""
    return tmp_path / f"{CLIENT}@test" / "G" / "offsets.json"


def text(file: Path) -> str:
    return file.read_text()


def put_in_the_way(folder: Path) -> None:
    folder.write_text("no folder")


def take_away(file: Path) -> None:
    file.unlink()


def test_every_member_gets_every_message(
    cluster: FakeCluster, broker: FakeBroker, member: Member
) -> None:
    async def consume(c: Consumer) -> list[bytes]:
        async with c:
            return await bodies(c, 20)

    fill(broker, 20, queues=4)
    other = cluster.sim.host(OTHER_CLIENT)
    second = other.start(lambda: consume(member(host=other)))
    first = cluster.run(lambda: consume(member()))
    cluster.sim.run_until(second.done, 30)
    everything = sorted(b"%d" % number for number in range(20))
    assert sorted(first) == sorted(second.result()) == everything


def test_a_member_goes_on_where_it_was_and_the_broker_knows_nothing_of_it(
    cluster: FakeCluster, broker: FakeBroker, member: Member
) -> None:
    async def consume(count: int) -> list[bytes]:
        async with member(start="latest") as c:
            if not broker.log.queues["T", 0]:
                fill(broker, 5)
            found = await bodies(c, count)
            await asyncio.sleep(6)
            return found

    broker.create("T", 1)
    assert cluster.run(lambda: consume(5)) == [b"0", b"1", b"2", b"3", b"4"]
    fill(broker, 2)
    assert cluster.run(lambda: consume(2)) == [b"0", b"1"]
    assert broker.offsets == {}
    assert not broker.requests[RequestCode.UPDATE_CONSUMER_OFFSET]
    pulls = [
        int(request.fields["sysFlag"]) for request in broker.requests[RequestCode.PULL_MESSAGE]
    ]
    assert not any(flags & COMMIT_OFFSET for flags in pulls)


def test_the_file_is_as_apache_s_client_writes_it(
    cluster: FakeCluster, broker: FakeBroker, member: Member, file: Path
) -> None:
    async def consume() -> None:
        async with member() as c:
            await bodies(c, 3)

    fill(broker, 3, queues=2)
    cluster.run(consume)
    assert text(file) == AS_APACHE_WRITES_IT


def test_offsets_are_saved_while_the_member_runs_and_the_former_file_is_kept_beside_it(
    cluster: FakeCluster, broker: FakeBroker, member: Member, file: Path
) -> None:
    async def consume() -> None:
        async with member() as c:
            await bodies(c, 3)
            await asyncio.sleep(6)
            assert text(file) == AS_APACHE_WRITES_IT
            await bodies(c, 1)
            await asyncio.sleep(6)
            assert text(file.with_name("offsets.json.bak")) == AS_APACHE_WRITES_IT
            assert text(file) == AS_APACHE_WRITES_IT.replace("}:1", "}:2")

    fill(broker, 4, queues=2)
    cluster.run(consume)
    assert sorted(path.name for path in file.parent.iterdir()) == [
        "offsets.json",
        "offsets.json.bak",
    ]


@pytest.mark.parametrize("damaged", ["", "{", "[]", '{"offsetTable":{"T":1}}', None])
def test_the_backup_serves_where_the_file_is_damaged_or_gone(
    cluster: FakeCluster, broker: FakeBroker, member: Member, file: Path, damaged: str | None
) -> None:
    async def consume() -> list[bytes]:
        async with member() as c:
            assert text(file) == AS_APACHE_WRITES_IT
            return await bodies(c, 1)

    fill(broker, 4, queues=2)
    file.parent.mkdir(parents=True)
    file.with_name("offsets.json.bak").write_text(AS_APACHE_WRITES_IT)
    if damaged is not None:
        file.write_text(damaged)
    assert cluster.run(consume) == [b"3"]


def test_a_member_whose_file_cannot_be_read_does_not_start(
    cluster: FakeCluster, broker: FakeBroker, member: Member, file: Path
) -> None:
    async def consume() -> None:
        async with member():
            pass

    file.parent.mkdir(parents=True)
    file.write_text("{")
    with pytest.raises(StoreError, match=r"offsets\.json cannot be read.*delete it to start anew"):
        cluster.run(consume)
    assert text(file) == "{"


def test_a_file_that_cannot_be_written_now_is_written_later(
    cluster: FakeCluster,
    broker: FakeBroker,
    member: Member,
    file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume() -> None:
        async with member() as c:
            put_in_the_way(file.parent.parent)
            await bodies(c, 3)
            await asyncio.sleep(6)
            take_away(file.parent.parent)
            await asyncio.sleep(6)
            assert text(file) == AS_APACHE_WRITES_IT

    fill(broker, 3, queues=2)
    cluster.run(consume)
    assert "offsets.json cannot be written, the next save tries again" in caplog.text


def test_a_message_that_failed_is_logged_and_does_not_come_again(
    cluster: FakeCluster,
    broker: FakeBroker,
    member: Member,
    file: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def consume() -> None:
        async with member() as c:
            (message,) = await c.get_many()
            message.retry()
            assert await within(c, 60) == []

    fill(broker, 1)
    cluster.run(consume)
    assert "message failed, it is not delivered again (broadcast)" in caplog.text
    assert "}:1" in text(file)
    assert not broker.requests[RequestCode.CONSUMER_SEND_MSG_BACK]
    assert not broker.requests[RequestCode.SEND_MESSAGE_V2]


def test_the_brokers_hear_that_the_group_broadcasts_and_wants_no_retries(
    cluster: FakeCluster, broker: FakeBroker, member: Member
) -> None:
    async def consume() -> None:
        async with member():
            pass

    fill(broker, 1)
    cluster.run(consume)
    (data,) = parse(broker.requests[RequestCode.HEART_BEAT][0].body, Heartbeat.from_json).consumers
    assert data.message_model == BROADCASTING
    assert [subscription.topic for subscription in data.subscriptions] == ["T"]


def test_what_an_administrator_sets_back_is_saved(
    cluster: FakeCluster, broker: FakeBroker, member: Member, file: Path
) -> None:
    async def consume() -> None:
        async with member() as c:
            await bodies(c, 3)
            reset(broker, {MessageQueue("T", "broker-a", 0): 1})
            assert [message.body for message in await within(c, 5)] == [b"2"]

    fill(broker, 3, queues=2)
    cluster.run(consume)
    assert text(file) == AS_APACHE_WRITES_IT.replace("}:2", "}:1")


def test_in_order_a_message_that_failed_comes_again_as_often_as_said_and_needs_no_locks(
    cluster: FakeCluster, broker: FakeBroker, member: Member
) -> None:
    async def consume() -> list[bytes]:
        found = []
        async with member(ordered=True, max_reconsume_times=2) as c:
            async for message in c:
                found.append(message.body)
                if message.body == b"1":
                    return found
                message.retry()
        return found

    fill(broker, 2)
    assert cluster.run(consume) == [b"0", b"0", b"0", b"1"]
    assert not broker.requests[RequestCode.LOCK_BATCH_MQ]
    assert not broker.requests[RequestCode.SEND_MESSAGE_V2]


@pytest.mark.parametrize("client_id", [None, "", "a/b", ".."])
def test_a_member_needs_a_name_for_its_folder(tmp_path: Path, client_id: str | None) -> None:
    with pytest.raises(ConfigError, match="client_id"):
        Consumer(
            NAME_SERVER, "G", "T", broadcast=True, client_id=client_id, offsets_folder=tmp_path
        )


def test_a_folder_is_for_members_that_broadcast(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="broadcast"):
        Consumer(NAME_SERVER, "G", "T", client_id=CLIENT, offsets_folder=tmp_path)
