"""Starts and stops a broker, which `components` puts together; holds no logic."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roquet.broker import periodic
from roquet.broker.background import Loop, loops
from roquet.broker.components import Components
from roquet.broker.config.broker import MASTER_ID, BrokerConfig
from roquet.broker.ha.peers import BrokerLiveness, addresses_of, life_of
from roquet.broker.ha.promotion import Become
from roquet.broker.handler_table import handlers
from roquet.broker.maintenance.drive_failure import drive_failed
from roquet.broker.store_folder import told_of_folder
from roquet.common.limited_log import LimitedLog
from roquet.common.runtime import Runtime
from roquet.errors import CannotListen, ConfigError, NotWritten, RoquetError
from roquet.protocol.remoting.codes import RequestCode
from roquet.storage.files.disk import Disk
from roquet.transport.listening import listening
from roquet.transport.server import Server

log = logging.getLogger(__name__)

HAND_OVER_S: Final = 5.0
"""So long slaves may take for what a master whose drive has failed still has for them."""
HAND_OVER_LOOK_S: Final = 0.05


class Broker:
    """One broker, master or slave.

    Keeps: between `start` and `stop` it listens on three ports and owns its store directory.

    :param disk: the file system; the machine's own unless a simulation brings another.
    :param become: stops this broker and starts one with another configuration; a slave needs it to be promoted.
    :param end: asked to let the process end, by `stop`, when the drive has failed.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime | None = None,
        disk: Disk | None = None,
        become: Become | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config.with_ports()
        self.runtime = runtime if runtime is not None else Runtime()
        self._disk = disk
        self._become = become
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []
        self.port = self.config.listen_port

    async def start(self) -> int:
        """Recover the store and serve; gives the port once it accepts.

        :raises ConfigError: the name servers know another master of this name, and it answers.
        :raises StoreError: the store directory cannot be used; DriveFailed: a sync of it failed.
        :raises CannotListen: a port is taken; the store is left as after a clean stop, unless it had to recover.
        :raises OSError: a file could not be read or written.
        """
        self._build()
        try:
            await self._refuse_a_second_master()
            with told_of_folder(self.config.store_folder):
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
        """Take no more requests, say goodbye to the name servers, and leave the store as after a clean stop.

        :raises NotWritten: something could not be; nothing is left open, the next start recovers as after a crash.
        :raises DriveFailed: likewise, since a sync has failed, now or before.
        """
        try:
            await self._come_to_rest()
            if self.store.failure is None:
                self.store.close()
        except OSError as error:
            if not self.store.take_failure():
                raise NotWritten(
                    f"stopped, but not everything could be written: {error}; offsets of groups may be older "
                    "than they were, and the next start recovers as after a crash"
                ) from error
            log.error("not written at the end, the drive has failed: error=%s", error)
        finally:
            await (
                self.kill()
            )  # what a stop that is cut short has not come to: nothing listens without a store
        if self.store.failure is not None:
            raise drive_failed(self.store.failure)

    async def _come_to_rest(self) -> None:
        """Let what is under way end, and write down what is known beside the messages."""
        parts, delays = self.parts, self.parts.tables.delays
        self._main.stop_accepting()
        await parts.registrar.unregister()
        await self._end_tasks()
        if await periodic.flush(self.store, self.runtime, LimitedLog(log)):
            delays.settle(delays.now())
        parts.append_notifier.shown()
        if self.store.failure is not None:
            await self._hand_over()
        await self._close_servers()
        if not self.config.is_slave:
            parts.halves.note_progress()
        await parts.tables.save()

    async def _hand_over(self) -> None:
        """Let slaves have what was written but is nowhere else: without SYNC_FLUSH it may have been acknowledged. What
        SYNC_FLUSH has not shown them stays here.
        """
        server = self.parts.ha_server
        if server is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                while server.slave_count and server.replicated_to < server.log.end:
                    await asyncio.sleep(HAND_OVER_LOOK_S)
        server.say_why("the master's drive has failed, it ends")

    async def kill(self) -> None:
        """End at once and leave everything as it lies, as a crash would."""
        try:
            await self._end_tasks()
            await self._close_servers()
        finally:
            self.store.abandon()

    def _build(self) -> None:
        self.parts = Components(self.config, self.runtime, self._disk, self._become, self._end)
        self.store = self.parts.store
        answered, connection_closed = handlers(self.parts), self.parts.connection_closed
        fast = {
            code: handler for code, handler in answered.items() if code != RequestCode.PULL_MESSAGE
        }
        self._main = Server(answered, connection_closed, self.parts.peers)
        self._fast = Server(fast, connection_closed, self.parts.peers)

    async def _refuse_a_second_master(self) -> None:
        """Clients would find the one or the other; what each takes would never be in the other's log."""
        config, channels = self.config, self.parts.channels
        if config.is_slave:
            return
        other = (await addresses_of(channels, config.name_servers, config.broker_name)).get(
            MASTER_ID
        )
        if (
            other in (None, config.address)
            or await life_of(channels, other) is not BrokerLiveness.ANSWERS
        ):
            return
        raise ConfigError(
            f"{other} is the master of {config.broker_name}, and answers: start this broker as its slave "
            "(brokerRole=SLAVE and a brokerId of its own), or under another brokerName"
        )

    def _open_store(self) -> None:
        """What recovery dispatches is tried on the filters of before."""
        self.parts.tables.load_filters()
        self.store.open()
        if self.store.was_crashed:
            self.parts.tables.filters.distrust_notes_until(self.store.newest_ms)

    def _close_unused_store(self) -> None:
        """Let the next start find the mark of a clean stop: it need not read again all that it cannot trust after a
        crash. One that recovered keeps its mark of a crash, as filters do not trust the notes of before.
        """
        try:
            self.store.close()
        except OSError as error:
            log.warning(
                "store not closed, the next start recovers as after a crash: error=%s", error
            )

    def _load_tables(self) -> None:
        self.parts.tables.load()
        self.parts.read_queues()

    async def _listen(self) -> None:
        config, host = self.config, self.config.bind_address
        with listening(host, config.listen_port, "clients, listenPort"):
            await self._main.listen(host, config.listen_port)
        with listening(host, config.fast_port, "clients, listenPort - 2"):
            await self._fast.listen(host, config.fast_port)
        if self.parts.ha_server is not None:
            with listening(host, config.ha_port, "replication, listenPort + 1"):
                await self.parts.ha_server.listen(host, config.ha_port)

    def _start_tasks(self) -> None:
        if self.parts.ha_client is not None:
            self.parts.ha_client.set_master(self.config.ha_master_address)
        for loop in loops(self.parts):
            self._spawn(loop)

    def _spawn(self, work: Loop) -> None:
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
        await self._main.close()
        await self._fast.close()
        if self.parts.ha_server is not None:
            await self.parts.ha_server.close()
        if self.parts.ha_client is not None:
            await self.parts.ha_client.close()
        self.parts.dispatches.stop()
        await self.parts.channels.close()


def _ended(task: asyncio.Task[None]) -> None:
    """What goes wrong in one of them is dealt with inside; what is not is told of."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a part of the broker has failed, start it anew: %r", task, exc_info=error)
