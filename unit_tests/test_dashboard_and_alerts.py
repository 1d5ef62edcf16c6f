"""The dashboard and alert rules of `deploy/`: metrics exist, and alerts fire.

Prometheus' own promtool evaluates the expressions; without it those tests are skipped by name.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from samzapy.inspection.metrics import METRICS, Kind
from unit_tests.test_docs import anchors_of, code_blocks, text_of

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "samzapy.json").read_text(encoding="utf-8"))
RULES_PATH = ROOT / "deploy" / "prometheus" / "samzapy.rules.yml"
RULES_TESTS_PATH = ROOT / "deploy" / "prometheus" / "samzapy.rules.test.yml"
RULES = [
    rule for group in yaml.safe_load(RULES_PATH.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in RULES if "alert" in rule}
RULES_TESTS = yaml.safe_load(RULES_TESTS_PATH.read_text(encoding="utf-8"))["tests"]
METRICS_PAGE = text_of("docs/reference/metrics.md")
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
GRID_COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# As Grafana replaces them; the longest names first.
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$processor": ".*", "$task": ".*", "$job": ".*"}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="wanted Prometheus' promtool (apt-get install prometheus)"
)


def series_of_metrics() -> dict[str, set[str]]:
    """The labels of each series that `GET /metrics` has."""
    suffixes = {Kind.SUMMARY: ("_sum", "_count")}
    return {
        f"{metric.name}{suffix}": set(metric.labels)
        for metric in METRICS
        for suffix in suffixes.get(metric.kind, ("",))
    }


def series_known() -> dict[str, set[str]]:
    """The labels of each series of an expression: a metric's, or a recorded one's."""
    known = series_of_metrics()
    for rule in RULES:
        if "record" in rule:
            known[rule["record"]] = labels_of(promql.parse(rule["expr"]), known)
    return known


def labels_of(node: Any, known: Mapping[str, set[str]]) -> set[str]:
    """The labels of an expression's result; each of its names must be known."""
    match node:
        case promql.VectorSelector():
            assert node.name in known, f"{node.name} is no metric"
            matched = {matcher.name for matcher in node.matchers.matchers}
            assert matched <= known[node.name], f"{node.name} has no label {matched - known[node.name]}"
            return known[node.name]
        case promql.MatrixSelector():
            return labels_of(node.vector_selector, known)
        case promql.ParenExpr() | promql.SubqueryExpr() | promql.UnaryExpr():
            return labels_of(node.expr, known)
        case promql.Call():
            return set().union(*(labels_of(argument, known) for argument in node.args))
        case promql.AggregateExpr():
            return _labels_of_aggregation(node, labels_of(node.expr, known))
        case promql.BinaryExpr():
            return _labels_of_operation(node, labels_of(node.lhs, known), labels_of(node.rhs, known))
        case promql.NumberLiteral() | promql.StringLiteral():
            return set()
    raise AssertionError(f"wanted an expression that this test knows, found {node}")


def _labels_of_aggregation(node: Any, inner: set[str]) -> set[str]:
    kept = set(node.modifier.labels) if node.modifier else set()
    assert kept <= inner, f"{node} has no label {kept - inner}"
    return inner if str(node.op) in {"topk", "bottomk"} else kept


def _labels_of_operation(node: Any, left: set[str], right: set[str]) -> set[str]:
    if not left or not right:
        return left | right
    if node.modifier is None or node.modifier.matching is None:
        assert left == right, f"{node} has sides with other labels: {left}, {right}"
        return left
    on = set(node.modifier.matching.labels)
    assert on <= left & right, f"{node} matches by {on}, its sides have {left} and {right}"
    is_filter = str(node.op) in {"and", "unless", "or"}
    return left if is_filter or "ManyToOne" in str(node.modifier.card) else on


def with_variables(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def queries() -> list[tuple[str, str, str]]:
    """Panel, expression and legend of each query of the dashboard."""
    return [
        (panel["title"], with_variables(target["expr"]), target["legendFormat"])
        for panel in PANELS
        for target in panel["targets"]
    ]


def run_promtool(*arguments: str | Path, cwd: Path) -> None:
    run = subprocess.run(["promtool", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(("title", "expression", "legend"), queries())
def test_each_query_of_the_dashboard_names_metrics_and_labels_that_are_there(
    title: str, expression: str, legend: str
) -> None:
    labels = labels_of(promql.parse(expression), series_known())

    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= labels


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_each_rule_names_metrics_and_labels_that_are_there(rule: dict[str, Any]) -> None:
    labels = labels_of(promql.parse(rule["expr"]), series_known())

    texts = " ".join(rule.get("annotations", {}).values())
    assert set(re.findall(r"\$labels\.(\w+)", texts)) <= labels
    assert "instance" not in rule["expr"], "after a failover another instance has the series"


@pytest.mark.parametrize("expression", re.findall(r"printf `([^`]*)`", str(ALERTS)))
def test_an_expression_in_the_text_of_an_alert_names_metrics_that_are_there(expression: str) -> None:
    assert labels_of(promql.parse(expression), series_known())


@pytest.mark.parametrize("block", code_blocks(METRICS_PAGE, "promql"))
def test_the_expressions_of_the_metrics_page_name_metrics_and_labels_that_are_there(block: str) -> None:
    for expression in filter(str.strip, re.split(r"^#.*\n", block, flags=re.MULTILINE)):
        assert labels_of(promql.parse(expression), series_known())


def test_a_variable_of_the_dashboard_has_the_values_of_a_label_that_is_there() -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            assert label == variable["name"]
            assert label in labels_of(promql.parse(with_variables(selector)), series_known())


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("samzapy_coordinator_leeds", "no metric"),
        ("samzapy_task_get_seconds", "no metric"),
        ('samzapy_job_tasks{task="a"}', "no label"),
        ("sum by (ssp) (samzapy_job_tasks)", "no label"),
        ("samzapy_job_tasks / samzapy_container_tasks", "other labels"),
        ("samzapy_job_tasks / on (task) samzapy_job_generation", "matches by"),
        ("sum by (job) (rate(foo[5m]))", "no metric"),
    ],
)
def test_a_name_or_label_that_is_not_there_is_reported(expression: str, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        labels_of(promql.parse(expression), series_known())


def test_the_panels_have_ids_of_their_own_and_a_description() -> None:
    ids = Counter(panel["id"] for panel in DASHBOARD["panels"])
    titles = [panel["title"] for panel in PANELS]

    assert [] == [number for number, count in ids.items() if count > 1]
    assert all(titles)
    assert [] == [panel["title"] for panel in PANELS if not panel["description"]]
    assert DASHBOARD["schemaVersion"] >= 36


def test_the_panels_fill_the_grid_without_gaps_and_overlaps() -> None:
    cells = Counter(
        (x, y)
        for grid in (panel["gridPos"] for panel in DASHBOARD["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    )
    rows = 1 + max(y for _, y in cells)

    assert {(x, y): 1 for x in range(GRID_COLUMNS) for y in range(rows)} == cells


def test_the_data_source_is_a_variable() -> None:
    first, *others = DASHBOARD["templating"]["list"]
    alerts_shown = DASHBOARD["annotations"]["list"][1]
    users = [alerts_shown, *others, *PANELS, *(target for panel in PANELS for target in panel["targets"])]

    assert ("datasource", "datasource", "prometheus") == (first["name"], first["type"], first["query"])
    assert all(SOURCE == user["datasource"] for user in users)


def test_each_alert_has_its_severity_and_leads_to_an_existing_page() -> None:
    for name, rule in ALERTS.items():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert {"severity"} == rule["labels"].keys(), name
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        assert rule["for"], name
        assert rule["annotations"]["summary"].endswith("."), name
        assert rule["annotations"]["description"], name
        assert page.startswith("docs/")
        assert not anchor or anchor in anchors_of(ROOT / page), name


def test_the_metrics_page_lists_the_alerts() -> None:
    rows = re.findall(r"^\| `(Samzapy\w+)` \| (\w+) \| (\w+) \|", METRICS_PAGE, re.MULTILINE)

    assert [(name, rule["labels"]["severity"], rule["for"]) for name, rule in ALERTS.items()] == rows


def test_each_alert_has_series_in_which_it_fires_and_some_in_which_it_does_not() -> None:
    checks = [check for test in RULES_TESTS for check in test.get("alert_rule_test", ())]

    assert set(ALERTS) == {check["alertname"] for check in checks if check["exp_alerts"]}
    assert set(ALERTS) == {check["alertname"] for check in checks if not check["exp_alerts"]}


def test_the_scrape_configuration_keeps_the_name_of_the_job() -> None:
    (scrape,) = (block for block in code_blocks(METRICS_PAGE, "yaml") if "scrape_configs" in block)

    assert [True] == [config["honor_labels"] for config in yaml.safe_load(scrape)["scrape_configs"]]


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    run_promtool("check", "rules", RULES_PATH, cwd=ROOT)


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_at_a_failover_or_deploy() -> None:
    run_promtool("test", "rules", RULES_TESTS_PATH, cwd=RULES_TESTS_PATH.parent)


@needs_promtool
def test_each_query_of_the_dashboard_has_a_result_where_all_metrics_have_values(tmp_path: Path) -> None:
    series = []
    for name, labels in series_of_metrics().items():
        others = ", ".join(f'{label}="a"' for label in sorted(labels - {"job"}))
        # Two jobs, of which nothing may be mixed.
        for job in ("flights-1", "orders-1"):
            series.append({"series": f'{name}{{job="{job}", {others}}}', "values": "1+1x60"})
    checks = [
        {"expr": f"count({expression}) > bool 0", "eval_time": "1h", "exp_samples": [{"labels": "{}", "value": 1}]}
        for _, expression, _ in queries()
    ]
    test = {"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test), encoding="utf-8")

    run_promtool("test", "rules", "test.yml", cwd=tmp_path)
