"""The error for a package that is missing."""

from __future__ import annotations

import pytest

from roquet.common.extras import MissingExtraError, needed_by


def test_a_missing_package_of_an_extra_names_the_extra() -> None:
    with (
        pytest.raises(
            MissingExtraError, match=r"^the tool needs numpy: pip install 'roquet\[broker\]'$"
        ),
        needed_by("the tool"),
    ):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


@pytest.mark.parametrize("name", ["nowhere", "roquet.nowhere", None])
def test_another_missing_module_is_told_as_it_is(name: str | None) -> None:
    error = ModuleNotFoundError("No module", name=name)

    with pytest.raises(ModuleNotFoundError) as raised, needed_by("the tool"):
        raise error

    assert raised.value is error
