"""Promotion: an operator makes a slave the master of its name, if every check allows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from roquet.broker.config.broker import BrokerConfig, save_role
from roquet.broker.config.store import BrokerRole
from roquet.broker.ha.follower import MasterFollower
from roquet.broker.ha.replica_queries import BrokerLiveness, addresses_of, liveness_of, log_range_of
from roquet.broker.metadata.found_topics import add_found_topics
from roquet.broker.metadata.topics import TopicRegistry
from roquet.errors import ConfigError, Refused, RoquetError
from roquet.protocol.bodies.tables import MASTER_ID
from roquet.protocol.headers.admin import PromoteHeader
from roquet.protocol.remoting.codes import RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.replication.slave import Phase
from roquet.storage.store import Store
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection, Handler

log = logging.getLogger(__name__)

RestartAs = Callable[[BrokerConfig], None]
"""Requests that the broker is stopped and started with another configuration."""


class Promotion:
    """Answers PROMOTE_SLAVE: checks that this slave may become the master, and restarts it as one.

    Refused while the old master lives, or while it may live and the operator has not said that it
    is fenced. Refused without `forced` if the old master or another slave is known to have had
    records that this log lacks.

    :param restart_as: restarts this broker; None if the program that runs it cannot.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        topics: TopicRegistry,
        channels: Channels,
        follower: MasterFollower | None,
        restart_as: RestartAs | None,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._channels = channels
        self._follower = follower
        self._restart_as = restart_as
        self._work: asyncio.Task[None] | None = None

    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PROMOTE_SLAVE: self.promote}

    def promote(self, request: Command, connection: Connection) -> None:
        """Begin a promotion. The answer is sent after all checks; then the broker restarts."""
        header = PromoteHeader.read(request.fields)
        role = BrokerRole.__members__.get(header.role, BrokerRole.SLAVE)
        if role is BrokerRole.SLAVE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"role {header.role!r}: allowed are SYNC_MASTER and ASYNC_MASTER",
            )
        if self._follower is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"this broker is the master of {self._config.broker_name} already",
            )
        if self._restart_as is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "this broker runs inside a program that cannot restart it",
            )
        if self._work is not None and not self._work.done():
            raise Refused(ResponseCode.SYSTEM_ERROR, "this broker is being promoted already")
        self._work = asyncio.get_running_loop().create_task(
            self._promote(header, role, self._follower, self._restart_as, request, connection)
        )

    async def _promote(
        self,
        header: PromoteHeader,
        role: BrokerRole,
        follower: MasterFollower,
        restart_as: RestartAs,
        request: Command,
        connection: Connection,
    ) -> None:
        known = await addresses_of(
            self._channels, self._config.name_servers, self._config.broker_name
        )
        masters = {known.get(MASTER_ID), follower.sync.last_master}
        against = await self._against_the_master(masters, is_fenced=header.fenced)
        against += self._against_our_drive()
        if not header.forced:
            against += self._against_our_log(follower)
            against += await self._against_other_slaves(known)
        if not against:
            try:
                config = self._promoted(role)
            except (OSError, ConfigError, ValueError) as error:
                against = [
                    f"the settings cannot be changed in {self._config.broker_config_path}: {error}"
                ]
        if against:
            connection.send(request.answer(ResponseCode.SYSTEM_ERROR, "; ".join(against)).encode())
            return
        log.warning("slave promoted: role=%s broker_name=%s", role.name, config.broker_name)
        add_found_topics(self._store, self._topics, stored_after=follower.sync.topics_to)
        connection.send(request.answer(ResponseCode.SUCCESS).encode())
        restart_as(config)

    async def _against_the_master(self, known: set[str | None], *, is_fenced: bool) -> list[str]:
        """The reasons against a promotion that concern the old master.

        Two masters at a time would each accept messages that the other never gets. So a master that
        answers is never overruled, not even by `forced`.
        """
        addresses = {address for address in known if address is not None}
        against = []
        for address in sorted(addresses - {self._config.address}):
            liveness = await liveness_of(self._channels, address)
            if liveness is BrokerLiveness.ANSWERS:
                against.append(f"the master at {address} answers: stop it first")
            elif liveness is BrokerLiveness.SILENT and not is_fenced:
                against.append(
                    f"the master at {address} {liveness.value}, but may live on elsewhere: make"
                    " sure that it is stopped or cut off from its clients, then say that it is"
                    " fenced"
                )
        if not addresses and not is_fenced:
            against.append(
                "the address of the master is not known: make sure that it is stopped, then say"
                " that it is fenced"
            )
        return against

    def _against_our_drive(self) -> list[str]:
        """The reason against a promotion that concerns this broker's store.

        After a failed sync only a restart of the process makes the store usable, so `forced` does
        not overrule it.
        """
        failure = self._store.failure
        if failure is None:
            return []
        return [f"a sync of this broker's store has failed: {failure}; restart this broker first"]

    def _against_our_log(self, follower: MasterFollower) -> list[str]:
        """The reasons against a promotion that concern what this log lacks of the master's."""
        own = self._store.log
        status = follower.client.status()
        had = follower.sync.master_log
        self._store.replicated()
        lag_reason = self._store.dispatch.lag_reason
        against = [lag_reason] if lag_reason else []
        if status.phase is Phase.STOPPED:
            against.append(f"this log does not fit the master's: {status.reason}")
        if had is None:
            against.append(
                "since its start this slave has not heard what the master has; what is missing is"
                " not known"
            )
            return against
        if own.end < had.end:
            against.append(
                f"{had.end - own.end} bytes are missing here, the master's log ended at {had.end}"
                " at least"
            )
        if own.start > had.start:
            against.append(
                f"the first {own.start - had.start} bytes of the master's log are missing here"
            )
        return against

    async def _against_other_slaves(self, known: dict[int, str]) -> list[str]:
        """The reasons against a promotion that concern slaves with more of the log than this one.

        With several slaves, the master acknowledges a send as soon as one of them has reported it.
        Name servers that do not list this slave were just restarted or cannot be reached; they may
        not list the other slaves, either.
        """
        against = []
        if self._config.name_servers and self._config.address not in known.values():
            against.append("no name server lists this slave: what other slaves have is not known")
        for broker_id, address in sorted(known.items()):
            if broker_id == MASTER_ID or address == self._config.address:
                continue
            try:
                end = (await log_range_of(self._channels, address)).end
            except (RoquetError, ValueError) as error:
                against.append(f"slave {broker_id} does not say how much it has: {error}")
                continue
            if end > self._store.log.end:
                missing = end - self._store.log.end
                against.append(
                    f"slave {broker_id} at {address} has {missing} bytes more: promote that one"
                )
        return against

    def _promoted(self, role: BrokerRole) -> BrokerConfig:
        """The configuration of this broker as master; saved to its file, if it has one."""
        own = self._config
        config = replace(
            own, broker_id=MASTER_ID, replication=replace(own.replication, broker_role=role)
        )
        save_role(config)
        return config
