"""The members of a consumer group, as a broker lists them.

See docs/protocol/consuming.md#rebalance.
"""

from __future__ import annotations

import logging

from roquet.client._net.routes import all_addresses
from roquet.client._net.session import Session
from roquet.errors import RoquetError
from roquet.protocol.bodies.tables import Route
from roquet.protocol.headers.members import ConsumerGroupHeader
from roquet.protocol.json.dialect import load
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command

log = logging.getLogger(__name__)

TIMEOUT_MS = 3000


async def member_ids(session: Session, group: str, route: Route) -> list[str]:
    """The client ids of a group's members; empty if no broker of the route returns a list.

    Brokers are asked in random order, masters before slaves, until one returns a list.
    """
    addresses = [at for broker in route.brokers for at in all_addresses(broker)]
    session.runtime.random.shuffle(addresses)
    for at in sorted(addresses, key=lambda at: not at.is_master):
        request = Command(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(group).write()
        )
        try:
            response = await session.call(at.address, request, TIMEOUT_MS)
            if response.code == ResponseCode.SUCCESS:
                return _ids(response.body)
        except (RoquetError, ValueError) as error:
            log.warning(
                "group members not found, the next broker is asked: group=%s broker=%s error=%s",
                group,
                at.address,
                error,
            )
    return []


def _ids(body: bytes) -> list[str]:
    """Read the client ids of an answer.

    :raises ValueError: the body is not a list of client ids.
    """
    document = load(body)
    ids = document.get("consumerIdList") if isinstance(document, dict) else None
    if not isinstance(ids, list):
        raise ValueError("no consumerIdList in the answer")
    return [str(client_id) for client_id in ids]
