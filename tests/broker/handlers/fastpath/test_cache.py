"""Which header templates a connection keeps, and how many."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Final

import pytest

from roquet.broker.handlers.fastpath.cache import TemplateCache
from roquet.protocol.remoting.command import BINARY, JSON, decode
from roquet.protocol.templates.request import learn
from tests.broker.send_sides import send_frame

ALWAYS_LEARNT: Final = 64
LEARN_EVERY: Final = 100
LENGTHS_MAX: Final = 256
PER_LENGTH_MAX: Final = 16
HEADER_MAX: Final = 8 * 1024
ALL_HEADERS_MAX: Final = 1024 * 1024
LENGTH_FIELD: Final = 4
ANSWER: Final = b"answer"


def frame_of(
    size: int = 0, topic: str = "T", opaque: int = 1234, header_type: int = BINARY
) -> bytes:
    """A send whose header is longer by `size` bytes than the shortest one."""
    return send_frame(opaque, 1, {"a": "x" * (1 + size)}, topic=topic, header_type=header_type)


class Connection:
    """The cache of one connection; what is learnt from a frame is the frame itself."""

    def __init__(self) -> None:
        self.cache: TemplateCache[bytes] = TemplateCache()

    def take(self, frame: bytes) -> None:
        """Handle a frame that matches no template."""
        assert self.cache.by_slow_path(frame, self._slow_path) == ANSWER

    def _slow_path(self, frame: bytes) -> bytes:
        template = self.cache.learn(decode(frame))
        if template is not None:
            self.cache.add(template, frame)
        return ANSWER

    def learnt_from(self, frame: bytes) -> bytes | None:
        """The frame from which the template of this one was learnt; None if it has none."""
        found = self.cache.match(frame)
        return None if found is None else found[0]


@pytest.fixture
def connection() -> Connection:
    return Connection()


# matching


@pytest.mark.parametrize("header_type", [JSON, BINARY])
def test_a_frame_matches_what_was_learnt_from_one_of_its_form(
    connection: Connection, header_type: int
) -> None:
    frames = [
        frame_of(size, topic, 1234, header_type) for size, topic in ((0, "T"), (0, "U"), (5, "T"))
    ]
    for frame in frames:
        assert connection.learnt_from(frame) is None
        connection.take(frame)

    assert [connection.learnt_from(frame) for frame in frames] == frames
    assert connection.learnt_from(frame_of(0, "U", 5678, header_type)) == frames[1]
    assert connection.learnt_from(frame_of(0, "V", 1234, header_type)) is None
    assert connection.learnt_from(frame_of(7, "T", 1234, header_type)) is None


def test_a_match_says_where_the_body_begins_and_which_values_vary(connection: Connection) -> None:
    connection.take(frame_of())
    other = frame_of(opaque=5678)

    found = connection.cache.match(other)

    assert found is not None
    _, body_at, values = found
    assert other[body_at:] == b"body"
    assert values[:2] == ((5678).to_bytes(4, "big"), b"1")


def test_a_frame_that_ends_within_its_header_matches_nothing(connection: Connection) -> None:
    frame = frame_of()
    connection.take(frame)

    assert connection.learnt_from(frame[: -len(b"body")]) == frame
    assert connection.learnt_from(frame[: -len(b"body") - 1]) is None


def test_a_cleared_cache_knows_nothing(connection: Connection) -> None:
    connection.take(frame_of())
    connection.cache.clear()

    assert (len(connection.cache), connection.learnt_from(frame_of())) == (0, None)


# learning


def test_a_frame_is_learnt_only_while_it_is_handled_and_once(connection: Connection) -> None:
    cache, frame = connection.cache, frame_of()
    request, learnt = decode(frame), []

    def slow_path(_: bytes) -> None:
        learnt.extend([cache.learn(request), cache.learn(request)])

    assert cache.learn(request) is None
    cache.by_slow_path(frame, slow_path)
    assert cache.learn(request) is None
    assert [template is not None for template in learnt] == [True, False]


def test_a_frame_is_kept_only_while_it_is_handled() -> None:
    cache: TemplateCache[bytes] = TemplateCache()
    tracemalloc.start()
    cache.by_slow_path(send_frame(1, 1, {}, bytes(1 << 20)), lambda _: None)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 1 << 19


def test_a_client_whose_requests_are_all_different_costs_little(connection: Connection) -> None:
    for number in range(ALWAYS_LEARNT):
        connection.take(frame_of(number))
    assert len(connection.cache) == ALWAYS_LEARNT

    for number in range(ALWAYS_LEARNT, 2 * LEARN_EVERY):
        connection.take(frame_of(number))

    assert len(connection.cache) == ALWAYS_LEARNT + 2
    assert connection.learnt_from(frame_of(LEARN_EVERY - 1)) is not None


# limits


def header_size(size: int) -> int:
    """Of `frame_of(size)`."""
    return int.from_bytes(frame_of(size)[1:4], "big")


def test_a_long_header_is_not_learnt(connection: Connection) -> None:
    """A header may have 16 MiB."""
    longest = HEADER_MAX - header_size(0)
    assert header_size(longest) == HEADER_MAX

    connection.take(frame_of(longest + 1))
    assert len(connection.cache) == 0
    connection.take(frame_of(longest))
    assert len(connection.cache) == 1


def test_of_one_length_the_newest_templates_are_kept(connection: Connection) -> None:
    frames = [frame_of(topic=f"T{number:02}") for number in range(PER_LENGTH_MAX + 2)]
    for frame in frames:
        connection.take(frame)

    assert [connection.learnt_from(frame) is not None for frame in frames] == (
        [False] * 2 + [True] * PER_LENGTH_MAX
    )


def kept_counts(connection: Connection, sizes: range) -> list[int]:
    """How many templates are kept after each of these."""
    counts = []
    for size in sizes:
        frame = frame_of(size)
        template = learn(frame, decode(frame))
        assert template is not None
        connection.cache.add(template, frame)
        counts.append(len(connection.cache))
    return counts


def test_at_too_many_lengths_all_templates_are_dropped(connection: Connection) -> None:
    counts = kept_counts(connection, range(LENGTHS_MAX + 2))

    assert counts[LENGTHS_MAX - 1 :] == [LENGTHS_MAX, 1, 2]


def test_all_headers_of_a_connection_have_a_limit_together(connection: Connection) -> None:
    """64 headers of 16 MiB would be a GiB for one connection, which nobody counts."""
    smallest = 7000
    counts = kept_counts(connection, range(smallest, smallest + 300))
    drops = [number for number, count in enumerate(counts) if count == 1]

    assert len(drops) == 3, "the first template, and two after all others were dropped"
    for first, last in pairwise(drops):
        sizes = [LENGTH_FIELD + header_size(smallest + n) for n in range(first, last + 1)]
        assert sum(sizes[:-1]) <= ALL_HEADERS_MAX < sum(sizes)
