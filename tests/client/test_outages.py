"""What the log says while a broker or the name server is away: one line, and one when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from roquet.client.producer import Producer
from roquet.cluster import connect
from roquet.errors import RoquetError
from tests.client.cluster import CLIENT, NAME_SERVER, FakeBroker, FakeCluster

OUTAGE_S = 600
QUEUES = 16


def lines_of_outage(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    begin: Callable[[], None],
    end: Callable[[], None],
    *,
    is_ordered: bool,
) -> list[tuple[str, str]]:
    """The lines of producer and consumer during and after an outage of 10 minutes."""

    async def sends(p: Producer) -> None:
        while True:
            with suppress(RoquetError):
                await p.send("T", b"x", timeout_ms=2000)
            await asyncio.sleep(0.5)

    async def work() -> None:
        async with (
            connect(
                NAME_SERVER, client_id=f"{CLIENT}@test", runtime=cluster.client.runtime()
            ) as mq,
            mq.producer("P") as p,
            mq.consumer("G", "T", start="earliest", ordered=is_ordered) as c,
        ):
            sending = asyncio.create_task(sends(p))
            handling = asyncio.create_task(c.run(handle, concurrency=4))
            await asyncio.sleep(60)
            assert len(c.assigned()) == QUEUES + 1  # and that of the retry topic
            caplog.clear()
            begin()
            await asyncio.sleep(OUTAGE_S)
            end()
            await asyncio.sleep(120)
            lines.extend(
                (record.levelname, record.getMessage())
                for record in caplog.records
                if record.levelno >= logging.INFO
            )
            sending.cancel()
            c.stop()
            await handling

    async def handle(_message: object) -> None:
        await asyncio.sleep(1)

    lines: list[tuple[str, str]] = []
    broker.create("T", QUEUES)
    with caplog.at_level(logging.INFO, "roquet"):
        cluster.run(work, within_s=2000)
    return lines


def shown(lines: list[tuple[str, str]]) -> str:
    return "\n".join(f"{level} {text}" for level, text in lines)


@pytest.mark.parametrize("is_ordered", [False, True])
@pytest.mark.parametrize("is_silent", [False, True])
def test_a_broker_that_is_away_is_told_of_once_and_once_when_it_is_back(
    cluster: FakeCluster,
    broker: FakeBroker,
    caplog: pytest.LogCaptureFixture,
    is_silent: bool,
    is_ordered: bool,
) -> None:
    network = cluster.sim.network
    address = broker.host.address

    def begin() -> None:
        if is_silent:
            network.partition(address, CLIENT)
        else:
            broker.host.kill()
            cluster.listed.discard(broker.address)

    def end() -> None:
        if is_silent:
            network.heal(address)
        else:
            cluster.restart(broker)

    lines = lines_of_outage(cluster, broker, caplog, begin, end, is_ordered=is_ordered)
    told = [level for level, text in lines if text.startswith("broker does not answer")]
    back = [level for level, text in lines if text.startswith("broker answers again")]
    assert (told, back) == (["WARNING"], ["INFO"]), shown(lines)
    others = [text for _, text in lines if not text.startswith("broker ")]
    assert max(Counter(others).values(), default=0) <= 1, shown(lines)
    facts = {text.partition(":")[0] for text in others}
    ordered = {
        "queue locks lost, the queues are not consumed until they are locked again",
        "queue assigned",
    }
    assert facts == (ordered if is_ordered else set()), shown(lines)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_name_server_that_is_away_is_told_of_once_and_once_when_it_is_back(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture, is_silent: bool
) -> None:
    network = cluster.sim.network
    host = cluster.name_server_host

    def begin() -> None:
        if is_silent:
            network.partition(host.address, CLIENT)
        else:
            host.kill()

    def end() -> None:
        if is_silent:
            network.heal(host.address)
        else:
            host.start(cluster.serve_routes)

    lines = lines_of_outage(cluster, broker, caplog, begin, end, is_ordered=False)
    told = [level for level, text in lines if text.startswith("name server does not answer")]
    back = [level for level, text in lines if text.startswith("name server answers again")]
    assert (told, back) == (["WARNING"], ["INFO"]), shown(lines)
    assert len(lines) == 2, shown(lines)
