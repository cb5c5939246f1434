"""What a broker answers to who asks for messages that it has deleted: what Apache's does."""

from __future__ import annotations

from typing import Final

from roquet.protocol.headers.offsets import OffsetAnswer, QueueHeader
from roquet.protocol.headers.pull import SUBSCRIPTION, PullAnswer, PullHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.channels import Channels
from tests.simulation.clients import GROUP, TOPIC
from tests.simulation.cluster import Cluster
from tests.simulation.nodes import QUEUES

ASKER_ADDRESS: Final = "10.0.9.4"
CALL_MS: Final = 3000


def check_gone_is_said(cluster: Cluster, name: str) -> None:
    """Pulls from before the first kept message of each queue are sent there by a master, and told
    to come again by a slave, which may lack what its master has; a place that is gone holds no
    message.
    """
    node, asker = cluster.brokers[name], cluster.sim.host(ASKER_ADDRESS)
    asker.call(
        lambda: _Asker(
            node.address, cluster.broker(name).store.log.start, is_slave=node.is_slave
        ).ask()
    )
    asker.kill()


class _Asker:
    def __init__(self, address: str, log_start: int, *, is_slave: bool) -> None:
        self._channels = Channels()
        self._address = address
        self._log_start = log_start
        self._is_slave = is_slave

    async def ask(self) -> None:
        try:
            for queue_id in range(QUEUES):
                await self._ask_queue(queue_id)
            if self._log_start:
                await self._ask_place(0)
        finally:
            await self._channels.close()

    async def _ask_queue(self, queue_id: int) -> None:
        header = QueueHeader(TOPIC, queue_id).write()
        first = OffsetAnswer.read(
            (await self._call(RequestCode.GET_MIN_OFFSET, header)).fields
        ).offset
        for offset in {0, first // 2, first - 1} if first > 0 else ():
            pull = PullHeader(
                GROUP, TOPIC, queue_id, offset, 32, SUBSCRIPTION, 0, 0, subscription="*"
            )
            answer = await self._call(RequestCode.PULL_MESSAGE, pull.write())
            goes_on_at = PullAnswer.read(answer.fields).next_begin_offset
            if self._is_slave:
                wanted = ResponseCode.PULL_RETRY_IMMEDIATELY, offset
            else:
                wanted = ResponseCode.PULL_OFFSET_MOVED, first
            assert (answer.code, goes_on_at) == wanted, (
                f"{offset} of queue {queue_id}, which begins at {first}"
            )

    async def _ask_place(self, at: int) -> None:
        answer = await self._call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(at)})
        assert answer.code == ResponseCode.SYSTEM_ERROR, (
            f"a message is given from the place {at}, which is gone"
        )

    async def _call(self, code: RequestCode, fields: dict[str, str]) -> Command:
        return await self._channels.call(self._address, Command(code, fields), CALL_MS)
