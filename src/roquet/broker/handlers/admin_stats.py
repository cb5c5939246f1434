"""Admin tools and statistics: codes 315, 317 (protocol.md 2.5, store-and-ha.md 6.13)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from roquet.broker.catalogue import Catalogue
from roquet.broker.positions import Positions
from roquet.broker.stats import Stats
from roquet.errors import Refused
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.headers.admin import ConsumeStatsHeader, StatsHeader
from roquet.protocol.json_dialect import dump_bytes, dump_dialect
from roquet.transport.connection import Connection, Handler


class StatsAdmin:
    """Shows how much goes in and out, and how far all groups are behind.

    :param address: the broker's own, as clients know it.
    """

    def __init__(self, stats: Stats, positions: Positions, catalogue: Catalogue, address: str) -> None:
        self._stats = stats
        self._positions = positions
        self._catalogue = catalogue
        self._address = address

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats,
            RequestCode.GET_BROKER_CONSUME_STATS: self.consume_stats,
        }

    def stats(self, request: Command, connection: Connection) -> Command:
        header = StatsHeader.read(request.fields)
        windows = self._stats.describe(header.stats_name, header.stats_key)
        if windows is None:
            remark = f"nothing is counted as {header.stats_name} of {header.stats_key}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        body = dump_bytes({name: asdict(summary) for name, summary in windows.items()})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consume_stats(self, request: Command, connection: Connection) -> Command:
        """Of every group, a table for each of its topics; where ordered topics are asked for, of these only."""
        only_ordered = ConsumeStatsHeader.read(request.fields).is_order
        tables: list[dict[str, list[dict[str, Any]]]] = []
        behind = 0
        for group in self._catalogue.groups:
            topics = [topic for topic in self._positions.topics_of(group) if topic.order or not only_ordered]
            stats = [self._positions.stats(group, [topic]) for topic in topics]
            tables.append({group: stats})
            behind += sum(map(self._positions.behind, stats))
        document = {"brokerAddr": self._address, "consumeStatsList": tables, "totalDiff": behind}
        return request.answer(ResponseCode.SUCCESS, body=dump_dialect(document))
