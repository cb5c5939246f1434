"""Request handlers of the name server, for brokers, clients and admin tools.

See docs/protocol/name-server.md.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from roquet.common.limited_log import LimitedLog
from roquet.common.properties import dump, parse
from roquet.common.settings import setting_names, show_settings, update_settings
from roquet.common.steps import Steps, in_parts
from roquet.errors import ConfigError, Refused
from roquet.nameserver.config import NamesrvConfig
from roquet.nameserver.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from roquet.nameserver.routes import Registered, RegisteredBroker, Routes
from roquet.protocol.bodies import compressed_registration
from roquet.protocol.bodies.sliced import decode_registration, decode_table
from roquet.protocol.bodies.tables import (
    DIALECT_VALUES_MAX,
    MASTER_ID,
    UNIT,
    UNIT_SUBSCRIPTION,
    DataVersion,
    Route,
    TopicTable,
    parse_request,
)
from roquet.protocol.headers.route import RouteHeader
from roquet.protocol.headers.routing import (
    AddPermissionAnswer,
    BrokerHeader,
    BrokerNameHeader,
    ClusterHeader,
    DataVersionAnswer,
    DeleteTopicHeader,
    KvAnswer,
    KvHeader,
    NamespaceHeader,
    PutKvHeader,
    RegisterBrokerAnswer,
    RegisterBrokerHeader,
    WipeAnswer,
)
from roquet.protocol.json.dialect import dump_ascii, dump_bytes, dump_dialect
from roquet.protocol.records.layout import checksum
from roquet.protocol.remoting.codes import (
    VERSION_REGISTER_BODY,
    VERSION_STANDARD_JSON,
    RequestCode,
    ResponseCode,
)
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.slices import Slices

log = logging.getLogger(__name__)

_CONFIG_SIZE_MAX: Final = 65_536
"""Bytes of a request that changes settings; all settings together have less than 2,000."""
_VERSION_SIZE_MAX: Final = 65_536
"""Bytes of a data version; it has less than a hundred."""
_NAME_SIZE_MAX: Final = 255
"""Characters of a name or an address. Apache's topic names have 127 at most."""
_LINES_MAX: Final = 32
"""Log lines of one kind per minute about the brokers of one host.

A client that registers brokers in a loop must not fill the log.
"""
_NAMES_AT_ONCE: Final = 512


class NameServerHandlers:
    """Answers the requests of a name server from its tables.

    :param save_kv: saves the key-value table; completes when it is durable.
    :param save_config: saves changed settings (name -> value); completes when they are durable.
    """

    def __init__(
        self,
        routes: Routes,
        kv: KvConfig,
        config: NamesrvConfig,
        clock_ms: Callable[[], float],
        save_kv: Callable[[], Awaitable[None]],
        save_config: Callable[[Mapping[str, str]], Awaitable[None]],
    ) -> None:
        self._routes = routes
        self._kv = kv
        self._config = config
        self._clock_ms = clock_ms
        self._save_kv = save_kv
        self._save_config = save_config
        self._limited_log = LimitedLog(log)
        self._slices = Slices()
        self._sweeping: asyncio.Task[None] | None = None

    def handlers(self) -> Mapping[int, Handler]:
        in_slices = self._slices.handler
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv,
            RequestCode.GET_KV_CONFIG: self.get_kv,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_clusters,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: in_slices(self.wipe_write_permission),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: in_slices(self.get_topics),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_of_namespace,
            RequestCode.GET_TOPICS_BY_CLUSTER: in_slices(self.get_topics_of_cluster),
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: in_slices(self.get_system_topics),
            RequestCode.GET_UNIT_TOPIC_LIST: in_slices(self.get_unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: in_slices(self.get_unit_subscribed_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: in_slices(
                self.get_unit_subscribed_other_topics
            ),
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.get_config,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: in_slices(self.add_write_permission),
        }

    # brokers

    def register_broker(self, request: Command, connection: Connection) -> None:
        self._slices.handler(partial(self._register, connection))(request, connection)

    def _register(self, connection: Connection, request: Command) -> Steps[Command]:
        header = RegisterBrokerHeader.read(request.fields)
        if header.body_crc32 and header.body_crc32 != checksum(request.body):
            raise Refused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        broker = RegisteredBroker(
            header.cluster_name,
            header.broker_name,
            header.broker_id,
            header.broker_addr,
            header.ha_server_addr,
        )
        _check_names("broker", (broker.cluster, broker.name, broker.address, broker.ha_address))
        table = yield from _topics(request, compressed=header.compressed)
        for part in in_parts(table.topics, _NAMES_AT_ONCE):
            _check_names("topic", part)
            yield
        why_full = yield from self._routes.why_full(broker, table)
        if why_full:
            raise Refused(ResponseCode.SYSTEM_ERROR, why_full)
        registered = yield from self._routes.register(broker, table, connection, self._clock_ms())
        self._log_registration(broker, table, registered, connection)
        master = registered.master
        answer = (
            RegisterBrokerAnswer()
            if master is None
            else RegisterBrokerAnswer(master.ha_address, master.address)
        )
        order = self._kv.pairs(ORDER_TOPIC_CONFIG)
        return request.answer(
            ResponseCode.SUCCESS, None, answer.write(), b"" if order is None else _kv_table(order)
        )

    def query_data_version(self, request: Command, _: Connection) -> Command:
        address = BrokerHeader.read(request.fields).broker_addr
        stored = self._routes.version_of(address)
        changed = stored is None or stored != parse_request(
            request.body, DataVersion.from_json, _VERSION_SIZE_MAX
        )
        if not changed:
            self._routes.heard(address, self._clock_ms())
        body = b"" if stored is None else dump_bytes(stored.to_json())
        return request.answer(ResponseCode.SUCCESS, None, DataVersionAnswer(changed).write(), body)

    def unregister_broker(self, request: Command, connection: Connection) -> Command:
        header = BrokerHeader.read(request.fields)
        broker = RegisteredBroker(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_addr
        )
        self._routes.unregister(broker)
        self._sweep()
        self._log(logging.INFO, connection, broker, f"broker unregistered: {_BROKER}")
        return request.answer(ResponseCode.SUCCESS)

    def connection_ended(self, connection: Connection) -> None:
        """Remove the brokers that registered over `connection`: it is their sign of life."""
        for broker in self._routes.connection_ended(connection):
            text = f"broker removed, its connection ended: {_BROKER}"
            self._log(logging.WARNING, connection, broker, text)
        self._sweep()

    def expire(self) -> None:
        """Remove the brokers that were silent for too long, and close their connections."""
        for broker, connection in self._routes.expire(self._clock_ms()):
            assert isinstance(connection, Connection)
            text = f"broker removed, it was silent for too long: {_BROKER}"
            self._log(logging.WARNING, connection, broker, text)
            connection.close()
        self._sweep()

    def _sweep(self) -> None:
        """Start to remove the queues of removed brokers, unless that is under way."""
        if self._routes.is_swept or self._sweeping is not None:
            return
        self._sweeping = asyncio.get_running_loop().create_task(
            self._slices.run(self._routes.sweep())
        )
        self._sweeping.add_done_callback(self._swept)

    def _swept(self, _: asyncio.Task[None]) -> None:
        self._sweeping = None

    def _log_registration(
        self,
        broker: RegisteredBroker,
        table: TopicTable,
        registered: Registered,
        connection: Connection,
    ) -> None:
        if registered.replaced is not None:
            event = (
                "master is replaced while it lives, stop one of the two"
                if broker.broker_id == MASTER_ID
                else "slave is replaced while it lives"
            )
            text = f"{event}: {_BROKER} before=%s"
            self._log(logging.WARNING, connection, broker, text, registered.replaced)
        if registered.is_new:
            text = f"broker registered: {_BROKER} topics=%d"
            self._log(logging.INFO, connection, broker, text, len(table.topics))

    def _log(
        self, level: int, connection: Connection, broker: RegisteredBroker, text: str, *more: object
    ) -> None:
        """Log an event of a broker, at most `_LINES_MAX` lines a minute per event and host.

        :param text: contains `_BROKER`.
        """
        shard = checksum(broker.address.encode()) % _LINES_MAX
        kind = f"{text} {connection.peer_host_name} {shard}"
        values = broker.cluster, broker.name, broker.broker_id, broker.address
        self._limited_log.tell(level, kind, text, *values, *more)

    # routes

    def get_route(self, request: Command, _: Connection) -> Command:
        header = RouteHeader.read(request.fields)
        route = self._routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self._config.order_message_enable:
            route = Route(
                route.brokers, route.queues, self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
            )
        if request.version >= VERSION_STANDARD_JSON or header.accept_standard_json_only:
            body = dump_ascii(route.to_json())
        else:
            body = dump_dialect(route.to_json())
        return request.answer(ResponseCode.SUCCESS, body=body)

    def get_clusters(self, request: Command, _: Connection) -> Command:
        return request.answer(
            ResponseCode.SUCCESS, body=dump_dialect(self._routes.clusters().to_json())
        )

    def get_topics(self, request: Command) -> Steps[Command]:
        return (yield from _topic_list(request, self._routes.topics()))

    def get_topics_of_cluster(self, request: Command) -> Steps[Command]:
        topics = yield from self._routes.topics_of(ClusterHeader.read(request.fields).cluster)
        return (yield from _topic_list(request, topics))

    def get_system_topics(self, request: Command) -> Steps[Command]:
        """Answer with the system topics that bear the names of clusters and brokers."""
        clusters = self._routes.clusters()
        names = [*clusters.clusters, *clusters.brokers]
        return (yield from _topic_list(request, names, self._routes.any_address()))

    def get_unit_topics(self, request: Command) -> Steps[Command]:
        return (yield from self._flagged(request, lambda flag: bool(flag & UNIT)))

    def get_unit_subscribed_topics(self, request: Command) -> Steps[Command]:
        return (yield from self._flagged(request, lambda flag: bool(flag & UNIT_SUBSCRIPTION)))

    def get_unit_subscribed_other_topics(self, request: Command) -> Steps[Command]:
        units = UNIT | UNIT_SUBSCRIPTION
        return (yield from self._flagged(request, lambda flag: flag & units == UNIT_SUBSCRIPTION))

    def _flagged(self, request: Command, has: Callable[[int], bool]) -> Steps[Command]:
        topics = yield from self._routes.topics_where(has)
        return (yield from _topic_list(request, topics))

    # changes by admin tools

    def wipe_write_permission(self, request: Command) -> Steps[Command]:
        count = yield from self._routes.wipe_write_permission(
            BrokerNameHeader.read(request.fields).broker_name
        )
        return request.answer(ResponseCode.SUCCESS, None, WipeAnswer(count).write())

    def add_write_permission(self, request: Command) -> Steps[Command]:
        count = yield from self._routes.add_write_permission(
            BrokerNameHeader.read(request.fields).broker_name
        )
        return request.answer(ResponseCode.SUCCESS, None, AddPermissionAnswer(count).write())

    def delete_topic(self, request: Command, _: Connection) -> Command:
        header = DeleteTopicHeader.read(request.fields)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        return request.answer(ResponseCode.SUCCESS)

    def put_kv(self, request: Command, connection: Connection) -> None:
        header = PutKvHeader.read(request.fields)
        self._kv.put(header.namespace, header.key, header.value)
        connection.later.answer(request, _answered_when(self._save_kv(), request))

    def delete_kv(self, request: Command, connection: Connection) -> None:
        header = KvHeader.read(request.fields)
        self._kv.delete(header.namespace, header.key)
        connection.later.answer(request, _answered_when(self._save_kv(), request))

    def get_kv(self, request: Command, _: Connection) -> Command:
        header = KvHeader.read(request.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise Refused(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.answer(ResponseCode.SUCCESS, None, KvAnswer(value).write())

    def get_kv_of_namespace(self, request: Command, _: Connection) -> Command:
        namespace = NamespaceHeader.read(request.fields).namespace
        pairs = self._kv.pairs(namespace)
        if pairs is None:
            raise Refused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return request.answer(ResponseCode.SUCCESS, body=_kv_table(pairs))

    def get_config(self, request: Command, _: Connection) -> Command:
        return request.answer(ResponseCode.SUCCESS, body=dump(show_settings(self._config)).encode())

    def update_config(self, request: Command, connection: Connection) -> None:
        """Change settings, at once and in the operator's configuration file.

        Only the settings of `REMOTELY` can be changed. Unknown names have no effect, as in Apache.
        """
        if len(request.body) > _CONFIG_SIZE_MAX:
            remark = f"settings of {len(request.body)} bytes, allowed are {_CONFIG_SIZE_MAX}"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        pairs = parse(request.body.decode()).pairs
        known = setting_names(NamesrvConfig)
        refused = [name for name, _ in pairs if name in known and not self._config.is_remote(name)]
        if refused:
            what = (
                f"{', '.join(refused)}: to be changed in the name server's configuration file, "
                "counts after a restart"
            )
            raise Refused(
                ResponseCode.NO_PERMISSION, f"Can not update config in black list. {what}"
            )
        try:
            config, warnings = update_settings(
                self._config, pairs, f"update from {connection.peer_address}"
            )
        except ConfigError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        for warning in warnings[:1]:
            self._limited_log.warning("no setting", "%s", warning[:_NAME_SIZE_MAX])
        if config != self._config:
            text = "settings changed by a client: peer=%s names=%s"
            self._limited_log.warning("changed", text, connection.peer_address, _names(pairs))
        self._config = config
        saved = self._save_config({name: value for name, value in pairs if name in known})
        connection.later.answer(request, _answered_when(saved, request))


async def _answered_when(saved: Awaitable[None], request: Command) -> Command:
    await asyncio.shield(saved)
    return request.answer(ResponseCode.SUCCESS)


def _topics(request: Command, *, compressed: bool) -> Steps[TopicTable]:
    """The topics in a registration.

    An empty body has none; before 3.0.11 (`VERSION_REGISTER_BODY`) the body is the topic table.
    """
    if not request.body:
        return TopicTable()
    if request.version < VERSION_REGISTER_BODY:
        return (yield from decode_table(TopicTable, request.body, DIALECT_VALUES_MAX))
    if compressed:
        return (yield from compressed_registration.read(request.body)).table
    return (yield from decode_registration(request.body, DIALECT_VALUES_MAX))


def _check_names(of: str, names: Iterable[str]) -> None:
    """:raises Refused: a name is too long, or has characters that would break a log line."""
    for name in names:
        if len(name) > _NAME_SIZE_MAX or not name.isprintable():
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"name or address of a {of}: {len(name)} characters, "
                f"allowed are {_NAME_SIZE_MAX} printable ones",
            )


_BROKER: Final = "cluster=%s name=%s id=%d address=%s"
"""Format of a broker in a log line."""


def _names(pairs: Iterable[tuple[str, str]]) -> str:
    return ",".join(name for name, _ in pairs)[:200]


def _topic_list(request: Command, topics: list[str], address: str | None = None) -> Steps[Command]:
    members = b"" if address is None else b'"brokerAddr":%b,' % dump_bytes(address)
    parts: list[bytes] = []
    for part in in_parts(topics, _NAMES_AT_ONCE):
        parts.append(dump_bytes(part)[1:-1])
        yield
    return request.answer(
        ResponseCode.SUCCESS, body=b'{%b"topicList":[%b]}' % (members, b",".join(parts))
    )


def _kv_table(pairs: dict[str, str]) -> bytes:
    return dump_bytes({"table": pairs})
