"""The emission lines of a run's maps: those that a user names, or the strong ones on the detector."""

from collections.abc import Iterable

import numpy as np

from rubix_like.cube.maps import LineAxes, LineLabel
from rubix_like.engine.lines.line_tracks import LineTracks
from rubix_like.engine.setup import Setup
from rubix_like.errors import ConfigError, suggest
from rubix_like.forward.products.line_sums import has_light_beside, shines_by_photons, spectra_of
from rubix_like.nebular.line_list import find_line
from rubix_like.physics.templates import LineTemplates

STRONG_LINES: tuple[str, ...] = (
    "[O II] 3726",
    "[O II] 3729",
    "Hb",
    "[O III] 5007",
    "[O I] 6300",
    "Ha",
    "[N II] 6583",
    "[S II] 6716",
    "[S II] 6731",
    "[S III] 9069",
    "[S III] 9531",
    "Pab",
    "Paa",
    "Brg",
)
"""Lines of nebulae that `products.lines: true` maps."""


def named_lines(names: Iterable[str | float]) -> tuple[str, ...]:
    """Lines as `products.lines` names them, each once, in the spelling of the list of lines.

    Wavelengths are those of the section `lines`. Raises ConfigError for an unknown name.
    """
    try:
        found = [find_line(name).name if isinstance(name, str) else f"{name:g}" for name in names]
    except ConfigError as error:
        raise ConfigError(f"products.lines: {error}") from None
    return tuple(dict.fromkeys(found))


def choose_lines(setup: Setup) -> LineAxes | None:
    """The lines of the run's maps; None where it makes none of them.

    Raises ConfigError where no source has such a line, and where the detector sees none.
    """
    products = setup.config.products
    if products is None or not products.lines:
        return None
    tracks, edges = _all_tracks(setup), setup.instrument.bins.edges
    if not tracks and any(shines_by_photons(plan) for plan in setup.sources.values()):
        raise ConfigError(
            f"products.lines: expected lines of the nebular table on the detector ({edges[0]:.6g}-{edges[-1]:.6g} "
            f"Angstrom), got none; set products.lines: false, or change the instrument or the redshift"
        )
    if not tracks:
        raise ConfigError(
            f"products.lines: expected a pipeline that paints lines, got '{setup.config.pipeline}'; set "
            f"pipeline: nebular (stellar_lines, lines), or products.lines: false"
        )
    asked = _asked(setup)
    unknown = next((name for name in asked if name not in tracks), None)
    if unknown is not None:
        raise ConfigError(
            f"products.lines: expected lines that the pipeline paints{suggest(unknown, tracks)}, got '{unknown}'; it "
            f"paints {', '.join(tracks)}"
        )
    places = {name: float(tracks[name].at(np.zeros(1)).centre[0, 0]) for name in asked}
    seen = [name for name in asked if edges[0] <= places[name] <= edges[-1]]
    if not seen:
        raise ConfigError(
            f"products.lines: expected lines on the detector ({edges[0]:.6g}-{edges[-1]:.6g} Angstrom), got "
            f"{', '.join(f'{name} at {place:.6g}' for name, place in places.items()) or 'none'}; take "
            f"other lines (products.lines: true takes those that it sees), or change the instrument or the redshift"
        )
    return _line_axes(setup, {name: (float(tracks[name].wavelength[0]), places[name]) for name in seen})


def line_notes(setup: Setup, axes: LineAxes | None) -> tuple[str, ...]:
    """Says so where lines that the user named have no maps, or no equivalent widths."""
    products = setup.config.products
    if axes is None or products is None:
        return ()
    mapped = [line.name for line in axes.lines]
    asked = () if isinstance(products.lines, bool) else named_lines(products.lines)
    unseen = [name for name in asked if name not in mapped]
    notes = [f"products.lines: the detector does not see {', '.join(unseen)}: no maps"] if unseen else []
    bare = [line.name for line in axes.lines if not line.has_continuum] if axes.has_continuum else []
    if bare:
        notes.append(f"products.lines: the templates end beside {', '.join(bare)}: no equivalent widths")
    return tuple(notes)


def _asked(setup: Setup) -> tuple[str, ...]:
    """The lines that the settings ask for: of nebulae all strong ones, of other sources all that they have."""
    products = setup.config.products
    if products is not None and not isinstance(products.lines, bool):
        return named_lines(products.lines)
    found: dict[str, float] = {}
    for plan in setup.sources.values():
        if isinstance(plan.templates, LineTemplates):
            own = zip(plan.templates.lines, plan.templates.wavelength, strict=True)
            takes_all = not shines_by_photons(plan)
            found |= {name: float(place) for name, place in own if takes_all or name in STRONG_LINES}
    return tuple(sorted(found, key=found.__getitem__))


def _all_tracks(setup: Setup) -> dict[str, LineTracks]:
    """The tracks of every line that a source of the pipeline has, by its name."""
    found: dict[str, LineTracks] = {}
    for plan in setup.sources.values():
        if isinstance(plan.templates, LineTemplates):
            every = LineTracks.of(plan.templates, plan.spread)
            for number, name in enumerate(plan.templates.lines):
                found[name] = every.chosen(np.arange(len(every.wavelength)) == number)
    return found


def _line_axes(setup: Setup, places: dict[str, tuple[float, float]]) -> LineAxes:
    """The lines with these wavelengths, at rest and on the detector, and what there is beside them."""
    plans = setup.sources.values()
    found = [own for own in (spectra_of(setup, plan) for plan in plans) if own is not None]
    lines = [
        LineLabel(name, rest, seen, bool(found) and all(has_light_beside(own, rest) for own in found))
        for name, (rest, seen) in places.items()
    ]
    return LineAxes(
        lines=tuple(lines),
        redshift=setup.config.observation.redshift,
        has_continuum=bool(found),
        has_photons=any(shines_by_photons(plan) for plan in plans),
        has_dust=any(plan.templates.attenuation is not None for plan in plans),
    )
