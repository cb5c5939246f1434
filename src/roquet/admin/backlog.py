"""The offsets of consumer groups, and their backlogs.

See docs/protocol/administration.md#lag and docs/protocol/json.md#offsets-and-statistics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from roquet.admin.cluster import AdminClient
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import BrokerData, GroupTable, parse, queue_of_key
from roquet.protocol.headers.admin import GroupHeader
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode


@dataclass(frozen=True, slots=True)
class QueueBacklog:
    """The offset of a group in one queue, and the queue's end.

    `end` is the offset of the queue's next message, `offset` that of the group. `last_ms` is the
    store time (ms since 1970) of the last message that the group consumed; None if there is
    none, or it was deleted.
    """

    group: str
    queue: MessageQueue
    end: int
    offset: int
    last_ms: int | None

    @property
    def lag(self) -> int:
        """The backlog, in messages."""
        return max(0, self.end - self.offset)


@dataclass(frozen=True, slots=True)
class Backlog:
    """The backlogs of groups. `failures` has a text for each broker that could not be asked."""

    queues: tuple[QueueBacklog, ...]
    failures: tuple[str, ...]


async def backlog(cluster: AdminClient, groups: Sequence[str] = ()) -> Backlog:
    """Ask all brokers for the backlogs of groups: the master, or a slave if there is no master.

    :param groups: the groups; empty means all groups that a broker has.
    :raises RoquetError: no name server answers.
    """
    brokers = (await cluster.brokers()).values()
    answers = await asyncio.gather(*(_of_broker(cluster, broker, groups) for broker in brokers))
    queues = sorted(
        (each for answer in answers for each in answer.queues),
        key=lambda each: (each.group, each.queue),
    )
    return Backlog(
        tuple(queues), tuple(failure for answer in answers for failure in answer.failures)
    )


async def _of_broker(cluster: AdminClient, broker: BrokerData, groups: Sequence[str]) -> Backlog:
    if not broker.addresses:
        return Backlog((), (f"{broker.broker_name}: the name server has no address of it",))
    address = broker.addresses[min(broker.addresses)]
    try:
        names = groups or await _groups(cluster, address)
        found = [each for name in names for each in await _of_group(cluster, address, name)]
    except (RoquetError, ValueError) as error:
        return Backlog((), (f"{broker.broker_name}: {error}",))
    return Backlog(tuple(found), ())


async def _groups(cluster: AdminClient, address: str) -> list[str]:
    table = await cluster.ask_for(
        address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable.from_json
    )
    return sorted(table.groups)


async def _of_group(cluster: AdminClient, address: str, group: str) -> list[QueueBacklog]:
    answer = await cluster.ask(address, RequestCode.GET_CONSUME_STATS, GroupHeader(group).write())
    return parse(answer.body, partial(_queues_of, group))


def _queues_of(group: str, stats: Mapping[str, Any]) -> list[QueueBacklog]:
    """Read a ConsumeStats. The keys of its table are queues as JSON texts."""
    return [
        _of_queue(group, queue_of_key(key), at)
        for key, at in (stats.get("offsetTable") or {}).items()
    ]


def _of_queue(group: str, queue: MessageQueue, at: Mapping[str, Any]) -> QueueBacklog:
    last_ms = int(at["lastTimestamp"])
    return QueueBacklog(
        group, queue, int(at["brokerOffset"]), int(at["consumerOffset"]), last_ms or None
    )
