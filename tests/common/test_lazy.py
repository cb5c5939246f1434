"""Public names are imported when they are asked for, and are those of the modules they come
from.
"""

from __future__ import annotations

import math
import sys
from types import ModuleType

import pytest

from roquet import errors
from roquet.common.lazy import attributes_of


def test_a_name_is_that_of_its_module_and_is_looked_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package = ModuleType("p")
    monkeypatch.setitem(sys.modules, "p", package)
    attribute = attributes_of("p", {"sqrt": "math"})
    assert attribute("sqrt")(4) == 2
    assert vars(package)["sqrt"] is math.sqrt


def test_a_name_may_be_a_module() -> None:
    assert attributes_of("roquet", {"errors": "roquet.errors"})("errors") is errors


def test_any_other_name_is_an_error_that_names_the_package() -> None:
    with pytest.raises(AttributeError, match="module 'p' has no attribute 'cube'"):
        attributes_of("p", {})("cube")
