"""Asks consumers for their offsets: INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223.

See docs/protocol/administration.md#status-of-members.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from roquet.broker.config.limits import Limits
from roquet.broker.metadata.members import Consumers
from roquet.common.limited_log import LimitedLog
from roquet.common.steps import Steps, in_parts
from roquet.errors import Refused, RoquetError
from roquet.protocol.bodies.tables import parse_request
from roquet.protocol.headers.offsets import ConsumerStatusHeader
from roquet.protocol.json.dialect import ObjectKeys, dump_bytes, dump_dialect
from roquet.protocol.json.numbers import as_int64
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.frame import FRAME_SIZE_MAX
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import LongRequests, Slices

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 5000
"""How long the broker waits for answers after it has asked all members."""
SIZE_MAX: Final = FRAME_SIZE_MAX // 2
"""Bytes of all members' answers together: they have to fit in one frame, and are kept in memory
until the last one has come."""


class MemberStatus:
    """Asks all members of a group, or one of them, for their offsets in a topic.

    :param limits: of the size of a member's answer.
    """

    def __init__(self, consumers: Consumers[Connection], slices: Slices, limits: Limits) -> None:
        self._consumers = consumers
        self._slices = slices
        self._size_max = limits.json_body_size_max
        self._requests = LongRequests()
        """Separate from the long requests of `slices`: those must not wait for silent members."""
        self._limited_log = LimitedLog(log)

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._requests.handler(self.status)
        }

    async def status(self, request: Command) -> Command:
        """Ask the members and answer with their offsets, without members that fail to answer."""
        header = ConsumerStatusHeader.read(request.fields)
        answers = _MemberAnswers(self._left_out)
        try:
            await self._slices.run(self._ask(header, answers))
            await answers.come(TIMEOUT_MS)
            body = await self._slices.run(self._table(answers))
        finally:
            answers.give_up()
        return request.answer(ResponseCode.SUCCESS, body=body)

    def _ask(self, header: ConsumerStatusHeader, answers: _MemberAnswers) -> Steps[None]:
        group = self._consumers.groups.get(header.group)
        if group is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"no consumer of group {header.group} is connected"
            )
        chosen: dict[str, Connection] = {}
        for part in in_parts(list(group.members.items())):
            for channel, member in part:
                if header.client_addr in (None, "", member.client_id):
                    chosen[member.client_id] = channel
            yield
        fields = ConsumerStatusHeader(header.topic, header.group).write()
        for client_id, channel in chosen.items():
            answers.ask(
                client_id,
                channel,
                Command(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, dict(fields)),
            )
            yield

    def _table(self, answers: _MemberAnswers) -> Steps[bytes]:
        """The body of the answer.

        :raises Refused: the members' answers are too large for one frame.
        """
        if answers.size > SIZE_MAX:
            remark = (
                f"the members' answers have more than {SIZE_MAX} bytes: ask one by one (clientAddr)"
            )
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        tables: list[bytes] = []
        for client_id, (channel, body) in answers.bodies.items():
            try:
                table = parse_request(body, _queues, self._size_max, "jsonBodySizeMax")
                tables.append(b"%b:%b" % (dump_bytes(client_id), dump_dialect(table)))
            except ValueError as error:
                self._left_out(channel, str(error))
            yield
        return b'{"consumerTable":{%b},"messageQueueTable":{}}' % b",".join(tables)

    def _left_out(self, channel: Connection, why: str) -> None:
        """Log a member without offsets, at most once a minute: a tool may ask in a loop."""
        self._limited_log.warning(
            "left out",
            "consumer did not report its offsets: peer=%s error=%.200s",
            channel.peer_address,
            why,
        )


class _MemberAnswers:
    """The answers of members, by client id, in order of arrival.

    Invariant: `bodies` has the answers so far; none once they are larger than `SIZE_MAX` together.

    :param left_out: called with each member that fails to answer, and why.
    """

    def __init__(self, left_out: Callable[[Connection, str], None]) -> None:
        self.bodies: dict[str, tuple[Connection, bytes]] = {}
        self.size = 0
        self._left_out = left_out
        self._asked: dict[str, tuple[Connection, Command]] = {}
        self._all_came = asyncio.Event()

    def ask(self, client_id: str, channel: Connection, request: Command) -> None:
        try:
            waiting = channel.calls.begin_to_ask(request)
        except RoquetError as error:
            self._left_out(channel, str(error))
            return
        self._asked[client_id] = channel, request
        waiting.add_done_callback(partial(self._came, client_id))

    def _came(self, client_id: str, waiting: asyncio.Future[Command]) -> None:
        error = waiting.exception()
        if client_id not in self._asked:
            return
        channel, _ = self._asked.pop(client_id)
        if not self._asked:
            self._all_came.set()
        if error is not None:
            self._left_out(channel, str(error))
            return
        answer = waiting.result()
        if answer.code != ResponseCode.SUCCESS:
            self._left_out(channel, str(answer.remark))
            return
        self.size += len(answer.body)
        if self.size <= SIZE_MAX:
            self.bodies[client_id] = channel, answer.body
        else:
            self.bodies.clear()

    async def come(self, timeout_ms: int) -> None:
        """Wait until all members asked have answered, at most `timeout_ms`."""
        self._all_came.clear()
        if not self._asked:
            return
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._all_came.wait()
        except TimeoutError:
            channel, _ = next(iter(self._asked.values()))
            self._left_out(
                channel, f"no answer within {timeout_ms} ms, members_without={len(self._asked)}"
            )

    def give_up(self) -> None:
        """Stop waiting for the members that have not answered."""
        for channel, request in self._asked.values():
            channel.calls.give_up(request)
        self._asked.clear()


def _queues(json: Any) -> ObjectKeys:
    """Queue -> offset of one member; the keys are passed on as they came."""
    return ObjectKeys(
        {
            str(key): as_int64(offset)
            for key, offset in (json.get("messageQueueTable") or {}).items()
        }
    )
