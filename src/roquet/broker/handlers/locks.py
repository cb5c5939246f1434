"""Queue locks of orderly consumers: LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42.

See docs/pitfalls.md#trap-32 and docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from roquet.broker.config.limits import Limits
from roquet.broker.delivery.queue_locks import LeaseTable, Place
from roquet.common.steps import Steps, in_parts
from roquet.protocol.bodies.tables import (
    parse_request,
    queue_from_json,
    queue_to_json,
    read_members,
)
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.records.message import MessageQueue
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Handler
from roquet.transport.handling import Answer
from roquet.transport.slices import Slices


class LockHandler:
    """Answers lock and unlock requests from the lease table.

    Invariant: all queues of a request are locked or unlocked in one step, as Apache's broker does
    it under one lock. Only parsing the request and encoding the answer are done in slices.

    :param clock_ms: a monotonic clock.
    """

    def __init__(
        self,
        leases: LeaseTable,
        clock_ms: Callable[[], float],
        slices: Slices,
        limits: Limits,
    ) -> None:
        self._size_max = limits.json_body_size_max
        self._leases = leases
        self._clock_ms = clock_ms
        self._slices = slices

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self._in_order(self.lock),
            RequestCode.UNLOCK_BATCH_MQ: self._in_order(self.unlock),
        }

    def _in_order(self, work: Callable[[Command], Steps[Answer]]) -> Handler:
        """A handler that answers each connection's requests in order.

        Otherwise a client that unlocks a queue right after locking it could end up with the lock.
        """
        return lambda request, connection: self._slices.answer_in_order(
            work(request), request, connection
        )

    def lock(self, request: Command) -> Steps[Answer]:
        group, client_id, places = yield from self._read(request)
        held = self._leases.lock(group, client_id, places, self._clock_ms())
        yield
        parts: list[bytes] = []
        for part in in_parts(held):
            parts.append(dump_bytes([queue_to_json(MessageQueue(*place)) for place in part])[1:-1])
            yield
        return request.answer(ResponseCode.SUCCESS, body=b'{"lockOKMQSet":[%b]}' % b",".join(parts))

    def unlock(self, request: Command) -> Steps[Answer]:
        group, client_id, places = yield from self._read(request)
        self._leases.unlock(group, client_id, places)
        return request.answer(ResponseCode.SUCCESS)

    def _read(self, request: Command) -> Steps[tuple[str, str, list[Place]]]:
        """The group, the client id and the queues in the request's body.

        :raises ValueError: the body is malformed.
        """
        group, client_id, queues = parse_request(
            request.body, _head, self._size_max, "jsonBodySizeMax"
        )
        places: list[Place] = []
        for part in in_parts(queues):
            places += read_members(partial(_places, part))
            yield
        return group, client_id, places


def _head(json: Mapping[str, Any]) -> tuple[str, str, list[Any]]:
    """The group, the client id, and the queues as unparsed JSON."""
    return str(json["consumerGroup"]), str(json["clientId"]), list(json.get("mqSet") or ())


def _places(queues: Iterable[Mapping[str, Any]]) -> list[Place]:
    return [
        (queue.topic, queue.broker_name, queue.queue_id) for queue in map(queue_from_json, queues)
    ]
