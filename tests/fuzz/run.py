"""`python tests/fuzz/run.py --count 200 --commands 5`: many cases of each kind; ends with 1 where there is a fault."""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS), str(TESTS.parent)]

from jax._src import xla_bridge  # noqa: E402

from fuzz import children, kinds  # noqa: E402

FAULTS = ("traceback", "hang", "crash", "impossible")


def main() -> int:
    """Make whole files, try the cases, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="cases of each kind")
    parser.add_argument("--commands", type=int, default=5, help="of them as real commands")
    parser.add_argument("--new", action="store_true", help="these in new processes, not forked ones")
    parser.add_argument("--first", type=int, default=0, help="number of the first case: each has its own seed")
    parser.add_argument("--kinds", nargs="*", default=[kind.name for kind in kinds.KINDS])
    parser.add_argument("--bases", type=Path, help="folder of the whole files: made where it is not there")
    parser.add_argument("--outcomes", type=Path, help="file for the outcomes, one JSON object a line")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.environ["RUBIX_LIKE_CACHE"] = str(Path(folder) / "cache")
        bases = options.bases or Path(folder) / "bases"
        if not bases.exists():
            bases.mkdir()
            subprocess.run([sys.executable, str(TESTS / "fuzz" / "bases.py"), str(bases)], check=True)
        outcomes = []
        for outcome in _outcomes(options, bases, Path(folder)):
            outcomes.append(outcome)
            if options.outcomes:
                with options.outcomes.open("a") as file:
                    file.write(children.as_line(outcome) + "\n")
    print(table(outcomes))
    faults = [outcome for outcome in outcomes if outcome.status in FAULTS]
    for fault in faults:
        print(
            f"\n{fault.kind} {fault.number} ({fault.change}): {fault.status} after {fault.seconds:.1f} s\n{fault.words}"
        )
    return 1 if faults else 0


def _outcomes(options: argparse.Namespace, bases: Path, folder: Path) -> Iterator[children.Outcome]:
    for kind in (own for own in kinds.KINDS if own.name in options.kinds):
        sources = sorted((bases / kind.name).glob("*"))
        if not sources:
            print(f"{kind.name}: not tried, as its package is not installed")
            continue
        data = bases / "observed" / "muse.fits"
        yield from _whole(kind, sources, folder)
        if options.commands > 1:
            yield from _whole_command(kind, sources[0], folder, data, is_new=options.new)
        for number in range(options.first, options.first + options.count):
            source = sources[number % len(sources)]
            with tempfile.TemporaryDirectory(dir=folder) as own:
                if number < options.first + options.commands:
                    yield children.command(kind, number, source, Path(own), data, is_new=options.new)
                else:
                    yield children.attempt(kind, number, source, Path(own))


def _whole(kind: kinds.Kind, sources: list[Path], folder: Path) -> Iterator[children.Outcome]:
    """The files that nothing was done to: one that is refused would make every case of it worthless.

    Read in this process, unless that would start JAX: what is imported and kept then serves all children.
    """
    for source in sources:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            outcome = children.attempt(dataclasses.replace(kind, changes=(_unchanged,)), 0, source, Path(own))
            if outcome.status != "accepted":
                yield dataclasses.replace(outcome, status="traceback", words=f"not damaged, but {outcome.words}")
            elif kind.warm is not None:
                kind.warm(Path(own) / source.name)
    if xla_bridge.backends_are_initialized():
        raise RuntimeError(f"{kind.name}: JAX was started by reading, so that no child can be forked")


def _whole_command(
    kind: kinds.Kind, source: Path, folder: Path, data: Path, *, is_new: bool
) -> Iterator[children.Outcome]:
    """The command for a file that nothing was done to; a checkpoint of another fit is refused as such."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        unchanged = dataclasses.replace(kind, changes=(_unchanged,))
        outcome = children.command(unchanged, 0, source, Path(own), data, is_new=is_new)
    if outcome.status != "accepted" and not (kind.name == "checkpoint" and "differs in" in outcome.words):
        yield dataclasses.replace(outcome, status="traceback", words=f"not damaged, but {outcome.words}")


def _unchanged(path: Path, rng: object) -> str:
    return "nothing"


def table(outcomes: list[children.Outcome]) -> str:
    """Kinds by what came of their cases."""
    lines = ["| kind | cases | accepted | refused | tracebacks | hangs | crashes | impossible | longest (s) |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(outcome.kind for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.kind == name]
        count = Counter(outcome.status for outcome in own)
        numbers = [len(own), *(count[status] for status in ("accepted", "refused", *FAULTS))]
        longest = max((outcome.seconds for outcome in own if not outcome.change.startswith("command")), default=0.0)
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {longest:.1f} |")
    return "\n".join(lines)


def read_outcomes(path: Path) -> list[children.Outcome]:
    """The outcomes in a file of them."""
    return [children.Outcome(**json.loads(line)) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    sys.exit(main())
