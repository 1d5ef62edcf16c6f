from __future__ import annotations

import pytest

from samzapy.model.failing import REASON_LENGTH_MAX, Failing


def test_a_report_of_a_container_is_read_back_unchanged() -> None:
    failing = Failing(attempts=4, for_ms=30_000, left_ms=570_000, reason="no memory")

    assert failing == Failing.from_json({**failing.as_json(), "news": 1})
    assert Failing(attempts=0, for_ms=0, left_ms=0, reason="") == Failing.from_json({})


def test_a_long_reason_is_cut_and_one_that_is_no_utf_8_can_be_shown() -> None:
    failing = Failing(attempts=1, for_ms=0, left_ms=0, reason="\ud800" * 1000)

    assert "?" * REASON_LENGTH_MAX == Failing.from_json(failing.as_json()).reason


@pytest.mark.parametrize("wrong", [{"attempts": -1}, {"forMs": True}, {"leftMs": "soon"}, {"reason": 7}])
def test_a_wrong_report_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"failing.{next(iter(wrong))}: wanted"):
        Failing.from_json(wrong)
