"""What a broker says of itself to admin tools and slaves: codes 26, 28, 43, 45, 315.

See docs/protocol/administration.md#runtime-information,
docs/protocol/administration.md#what-a-slave-copies, docs/protocol/administration.md#statistics and
docs/broker/statistics.md#counts-by-topic-and-group.
"""

from __future__ import annotations

from dataclasses import asdict

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.metrics.runtime_info import RuntimeInfo
from roquet.broker.metrics.stats import Stats
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets, DelayOffsets
from roquet.common.properties import dump
from roquet.common.settings import show_settings
from roquet.common.steps import Steps
from roquet.errors import Refused
from roquet.protocol.bodies.sliced import encode_table
from roquet.protocol.bodies.tables import DataVersion
from roquet.protocol.headers.admin import StatsHeader
from roquet.protocol.json.dialect import dump_bytes, dump_dialect
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices


class BrokerAdmin:
    """Answers requests for configuration, runtime info, statistics, and all offsets.

    :param config_version: the data version of the configuration.
    :param offsets: the consumer offsets.
    """

    def __init__(
        self,
        config: BrokerConfig,
        config_version: DataVersion,
        info: RuntimeInfo,
        offsets: ConsumerOffsets,
        delays: DelayOffsets,
        stats: Stats,
        slices: Slices,
    ) -> None:
        self._slices = slices
        self._config = config
        self._config_version = config_version
        self._info = info
        self._offsets = offsets
        self._delays = delays
        self._stats = stats

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._slices.handler(self.runtime_info),
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._slices.handler(self.consumer_offsets),
            RequestCode.GET_ALL_DELAY_OFFSET: self.delay_offsets,
            RequestCode.VIEW_BROKER_STATS_DATA: self._slices.handler(self.stats),
        }

    def config(self, request: Command, _: Connection) -> Command:
        text = dump(show_settings(self._config)).encode()
        version = dump_bytes(self._config_version.to_json()).decode()
        return request.answer(ResponseCode.SUCCESS, None, {"version": version}, text)

    def runtime_info(self, request: Command) -> Steps[Command]:
        table = yield from self._info.table()
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes({"table": table}))

    def stats(self, request: Command) -> Steps[Command]:
        header = StatsHeader.read(request.fields)
        windows = yield from self._stats.describe(header.stats_name, header.stats_key)
        if windows is None:
            remark = f"there is no statistic {header.stats_name} with the key {header.stats_key}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        body = dump_bytes({name: asdict(summary) for name, summary in windows.items()})
        return request.answer(ResponseCode.SUCCESS, body=body)

    def consumer_offsets(self, request: Command) -> Steps[Command]:
        body = yield from encode_table(self._offsets.to_table(), dump_dialect)
        return request.answer(ResponseCode.SUCCESS, body=body)

    def delay_offsets(self, request: Command, _: Connection) -> Command:
        return request.answer(
            ResponseCode.SUCCESS, body=dump_dialect(self._delays.to_table().to_json())
        )
