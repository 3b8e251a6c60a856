"""Texts of a run at its end: where the cube is, what is in it, its dust, what was left out, how to open it."""

import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rubix_like.config.file_layouts import find_format
from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.config.sections.nebular import AGN, NEBULAE
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import CubeSums, ShardedCube, in_parts, sums_of
from rubix_like.cube.maps import NO_ATTENUATION
from rubix_like.cube.meta import LINE_OF_SIGHT, NO_DUST, Counters, SourceCounters
from rubix_like.nebular.line_grid import PHOTONS
from rubix_like.physics.templates import A_V, A_V_BIRTH
from rubix_like.runtime.files.outputs import FOLDER_SUFFIX, output_bytes
from rubix_like.runtime.notes import note_lines
from rubix_like.runtime.words import counted, format_bytes

BEYOND_LARGEST: str = "behind more dust than dust.largest: fainter, but no redder than at it"
"""Words for particles of a larger A(V) than colours are computed for."""

_SENTENCES: tuple[tuple[str, str, str], ...] = (
    ("n_outside", "mass_outside", "outside the field: not in the cube"),
    ("n_clamped_age", "mass_clamped_age", "younger or older than the SSP library: its nearest age was taken"),
    (
        "n_clamped_metallicity",
        "mass_clamped_metallicity",
        "poorer or richer in metals than the SSP library: its nearest metallicity was taken",
    ),
    ("n_clamped_a_v", "mass_clamped_a_v", BEYOND_LARGEST),
)
"""Counter, its mass, and the words for it."""

_IONISED = {"stars": ("star", "stars"), "star_forming_gas": ("gas particle", "gas particles")}
"""Whose photons they are, in singular and plural."""


def summary_lines(
    cube: Cube | ShardedCube,
    path: str | Path,
    timings: Mapping[str, float],
    layout: str = "default",
    sums: CubeSums | None = None,
) -> list[str]:
    """The end-of-run text, one sentence a line.

    `timings` maps a step ("load", "compile", "run", "write") to seconds. Counters and masks are named only where they
    are not zero; masses are shares of the stars' birth mass. `layout` is that of the file. `sums`: of all parts of the
    cube, where other processes have some of them (None: this process has all).
    """
    path, sums, parts = Path(path), sums or sums_of(cube), in_parts(cube)
    bins = parts.bins
    n_pointings = cube.meta.get("n_pointings")
    what = "Cube" if n_pointings is None else f"Mosaic of {n_pointings} pointings"
    size = output_bytes(path)
    in_brackets = "" if size is None else f" ({format_bytes(size)})"
    total, peak = float(sums.light.sum()) * 1e-20, float(sums.brightest) * 1e-20
    lines = [
        f"{what} written to {path}{in_brackets}",
        f"{parts.shape[1]} x {parts.shape[0]} spaxels of {parts.pixel_scale:g} arcsec, "
        f"{counted(parts.shape[2], 'bin')} from {bins.edges[0]:.2f} to {bins.edges[-1]:.2f} Angstrom ({bins.medium}, "
        f"{bins.sampling})",
        f"Total flux {total:.4g} erg/s/cm2, brightest voxel {peak:.4g} erg/s/cm2/Angstrom",
    ]
    lines += [*alignment_lines(cube.meta), *accuracy_lines(cube.meta)]
    lines += [*_mask_lines(sums), *light_lines(cube)]
    lines.append(_noise_line(parts, sums))
    if "systematics" in cube.meta:
        lines.append(f"Systematic errors: {cube.meta['systematics']}")
    if timings:
        lines.append("Time: " + ", ".join(f"{step} {seconds:.3g} s" for step, seconds in timings.items()))
    return [*lines, *opening_lines(path, layout)]


def light_lines(cube: Cube | ShardedCube) -> list[str]:
    """Lines on the light that is not in the cube, and on dust and nebulae."""
    lines = [] if cube.counters is None else _counter_lines(cube.counters, emitters(cube.meta))
    return lines + dust_lines(cube) + nebular_lines(cube) + agn_lines(cube) + source_lines(cube)


def remark_lines(name: str, cube: Cube | ShardedCube) -> list[str]:
    """Lines on the light and the notes of an observation that is not the last one, each with its name."""
    masked = [] if isinstance(cube, ShardedCube) else _mask_lines(sums_of(cube))
    return [f"{name}: {line}" for line in (*masked, *light_lines(cube), *note_lines(cube.meta.notes))]


def closing_lines(
    cube: Cube | ShardedCube,
    path: Path,
    others: Iterable[tuple[str, Path]],
    timings: Mapping[str, float],
    layout: str,
    sums: CubeSums | None = None,
    remarks: Iterable[str] = (),
) -> list[str]:
    """All that a run says at its end: (what, where) of the files beside the cube, `remark_lines` on other observations,
    the summary, the notes."""
    others = list(others)
    written = [f"{what} written to {other}" for what, other in others]
    if any(what.startswith(("Arm ", "Observation ")) for what, _ in others):
        written.append("Look at each of them as at the last one, of which the following lines are:")
    written.extend(remarks)
    return [*written, *summary_lines(cube, path, timings, layout, sums), *note_lines(cube.meta.notes)]


def alignment_lines(meta: Mapping[str, Any]) -> list[str]:
    """Words on what the galaxy was aligned to; none where its axes were left as they are."""
    if meta.get("align_radius") is None:
        return []
    by = "short axis" if meta["align"] == "stars" else "angular momentum"
    words = f"Alignment: by the {by} of the stars within {meta['align_radius']:.3g} kpc"
    if meta.get("axis_ratio_b_a") is not None:
        words += f": b/a {meta['axis_ratio_b_a']:.2f}, c/a {meta['axis_ratio_c_a']:.2f}"
    if meta.get("align_angle") is not None:
        words += f", short axis {meta['align_angle']:.1f} deg from their angular momentum"
    return [words]


def accuracy_lines(meta: Mapping[str, Any]) -> list[str]:
    """The accuracy of method `basis`, in words; nothing for `direct`."""
    if "basis_rank" not in meta:
        return []
    nodes = f"{meta['basis_velocity_nodes']} velocity nodes of {meta['basis_velocity_step']:.3g} km/s"
    if "basis_line_flux_error" in meta:
        error = meta["basis_line_flux_error"]
        flux = f"any line's flux to {error:.1e} (tolerance {meta['tolerance']:g})" if error else "fluxes exact"
        return [
            f"Accuracy: {counted(meta['basis_rank'], 'line ratio')}, {nodes}: {flux}, a line's profile to "
            f"{meta['basis_line_profile_error']:.1e} of its highest bin"
        ]
    psf = "" if "basis_psf_error" not in meta else f", of the PSF {meta['basis_psf_error']:.1e} of its peak"
    return [
        f"Accuracy: {meta['basis_rank']} basis spectra, {nodes}: rms error of any spectrum "
        f"{meta['basis_spectrum_error']:.1e} of its mean at most (tolerance {meta['tolerance']:g}), "
        f"{meta['basis_local_error']:.1e} in any one bin{psf}"
    ]


def _mask_lines(sums: CubeSums) -> list[str]:
    bins, ends, spaxels = (int(np.sum(found)) for found in (sums.outside_ssp, sums.spread, sums.outside_aperture))
    n_wave, n_spaxel = sums.spread.size, sums.outside_aperture.size
    lines = []
    if bins:
        lines.append(f"{bins} of {n_wave} bins lie outside the SSP library: masked (DQ 1)")
    if ends:
        lines.append(f"{ends} of {n_wave} bins hold light spread from beyond the detector: masked (DQ 4)")
    if spaxels:
        lines.append(f"{spaxels} of {n_spaxel} spaxels lie outside the aperture: masked (DQ 2)")
    return lines


def emitters(meta: Mapping[str, Any]) -> str:
    """The word for a run's stars, singular: those of smooth components stand for no stars."""
    return "quadrature point" if meta.get("galaxy_reader") == "components" else "star"


def _counter_lines(counters: Counters, noun: str) -> list[str]:
    what, mass = f"of {int(counters.n_particles)} {noun}s", float(counters.mass_total)
    lines = []
    for name, mass_name, words in _SENTENCES:
        lines += _lost(getattr(counters, name), what, getattr(counters, mass_name), mass, f"of the mass) are {words}")
    return lines


def _lost(number: Any, what: str, amount: Any, whole: float, words: str) -> list[str]:
    """A sentence on a number of particles with the share that they have of the `whole`; none of no particle."""
    share = 100 * float(amount) / whole if whole > 0 else 0.0
    return [f"{int(number)} {what} ({share:.3g} % {words}"] if int(number) else []


def source_lines(cube: Cube | ShardedCube) -> list[str]:
    """Lines on what sources but stars and ionised gas left out, or that they are dark; none where all is in the
    field."""
    lines = []
    for name, counters in cube.source_counters.items():
        amount = float(counters.amount_total)
        if name in (NEBULAE, AGN, DUST_COLUMN):
            continue
        if not amount:
            lines.append(f"Source '{name}' has no light: the amounts of all its particles are 0")
        what, words = f"particles of source '{name}'", "of its light) are outside the field: not in the cube"
        if amount:
            total = f"of {int(counters.n_particles)} {what}"
            lines += _lost(counters.n_outside, total, counters.amount_outside, amount, words)
        for axis in (axis for axis in (A_V, A_V_BIRTH) if axis in counters.n_clamped):
            number, part = counters.n_clamped[axis], counters.amount_clamped[axis]
            lines += _lost(number, what, part, amount, f"of its light) are {BEYOND_LARGEST}")
    return lines


def nebular_lines(cube: Cube | ShardedCube) -> list[str]:
    """Lines on the photons and the table by which the gas shines, and on what of it lies beyond the table; none without
    gas."""
    meta, counters = cube.meta, cube.source_counters.get(NEBULAE)
    if "nebular_table" not in meta or counters is None:
        return []
    slope = f" (slope {meta['nebular_log_u_slope']:g})" if meta["nebular_log_u_slope"] else ""
    what = (
        f"Nebulae: table '{meta['nebular_table']}', log U {meta['nebular_log_u']:g}{slope}, "
        f"P/k 10^{meta['nebular_log_pressure']:g} K/cm3"
    )
    total, kind = int(counters.n_particles), _IONISED[str(meta["nebular_source"])]
    if not total:
        return [f"{what}: none, for the galaxy has no {kind[0]} that makes ionising photons"]
    amount = float(counters.amount_total)
    absorbed = f"{what}; {amount * PHOTONS:.3g} ionising photons per second are absorbed around {counted(total, *kind)}"
    return [absorbed, *_beyond_lines(counters)]


def agn_lines(cube: Cube | ShardedCube) -> list[str]:
    """How bright an active nucleus is, and what gas absorbs its photons where; nothing without one."""
    meta, counters = cube.meta, cube.source_counters.get(AGN)
    if "agn_table" not in meta or counters is None:
        return []
    radius, n_gas = float(str(meta["agn_radius"])), int(counters.n_particles)
    what = (
        f"Active nucleus: log L {meta['agn_log_luminosity']:g} erg/s, table '{meta['agn_table']}', log U "
        f"{meta['agn_log_u']:g}, P/k 10^{meta['agn_log_pressure']:g} K/cm3"
    )
    if not n_gas:
        is_empty = radius and meta["agn_covering_fraction"]
        place = f": no gas lies within {radius:g} kpc of the centre" if is_empty else ""
        return [f"{what}; no photon is absorbed{place}"]
    where = f"by {counted(n_gas, 'gas particle')} within {radius:g} kpc" if radius else "by a point in the centre"
    absorbed = f"{what}; {float(counters.amount_total) * PHOTONS:.3g} ionising photons per second are absorbed {where}"
    if radius:
        return [absorbed, *_beyond_lines(counters)]
    lines = [absorbed]
    for axis in (axis for axis, number in counters.n_clamped.items() if int(number)):
        is_dust = axis in (A_V, A_V_BIRTH)
        beyond = f"Its {axis} is beyond the table: the nearest value was taken"
        lines.append(f"It is {BEYOND_LARGEST}" if is_dust else beyond)
    return [*lines, *(["It is outside the field"] if int(counters.n_outside) else [])]


def _beyond_lines(counters: SourceCounters) -> list[str]:
    """How many particles, with which share of the photons, are beyond the table or outside the field."""
    amount, lines, begin = float(counters.amount_total), [], "of the photons) are"
    for axis, number in counters.n_clamped.items():
        beyond = f"beyond the table's {axis}: its nearest value was taken"
        place = BEYOND_LARGEST if axis in (A_V, A_V_BIRTH) else beyond
        lines += _lost(number, "of them", counters.amount_clamped[axis], amount, f"{begin} {place}")
    return lines + _lost(counters.n_outside, "of them", counters.amount_outside, amount, f"{begin} outside the field")


def _noise_line(cube: ShardedCube, sums: CubeSums) -> str:
    if not cube.has_variance:
        return "No noise: the file holds no variance (set noise.signal_to_noise or noise.exposure to add both)"
    if "exposure_time" in cube.meta:
        count, time, sky = (cube.meta[key] for key in ("exposure_count", "exposure_time", "sky"))
        times = cube.meta.get("exposure_times") or f"{time:g}"
        return f"Noise: {count} x {times} s under the sky '{sky}' ({cube.meta['noise_model']})"
    target, definition = cube.meta.get("signal_to_noise"), cube.meta.get("signal_to_noise_definition")
    words = f"S/N {target:g}" if isinstance(target, int | float) else "in STAT"
    if not sums.is_noisy:
        return f"Noise: {words} was asked for, but none was added: there is no light where it refers to (STAT is 0)"
    return f"Noise: {words}" + (f" ({definition})" if definition else "")


def opening_lines(path: Path, layout: str) -> list[str]:
    """Lines on what opens the file: this package's commands read the layout 'default', ds9 and mpdaf only FITS."""
    name = str(path)
    if layout != "default":
        return ["Open it with:", f"  python: from astropy.io import fits; hdus = fits.open({name!r})"]
    lines = [f"Look at it: rubix-like plot {shlex.quote(name)} --html", "Open it with:"]
    ours = f"  python: from rubix_like import Cube; cube = Cube.read({name!r})"
    if not find_format(path, layout).keeps_all:
        ds9, mpdaf = f"  ds9 {shlex.quote(name + '[DATA]')}", "from mpdaf.obj import Cube; cube = Cube"
        return [*lines, ds9, ours, f"  python: {mpdaf}({name!r})"]
    is_folder = path.suffix.lower() == FOLDER_SUFFIX
    other = "import xarray; cube = xarray.open_zarr" if is_folder else "import h5py; file = h5py.File"
    return [*lines, ours, f"  python: {other}({name!r})"]


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
    lines = _gas_lines(meta, counters)
    if "dust_a_v" in meta:
        place = "in the galaxy" if meta["dust_place"] == "galaxy" else "in the foreground"
        curve = f"curve {meta['dust_curve']}, R(V) {meta['dust_r_v']:g}"
        lines.append(f"Dust: a screen {place}, A(V) {meta['dust_a_v']:g} mag, {curve}")
    return lines


def _gas_lines(meta: Mapping[str, Any], counters: SourceCounters | None) -> list[str]:
    if "dust_kind" not in meta:
        return []
    what = f"Dust of the gas: curve {meta['dust_gas_curve']}, R(V) {meta['dust_gas_r_v']:g}"
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
        lines += _lost(number, "of these gas particles", amount, mass, f"of their dust) are {words}")
    return lines
