"""The picture of docs/scaling.md from `tests/benchmarks/scaling.json`: `python docs/scaling_picture.py`."""

import json
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot

_ROOT = Path(__file__).resolve().parents[1]

_KINDS = {"strong": "the same particles on more devices", "weak": "as many particles per device"}


def main() -> None:
    """Draw the processor time per particle and voxel against one device, by the number of devices."""
    mpl.use("Agg")
    measured = json.loads((_ROOT / "tests" / "benchmarks" / "scaling.json").read_text(encoding="utf-8"))
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
    for axis, (kind, title) in zip(axes, _KINDS.items(), strict=True):
        for method in ("basis", "direct"):
            rows = [row for row in measured[kind]["rows"] if row["method"] == method and row["cores"] == 1]
            alone = rows[0]["least_cpu"] / rows[0]["size"]
            axis.plot(
                [row["data"] for row in rows],
                [row["least_cpu"] / row["size"] / alone for row in rows],
                "o-",
                label=method,
            )
        axis.axhline(1, color="k", lw=0.8, ls=":")
        axis.set(title=title, xlabel="devices", xscale="log", xticks=(1, 2, 4, 8), xticklabels=(1, 2, 4, 8))
        axis.minorticks_off()
        axis.legend()
    axes[0].set_ylabel("processor time per particle")
    figure.savefig(_ROOT / "docs" / "scaling.png", dpi=80, metadata={"Software": None})


if __name__ == "__main__":
    main()
