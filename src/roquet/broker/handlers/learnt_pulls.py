"""The usual pulls of one connection, taken without parsing (performance.md, technique 2)."""

from __future__ import annotations

from collections.abc import Callable

from roquet.broker.handlers.learnt_forms import LearntForm, LearntForms
from roquet.protocol.answer_form import AnswerForm
from roquet.protocol.bodies import GroupConfig
from roquet.protocol.command import Command
from roquet.protocol.filters import TagFilter
from roquet.protocol.headers.pull import PullHeader
from roquet.protocol.learnt import Shape, is_number
from roquet.storage.fetch import Fetched, FetchStatus
from roquet.transport.connection import Connection, Otherwise

Look = Callable[[PullHeader, int, int, int], tuple[GroupConfig, TagFilter, Fetched]]
"""Queue id, queue offset and commit offset of a pull that is otherwise like the header given -> what it finds."""


class LearntPulls:
    """Answers pulls that find something; the others go the general way, which looks again.

    :param suggest: which broker to pull from next.
    """

    def __init__(
        self, connection: Connection, look: Look, suggest: Callable[[GroupConfig, Fetched], int], found: AnswerForm
    ) -> None:
        self._connection = connection
        self._look = look
        self._suggest = suggest
        self._found = found
        self._forms: LearntForms[_LearntPull] = LearntForms()

    def take(self, frames: list[bytes], otherwise: Otherwise) -> list[bytes]:
        """The answers to frames of learnt forms; any other frame goes `otherwise`, in its turn."""
        answers: list[bytes] = []
        for frame in frames:
            for known in self._forms.known.get(frame[:4], ()):
                pieces = known.unpack_from(frame) if len(frame) == known.header_end else ()
                if pieces[::2] == known.constants:
                    answer = self._answer(frame, known, known.pick(pieces))
                    break
            else:
                answer = None
            if answer is None:
                self._forms.not_known(frame)
                answer = otherwise(frame)
            if answer is not None:
                answers.append(answer)
        return answers

    def _answer(self, frame: bytes, known: _LearntPull, values: tuple[bytes, ...]) -> bytes | None:
        """None where the pull is one for the general way."""
        opaque, *numbers = values
        if not all(map(bytes.isdigit, numbers)) or not (known.is_binary or is_number(opaque)):
            return None
        try:
            group, _, fetched = self._look(known.header, *map(int, numbers))
        except Exception as error:
            return self._connection.failed(frame, error)
        if fetched.status is not FetchStatus.FOUND:
            return None
        places = (self._suggest(group, fetched), fetched.next_offset, fetched.min_offset, fetched.max_offset)
        encode = self._found.binary if known.is_binary else self._found.json
        size = sum(map(len, fetched.records))
        return b"".join((encode(opaque, [b"%d" % place for place in places], size), *fetched.records))

    def learn(self, request: Command, header: PullHeader) -> None:
        """Learn the form of the pull that `take` did not know a moment ago."""
        shape = self._forms.learn(request)
        if shape is not None and not request.body:
            self._forms.add(_LearntPull(shape, header))


class _LearntPull(LearntForm):
    """One form of pull; `pick` finds opaque, queue id, queue offset and commit offset."""

    def __init__(self, shape: Shape, header: PullHeader) -> None:
        super().__init__(shape)
        self.header = header
