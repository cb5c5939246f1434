"""Filters of subscriptions and pulls: tags, or an SQL92 expression over properties."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from roquet.client._net.routes import all_addresses
from roquet.client._net.session import Session
from roquet.errors import CallTimeout, ConfigError, ConnectionClosed, RouteNotFound
from roquet.protocol.bodies.tables import Subscription
from roquet.protocol.filters.tags import ALL, SQL92, TAG
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import check_topic
from roquet.protocol.records.namespace import NO_NAMESPACE, Namespace
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3000
_VERSION_MIN: Final = 232
"""Release 4.1.0, the first that filters by properties (docs/protocol/remoting.md#versions)."""

_LOOKS_WRONG: Final = re.compile(
    r"[<>=,;&]|(?<!\|)\|(?!\|)|[^\s|]\s*\*|\*\s*[^\s|]|\s(and|or|not|in|is|like|between)\s",
    re.IGNORECASE,
)
"""What brokers take as a part of a tag, while users mean an expression, a list or a pattern."""


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over message properties, such as `Sql("price > 10 AND TAGS = 'new'")`.

    The broker evaluates it, and needs `enablePropertyFilter=true` for that. See "Filters" in
    docs/guide/broker.md.
    """

    expression: str


def subscription_to(topic: str, selector: str | Sql, version: int = 0) -> Subscription:
    """The subscription to a topic with a filter.

    A text that looks like an expression is a `UserWarning`: no error, as a tag may be so.

    :param selector: tags joined by `||`, or `Sql`. Empty text selects all messages.
    :raises ConfigError: an SQL92 expression is empty, or the filter has a wrong type.
    """
    if not isinstance(selector, Sql):
        if not isinstance(selector, str):
            raise ConfigError(
                f"the filter of {topic} is {selector!r}: give tags joined by ||, such as 'a||b', "
                "or Sql(...)"
            )
        if _LOOKS_WRONG.search(selector):
            warnings.warn(
                f"the filter of {topic} is {selector!r}, which selects messages with just that "
                f"tag: separate tags by ||, and give an expression as Sql({selector!r})",
                stacklevel=2,
            )
        return Subscription(topic, selector or ALL, version, TAG)
    if not selector.expression.strip():
        raise ConfigError(
            f"the SQL92 expression for {topic} is empty: subscribe without it to get all messages"
        )
    return Subscription(topic, selector.expression, version, SQL92)


def subscriptions_to(
    topics: str | Iterable[str] | Mapping[str, str | Sql],
    retry_topic: str | None,
    version: int,
    names: Namespace = NO_NAMESPACE,
    *,
    has_patterns: bool = False,
) -> dict[str, Subscription]:
    """The subscription of each topic.

    :param retry_topic: the group's retry topic, which every member subscribes to; None if the
        group broadcasts.
    :param names: the namespace of the client. The topics of the result have their full names.
    :param has_patterns: whether patterns select topics, too.
    :raises ConfigError: there is no topic, or an SQL92 expression is empty.
    :raises MessageError: a topic's name is not allowed.
    """
    if isinstance(topics, str):
        topics = [topics]
    wanted: dict[str, str | Sql] = (
        dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)
    )
    if not wanted and not has_patterns:
        raise ConfigError("a consumer needs at least one topic")
    for topic in wanted:
        check_topic(topic)
    wanted = {names.full(topic): selector for topic, selector in wanted.items()}
    for topic in wanted:
        check_topic(topic)
    if retry_topic is not None:
        wanted[retry_topic] = ALL
    return {topic: subscription_to(topic, selector, version) for topic, selector in wanted.items()}


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
