"""Statistics for admin tools: codes 315, 317.

See docs/broker/statistics.md#counts-by-topic-and-group and
docs/protocol/administration.md#statistics.
"""

from __future__ import annotations

from dataclasses import asdict

from roquet.broker.metadata.metadata import Metadata
from roquet.broker.metrics.stats import Stats
from roquet.broker.offsets.group_lag import GroupLag
from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.headers.admin import ConsumeStatsHeader, StatsHeader
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Handler
from roquet.transport.slices import Slices


class StatsAdmin:
    """Answers requests for counters, and for the backlogs of all groups.

    :param lag: computes the backlog of a group.
    :param address: this broker's address, as clients know it.
    """

    def __init__(
        self, stats: Stats, lag: GroupLag, metadata: Metadata, address: str, slices: Slices
    ) -> None:
        self._slices = slices
        self._stats = stats
        self._lag = lag
        self._metadata = metadata
        self._address = address

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.VIEW_BROKER_STATS_DATA: self._slices.handler(self.stats),
            RequestCode.GET_BROKER_CONSUME_STATS: self._slices.handler(self.consume_stats),
        }

    def stats(self, request: Command) -> Steps[Command]:
        header = StatsHeader.read(request.fields)
        windows = yield from self._stats.describe(header.stats_name, header.stats_key)
        if windows is None:
            remark = f"there is no statistic {header.stats_name} with the key {header.stats_key}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        body = dump_bytes({name: asdict(summary) for name, summary in windows.items()})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consume_stats(self, request: Command) -> Steps[Command]:
        """The offsets of every group: a table for each of its topics, or of its ordered ones."""
        only_ordered = ConsumeStatsHeader.read(request.fields).is_order
        body = bytearray(b'{"brokerAddr":%b,"consumeStatsList":[' % dump_bytes(self._address))
        backlog = 0
        comma = b""
        for group in list(self._metadata.groups):
            body += b"%b{%b:[" % (comma, dump_bytes(group))
            topics = yield from self._lag.topics_of(group)
            comma = b""
            for topic in topics:
                if topic.order or not only_ordered:
                    body += comma
                    backlog += yield from self._lag.stats(group, [topic], body)
                    comma = b","
            body += b"]}"
            comma = b","
            yield
        body += b'],"totalDiff":%d}' % backlog
        return request.answer(ResponseCode.SUCCESS, body=bytes(body))
