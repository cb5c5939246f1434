"""Compares a new member with the group that it joins: all members must want the same.

See docs/pitfalls.md#trap-59.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from roquet.client._net.session import Session
from roquet.client.selector import Sql
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import ConsumerData, Subscription, parse
from roquet.protocol.headers.admin import GroupHeader
from roquet.protocol.records.message import RETRY_PREFIX
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 1000
"""A broker that does not answer holds up a start no longer."""


@dataclass(frozen=True, slots=True)
class ConnectedGroup:
    """ConsumerConnection: the members of a group that a broker knows, and what they want."""

    client_ids: frozenset[str]
    subscriptions: tuple[Subscription, ...]
    message_model: str

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> Self:
        return cls(
            frozenset(str(connection["clientId"]) for connection in json["connectionSet"]),
            tuple(map(Subscription.from_json, json["subscriptionTable"].values())),
            str(json["messageModel"]),
        )


async def warn_of_differences(
    session: Session, mine: ConsumerData, is_by_pattern: Callable[[str], bool]
) -> None:
    """Log what the members of the group want in another way than the one that joins now.

    A broker keeps the subscriptions of the last heartbeat, so it is asked before the first one of
    this member. One broker is enough, as members tell all. What it cannot tell is not compared.

    :param is_by_pattern: whether this member subscribes to a topic only because a pattern matches
        it. Members with the same pattern look for topics at different times.
    """
    known = sorted(session.routes.addresses())
    if not known:
        return
    address = known[0].address
    request = Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, GroupHeader(mine.group).write())
    try:
        response = await session.call(address, request, TIMEOUT_MS)
        if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
            return
        group = parse(checked(response, address).body, ConnectedGroup.from_json)
    except (RoquetError, ValueError) as error:
        log.debug("group not compared: group=%s broker=%s error=%s", mine.group, address, error)
        return
    if not group.client_ids - {session.client_id}:
        return
    here, there = _wanted(mine.subscriptions), _wanted(group.subscriptions)
    for topic in here.keys() ^ there.keys():
        if is_by_pattern(topic):
            here.pop(topic, None)
            there.pop(topic, None)
    if here != there:
        log.warning(
            "the other members of the group have other subscriptions: all need the same, "
            "otherwise messages are missed: group=%s here=%r others=%r",
            mine.group,
            here,
            there,
        )
    if mine.message_model != group.message_model:
        log.warning(
            "the other members of the group are %s, this one is %s: all must be the same, "
            "otherwise messages are missed: group=%s",
            group.message_model,
            mine.message_model,
            mine.group,
        )


def _wanted(subscriptions: Iterable[Subscription]) -> dict[str, str | Sql]:
    """The filters by topic, without the retry topic, which broadcasting members do not have."""
    return {
        each.topic: each.expression if each.is_by_tag else Sql(each.expression)
        for each in sorted(subscriptions, key=lambda each: each.topic)
        if not each.topic.startswith(RETRY_PREFIX)
    }
