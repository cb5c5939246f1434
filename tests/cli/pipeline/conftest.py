"""The Spark session of all tests, a cluster, and a way to start a command in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result

from roquet.cli.main import main
from tests.docs.conftest import cluster
from tests.spark.conftest import spark

__all__ = ["cluster", "spark"]

Pipeline = Callable[..., Result]


@pytest.fixture
def pipeline() -> Pipeline:
    """Runs `roquet pipeline`; an error that it does not tell in a line is raised."""

    def run(*words: object) -> Result:
        command = ["pipeline", *map(str, words)]
        return CliRunner().invoke(main, command, catch_exceptions=False)

    return run


def refusal(result: Result) -> str:
    """The line with which a command ends that does nothing."""
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("roquet: ")
    return line.removeprefix("roquet: ")
