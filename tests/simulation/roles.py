"""An operator's hands in a simulated cluster: a slave becomes the master, the former master a
slave.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from roquet.broker.config.broker import BrokerConfig
from roquet.broker.config.store import BrokerRole, FlushDisk
from roquet.broker.ha.rejoin import RejoinStore
from roquet.errors import ResponseError, RoquetError, StoreError
from roquet.protocol.headers.admin import PromoteHeader
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.protocol.remoting.refusals import checked
from roquet.transport.channels import Channels
from tests.simulation.broker_set import BrokerSet
from tests.simulation.hosts import START_S_MAX, ClusterHosts
from tests.simulation.simulation import Host
from tests.simulation.threads import DeadProcessError

OPERATOR_ADDRESS: Final = "10.0.9.2"
PROMOTE_S_MAX: Final = 60.0
LOOK_AGAIN_S: Final = 40.0
"""Longer than any broker takes to tell a name server of itself again."""


class ChangingRoles(ClusterHosts):
    """Invariant: `forced` counts the promotions that took no account of what would be lost by them."""

    def __init__(
        self,
        seed: int,
        names: Sequence[str],
        flush: FlushDisk,
        consumers: int,
        sets: int = 1,
        name_servers: int = 1,
    ) -> None:
        super().__init__(seed, names, flush, consumers, sets, name_servers)
        self.forced = 0
        self.refused: list[str] = []
        """Why slaves were not promoted."""

    def promote(self, name: str, *, fenced: bool = False, forced: bool = False) -> str:
        """Ask a slave to become the master; empty once it serves as such, else why it does not."""
        node, address = self.brokers[name], self.brokers[name].address
        request = Command(
            RequestCode.PROMOTE_SLAVE, PromoteHeader("SYNC_MASTER", fenced, forced).write()
        )
        operator = self.sim.host(OPERATOR_ADDRESS)
        why = ""
        try:
            operator.call(lambda: ask(address, request), PROMOTE_S_MAX)
        except ResponseError as error:
            why = error.remark
        except RoquetError as error:
            self.run_for(PROMOTE_S_MAX)
            why = str(error) if node.is_slave else ""
        operator.kill()
        if why:
            self.sim.note("not promoted", name, why)
            self.refused.append(why)
            return why
        self.sim.run_until(lambda: node.broker is not None and not node.is_slave, START_S_MAX)
        self.forced += forced
        return ""

    def fullest_slave(self, of: BrokerSet | None = None) -> str:
        """The slave that has most of the log; of the first set without any."""
        slaves = (of or self.sets[0]).slaves
        serving = [slave for slave in slaves if slave.broker is not None]
        return max(
            serving,
            key=lambda slave: slave.broker.store.log.end if slave.broker is not None else -1,
        ).name

    def end_the_master(self, of: BrokerSet | None = None) -> None:
        """It is gone for good, in any way, also such that nobody can see whether it is."""
        name, chance = (of or self.sets[0]).master.name, self.chance
        match chance.choice(("kill", "stop", "crash", "crash silently")):
            case "kill":
                self.kill(name)
            case "stop":
                self.stop(name)
            case way:
                self.crash(name, silently=way == "crash silently")

    def take_over(self, of: BrokerSet | None = None) -> str:
        """In place of a master that is gone for good: the slave that has most becomes the master,
        by force only where nothing else helps; gives its name.
        """
        fenced = (
            self.host((of or self.sets[0]).master.name).address not in self.sim.network.processes
        )  # not even its kernel answers
        name = self.fullest_slave(of)
        if self.promote(name, fenced=fenced):
            self.heal()
            self.run_for(LOOK_AGAIN_S)
            name = self.fullest_slave(of)
            if self.promote(name, fenced=fenced):
                why = self.promote(name, fenced=True, forced=True)
                assert not why, f"{name} does not become the master by force either: {why}"
        return name

    def truncate_where_logs_diverge(self, name: str) -> None:
        """What `roquet ha rejoin` does with the store of a broker that does not run."""
        config, host, master = (
            self.brokers[name].config,
            self.host(name),
            self.set_of(name).master.address,
        )
        try:
            host.call(lambda: _cut(config, host, master))
        finally:
            if host.is_running:
                host.kill()

    def rejoin(self, name: str) -> None:
        """Start a former master as a slave of the present one."""
        node = self.brokers[name]
        try:
            self.truncate_where_logs_diverge(name)
        except StoreError:
            self.wipe(name)
        members = self.set_of(name)
        used = {
            other.config.broker_id
            for other in members.brokers.values()
            if other.name not in members.former
        }
        free = next(number for number in range(1, 99) if number not in used)
        node.config = replace(
            node.config,
            broker_id=free,
            replication=replace(node.config.replication, broker_role=BrokerRole.SLAVE),
        )
        members.former.discard(name)
        node.start()

    def rejoin_with_a_power_failure(self, name: str) -> None:
        """The power fails while the log is truncated, at one of the first changes to the drive."""
        self.lose_power_soon(name)
        with suppress(DeadProcessError):
            self.truncate_where_logs_diverge(name)
            self.host(name).boot()
            self.lose_power_by_now(name)
        self.rejoin(name)

    def fence(self) -> None:
        """End every former master that still runs, as somebody said he had."""
        for name in self._former():
            if self.host(name).is_running:
                self.kill(name)

    def rejoin_all(self) -> None:
        """Every former master that is not a slave yet."""
        self.fence()
        for name in self._former():
            self.rejoin(name)

    def _former(self) -> list[str]:
        return [name for each in self.sets for name in sorted(each.former)]


async def ask(address: str, request: Command) -> None:
    channels = Channels()
    try:
        checked(await channels.call(address, request, int(PROMOTE_S_MAX * 1000) - 1), address)
    finally:
        await channels.close()


async def _cut(config: BrokerConfig, host: Host, master: str) -> None:
    store = RejoinStore(config, host.runtime(), host.disk)
    divergence = await store.find_divergence(master)
    store.truncate(divergence)
    store.close()
