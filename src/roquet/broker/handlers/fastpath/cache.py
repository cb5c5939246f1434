"""The forms of request that one connection's shortcut knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, Generic, TypeVar

from roquet.protocol.remoting.command import BINARY, Command
from roquet.protocol.templates.request import OPAQUE, VARYING, HeaderTemplate, learn, template_key
from roquet.transport.connection import SlowPath

_ALWAYS_LEARNT: Final = 64
_LEARN_EVERY: Final = 100
"""A connection whose requests are all different learns the first few, then rarely: learning costs more than parsing."""
_FORMS_MAX: Final = 256
_FORMS_PER_KEY_MAX: Final = 16
"""Forms with headers of one length: a frame is compared with each of them."""
_HEADER_SIZE_MAX: Final = 8 * 1024
_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a header that is learnt, and of all headers of a connection: one may have 16 MiB of unknown fields."""


class CachedTemplate:
    """One form of header.

    A frame fits whose header ends at `header_end` and which `unpack_from` takes apart into pieces of which every other
    one, from the first, is among `constants`; `pick` finds opaque, the numbers and the texts in the others.

    :param texts: names of the properties to pick.
    """

    def __init__(self, header_template: HeaderTemplate, texts: Sequence[str] = ()) -> None:
        names = (OPAQUE, *VARYING[header_template.command.code].numbers, *texts)
        self.is_binary = header_template.command.header_type == BINARY
        self.header_end = header_template.header_end
        self.unpack_from = header_template.pieces.unpack_from
        self.constants = header_template.constants
        self.pick: Callable[[tuple[bytes, ...]], tuple[bytes, ...]] = itemgetter(
            *(2 * header_template.places[name] + 1 for name in names)
        )


F = TypeVar("F", bound=CachedTemplate)


class TemplateCache(Generic[F]):
    """Header templates of one connection's requests of one code.

    Keeps: `known` holds all templates by their `template_key`, whose headers have `_SIZE_MAX` bytes together at most;
           a frame that may be learnt is kept while it goes the slow path, no longer.
    """

    def __init__(self) -> None:
        self.known: dict[bytes, list[F]] = {}
        self._size = 0
        self._unknown = b""
        self._unknown_count = 0

    def by_slow_path(self, frame: bytes, slow_path: SlowPath) -> bytes | None:
        """The answer to a frame that none of the forms fits: it goes the general way, on which it may be learnt."""
        self._unknown = frame if int.from_bytes(frame[1:4], "big") <= _HEADER_SIZE_MAX else b""
        answer = slow_path(frame)
        self._unknown = b""
        return answer

    def clear(self) -> None:
        self.known.clear()
        self._size = 0

    def learn(self, request: Command) -> HeaderTemplate | None:
        """The shape of the frame that was not known a moment ago and has become `request`."""
        frame, self._unknown = self._unknown, b""
        if not frame:
            return None
        self._unknown_count += 1
        if self._unknown_count > _ALWAYS_LEARNT and self._unknown_count % _LEARN_EVERY:
            return None
        return learn(frame, request)

    def add(self, template: F) -> None:
        self._size += template.header_end
        if len(self.known) >= _FORMS_MAX or self._size > _SIZE_MAX:
            self.clear()
            self._size = template.header_end
        alike = self.known.setdefault(template_key(template.constants[0]), [])
        alike.append(template)
        del alike[:-_FORMS_PER_KEY_MAX]
