"""What `import roquet` offers, and what it costs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import roquet

SHOW_MODULES = "import sys; print(*sys.modules)"


def modules_after(statement: str) -> set[str]:
    shown = subprocess.run(
        [sys.executable, "-c", f"{statement}; {SHOW_MODULES}"], capture_output=True, check=True
    )
    return set(shown.stdout.decode().split())


@pytest.mark.parametrize("name", roquet.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(roquet, name).__name__.removeprefix("roquet.") == name


def test_the_version_is_that_of_the_package() -> None:
    assert roquet.__version__ == version("roquet")


def test_the_errors_are_there_after_import_roquet() -> None:
    shown = subprocess.run(
        [sys.executable, "-c", "import roquet; print(roquet.errors.StoreError.__name__)"],
        capture_output=True,
        check=True,
    )
    assert shown.stdout.split() == [b"StoreError"]


def test_python_m_roquet_is_the_command() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "roquet", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout == f"roquet {roquet.__version__}\n"


def test_a_name_that_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        roquet.Broker  # type: ignore[attr-defined]  # noqa: B018
    assert dir(roquet) == roquet.__all__


def test_importing_roquet_loads_nothing_else() -> None:
    assert not {"asyncio", "roquet.client", "orjson"} & modules_after("import roquet")


def test_the_client_does_not_load_what_only_others_need() -> None:
    loaded = modules_after("import roquet; roquet.Producer, roquet.Consumer, roquet.PullConsumer")
    assert (
        not {
            "numpy",
            "click",
            "rich",
            "pyspark",
            "pyarrow",
            "uvloop",
            "roquet.broker",
            "roquet.storage",
        }
        & loaded
    )
