"""What programs make of our files, as the table in docs/fits.md: `python tests/clients/write_table.py`.

Run it in the environment of the programs (docs/developers.md). It makes the files, opens each with every program, and
writes clients.json beside this file; `python docs/write_tables.py` puts that into the page. It ends with 1 if a program
has anything wrong.
"""

import json
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("clients.json")

COLUMNS = ("program", "version", "how", "linear bins", "logarithmic bins", "no noise", "wavelength unit", "sky")
_FILES = {"linear bins": ("muse",), "logarithmic bins": ("manga", "logcube"), "no noise": ("noiseless",)}


def read_rows() -> list[dict[str, str]]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


def rows_of(rows: list[dict[str, str]]) -> list[tuple[str, ...]]:
    return [tuple(row[column] for column in COLUMNS) for row in rows]


def make_row(name: str, mocks: dict[str, Any]) -> dict[str, str]:
    from seen import CLIENTS, faults, place  # noqa: PLC0415

    own = CLIENTS[name]
    verdicts = {}
    for file in own.files:
        try:
            seen = own.read(mocks[file])
            wrong = faults(seen, mocks[file])
        except Exception as error:  # whatever a program ends with is what users would get
            verdicts[file] = f"{type(error).__name__}: {error}"[:200]
            continue
        verdicts[file] = f"wrong: {', '.join(wrong)}" if wrong else "right"
        if file == own.files[0]:
            known = {"wavelength unit": seen.wave_unit or "not read", "sky": place(seen)}
    columns = {title: next((verdicts[f] for f in files if f in verdicts), "-") for title, files in _FILES.items()}
    installed = version(own.package) if own.package else "its steps"
    return {"program": name, "version": installed, "how": own.opened, **columns, **known}


def main() -> int:
    repository = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(repository / "tests" / folder) for folder in ("", "physics", "clients")]
    from observed import GALAXY, RUNS, Mock  # noqa: PLC0415
    from seen import CLIENTS  # noqa: PLC0415

    import rubix_like as rl  # noqa: PLC0415

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        mocks = {}
        for name in ("muse", "manga", "noiseless"):
            path = Path(folder) / f"{name}.fits"
            mocks[name] = Mock(path, rl.run(GALAXY | RUNS[name], path))
            mocks[name].cube.write(path.with_suffix(".zarr"))
        cube = mocks["manga"].cube
        mocks["logcube"] = Mock(cube.write(Path(folder) / "logcube.fits", "manga"), cube)
        rows = [make_row(name, mocks) for name in CLIENTS]
    TABLE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in rows_of(rows):
        print(" | ".join(row))
    verdicts = {row[title] for row in rows for title in _FILES}
    return int(not verdicts <= {"right", "-"})


if __name__ == "__main__":
    sys.exit(main())
