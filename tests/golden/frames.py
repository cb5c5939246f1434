"""Recorded remoting frames: read just far enough to name them and to find the answer to each
request.

It stands apart from `roquet.protocol` on purpose: what it names is what that code is judged by.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from tests.golden.proxy import Connection, Side

RESPONSE_FLAG = 1
ONE_WAY_FLAG = 2
HELD_MS_MIN = 700
STANDARD_JSON_VERSION_MIN = 401

REQUEST_NAMES = {
    10: "send-message",
    11: "pull-message",
    12: "query-message",
    14: "query-consumer-offset",
    15: "update-consumer-offset",
    17: "update-topic",
    21: "get-all-topic-config",
    25: "update-broker-config",
    26: "get-broker-config",
    28: "get-broker-runtime-info",
    29: "search-offset-by-timestamp",
    30: "get-max-offset",
    31: "get-min-offset",
    32: "get-earliest-store-time",
    33: "view-message",
    34: "heartbeat",
    35: "unregister-client",
    36: "send-message-back",
    37: "end-transaction",
    38: "get-consumer-list",
    39: "check-transaction-state",
    40: "notify-consumer-ids-changed",
    41: "lock-queues",
    42: "unlock-queues",
    43: "get-all-consumer-offset",
    45: "get-all-delay-offset",
    46: "check-client-config",
    100: "put-kv-config",
    101: "get-kv-config",
    102: "delete-kv-config",
    103: "register-broker",
    104: "unregister-broker",
    105: "get-route",
    106: "get-cluster-info",
    200: "update-subscription-group",
    201: "get-all-subscription-group",
    202: "get-topic-stats",
    203: "get-consumer-connections",
    204: "get-producer-connections",
    205: "wipe-write-perm",
    206: "get-all-topics",
    207: "delete-subscription-group",
    208: "get-consume-stats",
    215: "delete-topic-in-broker",
    216: "delete-topic-in-name-server",
    217: "register-topic",
    219: "get-kv-list",
    220: "reset-consumer-offset",
    221: "get-consumer-status",
    222: "ask-broker-to-reset-offset",
    223: "ask-broker-for-consumer-status",
    224: "get-topics-by-cluster",
    225: "update-subscription-group-list",
    300: "query-topic-consume-by-who",
    303: "query-consume-time-span",
    304: "get-system-topics-from-name-server",
    305: "get-system-topics-from-broker",
    306: "clean-expired-consume-queue",
    307: "get-consumer-running-info",
    308: "query-correction-offset",
    309: "consume-message-directly",
    310: "send-message-v2",
    311: "get-unit-topics",
    312: "get-has-unit-sub-topics",
    313: "get-has-unit-sub-un-unit-topics",
    314: "clone-group-offset",
    315: "view-broker-stats",
    316: "clean-unused-topic",
    317: "get-broker-consume-stats",
    318: "update-name-server-config",
    319: "get-name-server-config",
    320: "send-batch-message",
    321: "query-consume-queue",
    322: "query-data-version",
    324: "send-reply",
    325: "send-reply-v2",
    326: "push-reply-to-client",
    327: "add-write-perm",
    328: "get-all-producers",
    329: "delete-expired-commit-log",
    351: "get-topic-config",
    352: "get-subscription-group",
    361: "lite-pull-message",
}
RESPONSE_NAMES = {
    1: "error",
    3: "not-supported",
    12: "flush-slave-timeout",
    11: "slave-not-available",
    14: "not-available",
    16: "no-permission",
    17: "no-topic",
    19: "not-found",
    20: "retry-immediately",
    21: "offset-moved",
    22: "no-entry",
    24: "no-subscription",
    25: "subscription-not-latest",
    206: "not-online",
    207: "timeout",
}


@dataclass(frozen=True)
class Frame:
    """One frame as it was on the wire, with its length prefix, and what its header says."""

    data: bytes
    side: Side
    at_ms: int
    binary: bool
    code: int
    flag: int
    opaque: int
    version: int
    fields: dict[str, str]
    body: bytes

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE_FLAG)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY_FLAG)

    @property
    def form(self) -> str:
        return "binary" if self.binary else "json"


def parse(data: bytes, side: Side, at_ms: int) -> Frame:
    (word,) = struct.unpack_from(">I", data, 4)
    end = 8 + (word & 0xFFFFFF)
    header, body = data[8:end], data[end:]
    if word >> 24:
        code, _language, version, opaque, flag, remark_size = struct.unpack_from(">hBhiii", header)
        fields = dict(_binary_fields(header[21 + remark_size :]))
        return Frame(data, side, at_ms, True, code, flag, opaque, version, fields, body)
    values = json.loads(header)
    fields = values.get("extFields") or {}
    code, flag, opaque, version = (values[name] for name in ("code", "flag", "opaque", "version"))
    return Frame(data, side, at_ms, False, code, flag, opaque, version, fields, body)


def _binary_fields(data: bytes) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(data):
        (key_size,) = struct.unpack_from(">h", data, at)
        (value_size,) = struct.unpack_from(">i", data, at + 2 + key_size)
        value_at = at + 6 + key_size
        yield (
            data[at + 2 : at + 2 + key_size].decode(),
            data[value_at : value_at + value_size].decode(),
        )
        at = value_at + value_size


@dataclass(frozen=True)
class Exchange:
    """A request, from whichever side, and its answer if there was one."""

    request: Frame
    answer: Frame | None

    @cached_property
    def name(self) -> str:
        """Such as `310-send-message-v2-half-json`: the same for every run of the same program."""
        request = self.request
        parts = [
            str(request.code),
            REQUEST_NAMES.get(request.code, "unnamed"),
            *self._variants(),
            request.form,
        ]
        return "-".join(parts)

    def _variants(self) -> Iterator[str]:
        request, fields = self.request, self.request.fields
        properties = fields.get("i") or fields.get("properties") or ""
        match request.code:
            case 10 | 310 | 320:
                if "TRAN_MSG\x01true" in properties:
                    yield "half"
                if "DELAY\x01" in properties:
                    yield "delay"
                if "CORRELATION_ID\x01" in properties:
                    yield "request"
            case 34 if b'"consumerDataSet":[]' not in request.body:
                yield "consumer"
            case 103:
                if fields["brokerId"] != "0":
                    yield "slave"
                if fields.get("compressed") == "true":
                    yield "compressed"
                if request.body.count(b'"topicName"') == 1:
                    yield "one-topic"
            case 105 if request.version < STANDARD_JSON_VERSION_MIN:
                yield "standard-asked" if "acceptStandardJsonOnly" in fields else "old-version"
            case 11 | 361 if fields.get("expressionType") == "SQL92":
                yield "sql"
            case 37:
                yield {"8": "commit", "12": "rollback"}.get(fields["commitOrRollback"], "unknown")
                if fields.get("fromTransactionCheck") == "true":
                    yield "checked"
        if request.is_one_way:
            yield "oneway"
        if self.answer is not None:
            if request.code in (11, 361) and self.answer.at_ms - request.at_ms > HELD_MS_MIN:
                yield "held"
            if self.answer.code != 0:
                yield RESPONSE_NAMES.get(self.answer.code, str(self.answer.code))
            if self.answer.binary != request.binary:
                yield f"answered-in-{self.answer.form}"
        elif not request.is_one_way:
            yield "unanswered"


def exchanges(connection: Connection) -> Iterator[Exchange]:
    """Every request of a connection, in order; a request still open at its end has no answer."""
    frames = [parse(piece.data, piece.side, piece.at_ms) for piece in list(connection.pieces)]
    answers = {
        (frame.side, frame.opaque, at): frame
        for at, frame in enumerate(frames)
        if frame.is_response
    }
    for at, request in enumerate(frames):
        if request.is_response:
            continue
        other = Side.SERVER if request.side is Side.CALLER else Side.CALLER
        later = (key[2] for key in answers if key[:2] == (other, request.opaque) and key[2] > at)
        first = min(later, default=None)
        yield Exchange(
            request, None if first is None else answers.pop((other, request.opaque, first))
        )
