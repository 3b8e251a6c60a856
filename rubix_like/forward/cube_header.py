"""What every cube of a pipeline shares and no device needs: its axes, mask and header."""

import functools
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from rubix_like.arguments import check_returned_shapes, returned
from rubix_like.cube.bins import WavelengthBins
from rubix_like.cube.fibres.cube_weights import CubeWeights
from rubix_like.cube.fibres.fibre_places import FibrePlaces
from rubix_like.cube.footprint import AbstractCube, Footprint
from rubix_like.cube.maps import ProductAxes
from rubix_like.cube.meta import OUTSIDE_SSP, Meta
from rubix_like.errors import ConfigError
from rubix_like.forward.planning import Planned
from rubix_like.forward.product_planning import product_axes
from rubix_like.forward.provenance import describe_run, setting_entries
from rubix_like.forward.stages.base import StageReport
from rubix_like.forward.stages.fibre_cube import FibreCube
from rubix_like.galaxy.particles import GalaxyInfo
from rubix_like.instrument.pointing import Pointing, pointings_of


class FibreFrame(NamedTuple):
    """What every cube of an instrument with fibres shares: where they lie, the map to spaxels, the file's layout."""

    places: FibrePlaces
    weights: CubeWeights
    layout: str


@dataclass(frozen=True, eq=False)
class Header(AbstractCube):
    """What every cube of a pipeline shares and no device needs (host arrays, float64).

    The mask of a voxel is `spaxel_bits | wave_bits`: kept apart, so that planning needs no memory of a cube's size;
    `voxel_bits`: which bits single voxels may have beside them.
    """

    bins: WavelengthBins
    lsf_fwhm: ndarray
    spaxel_bits: Int[ndarray, "y x"]
    wave_bits: Int[ndarray, " wave"]
    footprint: Footprint
    meta: Meta
    notes: tuple[str, ...]
    pointings: tuple[Pointing, ...]
    products: ProductAxes | None
    fibres: FibreFrame | None = None
    voxel_bits: int = 0

    def mask(self) -> Int[ndarray, "y x wave"]:
        """The bits of every voxel (read-only: where all spaxels are alike, they share the memory of one)."""
        if self.spaxel_bits.any():
            return self.spaxel_bits[:, :, None] | self.wave_bits
        return np.broadcast_to(self.wave_bits, (*self.spaxel_bits.shape, len(self.wave_bits)))


def make_frame(planned: Planned, info: GalaxyInfo | None) -> Header:
    """The cube's axes, mask and header for a planned run."""
    setup = planned.setup
    bins, footprint = setup.instrument.bins, setup.instrument.footprint
    stages = _stage_reports(planned)
    painters = _painter_reports(planned)
    widths = [stage.lsf_fwhm for stage in stages if stage.lsf_fwhm is not None]
    if len(widths) > 1:
        raise ConfigError(
            f"pipeline.cube: expected one 'degrade_lsf' (each starts from the instrument's line spread), got "
            f"{len(widths)}; keep the widest"
        )
    aligned = [] if planned.alignment is None else [planned.alignment.meta]
    notes = (*planned.notes, *(note for stage in stages for note in stage.notes))
    return Header(
        bins=bins,
        lsf_fwhm=widths[-1] if widths else setup.lsf_fwhm,
        spaxel_bits=_combined([stage.spaxel_bits for stage in stages], footprint.shape),
        wave_bits=_combined(
            [np.where(setup.covered, 0, OUTSIDE_SSP), *(stage.wave_bits for stage in stages)], (bins.n_wave,)
        ),
        footprint=footprint,
        meta=describe_run(setup, planned.plan, info, [*aligned, *painters, *(stage.meta for stage in stages)], notes),
        notes=notes,
        pointings=pointings_of(setup.config.observation),
        products=product_axes(setup, planned.plan, planned.tables, planned.lines),
        fibres=_fibres(planned),
        voxel_bits=functools.reduce(operator.or_, (stage.voxel_bits for stage in stages), 0),
    )


def _fibres(planned: Planned) -> FibreFrame | None:
    """The fibres of the instrument; None of one without."""
    setup = planned.setup
    places, settings = setup.instrument.fibres, setup.config.instrument.fibres
    if places is None or settings is None:
        return None
    stage = next(stage for stage in planned.tables.cube if isinstance(stage, FibreCube))
    return FibreFrame(places, stage.weights, settings.spectra)


def _stage_reports(planned: Planned) -> list[StageReport]:
    """The reports of the stages on the cube; raises ConfigError for one that reports something else."""
    instrument, found = planned.setup.instrument, []
    for name, stage in zip(planned.tables.cube_names, planned.tables.cube, strict=True):
        call, per_bin = f"stage '{name}': `report`", (instrument.bins.n_wave,)
        report = returned(stage.report(), StageReport, call, "a StageReport")
        shapes = {"spaxel_bits": instrument.footprint.shape, "wave_bits": per_bin, "lsf_fwhm": per_bin}
        check_returned_shapes(call, {key: (getattr(report, key), shape) for key, shape in shapes.items()})
        taken = sorted(setting_entries(planned.setup, planned.plan).keys() & report.meta.keys())
        if taken:
            raise ConfigError(f"{call} must not give the entry '{taken[0]}' of the header, which is the run's")
        found.append(report)
    return found


def _painter_reports(planned: Planned) -> list[dict[str, Any]]:
    """Sizes and accuracy of every painter: the first source's under their names, others' after the source's."""
    reports = [source.painter.report() for source in planned.tables.paint]
    later = zip(planned.plan.sources[1:], reports[1:], strict=True)
    return [dict(reports[0]), *({f"{name}_{key}": value for key, value in report.items()} for name, report in later)]


def _combined(bits: list[ndarray | None], shape: tuple[int, ...]) -> Int[ndarray, "..."]:
    """All mask bits of one kind together."""
    return functools.reduce(
        np.bitwise_or, [own.astype(np.int32) for own in bits if own is not None], np.zeros(shape, dtype=np.int32)
    )
