"""How far consumer groups are with their queues, and how much they have before them.

See docs/protocol/administration.md#lag and docs/protocol/json.md#offsets-and-statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roquet.admin.cluster import Cluster
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import BrokerData, GroupTable, parse, queue_from_json
from roquet.protocol.headers.admin import GroupHeader
from roquet.protocol.json.dialect import load
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """Where a group is in a queue: `end` is the queue's, `progress` the group's next offset.

    `last_ms`: when the last message it has was stored, in ms since the epoch; None where it has none, or that is gone.
    """

    group: str
    queue: MessageQueue
    end: int
    progress: int
    last_ms: int | None

    @property
    def behind(self) -> int:
        """In messages."""
        return max(0, self.end - self.progress)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the brokers said, and which of them could not be asked, each with why."""

    queues: tuple[QueueBacklog, ...]
    troubles: tuple[str, ...]


async def backlog(cluster: Cluster, groups: Sequence[str] = ()) -> Backlog:
    """Where these groups are, or all that a broker knows; a broker name is asked at its master, else at a slave.

    :raises RoquetError: no name server answers.
    """
    brokers = (await cluster.brokers()).values()
    answers = await asyncio.gather(*(_of_broker(cluster, broker, groups) for broker in brokers))
    queues = sorted(
        (each for answer in answers for each in answer.queues),
        key=lambda each: (each.group, each.queue),
    )
    return Backlog(
        tuple(queues), tuple(trouble for answer in answers for trouble in answer.troubles)
    )


async def _of_broker(cluster: Cluster, broker: BrokerData, groups: Sequence[str]) -> Backlog:
    if not broker.addresses:
        return Backlog((), (f"{broker.broker_name}: the name server knows no address of it",))
    address = broker.addresses[min(broker.addresses)]
    try:
        names = groups or await _groups(cluster, address)
        found = [each for name in names for each in await _of_group(cluster, address, name)]
    except (RoquetError, ValueError) as error:
        return Backlog((), (f"{broker.broker_name}: {error}",))
    return Backlog(tuple(found), ())


async def _groups(cluster: Cluster, address: str) -> list[str]:
    table = await cluster.ask_for(
        address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable.from_json
    )
    return sorted(table.groups)


async def _of_group(cluster: Cluster, address: str, group: str) -> list[QueueBacklog]:
    answer = await cluster.ask(address, RequestCode.GET_CONSUME_STATS, GroupHeader(group).write())
    return parse(answer.body, partial(_queues_of, group))


def _queues_of(group: str, stats: Mapping[str, Any]) -> list[QueueBacklog]:
    """ConsumeStats: its keys are queues, JSON within JSON."""
    return [
        _of_queue(group, queue_from_json(load(key)), at)
        for key, at in (stats.get("offsetTable") or {}).items()
    ]


def _of_queue(group: str, queue: MessageQueue, at: Mapping[str, Any]) -> QueueBacklog:
    last_ms = int(at["lastTimestamp"])
    return QueueBacklog(
        group, queue, int(at["brokerOffset"]), int(at["consumerOffset"]), last_ms or None
    )
