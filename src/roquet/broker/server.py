"""Starts and stops a broker; `components` builds its parts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from roquet.broker import background, handler_table
from roquet.broker.components import Components
from roquet.broker.config.broker import BrokerConfig
from roquet.broker.ha.promotion import RestartAs
from roquet.broker.ha.replica_queries import refuse_second_master
from roquet.broker.maintenance.drive_failure import drive_failed, hand_over
from roquet.broker.store_folder import explaining_folder_errors
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.errors import CannotListen, NotWritten, RoquetError
from roquet.protocol.remoting.codes import RequestCode
from roquet.storage.files.disk import Disk
from roquet.transport.listening import listening
from roquet.transport.server import Server

log = logging.getLogger(__name__)


class Broker:
    """One broker, master or slave.

    Invariant: between `start` and `stop` it listens on its ports (two for clients; a master has one
    for slaves, too) and owns its store directory.

    :param disk: the file system; None for the machine's own, a simulation passes another.
    :param restart_as: stops this broker and starts one with another configuration. A slave without
        it cannot be promoted.
    :param end: called after a failed sync of the store; has to make the process call `stop`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        restart_as: RestartAs | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config.with_ports()
        self.runtime = runtime if runtime is not None else Runtime()
        self._disk = disk
        self.restart_as = restart_as
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []
        self.port = self.config.listen_port

    async def start(self) -> int:
        """Recover the store, listen and start the background tasks. Returns the listen port.

        :raises ConfigError: the name servers know another master of this name, and it answers.
        :raises StoreError: the store directory cannot be used.
        :raises DriveFailed: a sync of the store failed.
        :raises CannotListen: a port is taken. The store is left as after a clean stop, unless it
            had to recover.
        :raises OSError: a file could not be read or written.
        """
        self._build()
        try:
            if not self.config.is_slave:
                await refuse_second_master(self.parts.channels, self.config)
            with explaining_folder_errors(self.config.store_folder):
                self._open_store()
                self._load_tables()
            await self._listen()
        except BaseException as error:
            await self._close_servers()
            if isinstance(error, CannotListen) and not self.store.was_crashed:
                self._close_unused_store()
            self.store.abandon()
            if isinstance(error, OSError | RoquetError) and self.store.failure is not None:
                raise drive_failed(self.store.failure) from error
            raise
        self._start_tasks()
        return self.port

    async def stop(self) -> None:
        """Stop listening, unregister from the name servers, and close the store cleanly.

        :raises NotWritten: something could not be written. All files and connections are closed;
            the next start recovers as after a crash.
        :raises DriveFailed: a sync has failed, now or before. The next start recovers, too.
        """
        try:
            await self._quiesce()
            if self.store.failure is None:
                self.store.close()
        except OSError as error:
            if not self.store.take_failure():
                raise NotWritten(
                    f"stopped, but not everything could be written: {error}; consumer offsets may"
                    " be older than they were, and the next start recovers as after a crash"
                ) from error
            log.error("store not closed cleanly, a sync has failed: error=%s", error)
        finally:
            # a stop that raised or was cancelled may have left tasks running and ports open
            await self.kill()
        if self.store.failure is not None:
            raise drive_failed(self.store.failure)

    async def _quiesce(self) -> None:
        """End the running requests and tasks, then flush the log and save the tables."""
        parts = self.parts
        tables = parts.tables
        self._main.stop_accepting()
        await parts.registrar.unregister()
        await self._end_tasks()
        if await background.flush(self.store, self.runtime, LimitedLog(log)):
            tables.settle_delay_offsets()
        parts.append_notifier.visible_end_grew()
        if self.store.failure is not None and parts.ha_server is not None:
            await hand_over(parts.ha_server)
        await self._close_servers()
        if not self.config.is_slave:
            parts.halves.note_offsets()
        await tables.save()

    def disconnect(self) -> None:
        """Drop all connections of clients, with the answers not sent yet, and accept no more."""
        self._main.stop_accepting()
        self._vip.stop_accepting()
        for peer in list(self.parts.peers.connections):
            peer.abort()

    async def kill(self) -> None:
        """End at once and leave all files as they are, as a crash would."""
        try:
            await self._end_tasks()
            await self._close_servers()
        finally:
            self.store.abandon()

    def _build(self) -> None:
        self.parts = Components(self.config, self.runtime, self._disk, self.restart_as, self._end)
        self.store = self.parts.store
        table = handler_table.table_of(self.parts)
        connection_closed = self.parts.connection_closed
        peers = self.parts.peers
        # Apache's VIP port, listenPort - 2, answers no pulls: they cannot hold up sends there.
        without_pulls = {
            code: handler
            for code, handler in table.handlers.items()
            if code != RequestCode.PULL_MESSAGE
        }
        self._main = Server(table.handlers, connection_closed, peers, table.fast_paths)
        self._vip = Server(without_pulls, connection_closed, peers, table.fast_paths)

    def _open_store(self) -> None:
        """Open and recover the store.

        Filters are loaded first: recovery computes filter bits for the records that it dispatches.
        """
        tables = self.parts.tables
        tables.load_filters()
        self.store.open()
        if self.store.was_crashed:
            tables.distrust_filter_bits_until(self.store.newest_ms)

    def _close_unused_store(self) -> None:
        """Close the store cleanly after a failed start, so that the next start need not recover.

        Not called for a store that had to recover: that one keeps its file `abort`, because the
        next start must again distrust the filter bits from before the crash.
        """
        try:
            self.store.close()
        except OSError as error:
            log.warning(
                "store not closed, the next start recovers as after a crash: error=%s", error
            )

    def _load_tables(self) -> None:
        self.parts.tables.load()
        self.parts.late_dispatch.complete_tables()

    async def _listen(self) -> None:
        config = self.config
        host = config.bind_address
        with listening(host, config.listen_port, "clients, listenPort"):
            await self._main.listen(host, config.listen_port)
        with listening(host, config.fast_port, "clients, listenPort - 2"):
            await self._vip.listen(host, config.fast_port)
        if self.parts.ha_server is not None:
            with listening(host, config.ha_port, "replication, listenPort + 1"):
                await self.parts.ha_server.listen(host, config.ha_port)

    def _start_tasks(self) -> None:
        if self.parts.follower is not None:
            self.parts.follower.start()
        for loop in background.loops(self.parts):
            self._spawn(loop)

    def _spawn(self, work: background.Loop) -> None:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(_ended)
        self._tasks.append(task)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.parts.jobs.close()

    async def _close_servers(self) -> None:
        parts = self.parts
        await self._main.close()
        await self._vip.close()
        if parts.ha_server is not None:
            await parts.ha_server.close()
        if parts.follower is not None:
            await parts.follower.close()
        parts.late_dispatch.stop()
        await parts.channels.close()


def _ended(task: asyncio.Task[None]) -> None:
    """Log the exception of a background task; the loops handle the errors that they expect."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("background task failed, restart the broker: task=%r", task, exc_info=error)
