"""What programs under test caught and only logged: exceptions, and requests that ended in an error
nobody foresaw.
"""

from __future__ import annotations

import logging
from typing import Self

from tests.simulation.threads import current_process


class SwallowedErrors(logging.Handler):
    """Exceptions that running programs only logged: they are failures all the same.

    Invariant: `errors` are those of processes that lived then.

    :param expected: exceptions that the test itself raises in handlers of messages.
    """

    def __init__(self, *expected: type[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._expected = expected
        self.errors: list[logging.LogRecord] = []

    def __enter__(self) -> Self:
        logging.getLogger("roquet").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("roquet").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process.get()
        if record.exc_info and isinstance(record.exc_info[1], self._expected):
            return
        if (record.exc_info or is_unforeseen(record)) and (process is None or process.alive):
            self.errors.append(record)

    def check(self) -> None:
        if self.errors:
            record = self.errors[0]
            cause = record.exc_info[1] if record.exc_info else None
            raise AssertionError(f"logged, not raised: {record.getMessage()}") from cause


def is_unforeseen(record: logging.LogRecord) -> bool:
    """Whether a request failed otherwise than by a refusal, or by a drive."""
    text = record.getMessage()
    return text.startswith("request failed: ") and "error=[Errno " not in text
