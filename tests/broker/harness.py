"""Tables, store and handlers of one broker on a simulated host, and clients that call them over a
simulated network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from roquet.broker.config.broker import BrokerConfig, read_config
from roquet.broker.delivery.queue_locks import LeaseTable
from roquet.broker.handlers.admin.broker import BrokerAdmin
from roquet.broker.handlers.admin.groups import GroupAdmin
from roquet.broker.handlers.admin.jobs import Jobs
from roquet.broker.handlers.admin.topics import TopicAdmin
from roquet.broker.handlers.locks import LockHandler
from roquet.broker.handlers.members import MemberHandler
from roquet.broker.handlers.offsets import OffsetHandler
from roquet.broker.handlers.query import QueryHandler
from roquet.broker.maintenance.queue_deletion import QueueDeletion
from roquet.broker.metadata.filter_registry import FilterRegistry
from roquet.broker.metadata.groups import GroupRegistry
from roquet.broker.metadata.members import Consumers, Producers
from roquet.broker.metadata.state_files import GROUPS, TOPICS, StateFile
from roquet.broker.metadata.topics import TopicRegistry, topics_at_start
from roquet.broker.metrics.measurements import Measurements
from roquet.broker.metrics.runtime_info import RuntimeInfo
from roquet.broker.offsets.consumer_offsets import ConsumerOffsets, DelayOffsets
from roquet.broker.offsets.group_lag import GroupLag
from roquet.protocol.bodies.tables import DataVersion
from roquet.protocol.json.dialect import load
from roquet.protocol.records import message as m
from roquet.protocol.records.record import host_bytes
from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import Command
from roquet.storage.config import StoreConfig
from roquet.storage.fetch import FetchLimits
from roquet.storage.store import Store
from roquet.transport.channels import Channels
from roquet.transport.connection import Connection, Handler
from roquet.transport.server import Server
from roquet.transport.slices import Slices
from tests.simulation.simulation import Host, Simulation
from tests.storage.records import append_one

ADDRESS: Final = "10.0.0.1"
BROKER: Final = f"{ADDRESS}:10911"
ON_DISK: Final = 4096
"""What is further behind the log's end than so many bytes counts as no longer in memory."""

TIMEOUT_MS: Final = 5000

T = TypeVar("T")


class World:
    """One broker's parts, wired as its server wires them, without what handlers do not need.

    :param settings: of broker.conf, beside names and addresses.
    """

    def __init__(self, sim: Simulation, **settings: object) -> None:
        pairs = {"brokerName": "broker-a", "brokerIP1": ADDRESS, "brokerIP2": ADDRESS, **settings}
        self.sim = sim
        self.slices = Slices()
        self.config, _ = read_config(
            [(name, str(value)) for name, value in pairs.items()], environment={}
        )
        self.host = sim.host(ADDRESS)
        self.host.boot()
        self.store = self._opened_store()
        self.topic_changes = 0
        self._build_tables(self.config)
        self.members = MemberHandler(
            self.config,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.filters,
            self.host.runtime(),
        )
        self.handlers = self._all_handlers()
        server = Server(self.handlers, self.members.connection_closed)
        self.host.call(lambda: server.listen("0.0.0.0", self.config.listen_port))

    def _opened_store(self) -> Store:
        config = StoreConfig(
            self.config.store_folder,
            self.config.commit_log_folders,
            commit_log_file_size=65536,
            consume_queue_file_size=2000,
            index_slots=20,
            index_entries=60,
            limits=FetchLimits(ON_DISK),
            store_host=host_bytes(ADDRESS, self.config.listen_port),
        )
        store = Store(config, self.host.now_ms, self.host.disk)
        store.open()
        return store

    def _build_tables(self, config: BrokerConfig) -> None:
        runtime = self.host.runtime()
        at_start = topics_at_start(config.broker_cluster_name, config.broker_name)
        limits = config.limits
        self.topics = TopicRegistry(
            at_start, runtime.now_ms, auto_create=config.auto_create_topic_enable, limits=limits
        )
        self.groups = GroupRegistry(
            runtime.now_ms, auto_create=config.auto_create_subscription_group, limits=limits
        )
        folder, disk = config.state_folder, self.host.disk
        self.topics_file = StateFile(disk, folder / TOPICS, self.topics.to_table, runtime)
        self.groups_file = StateFile(disk, folder / GROUPS, self.groups.to_table, runtime)
        self.filters = FilterRegistry(
            config.filters.bloom, config.filters.filter_data_clean_time_span, limits
        )
        self.offsets, self.delays = ConsumerOffsets(limits=limits), DelayOffsets()
        self.consumers, self.producers = Consumers[Connection](), Producers[Connection]()
        self.topics.changed.add(self._count_change, self.topics_file.changed)
        self.groups.changed.add(self.groups_file.changed)

    def _count_change(self, _: object) -> None:
        self.topic_changes += 1

    def _all_handlers(self) -> dict[int, Any]:
        config, now_ms, name = self.config, self.host.now_ms, self.config.broker_name
        topics, offsets, store, is_slave = (
            self.topics,
            self.offsets,
            self.store,
            config.is_slave,
        )
        self.measurements = Measurements(
            config, store, topics, self.groups, now_ms, lambda: self.sim.now_s * 1000
        )
        info = RuntimeInfo(config, store, self.delays, now_ms, (), self.measurements.figures)
        lag = GroupLag(topics, self.consumers, offsets, store, name, self.measurements.tps)
        groups = GroupAdmin(
            config,
            self.groups,
            self.consumers,
            self.producers,
            offsets,
            lag,
            self.slices,
        )
        deletion = QueueDeletion(store, self.host.runtime(), asyncio.Lock(), self.slices)
        return {
            **self.members.handlers(),
            **OffsetHandler(offsets, store, is_slave=is_slave).handlers(),
            **LockHandler(LeaseTable(config.limits), now_ms, self.slices, config.limits).handlers(),
            **QueryHandler(store, 32, 64, self.slices).handlers(),
            **TopicAdmin(config, topics, offsets, store, deletion, Jobs(), self.slices).handlers(),
            **groups.handlers(),
            **BrokerAdmin(
                config,
                DataVersion(now_ms()),
                info,
                offsets,
                self.delays,
                self.measurements.stats,
                self.slices,
            ).handlers(),
        }

    def on_broker(self, work: Callable[[], T]) -> T:
        """Do something inside the broker's process."""

        async def do() -> T:
            return work()

        return self.host.call(do)

    def put(
        self, topic: str, queue_id: int = 0, body: bytes = b"body", keys: tuple[str, ...] = ()
    ) -> int:
        """Store a message; its physical offset."""

        def append() -> int:
            queue = self.store.queue(topic, queue_id)
            properties = m.join_properties({m.KEYS: " ".join(keys)} if keys else {}).encode()
            encoded = tuple(key.encode() for key in keys)
            at = append_one(
                self.store, queue, body, properties, encoded, born_ms=self.host.now_ms()
            )
            self.store.end_turn()
            return at

        return self.on_broker(append)

    def client(self, address: str = "10.0.0.9") -> Client:
        return Client(self.sim, self.sim.host(address))


class Client:
    """A peer of the broker; `told` are the groups it was told of, with how many answers it had by
    then.

    :param handlers: of what the broker asks it besides.
    """

    def __init__(
        self,
        sim: Simulation,
        host: Host,
        broker: str = BROKER,
        handlers: Mapping[int, Handler] | None = None,
    ) -> None:
        self.broker = broker
        self.sim = sim
        self.host = host
        self.told: list[str] = []
        self.told_before_answer: list[str] = []
        self.channels = Channels(
            {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._told, **(handlers or {})}
        )

    def _told(self, request: Command, connection: Connection) -> None:
        self.told.append(request.fields["consumerGroup"])

    def call(self, code: int, body: bytes = b"", /, **fields: object) -> Command:
        """The answer, of whatever code."""
        request = Command(code, {name: str(value) for name, value in fields.items()}, body)

        async def call() -> Command:
            answer = await self.channels.call(self.broker, request, TIMEOUT_MS)
            self.told_before_answer = list(self.told)
            return answer

        return self.host.call(call)

    def ask(self, code: int, body: bytes = b"", /, **fields: object) -> Any:
        """The JSON in the body of an answer that is expected to be a success."""
        answer = self.call(code, body, **fields)
        assert (answer.code, answer.remark) == (0, None)
        return load(answer.body)

    def close(self) -> None:
        self.host.call(self.channels.close)
        self.sim.run_for(1)
