"""Asking around before this broker becomes, or is, the master of its name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final

from roquet.errors import CallTimeout, ConnectionClosed, RoquetError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.bodies.tables import ClusterInfo, parse
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import checked

TIMEOUT_MS: Final = 3000


class BrokerLiveness(Enum):
    ANSWERS = "answers"
    REFUSES = "refuses connections"
    """Its host is there, and says that nobody listens: the process has ended."""
    SILENT = "cannot be reached"
    """It may have ended, or live on where we cannot see it."""


async def addresses_of(
    channels: Channels, name_servers: Sequence[str], name: str
) -> dict[int, str]:
    """Broker id and address of all brokers of the name, by the word of all name servers that answer."""
    answers = await asyncio.gather(*(_known(channels, server, name) for server in name_servers))
    return {broker_id: address for answer in answers for broker_id, address in answer.items()}


async def _known(channels: Channels, name_server: str, name: str) -> dict[int, str]:
    try:
        answer = await channels.call(
            name_server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_MS
        )
        brokers = parse(checked(answer, name_server).body, ClusterInfo.from_json).brokers
    except (RoquetError, ValueError):
        return {}
    return dict(brokers[name].addresses) if name in brokers else {}


async def life_of(channels: Channels, address: str) -> BrokerLiveness:
    """Whether a broker is there."""
    try:
        await channels.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_MS)
    except ConnectionClosed as error:
        return (
            BrokerLiveness.REFUSES
            if isinstance(error.__cause__, ConnectionRefusedError)
            else BrokerLiveness.SILENT
        )
    except CallTimeout:
        return BrokerLiveness.SILENT
    return BrokerLiveness.ANSWERS


async def log_range_of(channels: Channels, address: str) -> LogRange:
    """Where a broker's log begins and ends; Apache's say it, too.

    :raises RoquetError: it does not answer, or refuses.
    :raises ValueError: its answer says nothing of a log.
    """
    answer = await channels.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_MS)
    return parse(checked(answer, address).body, LogRange.from_json)
