"""What the log says of servers that do not answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from roquet.client._net.outages import Outages, level_of
from roquet.client.pull_consumer import PullConsumer
from roquet.errors import CallTimeout, ConnectionClosed, ResponseError
from roquet.protocol.records.message import MessageQueue
from tests.client.cluster import NAME_SERVER, FakeBroker, FakeCluster
from tests.client.consumers import fill
from tests.simulation.simulation import Simulation

GONE = ConnectionClosed("refused")


def test_each_server_is_told_of_once_when_it_goes_and_once_when_it_is_back(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        outages = Outages(["ns"])
        for address in ("ns", "b", "ns", "b", "ns"):
            outages.failed(address, GONE)
        for address in ("b", "ns", "b"):
            outages.answered(address)

    caplog.set_level(logging.INFO)
    sim.host("10.0.0.1").call(work)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "name server does not answer: address=ns error=refused"),
        ("WARNING", "broker does not answer: address=b error=refused"),
        ("INFO", "broker answers again: address=b"),
        ("INFO", "name server answers again: address=ns"),
    ]


def test_one_that_comes_and_goes_does_not_fill_the_log(
    sim: Simulation, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        outages = Outages([])
        for _ in range(600):
            outages.failed("b", GONE)
            await asyncio.sleep(0.5)
            outages.answered("b")
            await asyncio.sleep(0.5)

    caplog.set_level(logging.INFO)
    sim.host("10.0.0.1").call(work, 1000)
    assert len(caplog.records) == 20


@pytest.mark.parametrize(
    ("error", "level"),
    [
        (GONE, logging.DEBUG),
        (CallTimeout("silent"), logging.DEBUG),
        (ResponseError(1, "refused", "b"), logging.WARNING),
    ],
)
def test_what_an_outage_causes_is_for_debugging(error: Exception, level: int) -> None:
    assert level_of(error) == level


def test_calls_that_end_with_the_session_are_no_outage(
    cluster: FakeCluster, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def pull() -> None:
        c = await PullConsumer(NAME_SERVER).start()
        pulling = asyncio.create_task(c.pull(MessageQueue("T", "broker-a", 0), 0, hold_ms=15_000))
        await asyncio.sleep(1)
        await c.close()
        with pytest.raises(ConnectionClosed):
            await pulling

    fill(broker, 0)
    cluster.run(pull)
    assert [line for line in caplog.messages if "answer" in line] == []
