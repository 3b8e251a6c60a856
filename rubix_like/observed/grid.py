"""The grid of an observed cube as the settings of an instrument."""

from rubix_like.config import RunConfig
from rubix_like.cube_frame import Frame
from rubix_like.observed.cube import ObservedCube


def on_grid_of(config: RunConfig, observed: ObservedCube) -> RunConfig:  # noqa: ARG001
    """The configuration whose instrument has the data's spaxels and bins."""
    return config


def check_same_grid(frame: Frame, observed: ObservedCube) -> None:
    """Raise ConfigError where a pipeline's grid is not the data's."""
