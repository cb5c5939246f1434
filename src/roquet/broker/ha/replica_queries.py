"""Queries to name servers and brokers of the same name: who they are, whether they live."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.errors import CallTimeout, ConfigError, ConnectionClosed, RoquetError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.bodies.tables import MASTER_ID, ClusterInfo, parse
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels

TIMEOUT_MS: Final = 3000


class BrokerLiveness(Enum):
    """Whether another broker lives, as far as this broker can find out."""

    ANSWERS = "answers"
    REFUSES = "refuses connections"
    """Its host answers, but nothing listens on the port: the process has ended."""
    SILENT = "cannot be reached"
    """It may have ended, or it may live on behind a broken network."""


async def addresses_of(
    channels: Channels, name_servers: Sequence[str], name: str
) -> dict[int, str]:
    """The brokers with this name, by broker id, as listed by all name servers that answer."""
    answers = await asyncio.gather(*(_listed_by(channels, server, name) for server in name_servers))
    return {broker_id: address for answer in answers for broker_id, address in answer.items()}


async def _listed_by(channels: Channels, name_server: str, name: str) -> dict[int, str]:
    try:
        answer = await channels.call(
            name_server, Command(RequestCode.GET_BROKER_CLUSTER_INFO), TIMEOUT_MS
        )
        brokers = parse(checked(answer, name_server).body, ClusterInfo.from_json).brokers
    except (RoquetError, ValueError):
        return {}
    return dict(brokers[name].addresses) if name in brokers else {}


async def liveness_of(channels: Channels, address: str) -> BrokerLiveness:
    """Find out whether the broker at `address` lives, by a request."""
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


async def refuse_second_master(channels: Channels, config: BrokerConfig) -> None:
    """Check that no other master of this broker name answers.

    Producers would send to either of two masters, and neither would have the other's messages.

    :raises ConfigError: another master answers.
    """
    listed = await addresses_of(channels, config.name_servers, config.broker_name)
    other = listed.get(MASTER_ID)
    if (
        other in (None, config.address)
        or await liveness_of(channels, other) is not BrokerLiveness.ANSWERS
    ):
        return
    raise ConfigError(
        f"{other} is the master of {config.broker_name}, and answers: start this broker as its"
        " slave (brokerRole=SLAVE and a brokerId of its own), or with another brokerName"
    )


async def log_range_of(channels: Channels, address: str) -> LogRange:
    """Ask a broker, ours or Apache's, for the physical offsets at which its log begins and ends.

    :raises RoquetError: the broker does not answer, or refuses.
    :raises ValueError: the answer has no such offsets.
    """
    answer = await channels.call(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), TIMEOUT_MS)
    return parse(checked(answer, address).body, LogRange.from_json)
