"""PURE: hostile requests for every request code, from a seed.

A request starts from one that Apache's programs send and changes some fields, or its body, along
its structure; so it gets past the first checks of a handler more often than random bytes do.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from roquet.protocol.remoting.codes import RequestCode
from roquet.protocol.remoting.command import BINARY, JSON, ONE_WAY, RESPONSE, Command, to_text
from tests.golden.requests import known_requests

UNKNOWN_CODES: Final = (0, -1, 47, 999, 2_147_483_647)
LEFT_OUT: Final = frozenset({RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER})
"""Of name servers only: whoever may register a broker may direct its slave elsewhere, with Apache's
name server too.
"""
ADMINISTRATOR_WORDS: Final = ("fenced", "forced")
"""Whoever may say these may make a slave the master. The broker has no access control, so no
promise is broken.
"""

_BORDERS: Final = tuple(
    str(value)
    for bits in (7, 15, 16, 31, 32, 63, 64)
    for value in ((1 << bits) - 1, 1 << bits, -(1 << bits), -(1 << bits) - 1)
)
TOPICS: Final = (
    "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "OFFSET_MOVED_EVENT",
    "%RETRY%g", "%DLQ%g", "Hostile", "Hostile2", "../../etc/passwd", "t" * 128, "a b", "",
)  # fmt: skip
_TEXTS: Final = (
    "", " ", "0", "-1", "1.5", "1e9", "NaN", "true", "null", "x", "*", "é", "\u0000", "\x01", "\x02", "a\x01b\x02",
    "1" * 5_000, "９", "1_0", "{}", "[", "7F00000100002A9F00000000000000FF", "F" * 32, "z" * 32, "k" * 40_000,
)  # fmt: skip
_PROPERTY_NAMES: Final = (
    "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG", "PGROUP", "MIN_OFFSET",
    "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG", "MQ2_FLAG", "RECONSUME_TIME",
    "MSG_REGION", "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "TRAN_PREPARED_QUEUE_OFFSET",
    "TRANSACTION_CHECK_TIMES", "CHECK_IMMUNITY_TIME_IN_SECONDS", "INSTANCE_ID", "CORRELATION_ID", "REPLY_TO_CLIENT",
    "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE", "INNER_MULTI_QUEUE_OFFSET", "own",
)  # fmt: skip
_FIELDS: Final = (
    "topic", "queueId", "group", "consumerGroup", "producerGroup", "queueOffset", "maxMsgNums", "sysFlag",
    "commitOffset", "suspendTimeoutMillis", "subscription", "flag", "bornTimestamp", "reconsumeTimes", "properties",
    "readQueueNums", "writeQueueNums", "perm", "offset", "delayLevel", "originMsgId", "msgId", "tranStateTableOffset",
    "commitLogOffset", "commitOrRollback", "timestamp", "key", "maxNum", "a", "b", "c", "d", "e", "f", "g", "h", "i",
    "j", "k", "l", "m",
)  # fmt: skip


class Hostility:
    """Requests and raw bytes; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        known = known_requests()
        self._codes = sorted({*known, *RequestCode} - LEFT_OUT) + list(UNKNOWN_CODES)
        self._bodies: tuple[Callable[[bytes], bytes], ...] = (
            self._flipped, self._cut, self._doubled, self._json_changed, self._length_changed, self._odd_body,
        )  # fmt: skip

    def request(self) -> Command:
        """One request that most likely no client would send."""
        chance = self._chance
        code = chance.choice(self._codes)
        known = known_requests().get(code)
        request = replace(chance.choice(known)) if known else Command(code)
        request.fields = self._fields(request.fields)
        if chance.random() < 0.5:
            request.body = chance.choice(self._bodies)(request.body)
        request.header_type = chance.choice((JSON, BINARY))
        request.version = chance.choice((0, 100, 409, 479))
        request.opaque = chance.getrandbits(31)
        request.flag = chance.choice((0, 0, 0, 0, ONE_WAY, RESPONSE, 7))
        return request

    def frame(self) -> bytes:
        """The bytes of a request, now and then not even a frame."""
        chance = self._chance
        data = self._encoded()
        kind = chance.random()
        if kind < 0.02:
            return self.attack()
        if kind < 0.90:
            return data
        if kind < 0.94:
            return self._flipped(data)
        if kind < 0.97:
            return data[: chance.randrange(len(data))]
        return chance.randbytes(chance.choice((1, 3, 4, 8, 100, 4_000)))

    def attack(self) -> bytes:
        """Requests that belong together and once stopped a broker, or lost its messages."""
        chance = self._chance
        requests = chance.choice(
            (self._huge_topic, self._poisoned_half, self._long_filter, self._no_such_number)
        )()
        return b"".join(request.encode() for request in requests)

    def _huge_topic(self) -> list[Command]:
        """A topic of very many queues, and questions that look at each of them."""
        topic, queues = (
            self._chance.choice(("Huge", "Hostile")),
            self._chance.choice((70_000, (1 << 31) - 1)),
        )
        settings = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": False,
        }
        numbers = {"readQueueNums": queues, "writeQueueNums": queues, "topicSysFlag": 0}
        group = {
            "consumerGroup": "g",
            "topic": topic,
            "group": topic,
            "timestamp": 0,
            "isForce": True,
        }
        asked = (
            RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.GET_BROKER_CONSUME_STATS,
        )  # fmt: skip
        made = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, _as_text({**settings, **numbers}))
        return [made, *(Command(code, _as_text({"topic": topic, **group})) for code in asked)]

    def _poisoned_half(self) -> list[Command]:
        """A half message whose properties are read again when the broker starts."""
        name = self._chance.choice(
            (
                "CHECK_IMMUNITY_TIME_IN_SECONDS",
                "TRAN_PREPARED_QUEUE_OFFSET",
                "TRANSACTION_CHECK_TIMES",
                "DELAY",
            )
        )
        value = self._chance.choice(("9" * 5_000, "9" * 18, "-1", "٣", "0"))
        pairs = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u\x02{name}\x01{value}\x02"
        return [self._send({"properties": pairs, "sysFlag": 4})]

    def _long_filter(self) -> list[Command]:
        expression = self._chance.choice(
            (
                " OR ".join(["a = 1"] * 20_000),
                "(" * 50_000,
                "NOT " * 50_000,
                "a IN (" + ",".join(["'x'"] * 50_000) + ")",
            )
        )
        subscription = {
            "topic": "Hostile",
            "subString": expression,
            "expressionType": "SQL92",
            "subVersion": 1,
        }
        consumer = {
            "groupName": "g",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
        }
        body = {
            "clientID": "c",
            "consumerDataSet": [{**consumer, "subscriptionDataSet": [subscription]}],
        }
        return [Command(RequestCode.HEART_BEAT, {}, json.dumps(body).encode())]

    def _no_such_number(self) -> list[Command]:
        """Numbers just beyond what a record's fields hold."""
        chance = self._chance
        name = chance.choice(("flag", "bornTimestamp", "sysFlag", "reconsumeTimes", "queueId"))
        return [self._send({name: chance.choice(_BORDERS)}), self._send({})]

    def _send(self, changed: dict[str, object]) -> Command:
        fields: dict[str, object] = {
            "producerGroup": "P", "topic": "Hostile", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
            "queueId": 0, "sysFlag": 0, "bornTimestamp": 1, "flag": 0, "properties": "", "unitMode": False,
        }  # fmt: skip
        return Command(RequestCode.SEND_MESSAGE, _as_text(fields | changed), b"hostile")

    def half(self) -> bytes:
        """A half message."""
        return b"".join(request.encode() for request in self._poisoned_half())

    def settings(self) -> bytes:
        """New settings for a name server."""
        chance = self._chance
        names = (
            "listenPort",
            "bindAddress",
            "configStorePath",
            "rocketmqHome",
            "orderMessageEnable",
            "own",
        )
        text = "\n".join(
            f"{name}={chance.choice(('1', '0.0.0.0', 'true', 'x'))}"
            for name in chance.sample(names, 2)
        )
        return Command(RequestCode.UPDATE_NAMESRV_CONFIG, {}, text.encode()).encode()

    def slave_report(self) -> bytes:
        """What a slave would send its master, or something else."""
        chance = self._chance
        return chance.choice(
            (struct.pack(">q", chance.choice((0, -1, 1 << 40, (1 << 63) - 1))), chance.randbytes(8))
        )

    def _encoded(self) -> bytes:
        while True:
            try:
                return self.request().encode()
            except (struct.error, UnicodeEncodeError, ValueError):
                continue  # the binary form cannot say everything that the JSON form can

    def _fields(self, known: dict[str, str]) -> dict[str, str]:
        chance, fields = self._chance, dict(known)
        for name in chance.sample(sorted(fields), min(len(fields), chance.choice((0, 1, 1, 2, 3)))):
            fields[name] = self._value(name)
        if fields and chance.random() < 0.2:
            del fields[chance.choice(sorted(fields))]
        for _ in range(chance.choice((0, 0, 1, 2))):
            name = chance.choice(_FIELDS)
            fields[name] = self._value(name)
        return {name: value for name, value in fields.items() if name not in ADMINISTRATOR_WORDS}

    def _value(self, name: str) -> str:
        chance = self._chance
        if "opic" in name and chance.random() < 0.7:
            return chance.choice(TOPICS)
        if name in ("properties", "i") and chance.random() < 0.8:
            return "\x02".join(
                f"{chance.choice(_PROPERTY_NAMES)}\x01{self._scalar()}"
                for _ in range(chance.randrange(5))
            )
        return self._scalar()

    def _scalar(self) -> str:
        chance = self._chance
        return chance.choice(
            (chance.choice(_BORDERS), chance.choice(_TEXTS), str(chance.randrange(100)))
        )

    # bodies

    def _flipped(self, data: bytes) -> bytes:
        chance, changed = self._chance, bytearray(data or b"\0")
        for _ in range(chance.choice((1, 2, 8))):
            changed[chance.randrange(len(changed))] = chance.choice(
                (0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256))
            )
        return bytes(changed)

    def _cut(self, data: bytes) -> bytes:
        return data[: self._chance.randrange(len(data) + 1)]

    def _doubled(self, data: bytes) -> bytes:
        return data + data

    def _length_changed(self, data: bytes) -> bytes:
        """Batches, and lists with sizes in front, believe their first four bytes."""
        return (
            struct.pack(">i", self._chance.choice((-1, 0, 1, 91, 1 << 20, (1 << 31) - 1)))
            + data[4:]
        )

    def _odd_body(self, _: bytes) -> bytes:
        chance = self._chance
        return chance.choice(
            (
                b"", b"{}", b"[]", b"null", b"1", b"1e999", b'"', b'{"a":', b"[" * 3_000, b'{"a":' * 3_000,
                b"9" * 5_000, b"\xff" * 40, b"a=b\nlistenPort=1\n", chance.randbytes(64), self._sharing(),
            )
        )  # fmt: skip

    def _sharing(self) -> bytes:
        """Objects that refer to one another, which become far more than their text when each is
        written out.
        """
        count = self._chance.choice((10, 300, 1_000))
        name = self._chance.choice(("subscriptionDataSet", "consumerDataSet", "producerDataSet"))
        inner = [{"topic": f"T{number}", "subString": "*"} for number in range(count)]
        refs = [{"$ref": f"$.consumerDataSet[0].{name}"} for _ in range(count)]
        first = {"groupName": "g", name: inner}
        return json.dumps({"clientID": "c", "consumerDataSet": [first, *refs]}).encode()

    def _json_changed(self, data: bytes) -> bytes:
        """One value of a document, at any depth, becomes another one."""
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return self._flipped(data)
        place: object = document
        while isinstance(place, (dict, list)) and place:
            key = self._chance.choice(list(place) if isinstance(place, dict) else range(len(place)))
            inner = place[key]
            if isinstance(inner, (dict, list)) and inner and self._chance.random() < 0.8:
                place = inner
                continue
            place[key] = self._json_value()
            break
        return json.dumps(document).encode()

    def _json_value(self) -> object:
        chance = self._chance
        return chance.choice(
            (None, True, 0, -1, 1 << 31, 1 << 63, -(1 << 63) - 1, 1.5, "", self._scalar(), [], {}, [[]], [1, "x", None],
             {"$ref": "$"}, {"$ref": ".."}, chance.choice(TOPICS))
        )  # fmt: skip


def _as_text(fields: dict[str, object]) -> dict[str, str]:
    return {name: to_text(value) for name, value in fields.items()}
