"""Which messages of a topic a client asks for: tags, or an SQL92 expression over properties."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from roquet.client._net.routes import all_addresses
from roquet.client._net.session import Session
from roquet.errors import CallTimeout, ConfigError, ConnectionClosed, RouteNotFound
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.filters.tags import ALL, SQL92, TAG
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
_VERSION_MIN: Final = 232
"""4.1.0: the first that filters by properties (docs/protocol/remoting.md#versions)."""


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of messages, such as `Sql("price > 10 AND TAGS = 'new'")`.

    The broker compiles it, and filters by it alone. The guide says what may stand in it.
    """

    expression: str


def subscription_to(topic: str, selector: str | Sql | None, version: int = 0) -> Subscription:
    """What a client wants of a topic; nothing and an empty text want all of it.

    :raises ConfigError: an SQL92 expression is empty.
    """
    if not isinstance(selector, Sql):
        return Subscription(topic, selector or ALL, version, TAG)
    if not selector.expression.strip():
        raise ConfigError(
            f"the SQL92 expression for {topic} is empty: subscribe to the topic alone to get everything"
        )
    return Subscription(topic, selector.expression, version, SQL92)


async def check_filter(session: Session, group: str, subscription: Subscription) -> None:
    """Ask a process of each broker that has the topic whether it filters like that: some give everything out if not.

    Who cannot be asked now is left out.

    :raises ResponseError: a broker does not, for the reason that it gives.
    :raises ConfigError: a broker is too old.
    """
    try:
        route = await session.routes.route(subscription.topic)
    except RouteNotFound:
        return
    body = dump_bytes(
        {"clientId": session.client_id, "group": group, "subscriptionData": subscription.to_json()},
    )
    for broker in route.brokers:
        for at in all_addresses(broker)[:1]:
            try:
                response = await session.call(
                    at.address, Command(RequestCode.CHECK_CLIENT_CONFIG, body=body), TIMEOUT_MS
                )
            except (ConnectionClosed, CallTimeout) as error:
                log.warning(
                    "%s cannot say whether it filters by %s: %s",
                    at.address,
                    subscription.expression,
                    error,
                )
                continue
            if response.version < _VERSION_MIN:
                raise ConfigError(
                    f"the broker at {at.address} is older than 4.1.0, it does not filter by properties"
                )
            checked(response, at.address)
