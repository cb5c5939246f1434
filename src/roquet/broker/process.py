"""Runs one broker at a time in a process: a promoted slave restarts as master on its store."""

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
    """The broker of this process. A promotion replaces it by one with another configuration.

    Invariant: `broker` is the broker that serves now, None while none serves. `config` is the
    configuration of the latest one.

    :param failed: called when the broker could not be restarted, or when a sync of the store has
        failed. `stop` then raises the reason.
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
        """Whether a broker is being replaced by another, or could not be."""
        return self.broker is None and self._change is not None

    async def start(self) -> int:
        """Start a broker; see `Broker.start`."""
        broker = Broker(self.config, self._runtime, self._disk, self._restart_as, self._failed)
        self.port = await broker.start()
        self.config, self.broker = broker.config, broker
        return self.port

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports that this broker listens on; only a master has one for slaves."""
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
        """Stop the broker; see `Broker.stop`. Raises the error if a restart has failed."""
        self._is_stopping = True
        if self._change is not None:
            await self._change
        if self.broker is not None:
            await self.broker.stop()

    def _restart_as(self, config: BrokerConfig) -> None:
        """Replace the broker by one with this configuration, unless the process is stopping.

        The configuration was saved to the broker's file, if it has one, so that it applies at the
        next start anyway.
        """
        if self._is_stopping or self.broker is None:
            log.warning(
                "broker not restarted with its new role, it is stopping already: role=%s; the role"
                " applies at the next start if the broker has a configuration file",
                config.replication.broker_role.name,
            )
            return
        before = self.broker
        self.broker = None
        self.config = config
        self._change = asyncio.get_running_loop().create_task(self._restart(before))

    async def _restart(self, before: Broker) -> None:
        try:
            await before.stop()
            await self.start()
        except Exception:
            log.critical(
                "broker could not be restarted with its new role: role=%s",
                self.config.replication.broker_role.name,
                exc_info=True,
            )
            self._failed()
            raise
