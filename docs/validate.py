"""What the tests of physics measure: `python docs/validate.py`, in the root of the clone.

Runs `tests/physics` (or the files that are named) and writes `docs/validation.json`: for every test the comparison that
came closest to its bound. Nothing in the tests says so: comparisons are seen as pytest and numpy make them
(`assert x <= bound`, `== pytest.approx`, `numpy.testing.assert_allclose`). `--slow` adds those that are marked slow.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "validation.json"

_NUMBER = r"(?:np\.float(?:32|64)\(|array\()?([-+]?\d+\.?\d*(?:[eE][-+]?\d+)?)\)?"
_ORDER = re.compile(rf"^{_NUMBER} <=? {_NUMBER}$")
_NEAR = re.compile(rf"^{_NUMBER} == {_NUMBER} ± {_NUMBER}$")


class Recorder:
    """A plug-in of pytest that keeps the closest comparison of every test, of all its cases together."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.failed: set[str] = set()
        self.current: str | None = None

    def pytest_runtest_call(self, item: Any) -> None:
        """Remember which test runs."""
        name = self.current = item.nodeid.partition("[")[0]
        own = self.found.setdefault(name, {"cases": 0, "comparisons": 0, "deviation": None, "bound": None})
        own["cases"] += 1

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember which tests fail."""
        if report.failed:
            self.failed.add(report.nodeid.partition("[")[0])

    def pytest_assertion_pass(self, item: Any, orig: str, expl: str) -> None:  # noqa: ARG002
        """Keep `assert x <= bound` and `assert x == pytest.approx(...)`; others have no bound to come close to."""
        text = expl.partition("\n")[0].strip()
        near, order = _NEAR.match(text), _ORDER.match(text)
        if near:
            value, expected, bound = map(float, near.groups())
            self.keep(abs(value - expected), bound, "absolute")
        elif order and not orig.startswith("len("):
            value, bound = map(float, order.groups())
            if value >= 0 and 0 < bound < 1:
                self.keep(value, bound, "absolute")

    def keep(self, deviation: float, bound: float, kind: str) -> None:
        """Take a comparison into the record if it is the closest to its bound so far."""
        own = self.found.get(self.current or "")
        if own is None or not bound > 0 or not np.isfinite(deviation):
            return
        own["comparisons"] += 1
        if own["bound"] is None or deviation / bound > own["deviation"] / own["bound"]:
            own.update(deviation=float(f"{deviation:.2g}"), bound=float(f"{bound:.3g}"), kind=kind)


def recording(recorder: Recorder, compare: Callable[..., None]) -> Callable[..., None]:
    """`numpy.testing.assert_allclose` that also tells the recorder how close it was."""

    def compare_and_keep(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 0.0, **others: Any) -> None:
        compare(actual, desired, rtol=rtol, atol=atol, **others)
        here, there = np.broadcast_arrays(np.asarray(actual, np.float64), np.asarray(desired, np.float64))
        known = np.isfinite(here) & np.isfinite(there)
        if not known.any():
            return
        difference, size = np.abs(here - there)[known], np.abs(there[known])
        if atol == 0:
            nonzero = size > 0
            recorder.keep(float((difference[nonzero] / size[nonzero]).max(initial=0.0)), rtol, "relative")
        else:
            share = difference / (atol + rtol * size)
            recorder.keep(float(share.max() * atol), atol, "absolute")

    return compare_and_keep


def record(arguments: list[str]) -> dict[str, dict[str, Any]]:
    """Run the tests and return what those that pass measured."""
    recorder, compare = Recorder(), np.testing.assert_allclose
    np.testing.assert_allclose = recording(recorder, compare)
    options = ["-n", "0", "-q", "-p", "no:cacheprovider", "-o", "enable_assertion_pass_hook=true"]
    _forget_compiled()  # what pytest has compiled lacks the hook
    try:
        pytest.main([*options, *arguments], plugins=[recorder])
    finally:
        np.testing.assert_allclose = compare
        _forget_compiled()
    return {name: own for name, own in recorder.found.items() if name not in recorder.failed}


def _forget_compiled() -> None:
    for path in (ROOT / "tests").rglob("*-pytest-*.pyc"):
        path.unlink()


def main() -> None:
    """Measure, and put what was measured into the record."""
    arguments = sys.argv[1:]
    named = [own for own in arguments if not own.startswith("-")] or ["tests/physics"]
    found = record([*(own for own in arguments if own.startswith("-")), *named])
    known = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    kept = {name: own for name, own in known.items() if (ROOT / name.partition("::")[0]).exists()}
    ran = {name.partition("::")[0] for name in found}
    kept = {name: own for name, own in kept.items() if name.partition("::")[0] not in ran or name in found}
    whole = dict(sorted({**kept, **found}.items()))
    RECORD.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{len(found)} tests measured, {sum(own['comparisons'] for own in found.values())} comparisons with a bound")


if __name__ == "__main__":
    main()
