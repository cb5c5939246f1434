"""Public names are imported when they are asked for, and are those of the modules they come from."""

from __future__ import annotations

import importlib

import pytest

from roquet.common.lazy import attributes_of

PACKAGES = [f"roquet.spark.pipelines.{name}" for name in ("archive", "audit", "lag", "send")]


def test_a_name_is_that_of_its_module() -> None:
    attribute = attributes_of("p", {"sqrt": "math"})
    assert attribute("sqrt")(4) == 2


def test_any_other_name_is_an_error_that_names_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'p' has no attribute 'cube'"):
        attributes_of("p", {})("cube")


@pytest.mark.parametrize("package", PACKAGES)
def test_all_public_names_of_a_package_can_be_imported(package: str) -> None:
    pytest.importorskip("pyspark")
    module = importlib.import_module(package)
    assert all(getattr(module, name).__name__ == name for name in module.__all__)
