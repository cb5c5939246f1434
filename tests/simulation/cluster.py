"""A whole cluster in one process on virtual time: real servers and clients, and every way they can be hurt.

    with Cluster(seed, "sync-master", "slave") as cluster:
        cluster.send(100)
        cluster.run_for(1)
        cluster.crash("sync-master")
        assert cluster.acknowledged() <= cluster.readable_from("slave")
        cluster.settle()
        cluster.check_everything()

What differs between two seeds beside the world itself (sizes of files and chunks, periods) is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self

from roquet.broker.config.store import FlushDisk
from roquet.broker.server import Broker
from roquet.client.send_result import SendResult
from roquet.protocol.headers.admin import CreateTopicHeader
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from tests.simulation import checks
from tests.simulation.broker_set import BrokerSet
from tests.simulation.clients import TOPIC, place_of
from tests.simulation.copies import acknowledged_is_there_twice
from tests.simulation.hosts import CONSUMER, NAME_SERVER, PRODUCER, START_S_MAX
from tests.simulation.nodes import QUEUES, BrokerNode
from tests.simulation.quiet import check_quiet
from tests.simulation.reading import read_everything
from tests.simulation.retention import files_go_when_they_may
from tests.simulation.roles import OPERATOR_ADDRESS, ChangingRoles, ask
from tests.simulation.swallowed import SwallowedErrors
from tests.simulation.watch import Watch

__all__ = ["CONSUMER", "NAME_SERVER", "PRODUCER", "Cluster"]

READER_ADDRESS: Final = "10.0.9.1"
SETTLE_S_MAX: Final = 300.0
ALWAYS: Final[tuple[checks.Check, ...]] = (
    files_go_when_they_may,
    checks.logs_agree_where_they_overlap,
    checks.queues_agree_with_the_log,
    checks.progress_only_grows,
    checks.acknowledged_is_kept,
    acknowledged_is_there_twice,
)
"""What is checked after every event."""


class Cluster(ChangingRoles):
    """Servers and clients that run, in the hands of a test.

    Invariant: every check holds after every event, and no exception was swallowed by a log.

    :param names: `sync-master` or `async-master` first, then slaves by any name, in the order of
        their broker ids.
    :param flush: of all brokers.
    :param consumers: how many members the group has: `consumer`, `consumer-2` ...
    :param sets: how many broker names there are, see `ClusterHosts`.
    :param name_servers: how many there are: `name-server`, `name-server-2` ...
    """

    def __init__(
        self,
        seed: int,
        *names: str,
        flush: FlushDisk = FlushDisk.ASYNC_FLUSH,
        consumers: int = 1,
        sets: int = 1,
        name_servers: int = 1,
        always: Sequence[checks.Check] = ALWAYS,
    ) -> None:
        super().__init__(seed, names, flush, consumers, sets, name_servers)
        self._always = always
        self._swallowed = SwallowedErrors()

    # life

    def __enter__(self) -> Self:
        self.sim.__enter__()
        self._swallowed.__enter__()
        try:
            self._start()
        except BaseException as error:
            self._swallowed.__exit__()
            self.sim.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._swallowed.__exit__()
        self.sim.__exit__(kind, error, trace)

    def _start(self) -> None:
        """Until messages are acknowledged, consumed and copied."""
        self.sim.check_always(self._swallowed.check)
        self.sim.check_always(
            Watch(self, [check(each) for each in self.sets for check in self._always]).look
        )
        for server in self.name_servers.values():
            server.start()
        for name in self.name_servers:
            self.wait_until_serving(name)
        for node in self.brokers.values():
            node.start()
            self.sim.run_for(self.chance.uniform(0.05, 0.5))
        for each in self.sets:
            self.wait_until_serving(each.master.name)
            self._wait_until_all_follow(each, START_S_MAX)
        if len(self.sets) > 1:
            self._create_topic()  # else only the master that is sent to first would have it
        self.producer.start()
        for consumer in self.consumers.values():
            consumer.start()
        self.produce(QUEUES * len(self.sets))
        self.sim.run_until(self._is_topic_everywhere, START_S_MAX)
        self.sim.run_until(self._all_received, START_S_MAX)

    def _create_topic(self) -> None:
        operator = self.sim.host(OPERATOR_ADDRESS)
        for each in self.sets:
            request = Command(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                CreateTopicHeader(TOPIC, QUEUES, QUEUES).write(),
            )
            operator.call(partial(ask, each.master.address, request))
        operator.kill()

    def _is_topic_everywhere(self) -> bool:
        return all(
            node.broker is not None and TOPIC in node.broker.parts.tables.topics.to_table().topics
            for node in self._nodes
        )

    # messages

    def send(self, count: int) -> None:
        """Begin to send so many messages; the world goes on in `run_for` and the like."""
        self.producer.send(count)

    def produce(self, count: int) -> None:
        """Send so many messages and wait until each has its answer, whatever that is."""
        self.send(count)
        self.wait_for_answers()

    def wait_for_answers(self) -> None:
        self.sim.run_until(lambda: not self.producer.pending, SETTLE_S_MAX)

    def acknowledged(self) -> set[str]:
        """The keys of all messages that were answered SEND_OK."""
        return set(self.producer.acknowledged)

    def readable_from(self, name: str) -> set[str]:
        """The keys of all messages that this broker hands out now."""
        config = self.brokers[name].config
        reader = self.sim.host(READER_ADDRESS)
        keys = reader.call(lambda: read_everything(config.address, config.broker_name, QUEUES))
        reader.kill()
        return keys

    # quiet

    def settle(self) -> None:
        """Heal everything, start what is down, let former masters rejoin, and wait until all is
        calm; a slave that says it cannot follow its master any more is wiped, as its operator would
        do.
        """
        self.fence()
        self.heal()
        for name in self.names:
            if not self.host(name).is_running and name not in self._former():
                self.start(name)
        for name in [*self.name_servers, *(each.master.name for each in self.sets)]:
            self.wait_until_serving(name)
        self.rejoin_all()
        for name in self.brokers:
            self.wait_until_serving(name)
        self.wait_for_answers()
        for each in self.sets:
            self._wait_until_all_follow(each, SETTLE_S_MAX)
        self.sim.run_until(self._is_topic_everywhere, SETTLE_S_MAX)
        self.wait_until_all_received()

    def wait_until_dispatched(self) -> None:
        """What had to wait for a drive is tried again now and then."""
        stores = [self.broker(name).store for name in self.brokers]
        self.sim.run_until(
            lambda: all(store.dispatch.skip_blank_to(store.log.end) for store in stores),
            SETTLE_S_MAX,
        )

    def wait_until_all_received(self) -> None:
        """The group gets every acknowledged message."""
        self.sim.run_until(self._all_received, SETTLE_S_MAX)

    def _all_received(self) -> bool:
        return not self.not_received()

    def not_received(self) -> set[str]:
        """The keys of acknowledged messages that the group has still to get."""
        acknowledged = self.producer.acknowledged
        missing = acknowledged.keys() - self.received()
        return {key for key in missing if not self._may_be_passed(acknowledged[key])}

    def _may_be_passed(self, result: SendResult) -> bool:
        owner = next(each for each in self.sets if each.name == result.queue.broker_name)
        is_deleted = place_of(result) < owner.masters_deleted_to
        return is_deleted or owner.may_be_passed(result.queue.queue_id, result.queue_offset)

    def _wait_until_all_follow(self, brokers: BrokerSet, within_s: float) -> None:
        master = self.broker(brokers.master.name)
        while True:
            self.sim.run_until(
                lambda: all(self._is_settled(slave, master) for slave in brokers.slaves), within_s
            )
            misfits = [slave for slave in brokers.slaves if not slave.follows(master)]
            if not misfits:
                return
            for slave in misfits:
                self.wipe(slave.name)
                self.start(slave.name)

    def _is_settled(self, slave: BrokerNode, master: Broker) -> bool:
        """It has everything, or it will never have it."""
        return slave.does_not_fit(master) or slave.follows(master)

    def check_everything(self) -> None:
        """After `settle`: the logs are equal, nothing acknowledged is missing anywhere, all of it
        was consumed.
        """
        check_quiet(self)
