"""Filters of subscriptions and pulls: tags, or an SQL92 expression over properties."""

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
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
_VERSION_MIN: Final = 232
"""Release 4.1.0, the first that filters by properties (docs/protocol/remoting.md#versions)."""


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over message properties, such as `Sql("price > 10 AND TAGS = 'new'")`.

    The broker evaluates it, and needs `enablePropertyFilter=true` for that. See "Filters" in
    docs/guide/broker.md.
    """

    expression: str


def subscription_to(topic: str, selector: str | Sql | None, version: int = 0) -> Subscription:
    """The subscription to a topic with a filter.

    :param selector: tags joined by `||`, or `Sql`. None and empty text select all messages.
    :raises ConfigError: an SQL92 expression is empty.
    """
    if not isinstance(selector, Sql):
        return Subscription(topic, selector or ALL, version, TAG)
    if not selector.expression.strip():
        raise ConfigError(
            f"the SQL92 expression for {topic} is empty: subscribe without it to get all messages"
        )
    return Subscription(topic, selector.expression, version, SQL92)


async def check_filter(session: Session, group: str, subscription: Subscription) -> None:
    """Check at each broker of the topic that it accepts an SQL92 subscription.

    Some brokers that do not filter by properties deliver all messages instead. Brokers that do not
    answer now are not checked.

    :raises ResponseError: a broker refuses the subscription; the remark says why.
    :raises ConfigError: a broker is older than 4.1.0.
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
                    "filter not checked, the broker does not answer: "
                    "broker=%s topic=%s expression=%r error=%s",
                    at.address,
                    subscription.topic,
                    subscription.expression,
                    error,
                )
                continue
            if response.version < _VERSION_MIN:
                raise ConfigError(
                    f"the broker at {at.address} is older than 4.1.0 and cannot filter by "
                    "properties: subscribe by tags"
                )
            checked(response, at.address)
