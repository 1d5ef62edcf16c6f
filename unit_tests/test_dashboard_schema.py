"""The dashboard of `deploy/` against Grafana's own schema.

The classes of `grafana-foundation-sdk` are made from the schema, for the version of Grafana that the dashboard is for.
A field that the schema does not know is lost on the way through them, and a value of another type does not fit.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "deploy" / "grafana" / "samzapy.json").read_text(encoding="utf-8")
OF_THE_DATA_SOURCE = ("titleFormat", "textFormat", "step", "definition")
"""Fields that the plug-in of Prometheus adds to annotations and variables; the schema leaves them open."""


def problems(dashboard: dict[str, Any]) -> list[str]:
    """The fields that the schema does not know, and the values that do not fit it."""
    plugins.register_default_plugins()
    model = Dashboard.from_json(dashboard)
    again = json.loads(JSONEncoder().encode(model))
    return [*_lost(dashboard, again, ""), *_misfits(model, Dashboard, "")]


def _lost(given: Any, kept: Any, place: str) -> Iterator[str]:
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name in kept:
                yield from _lost(value, kept[name], f"{place}/{name}")
            elif name not in OF_THE_DATA_SOURCE:
                yield f"{place}/{name}: not in the schema"
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for number, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from _lost(value, other, f"{place}/{number}")
    elif given != kept:
        yield f"{place}: {given!r} becomes {kept!r}"


def _misfits(value: Any, hint: Any, place: str) -> list[str]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in (Any, object):
        hint = type(value)
    if origin in (Union, types.UnionType):
        each = [_misfits(value, alternative, place) for alternative in arguments]
        return min(each, key=len) if value is not None else []
    if origin is Literal:
        return [] if value in arguments else [f"{place}: {value!r} is none of {arguments}"]
    if origin is list and isinstance(value, list):
        return [text for n, item in enumerate(value) for text in _misfits(item, arguments[0], f"{place}/{n}")]
    if origin is dict and isinstance(value, dict):
        return [text for key, item in value.items() for text in _misfits(item, arguments[1], f"{place}/{key}")]
    kind = origin or hint
    if issubclass(kind, Enum):
        return [] if value in [item.value for item in kind] else [f"{place}: {value!r} is no {kind.__name__}"]
    fits = type(value) in (int, float) if kind is float else isinstance(value, kind)
    if not fits or (isinstance(value, bool) and kind is not bool):
        return [f"{place}: {value!r} is no {kind.__name__}"]
    hints = get_type_hints(type(value)) if type(value).__module__.startswith("grafana_foundation_sdk") else {}
    return [
        text for name, inner in hints.items() for text in _misfits(getattr(value, name), inner, f"{place}/{name}")
    ]


def test_the_dashboard_fits_the_schema_of_grafana() -> None:
    assert [] == problems(json.loads(TEXT))


def _with_misspelt_title(dashboard: dict[str, Any], panel: dict[str, Any]) -> None:
    panel["titel"] = panel.pop("title")


def _with_text(dashboard: dict[str, Any], panel: dict[str, Any], *, name: str) -> None:
    panel["gridPos"][name] = str(panel["gridPos"][name])


def _with_other_mode(dashboard: dict[str, Any], panel: dict[str, Any]) -> None:
    dashboard["graphTooltip"] = 7


def _with_unknown_option(dashboard: dict[str, Any], panel: dict[str, Any]) -> None:
    next(other for other in dashboard["panels"] if other.get("options"))["options"]["legends"] = {}


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (_with_misspelt_title, "/panels/1/titel: not in the schema"),
        (partial(_with_text, name="w"), "/panels/1/grid_pos/w: '"),
        (_with_other_mode, "/graph_tooltip: 7 is no "),
        (_with_unknown_option, "/options/legends: not in the schema"),
    ],
    ids=["a misspelt field", "a text for a number", "an unknown value", "an unknown option"],
)
def test_a_dashboard_that_does_not_fit_the_schema_is_detected(spoil: Any, problem: str) -> None:
    dashboard = json.loads(TEXT)
    spoil(dashboard, dashboard["panels"][1])

    assert [text for text in problems(dashboard) if problem in text]
