"""If this fails, RESULTS.md says something else than the stored results, or a promise is neither kept nor missed."""

from __future__ import annotations

import importlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.promises import PROMISES, SCENARIOS, Target, find_promise, judge
from benchmarks.report import find_losses, render_plots, render_report
from benchmarks.results import (
    RESULTS_DIR,
    Measurement,
    load_other_cores,
    load_results,
    parse_result,
    render_json,
    result_path,
)

HOME = RESULTS_DIR.parent
RESULTS = load_results()
RESULT_FILES = sorted(RESULTS_DIR.glob("*.json"))


def test_page_is_generated_from_the_results() -> None:
    page = (HOME / "RESULTS.md").read_text(encoding="utf-8")
    assert page == render_report(RESULTS, load_other_cores()), "run `python -m benchmarks report`"


def test_plots_are_generated_from_the_results() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in (HOME / "plots").iterdir()}
    assert stored == render_plots(RESULTS), "run `python -m benchmarks report`"


def test_page_shows_plots_then_promises_then_losses() -> None:
    headings = re.findall(r"^## (.*)$", render_report(RESULTS), re.MULTILINE)
    assert headings[:3] == ["Plots", "Promises", "Where we lose"]


@pytest.mark.parametrize("path", RESULT_FILES, ids=lambda path: path.stem)
def test_result_is_canonical_and_judged(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    result = parse_result(text)
    assert render_json(result) == text
    assert result.scenario == path.stem
    assert result.scenario in SCENARIOS
    assert list(result.measurements) == [judge(measurement) for measurement in result.measurements]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result.date)
    assert not re.search(r"/(home|root|tmp|work)/", text), "a path of the machine"


def test_every_promise_has_a_row_and_a_result_or_is_marked() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| ([^|]*) \|$", render_report(RESULTS), re.MULTILINE)
    verdicts = dict(rows)
    assert list(verdicts) == [promise.id for promise in PROMISES]
    for promise in PROMISES:
        found = RESULTS[promise.scenario].find(promise.id) if promise.scenario in RESULTS else []
        assert bool(found) == (verdicts[promise.id] != "not measured"), promise.id


def test_unmeasured_promise_is_marked() -> None:
    assert render_report({}).count("| not measured |") == len(PROMISES)


def test_promises_are_unique_and_belong_to_scenarios() -> None:
    assert len({promise.id for promise in PROMISES}) == len(PROMISES)
    assert {promise.scenario for promise in PROMISES} <= set(SCENARIOS)
    for result in RESULTS.values():
        for measurement in result.measurements:
            if measurement.promise:
                assert find_promise(measurement.promise).scenario == result.scenario


def test_cores_stand_side_by_side(tmp_path: Path) -> None:
    two = RESULTS["tables.scan"]
    sixteen = replace(two, machine=two.machine.replace(f"{two.cores} cores", "16 cores"))
    assert (two.cores, sixteen.cores) == (2, 16)
    page = render_report(RESULTS, {16: {"tables.scan": sixteen}})
    section = page.partition("## By number of cores")[2].partition("\n## ")[0]
    assert re.findall(r"^\| tables.scan \| S3 \| (\d+) \|", section, re.MULTILINE) == ["2", "16", "2", "16"]
    assert "## By number of cores" not in render_report(RESULTS)
    for result, name in ((two, "tables.scan.json"), (sixteen, "16-cores/tables.scan.json")):
        path = result_path(result, tmp_path)
        assert path == tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(render_json(result), encoding="utf-8")
    assert load_other_cores(tmp_path) == {16: {"tables.scan": sixteen}}
    assert load_results(tmp_path) == {"tables.scan": two}


def test_losses_contain_every_miss_and_every_slower_case() -> None:
    lost = [measurement for _, measurement in find_losses(RESULTS)]
    for result in RESULTS.values():
        for measurement in result.measurements:
            is_slower = not measurement.is_baseline and measurement.ratio is not None and measurement.ratio < 1
            assert (measurement in lost) == (is_slower or measurement.is_met is False), measurement.case


@pytest.mark.parametrize(
    ("target", "value", "is_met"),
    [
        (Target("≥", 1.0), 1.0, True),
        (Target("≥", 1.0), 0.99, False),
        (Target("≤", 1.1, "bytes"), 1.2, False),
        (Target("<", 10, "time"), 10, False),
        (Target("=", 1, "bytes"), 1, True),
    ],
)
def test_target_judges_the_ratio(target: Target, value: float, is_met: bool) -> None:
    assert target.is_met(Measurement(case="case", unit="ms", ratio=value)) is is_met
    assert (target.margin(Measurement(case="case", unit="ms", ratio=value)) >= 0) is (is_met or target.operator == "<")


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_imports_and_describes_itself(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert callable(module.run)
    assert module.__doc__


def test_smoke_run_prints_and_stores_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in RESULT_FILES}
    assert main(["tables.commit", "--smoke"]) == 0
    assert "bytes written" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in sorted(RESULTS_DIR.glob("*.json"))} == before


def test_unknown_scenario_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["tables.none"])
    assert "no scenario matches tables.none" in capsys.readouterr().err
