"""The page says whose repair it is, what broke first when that matters, and commands that go on from here."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arachne.evidence.grade import KEPT, NOT_SHOWN, OVERRUN, REDUCED, REMOVED, TOO_FEW, WORSE
from arachne.report.html import render
from arachne.report.next_steps import Given, next_steps
from tests.commands import arachne

DEMO = Path(__file__).parents[2] / "arachne" / "demo"
GIVEN = Given("net.pt", ("--model", "net:make", "--weights", "net.pt"), ("--data", "my val.npz"))


def steps(verdict: str, *, front: bool = True, limit_state: str = KEPT, left: int = 1) -> Iterator[str]:
    held_out = {"target_errors_before": 10, "target_errors_after": left}
    result = {"verdict": verdict, "target": "*:7", "limit_state": limit_state, "held_out": held_out}
    return (step["command"] for step in next_steps(result, GIVEN, "fix", front=front))


def test_a_good_repair_is_applied_and_gated() -> None:
    assert list(steps(REMOVED)) == list(steps(REDUCED))
    assert list(steps(REMOVED)) == [
        "arachne apply fix/patch.json net.pt -o patched.pt",
        "arachne evaluate --model net:make --weights net.pt --data 'my val.npz' --patch fix/patch.json"
        " --fail-if 'verdict < reduced'",
        "arachne choose fix --model net:make --weights net.pt --max-break 2% -o fix-other",
    ]


def test_a_weak_repair_leads_to_another_point_first() -> None:
    strong, weak = list(steps(REDUCED, left=5)), list(steps(REDUCED, left=6))
    assert strong[2].startswith("arachne choose fix")
    assert weak == [strong[2], *strong[:2]]


def test_damage_leads_to_a_smaller_budget_and_other_searchers() -> None:
    source = "--model net:make --weights net.pt --data 'my val.npz'"
    compare = f"arachne compare {source} --target '*:7' -o fix-compared"
    scan = f"arachne scan {source} --page fix-scan.html"
    smaller, larger = (
        f"arachne choose fix --model net:make --weights net.pt --max-break {size} -o fix-other"
        for size in ("0.1%", "2%")
    )
    assert list(steps(REDUCED, limit_state=OVERRUN)) == [smaller, scan, compare]
    assert list(steps(NOT_SHOWN)) == [larger, scan, compare]
    assert list(steps(NOT_SHOWN, front=False)) == [scan, compare]
    assert list(steps(TOO_FEW)) == [scan]
    result = {"verdict": NOT_SHOWN, "target": "cause:1", "limit_state": KEPT}
    assert [step["command"] for step in next_steps(result, GIVEN, "fix", front=False, words=True)] == [
        f"arachne repair {source} --target cause:1 -o fix-again --search margin@embeddings",
        compare.replace("'*:7'", "cause:1"),
    ]


@pytest.mark.parametrize(
    ("budget", "state", "offered"),
    [
        (None, KEPT, "2%"),
        (0.005, KEPT, "2%"),
        (0.02, KEPT, "5%"),
        (0.2, KEPT, None),
        (0.02, OVERRUN, "0.5%"),
        (0.001, OVERRUN, "0%"),
    ],
)
def test_another_budget_is_offered_than_the_one_that_was_given(
    budget: float | None, state: str, offered: str | None
) -> None:
    result = {"verdict": NOT_SHOWN, "target": "*:7", "limit_state": state, "budget": budget}
    told = [step["command"].split() for step in next_steps(result, GIVEN, "fix", front=True)]
    assert [words[words.index("--max-break") + 1] for words in told if words[1] == "choose"] == (
        [] if offered is None else [offered]
    )


@pytest.mark.backend("onnx")
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    for name in ("digits.onnx", "digits.npz"):
        shutil.copyfile(DEMO / name, tmp_path / name)
    asked = ("repair", "digits.onnx", "--data", "digits.npz", "--target", "*:7", "-o", "fix")
    assert arachne(*asked, cwd=tmp_path).code == 0
    page = json.loads((tmp_path / "fix" / "report.json").read_text(encoding="utf-8"))
    commands = [step["command"] for step in page["next"]]
    assert len(commands) == 3
    for command in commands:
        ran = arachne(*shlex.split(command)[1:], cwd=tmp_path)
        assert ran.code == 0, f"{command}\n{ran.err}"
    html = (tmp_path / "fix" / "report.html").read_text(encoding="utf-8")
    assert 'in <b class="mono" id="model">digits.onnx</b>, <time datetime="' in html
    assert "What to do next" in html


@pytest.mark.parametrize(
    "said",
    [
        {"verdict": WORSE},
        {"verdict": REDUCED, "limit_state": OVERRUN},
        {"verdict": "repaired with damage"},  # from before verdicts were graded
    ],
)
def test_what_broke_comes_first_when_there_is_damage(page: dict[str, Any], said: dict[str, str]) -> None:
    html = render({**page, "result": {**page["result"], **said}})
    assert html.index("<h3>Broken</h3>") < html.index("<h3>Repaired</h3>")
    assert html.index('id="broken-title"') < html.index('id="fixed-title"')


def test_what_was_repaired_comes_first_when_there_is_none(page: dict[str, Any]) -> None:
    html = render({**page, "result": {**page["result"], "verdict": REMOVED, "limit_state": KEPT}})
    assert html.index("<h3>Repaired</h3>") < html.index("<h3>Broken</h3>")
    assert html.index('id="fixed-title"') < html.index('id="broken-title"')


def test_a_page_of_an_earlier_version_is_still_drawn(page: dict[str, Any]) -> None:
    earlier = {key: value for key, value in page.items() if key not in ("model", "date", "next")}
    assert "What it did" in render(earlier)


def test_a_task_of_several_decisions_is_named_again_and_no_causes_are_offered() -> None:
    result = {"verdict": NOT_SHOWN, "target": "false:even", "limit_state": KEPT}
    given = Given("m.onnx", ("m.onnx",), ("--data", "d.npz", "--task", "multilabel", "--threshold", "0.3"))
    commands = [step["command"] for step in next_steps(result, given, "fix", front=True)]
    assert [command.split()[1] for command in commands] == ["choose", "compare"]
    assert "--data d.npz --task multilabel --threshold 0.3" in commands[-1]
