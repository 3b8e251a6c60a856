"""Maps beside the cube of a run that asks for none: made where they are cheap."""

from rubix_like.config import ProductsSettings, RunConfig, load_pipeline
from rubix_like.cube.files.maps_file import plain_maps_size
from rubix_like.cube.footprint import Footprint
from rubix_like.instrument.crowding import paints_stars
from rubix_like.runtime.words import percent

_LARGEST_SHARE = 0.1
"""Of the cube's file, which maps take at most where nobody asks for them."""

_PLAIN = ProductsSettings(losvd=None)
"""Light, velocity, dispersion, ages, metallicities and masses; no velocity distributions."""


def with_default_maps(config: RunConfig) -> RunConfig:
    """The run with the plain maps that `output.maps` stands for: as it is where it has `products`.

    Call it for one run, not for those of a catalogue.
    """
    if config.products is not None or config.output.maps is False or why_no_maps(config):
        return config
    return config.model_copy(update={"products": _PLAIN})


def with_asked_maps(config: RunConfig) -> RunConfig:
    """The same for a run of a catalogue, which makes maps only where they are asked for."""
    return config if config.output.maps == "auto" else with_default_maps(config)


def why_no_maps(config: RunConfig) -> str:
    """Why a run makes no maps unasked, in words; empty where it makes them.

    They are cheap where their file is at most a tenth of the fluxes of the cube in 32 bits: about as many numbers of
    every spaxel are summed, convolved and written.
    """
    if config.products is not None or config.output.maps != "auto":
        return ""
    if config.instrument.join:
        return "the arms are joined"
    if not paints_stars(load_pipeline(config.pipeline)):
        return "the pipeline paints no stars"
    if config.devices.is_sharded:
        return "the cube is spread over the devices"
    if len(config.observation.pointings or ()) > 1:
        return "there are several pointings"
    footprint = Footprint.build(config.instrument)
    share = plain_maps_size(footprint) / (4 * footprint.n_element * config.instrument.wavelength.n_wave)
    return "" if share <= _LARGEST_SHARE else f"they would take {percent(share)} of what the cube takes"


def missing_maps_lines(config: RunConfig) -> list[str]:
    """A note for the end of a run that makes no maps, though nobody said so."""
    reason = why_no_maps(config)
    remedy = "observe one of them (instrument.arm)" if config.instrument.join else "output.maps: true makes them"
    return [f"Note: no maps beside the cube, as {reason}; {remedy}"] if reason else []
