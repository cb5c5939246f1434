"""PURE: which processes of a broker a reader asks."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from roquet.client._net.routes import BrokerAddress, masters_only, read_addresses
from roquet.errors import ConfigError
from roquet.protocol.bodies.tables import MASTER_ID, Route

ReadFrom: TypeAlias = Literal["master", "slave", "slave-only", "any"]
"""Which processes of a broker are asked. See `PullConsumer`."""


def check_read_from(read_from: ReadFrom) -> None:
    """Check the argument `read_from` of a reader.

    :raises ConfigError: it is something else.
    """
    if read_from not in get_args(ReadFrom):
        allowed = ", ".join(map(repr, get_args(ReadFrom)))
        raise ConfigError(f"read_from is {read_from!r}: give one of {allowed}")


def addresses_to_read(
    read_from: ReadFrom, route: Route, broker_name: str, suggested_id: int = MASTER_ID
) -> list[BrokerAddress]:
    """The addresses of the processes to ask, best first.

    :param suggested_id: the broker id that the last answer suggests; it counts for "any".
    """
    match read_from:
        case "master":
            return masters_only(route, broker_name)
        case "slave":
            return sorted(
                read_addresses(route, broker_name), key=lambda at: (at.is_master, at.broker_id)
            )
        case "slave-only":
            return [at for at in read_addresses(route, broker_name) if not at.is_master]
        case "any":
            return read_addresses(route, broker_name, suggested_id)
