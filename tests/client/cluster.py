"""Name server and brokers that do as scripted, on simulated hosts, and a host for the client under
test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from roquet.protocol.bodies.tables import (
    BrokerData,
    Heartbeat,
    QueueData,
    QueueLocks,
    Route,
    parse,
    queue_to_json,
)
from roquet.protocol.filters.tags import TagFilter
from roquet.protocol.headers.pull import COMMIT_OFFSET, SUSPEND
from roquet.protocol.headers.send import SendHeaderV2
from roquet.protocol.json.dialect import dump_ascii, dump_bytes, dump_dialect
from roquet.protocol.records.batch import split_batch
from roquet.protocol.records.message import (
    DEAD_LETTER_PREFIX,
    DEFAULT_TOPIC,
    DELAY,
    READ_WRITE,
    RETRY_PREFIX,
    RETRY_TOPIC,
    TAGS,
    MessageQueue,
    Permission,
    join_properties,
    split_properties,
    tag_code,
)
from roquet.protocol.records.record import Record, decode, host_bytes
from roquet.protocol.remoting.codes import VERSION, RequestCode, ResponseCode
from roquet.protocol.remoting.command import Command
from roquet.transport.connection import Connection, Handler
from roquet.transport.handling import Answer
from roquet.transport.server import Server
from tests.simulation.simulation import Host, Simulation

T = TypeVar("T")

NAME_SERVER: Final = "10.0.0.1:9876"
CLIENT: Final = "10.0.9.1"
SILENCE: Final = -1
"""Scripted instead of a code: no answer at all."""


@dataclass
class Log:
    """The queues of one broker name, shared by master and slaves as if replication took no time."""

    queues: defaultdict[tuple[str, int], list[Record]] = field(
        default_factory=lambda: defaultdict(list)
    )
    removed: dict[tuple[str, int], int] = field(default_factory=dict)
    end: int = 0

    def append(self, record: Record) -> Record:
        queue = self.queues[record.topic, record.queue_id]
        stored = replace(record, queue_offset=len(queue), physical_offset=self.end)
        queue.append(stored)
        self.end += len(stored.encode())
        return stored

    def find(self, physical_offset: int) -> Record | None:
        records = (record for queue in self.queues.values() for record in queue)
        return next(
            (record for record in records if record.physical_offset == physical_offset), None
        )


class FakeBroker:
    """Keeps messages and offsets in memory; `script` answers the next requests of a code with other
    codes.

    `requests` are all that came, by code.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        address: str,
        name: str = "broker-a",
        broker_id: int = 0,
        log: Log | None = None,
    ) -> None:
        self.address, self.name, self.broker_id = address, name, broker_id
        self.log = log or Log()
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: defaultdict[str, dict[str, Connection]] = defaultdict(dict)
        self.requests: defaultdict[int, list[Command]] = defaultdict(list)
        self.script: defaultdict[int, list[int]] = defaultdict(list)
        self.locks: dict[MessageQueue, str] = {}
        self.suggested_broker_id = 0
        self.is_young = False
        """Its queues have their first messages: a group without an offset is told 0."""
        self.stands_still = False
        """It says after each pull that the next one begins where this one did."""
        self.is_repeating = False
        """Each of its answers to a pull has all messages twice."""
        self.pull_max = 32
        self.holds = True
        self.is_behind = False
        self.commits_late_s = 0.0
        """How long after a pull its offset is stored: Apache's does that in another thread."""
        self.damaged: set[bytes] = set()
        """Bodies whose first byte is another one on the drive, with the checksum of what was
        sent.
        """
        self.version = VERSION
        self.member_list: bytes | None = None
        """What it answers instead of its list of members."""
        self.on_request: Callable[[Command], None] = lambda _: None
        self.held: list[Command] = []
        self.send_status: int = ResponseCode.SUCCESS
        """The code of its answers to sends."""
        self.sent_fields: dict[str, str] = {}
        """Further fields of its answers to sends."""
        self._cluster = cluster
        self.host = cluster.sim.host(address.partition(":")[0])
        self.start()

    def start(self) -> None:
        """Serve, for the first time or again after the host was killed."""
        self.host.call(self.serve)

    async def serve(self) -> None:
        self.members.clear()
        self.held.clear()
        server = Server(self._scripted_handlers(), self._connection_closed)
        await server.listen("0.0.0.0", int(self.address.partition(":")[2]))

    def _scripted_handlers(self) -> dict[int, Handler]:
        return {code: self._scripted(handler) for code, handler in self._handlers().items()}

    def _scripted(self, handler: Handler) -> Handler:
        def handle(request: Command, connection: Connection) -> Answer:
            self.requests[request.code].append(request)
            self.on_request(request)
            if self.script[request.code]:
                code = self.script[request.code].pop(0)
                return None if code == SILENCE else request.answer(code, "scripted")
            return handler(request, connection)

        return handle

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_MAX_OFFSET: lambda request, _: request.answer(
                0, fields={"offset": self._bounds(request)[1]}
            ),
            RequestCode.GET_MIN_OFFSET: lambda request, _: request.answer(
                0, fields={"offset": self._bounds(request)[0]}
            ),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.HEART_BEAT: self._heart_beat,
            RequestCode.CHECK_CLIENT_CONFIG: lambda request, _: replace(
                request.answer(0), version=self.version
            ),
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._member_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda request, _: request.answer(
                ResponseCode.CONSUMER_NOT_ONLINE, "nobody is compared here"
            ),
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def create(self, topic: str, queues: int) -> None:
        """The topic exists here from now on, with so many queues."""
        self._cluster.create(topic, self.name, queues)

    # sends

    def _send(self, request: Command, _: Connection) -> Answer:
        header = SendHeaderV2.read(request.fields)
        self._cluster.create(header.topic, self.name)
        items = [(header.flag, request.body, header.properties.encode())]
        if header.batch:
            items = list(split_batch(request.body))
        stored = [
            self.store(
                header.topic,
                header.queue_id,
                body,
                properties.decode(),
                flag,
                header.sys_flag,
                header.reconsume_times,
            )
            for flag, body, properties in items
        ]
        ids = ",".join(record.offset_message_id for record in stored)
        place = {"msgId": ids, "queueId": header.queue_id, "queueOffset": stored[0].queue_offset}
        return request.answer(self.send_status, fields={**place, **self.sent_fields})

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: str = "",
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
    ) -> Record:
        """Append a message and answer the pulls that wait."""
        now_ms, host = self.host.now_ms(), host_bytes("10.0.0.9", 1)
        record = Record(
            queue_id,
            flag,
            0,
            0,
            sys_flag,
            now_ms,
            host,
            now_ms,
            host,
            reconsume_times,
            0,
            body,
            topic,
            properties,
        )
        return decode(self.log.append(record).encode())

    # pulls

    def _pull(self, request: Command, connection: Connection) -> Answer:
        fields = request.fields
        flags = int(fields["sysFlag"])
        if flags & COMMIT_OFFSET:
            key = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
            offset = int(fields["commitOffset"])
            if self.commits_late_s:
                loop = self._cluster.sim.loop
                loop.call_later(self.commits_late_s, self.offsets.__setitem__, key, offset)
            else:
                self.offsets[key] = offset
        answer = self._fetch(request)
        if self.is_behind:
            return self._pulled(
                request, ResponseCode.PULL_RETRY_IMMEDIATELY, int(fields["queueOffset"]), ("", 0)
            )
        if answer.code != ResponseCode.PULL_NOT_FOUND or not flags & SUSPEND or not self.holds:
            return answer
        self.held.append(request)
        self._look_again(
            request,
            connection,
            self._cluster.sim.now_s + int(fields["suspendTimeoutMillis"]) / 1000,
        )
        return None

    def _look_again(self, request: Command, connection: Connection, until_s: float) -> None:
        answer = self._fetch(request)
        if answer.code == ResponseCode.PULL_NOT_FOUND and self._cluster.sim.now_s < until_s:
            self._cluster.sim.loop.call_later(0.1, self._look_again, request, connection, until_s)
            return
        self.held.remove(request)
        connection.send(answer.encode())

    def _fetch(self, request: Command) -> Command:
        fields = request.fields
        wanted = TagFilter.parse(fields.get("subscription"))
        key = fields["topic"], int(fields["queueId"])
        offset, queue, first = (
            int(fields["queueOffset"]),
            self.log.queues[key],
            self.log.removed.get(key, 0),
        )
        if offset < first or offset > len(queue):
            return self._pulled(
                request,
                ResponseCode.PULL_OFFSET_MOVED,
                first if offset < first else len(queue),
                key,
            )
        scanned = queue[offset : offset + min(self.pull_max, int(fields["maxMsgNums"]))]
        if not scanned:
            return self._pulled(request, ResponseCode.PULL_NOT_FOUND, offset, key)
        found = [
            record for record in scanned if wanted.wants_code(tag_code(record.properties.get(TAGS)))
        ]
        code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        body = b"".join(map(self._stored_bytes, found)) * (1 + self.is_repeating)
        return self._pulled(
            request, code, offset if self.stands_still else offset + len(scanned), key, body
        )

    def _stored_bytes(self, record: Record) -> bytes:
        data = record.encode()
        if record.body not in self.damaged:
            return data
        return data.replace(record.body, bytes([record.body[0] ^ 1]) + record.body[1:], 1)

    def _pulled(
        self, request: Command, code: int, next_offset: int, key: tuple[str, int], body: bytes = b""
    ) -> Command:
        answer = {
            "suggestWhichBrokerId": self.suggested_broker_id,
            "nextBeginOffset": next_offset,
            "minOffset": self.log.removed.get(key, 0),
            "maxOffset": len(self.log.queues[key]),
        }
        return request.answer(code, "scripted", answer, body)

    # offsets

    def _bounds(self, request: Command) -> tuple[int, int]:
        key = request.fields["topic"], int(request.fields["queueId"])
        return self.log.removed.get(key, 0), len(self.log.queues[key])

    def _search(self, request: Command, _: Connection) -> Answer:
        """The nearest message is the answer; of two as near, the earlier one."""
        queue = self.log.queues[request.fields["topic"], int(request.fields["queueId"])]
        first, end = self._bounds(request)
        wanted = int(request.fields["timestamp"])
        # Of messages of the same time, the first; before the time, the last.
        nearest = min(
            range(first, end),
            key=lambda at: (
                abs(queue[at].store_ms - wanted),
                -at if queue[at].store_ms < wanted else at,
            ),
            default=0,
        )
        return request.answer(0, fields={"offset": nearest})

    def _query_offset(self, request: Command, _: Connection) -> Answer:
        offset = self.offsets.get(_offset_key(request))
        if offset is None and not self.is_young:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, "nothing stored")
        return request.answer(0, fields={"offset": offset or 0})

    def _all_offsets(self, request: Command, _: Connection) -> Answer:
        table: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for (group, topic, queue_id), offset in self.offsets.items():
            table[f"{topic}@{group}"][queue_id] = offset
        return request.answer(0, body=dump_dialect({"offsetTable": table}))

    def _update_offset(self, request: Command, _: Connection) -> Answer:
        self.offsets[_offset_key(request)] = int(request.fields["commitOffset"])
        return request.answer(0)

    # members

    def _heart_beat(self, request: Command, connection: Connection) -> Answer:
        heartbeat = parse(request.body, Heartbeat.from_json)
        for consumer in heartbeat.consumers:
            self._cluster.create(RETRY_PREFIX + consumer.group, self.name, queues=1)
            members = self.members[consumer.group]
            known = members.get(heartbeat.client_id)
            members[heartbeat.client_id] = connection
            if known is not connection:
                self.tell_members(consumer.group)
        return request.answer(0)

    def _unregister(self, request: Command, _: Connection) -> Answer:
        group = request.fields.get("consumerGroup")
        if (
            group is not None
            and self.members[group].pop(request.fields["clientID"], None) is not None
        ):
            self.tell_members(group)
        return request.answer(0)

    def _connection_closed(self, connection: Connection) -> None:
        for group, members in self.members.items():
            for client_id in [client_id for client_id, at in members.items() if at is connection]:
                del members[client_id]
                self.tell_members(group)

    def tell_members(self, group: str) -> None:
        for connection in self.members[group].values():
            connection.calls.notify(
                Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})
            )

    def _member_list(self, request: Command, _: Connection) -> Answer:
        if self.member_list is not None:
            return request.answer(0, body=self.member_list)
        members = list(self.members[request.fields["consumerGroup"]])
        if not members:
            return request.answer(ResponseCode.SYSTEM_ERROR, "nobody")
        return request.answer(0, body=dump_bytes({"consumerIdList": members}))

    def _send_back(self, request: Command, _: Connection) -> Answer:
        """At once into the retry topic: the real delay is the broker's business."""
        record = self.log.find(int(request.fields["offset"]))
        if record is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, "no such message")
        properties = {
            RETRY_TOPIC: record.topic,
            **split_properties(record.properties_text),
            DELAY: "3",
        }
        is_over = int(request.fields["delayLevel"]) < 0
        self.store(
            (DEAD_LETTER_PREFIX if is_over else RETRY_PREFIX) + request.fields["group"],
            0,
            record.body,
            join_properties(properties),
            sys_flag=record.sys_flag,
            reconsume_times=record.reconsume_times + 1,
        )
        return request.answer(0)

    def _lock(self, request: Command, _: Connection) -> Answer:
        """Locks do not end here by themselves."""
        wanted = parse(request.body, QueueLocks.from_json)
        got = [
            queue
            for queue in wanted.queues
            if self.locks.setdefault(queue, wanted.client_id) == wanted.client_id
        ]
        return request.answer(
            0, body=dump_bytes({"lockOKMQSet": [queue_to_json(queue) for queue in sorted(got)]})
        )

    def _unlock(self, request: Command, _: Connection) -> Answer:
        wanted = parse(request.body, QueueLocks.from_json)
        for queue in wanted.queues:
            if self.locks.get(queue) == wanted.client_id:
                del self.locks[queue]
        return request.answer(0)


def _offset_key(request: Command) -> tuple[str, str, int]:
    return request.fields["consumerGroup"], request.fields["topic"], int(request.fields["queueId"])


class FakeCluster:
    """A name server at `NAME_SERVER`, the brokers that a test adds, and a host for the client."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.brokers: list[FakeBroker] = []
        self.topics: dict[str, dict[str, int]] = {DEFAULT_TOPIC: {}}
        self.listed: set[str] = set()
        self.read_only: set[str] = set()
        """Topics that nobody may write to."""
        self.route_requests: list[str] = []
        self.name_server_host = sim.host(NAME_SERVER.partition(":")[0])
        self.name_server_host.call(self.serve_routes)
        self.client = sim.host(CLIENT)

    async def serve_routes(self) -> None:
        """Be the name server, for the first time or again after its host was killed."""
        server = Server(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topic_list,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._own_topics,
            }
        )
        await server.listen("0.0.0.0", 9876)

    def broker(
        self,
        address: str = "10.0.1.1:10911",
        name: str = "broker-a",
        broker_id: int = 0,
        log: Log | None = None,
    ) -> FakeBroker:
        broker = FakeBroker(self, address, name, broker_id, log)
        self.brokers.append(broker)
        self.listed.add(address)
        self.create(DEFAULT_TOPIC, name, queues=8)
        return broker

    def restart(self, broker: FakeBroker) -> None:
        """After `kill`, from within a client: it serves again and is listed again."""
        broker.host.start(broker.serve)
        self.listed.add(broker.address)

    def create(self, topic: str, broker_name: str, queues: int = 4) -> None:
        self.topics.setdefault(topic, {}).setdefault(broker_name, queues)

    def _route(self, request: Command, _: Connection) -> Answer:
        topic = request.fields["topic"]
        self.route_requests.append(topic)
        addresses: defaultdict[str, dict[int, str]] = defaultdict(dict)
        for broker in self.brokers:
            if broker.address in self.listed and broker.name in self.topics.get(topic, {}):
                addresses[broker.name][broker.broker_id] = broker.address
        if not addresses:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        counts = self.topics[topic]
        perm = Permission.READ if topic in self.read_only else READ_WRITE
        route = Route(
            tuple(BrokerData("C", name, ids) for name, ids in addresses.items()),
            tuple(QueueData(name, counts[name], counts[name], perm) for name in addresses),
        )
        return request.answer(0, body=dump_ascii(route.to_json()))

    def _topic_list(self, request: Command, _: Connection) -> Answer:
        return request.answer(0, body=dump_bytes({"topicList": list(self.topics)}))

    def _own_topics(self, request: Command, _: Connection) -> Answer:
        names = ["C", *sorted({broker.name for broker in self.brokers})]
        return request.answer(0, body=dump_bytes({"topicList": names}))

    def run(
        self,
        work: Callable[[], Coroutine[Any, Any, T]],
        within_s: float = 300.0,
        on: Host | None = None,
    ) -> T:
        """Run a client to its end."""
        return (on or self.client).call(work, within_s)

    def nothing_is_left(self) -> bool:
        """No task and no connection of the client, whose own `run` has ended."""
        return not self.sim.loop.pending_tasks(self.client.process)
