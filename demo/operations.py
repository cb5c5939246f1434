"""What the demo asks the brokers for, beside sending and consuming."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from demo.processes import ClusterOfThree
from roquet import Producer, SendStatus
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import TopicTable, parse
from roquet.protocol.headers.admin import CreateTopicHeader
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels

TIMEOUT_MS: Final = 3000
SAMPLE_S: Final = 0.25
READY_TIMEOUT_S: Final = 60.0


async def create_topic(channels: Channels, address: str, topic: str, queues: int) -> None:
    """Make a topic on one broker."""
    request = Command(
        RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicHeader(topic, queues, queues).write()
    )
    checked(await channels.call(address, request, TIMEOUT_MS), address)


async def until_replicating(channels: Channels, cluster: ClusterOfThree, topic: str) -> None:
    """Wait until the slave knows the topic and a send is acknowledged by it, too.

    :raises TimeoutError: that does not happen.
    """
    async with asyncio.timeout(READY_TIMEOUT_S):
        while not await _has_topic(channels, cluster.slave.address, topic):
            await asyncio.sleep(SAMPLE_S)
        async with Producer(cluster.name_server.address, "probe") as producer:
            while not await _is_replicated(producer):
                await asyncio.sleep(SAMPLE_S)


async def _has_topic(channels: Channels, address: str, topic: str) -> bool:
    answer = checked(
        await channels.call(address, Command(RequestCode.GET_ALL_TOPIC_CONFIG), TIMEOUT_MS), address
    )
    return topic in parse(answer.body, TopicTable.from_json).topics


async def _is_replicated(producer: Producer) -> bool:
    try:
        return (await producer.send("probe", b"?")).status is SendStatus.SEND_OK
    except RoquetError:
        return False


@dataclass
class Lag:
    """How far the slave's log is behind the master's, sampled while both are there. Sizes in
    bytes.
    """

    samples: list[int] = field(default_factory=list)

    async def watch(self, channels: Channels, cluster: ClusterOfThree) -> None:
        """Sample for ever. The slave is asked first: what the master takes in between counts as
        lag.
        """
        while True:
            await asyncio.sleep(SAMPLE_S)
            try:
                copied = await _log_end(channels, cluster.slave.address)
                written = await _log_end(channels, cluster.master.address)
            except RoquetError:
                continue
            self.samples.append(max(0, written - copied))

    @property
    def largest(self) -> int:
        return max(self.samples, default=0)

    @property
    def mean(self) -> float:
        return sum(self.samples) / max(1, len(self.samples))


async def _log_end(channels: Channels, address: str) -> int:
    answer = checked(
        await channels.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_MS),
        address,
    )
    return int(load(answer.body)["table"]["commitLogMaxOffset"])
