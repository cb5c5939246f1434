"""One broker after the other in one process: what was a slave goes on as the master, on the same store and ports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.server import Broker
from roquet.common.runtime import Runtime
from roquet.storage.files.disk import Disk

log = logging.getLogger(__name__)


class BrokerProcess:
    """Keeps: `broker` is the one that serves now, None while none does; `config` is the latest one's.

    :param failed: told when a broker with another configuration could not be started, or the drive of the one that
        serves has failed; `stop` raises why.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        failed: Callable[[], None] = lambda: None,
        disk: Disk | None = None,
    ) -> None:
        self.config = config
        self._runtime = runtime
        self._disk = disk
        self._failed = failed
        self._change: asyncio.Task[None] | None = None
        self._is_stopping = False
        self.broker: Broker | None = None
        self.port = config.listen_port

    @property
    def is_changing(self) -> bool:
        """Whether one broker has been asked to stop for another."""
        return self.broker is None and self._change is not None

    async def start(self) -> int:
        """As `Broker.start`."""
        broker = Broker(self.config, self._runtime, self._disk, self._become, self._failed)
        self.port = await broker.start()
        self.config, self.broker = broker.config, broker
        return self.port

    @property
    def ports(self) -> tuple[int, ...]:
        """Those of clients and tools, and of a master's slaves."""
        config = self.config
        return (
            config.listen_port,
            config.fast_port,
            *(() if config.is_slave else (config.ha_port,)),
        )

    @property
    def address(self) -> str:
        return self.config.address

    async def stop(self) -> None:
        """As `Broker.stop`; raises what kept the latest one from starting."""
        self._is_stopping = True
        if self._change is not None:
            await self._change
        if self.broker is not None:
            await self.broker.stop()

    def _become(self, config: BrokerConfig) -> None:
        """Once at a time, and not while the process ends: a broker stops once, and none is started after it. The
        configuration is in its file, where it has one, and counts at the next start.
        """
        if self._is_stopping or self.broker is None:
            log.warning("new settings count at the next start: this broker is stopping already")
            return
        before, self.broker, self.config = self.broker, None, config
        self._change = asyncio.get_running_loop().create_task(self._start_anew(before))

    async def _start_anew(self, before: Broker) -> None:
        try:
            await before.stop()
            await self.start()
        except Exception:
            log.critical("the broker could not be started with its new settings", exc_info=True)
            self._failed()
            raise
