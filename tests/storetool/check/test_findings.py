"""Findings are counted all, kept as far as there is room, and come with advice."""

from __future__ import annotations

import pytest

from roquet.storetool.check.findings import ADVICE, KEPT_MAX, Finding, FindingKind, Findings


def test_findings_beyond_the_bound_are_counted_and_not_kept() -> None:
    findings = Findings()

    for number in range(KEPT_MAX + 5):
        findings.add(FindingKind.ENTRY, "file", number, "text")
    findings.add(FindingKind.BODY, "log", None, "last")

    assert findings.kept[0] == Finding(FindingKind.ENTRY, "file", 0, "text")
    assert findings.kept[-1] == Finding(FindingKind.ENTRY, "file", KEPT_MAX - 1, "text")
    assert findings.count == KEPT_MAX + 6
    assert findings.by_kind == {FindingKind.ENTRY: KEPT_MAX + 5, FindingKind.BODY: 1}


def test_remarks_are_no_findings() -> None:
    findings = Findings()
    findings.remarks.append("good to know")

    assert (findings.count, findings.kept) == (0, [])


@pytest.mark.parametrize("kind", FindingKind)
def test_each_kind_of_finding_has_advice(kind: FindingKind) -> None:
    assert ADVICE[kind].startswith(("stop the broker", "restore the file", "move away files"))
    assert len(ADVICE) == len(FindingKind)
