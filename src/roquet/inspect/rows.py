"""Records as columns: what a check needs of many of them, without decoding each one.

Records of one producer mostly differ at a few places of known size. The end of the first one (topic and properties) is
taken apart; all that have the same names at the same places are then read as rows of bytes. What is left over is
decoded one by one, by the same code that a broker uses.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from roquet.errors import CorruptRecord
from roquet.inspect.templates import Template
from roquet.protocol import message as m
from roquet.protocol.columns import Bools, Bytes, Ints
from roquet.protocol.record import MAGIC, check
from roquet.storage.arrival import Arrival, read_arrival
from roquet.storage.index_layout import key_hash, key_hashes
from roquet.units import PhysicalOffset

_HEAD_FIELDS: Final = (
    "size i4, magic u4, crc u4, queue_id i4, flag i4, queue_offset i8, physical i8, sys_flag i4, born_ms i8, "
    "born_host V8, store_ms i8, store_host V8, reconsumed i4, prepared i8, body_size i4"
)
_HEAD: Final = np.dtype([(name, f">{kind}") for name, kind in (field.split() for field in _HEAD_FIELDS.split(","))])
"""A record up to its body, both hosts IPv4 (docs/formats/log-record.md)."""
_TEMPLATES_MAX: Final = 8
_ALIKE_MIN: Final = 6
"""Fewer records are decoded one by one."""


@dataclass(slots=True)
class Rows:
    """Valid records in the order of the log: a column per field, and a row of `key_at` and `key_hash` for each key.

    `topic` is a number in `topics`; `bad_bodies` are rows whose body does not have its checksum.
    """

    topics: list[str]
    at: Ints
    size: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    store_ms: Ints
    tag_code: Ints
    takes_slot: Bools
    is_delayed: Bools
    """Whether the queue entry holds a time of delivery in place of the tag code."""
    key_at: Ints
    key_hash: Ints
    bad_bodies: list[int]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def end(self) -> int:
        return int(self.at[-1] + self.size[-1])


def java_hashes(letters: Bytes) -> Ints:
    """Java's hash of each row of ASCII letters."""
    size = letters.shape[1]
    powers = np.array([pow(31, size - n, 1 << 32) for n in range(1, size + 1)], np.uint32)
    hashes: npt.NDArray[np.uint32] = letters.astype(np.uint32) @ powers
    return hashes.view(np.int32).astype(np.int64)


class RowReader:
    """Makes rows of the records whose places are known; topics have the same numbers in all of them.

    :param verify: also compare each body with its checksum.
    """

    def __init__(self, *, verify: bool = True) -> None:
        self._verify = verify
        self.topics: list[str] = []
        self._numbers: dict[str, int] = {}

    def read(self, data: bytes, base: int, starts: list[int]) -> tuple[Rows, CorruptRecord | None]:
        """Records at `starts` in `data`, which begins at physical offset `base`; up to the first that is none."""
        return _Batch(self, data, base, starts).rows(self._verify)

    def number(self, topic: str) -> int:
        found = self._numbers.get(topic)
        if found is None:
            found = self._numbers[topic] = len(self.topics)
            self.topics.append(topic)
        return found


class _Batch:
    """The records of one piece of the log, while their columns are filled."""

    def __init__(self, reader: RowReader, data: bytes, base: int, starts: list[int]) -> None:
        self._reader = reader
        self._data = data
        self._view = memoryview(data)
        self._letters: Bytes = np.frombuffer(data, np.uint8)
        self._base = base
        self._starts: Ints = np.array(starts, np.int64)
        self._head: npt.NDArray[Any] = self._letters[self._starts[:, None] + np.arange(_HEAD.itemsize)].view(_HEAD)[
            :, 0
        ]
        count = len(starts)
        self._topic, self._tag_code, self._delayed = (
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.zeros(count, bool),
        )
        self._store_ms = self._head["store_ms"].astype(np.int64)
        self._key_rows: list[Ints] = []
        self._key_hashes: list[Ints] = []
        self._error: CorruptRecord | None = None

    def rows(self, verify: bool) -> tuple[Rows, CorruptRecord | None]:
        head, size = self._head, self._head["size"].astype(np.int64)
        is_plain = (head["magic"] == MAGIC) & (head["sys_flag"] & (m.BORN_HOST_V6 | m.STORE_HOST_V6) == 0)
        is_good, topic_size, tail_at = self._plain_parts(size, is_plain)
        count = self._first_bad(is_plain & ~is_good)
        singles = np.flatnonzero(~is_plain[:count])
        singles = np.concatenate((singles, self._read_alike(is_plain[:count], size, topic_size, tail_at)))
        for row in np.sort(singles).tolist():
            if row >= count or not self._read_single(row, int(size[row])):
                count = min(count, row)
                break
        bad = self._bad_bodies(is_plain[:count], size) if verify else []
        return self._finish(count, size, bad), self._error

    def _plain_parts(self, size: Ints, is_plain: Bools) -> tuple[Bools, Ints, Ints]:
        """Whether sizes add up and the record is in its place, as `protocol.record.check` asks; where its topic is."""
        letters, starts, body_size = self._letters, self._starts, self._head["body_size"].astype(np.int64)
        body_end = starts + _HEAD.itemsize + body_size
        fits = is_plain & (body_size >= 0) & (body_end + 3 <= starts + size)
        body_end[~fits] = starts[~fits]
        topic_size = letters[body_end].astype(np.int64)
        properties_at = body_end + 3 + topic_size
        fits &= properties_at <= starts + size
        properties_at[~fits] = starts[~fits] + 3
        properties_size = letters[properties_at - 2].astype(np.int64) * 256 + letters[properties_at - 1]
        fits &= properties_at + properties_size == starts + size
        fits &= self._head["physical"] == starts + self._base
        fits &= (properties_size == 0) | (letters[starts + size - 1] != 0)
        return fits, topic_size, body_end + 1

    def _first_bad(self, is_bad: Bools) -> int:
        """How many records come before the first bad one; the error says what is wrong with that."""
        rows = np.flatnonzero(is_bad)
        if not len(rows):
            return len(is_bad)
        row = int(rows[0])
        self._fails(row, int(self._head["size"][row]))
        return row

    def _fails(self, row: int, size: int, *, verify: bool = False) -> bool:
        """Whether a record is not valid; that its body is not is no error."""
        start = int(self._starts[row])
        try:
            check(self._view[start : start + size], PhysicalOffset(self._base + start), verify=verify)
        except CorruptRecord as error:
            self._error = self._error if verify else error
            return True
        return False

    def _read_single(self, row: int, size: int) -> bool:
        """Take one record apart; False for one that is not valid."""
        if self._fails(row, size):
            return False
        start = int(self._starts[row])
        try:
            arrival = read_arrival(self._base + start, self._view[start : start + size])
        except CorruptRecord as error:
            self._error = error
            return False
        self._topic[row], self._store_ms[row] = self._reader.number(arrival.topic), arrival.store_ms
        self._tag_code[row], self._delayed[row] = m.tag_code(arrival.properties.get(m.TAGS)), is_delayed(arrival)
        hashes = [key_hash(arrival.topic, key.decode()) for key in arrival.keys]
        self._key_rows.append(np.full(len(hashes), row))
        self._key_hashes.append(np.array(hashes, np.int64))
        return True

    def _read_alike(self, is_plain: Bools, size: Ints, topic_size: Ints, tail_at: Ints) -> Ints:
        """Take apart what can be read in rows; the rows that are left."""
        rows = np.flatnonzero(is_plain)
        shape = (self._starts + size - tail_at)[rows] << 8 | topic_size[rows]
        left: list[Ints] = []
        for each in sorted(set(shape.tolist())):
            alike = rows[shape == each]
            if len(alike) >= _ALIKE_MIN:
                tails = self._letters[tail_at[alike][:, None] + np.arange(each >> 8)]
                alike = self._read_tails(alike, tails, each & 0xFF)
            left.append(alike)
        return np.concatenate(left) if left else rows

    def _read_tails(self, rows: Ints, tails: Bytes, topic_size: int) -> Ints:
        """Records whose topic and properties have the same sizes; gives those that are like too few others."""
        is_odd = (tails >= 0x80).any(axis=1) | (tails[:, :topic_size] == 0).any(axis=1)
        left = [rows[is_odd]]
        rows, tails = rows[~is_odd], tails[~is_odd]
        for _ in range(_TEMPLATES_MAX):
            if len(rows) < _ALIKE_MIN:
                break
            template = Template(tails[0].tobytes(), topic_size)
            same = template.fits(tails)
            self._fill(rows[same], tails[same], template)
            rows, tails = rows[~same], tails[~same]
        return np.concatenate([*left, rows])

    def _fill(self, rows: Ints, tails: Bytes, template: Template) -> None:
        self._topic[rows] = self._reader.number(template.topic)
        self._delayed[rows] = template.topic == m.SCHEDULE_TOPIC and m.DELAY in template.values
        tags = template.values.get(m.TAGS)
        if tags is not None:
            self._tag_code[rows] = java_hashes(tails[:, tags])
        indexed = self._head["sys_flag"][rows] & m.TRANSACTION_BITS != m.TRANSACTION_ROLLBACK
        for span in template.keys:
            keys = tails[indexed][:, span]
            hashes = key_hashes(template.topic, keys.tobytes(), keys.shape[1])
            self._key_rows.append(rows[indexed])
            self._key_hashes.append(hashes)

    def _bad_bodies(self, is_plain: Bools, size: Ints) -> list[int]:
        """Rows whose body does not have the checksum that the record says."""
        plain = np.flatnonzero(is_plain)
        begins = (self._starts[plain] + _HEAD.itemsize).tolist()
        ends = (self._starts[plain] + _HEAD.itemsize + self._head["body_size"][plain]).tolist()
        view = self._view
        found = starmap(crc32, ((view[begin:end],) for begin, end in zip(begins, ends, strict=True)))
        sums = np.fromiter(found, np.uint32, len(begins)) & np.uint32(0x7FFFFFFF)
        bad = plain[sums != self._head["crc"][plain]].tolist()
        bad += [row for row in np.flatnonzero(~is_plain).tolist() if self._fails(row, int(size[row]), verify=True)]
        return sorted(bad)

    def _finish(self, count: int, size: Ints, bad: list[int]) -> Rows:
        head, at = self._head[:count], self._starts[:count] + self._base
        bits = head["sys_flag"] & m.TRANSACTION_BITS
        key_rows = np.concatenate(self._key_rows) if self._key_rows else np.empty(0, np.int64)
        key_hashes = np.concatenate(self._key_hashes) if self._key_hashes else np.empty(0, np.int64)
        kept = key_rows < count
        return Rows(
            topics=self._reader.topics,
            at=at,
            size=size[:count],
            topic=self._topic[:count],
            queue_id=head["queue_id"].astype(np.int64),
            queue_offset=head["queue_offset"].astype(np.int64),
            store_ms=self._store_ms[:count],
            tag_code=self._tag_code[:count],
            takes_slot=(bits == 0) | (bits == m.TRANSACTION_COMMIT),
            is_delayed=self._delayed[:count],
            key_at=at[key_rows[kept]],
            key_hash=key_hashes[kept],
            bad_bodies=[row for row in bad if row < count],
        )


def is_delayed(arrival: Arrival) -> bool:
    """Whether a record's queue entry holds its time of delivery."""
    return arrival.topic == m.SCHEDULE_TOPIC and m.DELAY in arrival.properties
