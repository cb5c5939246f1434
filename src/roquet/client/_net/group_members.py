"""Who is in a group, as a broker knows it.

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
    """The client ids in the group; none when no broker of the route knows the group or can be asked.

    Brokers are asked in random order, masters before slaves, until one answers with a list.
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
            log.warning("%s does not tell the members of %s: %s", at.address, group, error)
    return []


def _ids(body: bytes) -> list[str]:
    """:raises ValueError: the body is no list of ids."""
    document = load(body)
    ids = document.get("consumerIdList") if isinstance(document, dict) else None
    if not isinstance(ids, list):
        raise ValueError("no consumerIdList in the answer")
    return [str(client_id) for client_id in ids]
