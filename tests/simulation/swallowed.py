"""What programs under test caught and only logged."""

from __future__ import annotations

import logging
from typing import Self

from tests.simulation.threads import current_process


class SwallowedErrors(logging.Handler):
    """Exceptions that running programs only logged: they are failures all the same.

    Keeps: `errors` are those of processes that lived then.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[logging.LogRecord] = []

    def __enter__(self) -> Self:
        logging.getLogger("roquet").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("roquet").removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        process = current_process.get()
        if record.exc_info and (process is None or process.alive):
            self.errors.append(record)

    def check(self) -> None:
        if self.errors:
            record = self.errors[0]
            assert record.exc_info
            raise AssertionError(f"logged, not raised: {record.getMessage()}") from record.exc_info[1]
