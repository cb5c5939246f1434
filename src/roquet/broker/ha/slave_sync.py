"""Copies the tables of the master to a slave: topics, offsets, groups.

See docs/storage/replication.md#copying-tables and
docs/protocol/administration.md#what-a-slave-copies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roquet.broker.config.broker import FAST_PORT_STEP
from roquet.broker.delivery.ack_gate import LogEnds
from roquet.broker.offsets.consumer_offsets import Commit
from roquet.broker.tables import Tables
from roquet.common.failure_streak import FailureStreak
from roquet.common.steps import Steps
from roquet.errors import RoquetError
from roquet.protocol.bodies.ha_status import LogRange
from roquet.protocol.bodies.sliced import decode_table
from roquet.protocol.bodies.tables import (
    DelayOffsetTable,
    GroupTable,
    OffsetTable,
    TopicTable,
    parse,
)
from roquet.protocol.headers.offsets import UpdateOffsetHeader
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

PERIOD_MS: Final = 10_000
TIMEOUT_MS: Final = 3000


class SlaveSync:
    """Copies the tables of the master. A table that cannot be copied does not stop the others.

    Consumers commit to a slave while its master is down. Such offsets are sent to the master when
    it is back, if they are higher than its own.

    :param own_log: the log of this broker.
    :param tables: the tables of this broker.
    :param slices: runs the decoding of tables; the table of 50,000 topics has 7 MB.
    :param period_ms: the time between two copies.
    """

    def __init__(
        self,
        channels: Channels,
        own_log: LogEnds,
        tables: Tables,
        slices: Slices,
        period_ms: int = PERIOD_MS,
    ) -> None:
        self._slices = slices
        self._channels = channels
        self._own_log = own_log
        self._tables = tables
        self._period_ms = period_ms
        self._wanted = asyncio.Event()
        self._streaks: defaultdict[RequestCode, FailureStreak] = defaultdict(FailureStreak)
        self._own_commits: list[Commit] = []
        self._delay_table: DelayOffsetTable | None = None
        self._master: str | None = None
        self.topics_to = 0
        """The end of this broker's log when the topics were last copied. Records after this offset
        may have topics that are not in the table yet."""
        self.last_master: str | None = None
        """The address of the last known master, even if no master is known now."""
        self.master_log: LogRange | None = None
        """The range of the master's log at the last answer; None before the first."""

    @property
    def master(self) -> str | None:
        """The address to which requests to the master go. Without it nothing is copied."""
        return self._master

    def set_master(self, address: str | None) -> None:
        """Copy from the master at this address from now on, or from none."""
        self._master = address
        if address is not None:
            self._wanted.set()
        if address not in (None, self.last_master):
            self._tables.delay_offsets.forget_copy()
        self.last_master = address or self.last_master

    async def run(self) -> None:
        """Copy when a master becomes known, then each period and after `soon`, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.copy()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_ms / 1000):
                    await self._wanted.wait()
            self._wanted.set()

    def soon(self) -> None:
        """Copy soon: the log has records of topics that this broker does not know yet."""
        self._wanted.set()

    async def copy(self) -> None:
        """Copy all tables once, in Apache's order; topics come from the master's fast port."""
        master = self.master
        if master is None:
            return
        fast = _fast_address(master)
        await self._copy(fast, RequestCode.GET_ALL_TOPIC_CONFIG, self._apply_topics)
        await self._copy(master, RequestCode.GET_ALL_CONSUMER_OFFSET, self._apply_offsets)
        await self._send_own_offsets(master)
        await self._copy(master, RequestCode.GET_ALL_DELAY_OFFSET, self._apply_delays)
        await self._copy(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._apply_groups)
        await self._copy(master, RequestCode.GET_BROKER_RUNTIME_INFO, self._apply_log_range)

    async def _copy(
        self, address: str, code: RequestCode, apply: Callable[[bytes], Steps[None]]
    ) -> None:
        """Copy one table.

        :param apply: decodes the body of the answer and applies it.
        """
        try:
            answer = checked(await self._channels.call(address, Command(code), TIMEOUT_MS), address)
            await self._slices.run(apply(answer.body))
        except (RoquetError, ValueError) as error:
            if self._streaks[code].failed():
                log.warning(
                    "table of the master not copied, will be retried: request=%s master=%s"
                    " period_ms=%d error=%s",
                    code.name,
                    address,
                    self._period_ms,
                    error,
                )
        else:
            self._streaks[code].ended()

    async def _send_own_offsets(self, master: str) -> None:
        """Send the offsets that consumers committed to this slave to the master, once.

        `only_forward` makes the master ignore an offset that is lower than its own: the group may
        have gone on at the master since its table was copied.
        """
        own, self._own_commits = self._own_commits, []
        if own:
            log.info(
                "offsets committed to this slave are sent to the master: offsets=%d master=%s",
                len(own),
                master,
            )
        for each in own:
            header = UpdateOffsetHeader(
                each.group, each.topic, each.queue_id, each.offset, only_forward=True
            )
            try:
                request = Command(RequestCode.UPDATE_CONSUMER_OFFSET, header.write())
                checked(await self._channels.call(master, request, TIMEOUT_MS), master)
            except RoquetError as error:
                log.warning(
                    "master did not accept an offset, will be retried: master=%s group=%s topic=%s"
                    " queue=%d error=%s",
                    master,
                    each.group,
                    each.topic,
                    each.queue_id,
                    error,
                )
                return
            self._tables.offsets.forget_own(each)

    def _apply_topics(self, body: bytes) -> Steps[None]:
        table = yield from decode_table(TopicTable, body)
        self.topics_to = self._own_log.end
        self._tables.topics.copy_master(table)

    def _apply_groups(self, body: bytes) -> Steps[None]:
        self._tables.groups.copy_master((yield from decode_table(GroupTable, body)))

    def _apply_offsets(self, body: bytes) -> Steps[None]:
        table = yield from decode_table(OffsetTable, body)
        if (yield from self._tables.offsets.copy_master(table)):
            self._tables.save_offsets()
        self._own_commits = yield from self._tables.offsets.own()

    def _apply_delays(self, body: bytes) -> Steps[None]:
        yield
        self._delay_table = parse(body, DelayOffsetTable.from_json)

    def _apply_log_range(self, body: bytes) -> Steps[None]:
        """Apply the master's log range, and the delay offsets that were copied just before.

        Copied in this order, the delay offsets belong to records before the end of this range.
        """
        yield
        self.master_log = log_range = parse(body, LogRange.from_json)
        table, self._delay_table = self._delay_table, None
        if table is not None and self._tables.delay_offsets.copy_master(
            table, log_range.end, self._own_log.flushed_to
        ):
            self._tables.save_delay_offsets()


def _fast_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + FAST_PORT_STEP}"
