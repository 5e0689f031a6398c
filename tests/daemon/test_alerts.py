"""config/prometheus and config/grafana: valid by Prometheus' own tool, and only about existing metrics."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from cleanerd.daemon.http import metric_names
from tests.daemon.promtool import DASHBOARD, ROOT, panels, promtool

if TYPE_CHECKING:
    from pathlib import Path

RULES = ROOT / "config" / "prometheus" / "cleanerd.rules.yml"
RULE_TESTS = ROOT / "config" / "prometheus" / "cleanerd.rules.test.yml"

EXPORTED = {metric.exported_name for metric in metric_names.ALL}
ALERTS = RULES.read_text(encoding="utf-8").split("      - alert: ")[1:]
NAME = re.compile(r"\b(?:cleanerd|kafka_log)_[a-z_]+\b")


def test_rules_are_valid() -> None:
    code, message = promtool("check", "rules", str(RULES))
    assert code == 0, message


@pytest.mark.long
def test_rules_pass_their_promtool_tests() -> None:
    code, message = promtool("test", "rules", str(RULE_TESTS))
    assert code == 0, message


@pytest.mark.long
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.split("\n")[0])
def test_each_rule_has_a_test_that_can_fail(alert: str, tmp_path: Path) -> None:
    """An alert that never fires, or fires at once, makes the rules' own tests fail."""
    never = re.sub(r"expr: .*", "expr: vector(0) > 1", alert)
    assert promtool("test", "rules", _with(tmp_path, alert, never))[0] != 0
    if "        for: " in alert:
        at_once = re.sub(r" {8}for: .*\n", "", alert)
        assert promtool("test", "rules", _with(tmp_path, alert, at_once))[0] != 0


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.split("\n")[0])
def test_each_rule_has_a_meaning_and_an_action(alert: str) -> None:
    assert re.search(r"severity: (critical|warning|info)\n", alert)
    assert re.search(r"summary: (>-\n +)?.{20,}\n", alert)
    assert re.search(r"runbook: (>-\n +)?.{20,}\n", alert)


def test_rules_name_metrics_that_are_exported() -> None:
    named = {name for alert in ALERTS for name in NAME.findall(alert.split("annotations:")[0])}
    assert named
    assert named <= EXPORTED


def test_the_dashboard_names_metrics_that_are_exported() -> None:
    expressions = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    named = {name for each in expressions for name in NAME.findall(each)}
    variables = json.loads(DASHBOARD.read_text(encoding="utf-8"))["templating"]["list"]
    named |= {name for each in variables if each["type"] == "query" for name in NAME.findall(each["query"]["query"])}
    assert len(named) > 30
    assert named <= EXPORTED


def test_the_dashboard_shows_how_sure_an_estimate_is() -> None:
    """A figure with bounds is shown with both, wherever it appears over time or by partition."""
    shown = {panel["title"]: " ".join(target["expr"] for target in panel.get("targets", ())) for panel in panels()}
    for title, name in (
        ("Dirty and reclaimable", "cleanerd_reclaimable"),
        ("Largest reclaimable partitions", "cleanerd_partition_reclaimable"),
    ):
        for bound in ("_bytes", "_low_bytes", "_high_bytes"):
            assert name + bound in shown[title]


def test_the_dashboards_expressions_are_promql(tmp_path: Path) -> None:
    """Values replace Grafana's own variables; the rest must parse."""
    expressions = [target["expr"] for panel in panels() for target in panel.get("targets", ())]
    lines = ["groups:", "  - name: dashboard", "    rules:"]
    for n, expression in enumerate(expressions):
        plain = re.sub(r"\$__(range|rate_interval)", "5m", expression)
        plain = plain.replace("$job", ".*").replace("$instance", ".*")
        assert "$" not in plain
        lines += [f"      - record: dashboard:{n}", f"        expr: {json.dumps(plain)}"]
    rules = tmp_path / "dashboard.yml"
    rules.write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, message = promtool("check", "rules", str(rules))
    assert code == 0, message


def test_the_dashboard_fits_any_grafana() -> None:
    """Every panel and variable takes the data source that the viewer chooses; no panel overlaps another."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert dashboard["templating"]["list"][0]["type"] == "datasource"
    assert "__inputs" not in dashboard
    ids = [panel["id"] for panel in panels()]
    assert len(ids) == len(set(ids))
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
        if panel["type"] != "row":
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def _with(folder: Path, alert: str, changed: str) -> str:
    rules = RULES.read_text(encoding="utf-8")
    (folder / RULES.name).write_text(rules.replace(alert, changed), encoding="utf-8")
    tests = folder / RULE_TESTS.name
    tests.write_text(RULE_TESTS.read_text(encoding="utf-8"), encoding="utf-8")
    return str(tests)
