"""Consuming a queue in order: LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42.

See docs/pitfalls.md#trap-32 and docs/protocol/consuming.md#locks.
"""

from __future__ import annotations

from collections.abc import Callable

from roquet.broker.limits import Limits
from roquet.broker.queue_locks import LeaseTable
from roquet.protocol.bodies import QueueLocks, parse_request, queue_to_json
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.json_dialect import dump_bytes
from roquet.transport.connection import Connection, Handler


class LockRequests:
    """Leases queues to clients.

    :param clock_ms: a clock that nobody sets.
    """

    def __init__(self, leases: LeaseTable, clock_ms: Callable[[], float], limits: Limits | None = None) -> None:
        self._size_max = (limits or Limits()).json_body_size_max
        self._leases = leases
        self._clock_ms = clock_ms

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, request: Command, connection: Connection) -> Command:
        wanted = parse_request(request.body, QueueLocks.from_json, self._size_max)
        held = self._leases.lock(wanted.group, wanted.client_id, wanted.queues, self._clock_ms())
        body = dump_bytes({"lockOKMQSet": [queue_to_json(queue) for queue in sorted(held)]})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def unlock(self, request: Command, connection: Connection) -> Command:
        given_back = parse_request(request.body, QueueLocks.from_json, self._size_max)
        self._leases.unlock(given_back.group, given_back.client_id, given_back.queues)
        return request.answer(ResponseCode.SUCCESS)
