"""The replication status for admin tools: code 907, as in 5.x."""

from __future__ import annotations

from collections.abc import Callable

from roquet.broker.config.broker import BrokerConfig
from roquet.protocol.bodies.ha_status import FollowerStatus, HaStatus, SlaveStatus
from roquet.protocol.json.dialect import dump_bytes
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.replication.client import HaClient, MasterStatus
from roquet.replication.master import Phase
from roquet.replication.server import HaServer, SlaveFollow
from roquet.replication.slave import Phase as FollowerPhase
from roquet.storage.store import Store
from roquet.transport.connection import Connection, Handler


class HaAdmin:
    """Answers with the state of a master's slaves, or of a slave's connection to its master.

    :param server: a master's HA server; None on a slave.
    :param client: a slave's HA client; None on a master.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        server: HaServer | None,
        client: HaClient | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._in_sync_max = config.replication.ha_slave_fallbehind_max
        self._store = store
        self._server = server
        self._client = client
        self._now_ms = now_ms

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_HA_STATUS: self.status}

    def status(self, request: Command, _: Connection) -> Command:
        slaves = () if self._server is None else tuple(map(self._slave, self._server.slaves()))
        follower = None if self._client is None else self._follower(self._client.status())
        status = HaStatus(self._store.log.end, slaves, follower, self._store.remark)
        return request.answer(ResponseCode.SUCCESS, body=dump_bytes(status.to_json()))

    def _slave(self, slave: SlaveFollow) -> SlaveStatus:
        is_streaming = slave.phase is Phase.STREAMING and not slave.reason
        return SlaveStatus(
            slave.address,
            slave.acked,
            slave.lag,
            is_streaming and slave.lag < self._in_sync_max,
            slave.bytes_per_s,
            slave.sent,
            Phase.GONE.value if slave.reason else slave.phase.value,
            slave.lag_ms,
            slave.silent_ms,
            slave.reason,
        )

    def _follower(self, own: MasterStatus) -> FollowerStatus:
        now_ms = self._now_ms()
        return FollowerStatus(
            own.master or "",
            own.bytes_per_s,
            own.end,
            now_ms - own.silent_ms,
            now_ms - own.reported_ms,
            own.phase is FollowerPhase.FOLLOWING,
            own.phase.value,
            own.reason,
        )
