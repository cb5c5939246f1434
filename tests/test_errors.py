"""Errors name what is wrong, where, and what to do, in their message and in their fields."""

from __future__ import annotations

import pickle

import pytest

from roquet import errors
from roquet.errors import (
    LASTING,
    AccessDenied,
    CorruptRecord,
    DamagedFiles,
    FilterError,
    Refused,
    ResponseError,
    RoquetError,
    UnreadableFile,
)


@pytest.mark.parametrize(
    ("error", "text", "fields"),
    [
        (Refused(16, "no"), "no (code 16)", {"code": 16, "remark": "no"}),
        (
            ResponseError(1, "no", "b:1"),
            "b:1 answered code 1: no",
            {"code": 1, "remark": "no", "address": "b:1"},
        ),
        (
            AccessDenied(1, "no key", "b:1", "give one"),
            "b:1 denies access: no key; give one",
            {"code": 1, "remark": "no key", "address": "b:1"},
        ),
        (
            CorruptRecord(7, "zeros"),
            "no valid record at physical offset 7: zeros",
            {"at": 7, "reason": "zeros"},
        ),
        (
            DamagedFiles("a file is missing", "restore it"),
            "a file is missing",
            {"advice": "restore it"},
        ),
        (
            FilterError(3, "no value"),
            "filter expression, position 3: no value",
            {"position": 3, "reason": "no value"},
        ),
    ],
)
def test_an_error_has_its_parts_in_its_text_and_as_fields(
    error: RoquetError, text: str, fields: dict[str, object]
) -> None:
    assert str(error) == text
    assert {name: getattr(error, name) for name in fields} == fields
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), text, vars(error))


ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, BaseException)
]


def test_all_errors_but_one_of_the_system_have_one_base() -> None:
    assert [kind for kind in ALL if not issubclass(kind, RoquetError)] == [UnreadableFile]
    assert issubclass(UnreadableFile, OSError)


def test_errors_that_last_are_met_again_by_a_retry_and_no_others() -> None:
    lasting = {kind.__name__ for kind in ALL if issubclass(kind, LASTING)}

    assert lasting == {"AccessDenied", "TlsError"}
