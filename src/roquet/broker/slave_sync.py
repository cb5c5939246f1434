"""A slave's copy of its master's tables: topics, offsets, groups (protocol.md 2.6, store-and-ha.md 5.5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from roquet.broker.catalogue import Catalogue
from roquet.broker.config import FAST_PORT_STEP
from roquet.broker.progress import ConsumerProgress, DelayProgress
from roquet.broker.state_files import Changed
from roquet.errors import RoquetError
from roquet.protocol.bodies import DelayOffsetTable, GroupTable, OffsetTable, TopicTable, parse
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.transport.channels import Channels
from roquet.transport.connection import checked

log = logging.getLogger(__name__)

FIRST_MS: Final = 3000
PERIOD_MS: Final = 10_000
TIMEOUT_MS: Final = 3000

T = TypeVar("T")


class SlaveSync:
    """Copies the tables of the master, each on its own: what cannot be had leaves the others alone.

    :param offsets_changed: saves the consumer offsets.
    :param delays_changed: saves the delay offsets.
    """

    def __init__(
        self,
        channels: Channels,
        catalogue: Catalogue,
        progress: ConsumerProgress,
        delays: DelayProgress,
        offsets_changed: Changed,
        delays_changed: Changed,
    ) -> None:
        self._channels = channels
        self._catalogue = catalogue
        self._progress = progress
        self._delays = delays
        self._offsets_changed = offsets_changed
        self._delays_changed = delays_changed
        self._failing: set[RequestCode] = set()
        self.master: str | None = None
        """Address of the master's requests; nothing is copied while it is not known."""

    async def run(self) -> None:
        """Copy soon after the start, then each period; for ever."""
        await asyncio.sleep(FIRST_MS / 1000)
        while True:
            await self.copy()
            await asyncio.sleep(PERIOD_MS / 1000)

    async def copy(self) -> None:
        """Copy all tables once, in Apache's order; topics come from the master's fast port."""
        master = self.master
        if master is None:
            return
        fast = _fast_address(master)
        await self._copy(fast, RequestCode.GET_ALL_TOPIC_CONFIG, TopicTable.from_json, self._take_topics)
        await self._copy(master, RequestCode.GET_ALL_CONSUMER_OFFSET, OffsetTable.from_json, self._take_offsets)
        await self._copy(master, RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetTable.from_json, self._take_delays)
        await self._copy(master, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GroupTable.from_json, self._take_groups)

    async def _copy(
        self, address: str, code: RequestCode, kind: Callable[[Mapping[str, Any]], T], take: Callable[[T], None]
    ) -> None:
        try:
            answer = checked(await self._channels.call(address, Command(code), TIMEOUT_MS), address)
            take(parse(answer.body, kind))
        except (RoquetError, ValueError) as error:
            if code not in self._failing:
                log.warning("%s: master %s, tried again each %s s: %s", code.name, address, PERIOD_MS // 1000, error)
            self._failing.add(code)
        else:
            self._failing.discard(code)

    def _take_topics(self, table: TopicTable) -> None:
        self._catalogue.copy_master_topics(table)

    def _take_groups(self, table: GroupTable) -> None:
        self._catalogue.copy_master_groups(table)

    def _take_offsets(self, table: OffsetTable) -> None:
        if self._progress.copy_master(table):
            self._offsets_changed()

    def _take_delays(self, table: DelayOffsetTable) -> None:
        if self._delays.copy_master(table):
            self._delays_changed()


def _fast_address(address: str) -> str:
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + FAST_PORT_STEP}"
