"""What a run says of its dust: what there is of it, what lies beyond its grids, how much it dims."""

from collections.abc import Mapping
from typing import Any

from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.maps import NO_ATTENUATION
from rubix_like.cube.meta import LINE_OF_SIGHT, NO_DUST, SourceCounters
from rubix_like.runtime.words import counted

BEYOND_LARGEST: str = "behind more dust than dust.largest: fainter, but no redder than at it"
"""Words for particles of a larger A(V) than colours are computed for."""


def dust_lines(cube: Cube | ShardedCube) -> list[str]:
    """The dust of a run in words, what of it is not in the columns, and how much it dims, where the run has maps of
    that; nothing without dust."""
    lines = planned_dust_lines(cube.meta, cube.source_counters.get(DUST_COLUMN))
    curve = None if cube.maps is None else cube.maps.attenuation
    if curve is not None:
        a_v = float(curve.a_v)
        words = "less than 0.0001" if a_v < NO_ATTENUATION else f"{a_v:.3g}"
        lines.append(f"All dust dims the light of the stars in the field by {words} mag at 5500 Angstrom")
    return lines


def planned_dust_lines(meta: Mapping[str, Any], counters: SourceCounters | None = None) -> list[str]:
    """The dust that `Cube.meta` has, before a run without the counters of its gas."""
    lines = [*_gas_lines(meta, counters)]
    if "dust_a_v" in meta:
        place = "in the galaxy" if meta["dust_place"] == "galaxy" else "in the foreground"
        curve = f"curve {meta['dust_curve']}, {_r_v(meta, 'dust')}"
        lines.append(f"Dust: a screen {place}, A(V) {meta['dust_a_v']:g} mag, {curve}")
    return lines


def _gas_lines(meta: Mapping[str, Any], counters: SourceCounters | None) -> list[str]:
    """The dust of the gas particles."""
    if "dust_kind" not in meta:
        return []
    what = f"Dust of the gas: curve {meta['dust_gas_curve']}, {_r_v(meta, 'dust_gas')}"
    if meta["dust_a_v_birth"]:
        what += f", birth clouds of {meta['dust_a_v_birth']:g} mag"
        what += f" (curve {meta['dust_birth_curve']})" if "dust_birth_curve" in meta else ""
    if counters is None:
        return [what]
    total, mass = int(counters.n_particles), float(counters.amount_total)
    if not total:
        return [f"{what}; none: {NO_DUST}"]
    lines = [f"{what}; {mass:.3g} Msun in {counted(total, 'gas particle')}"]
    for number, amount, words in (
        (counters.n_outside, counters.amount_outside, "beside the painted field: not in the columns"),
        (
            counters.n_clamped[LINE_OF_SIGHT],
            counters.amount_clamped[LINE_OF_SIGHT],
            "in front of the grids of the columns or behind them: put at their ends",
        ),
    ):
        if int(number):
            share = 100 * float(amount) / mass if mass > 0 else 0.0
            lines.append(f"{int(number)} of these gas particles ({share:.3g} % of their dust) are {words}")
    return lines


def _r_v(meta: Mapping[str, Any], prefix: str) -> str:
    return f"R(V) {meta[f'{prefix}_r_v']:g}"
