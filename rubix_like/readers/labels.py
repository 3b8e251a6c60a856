"""Where the particles of a simulation carry the numbers of their haloes and subhaloes."""

from typing import Annotated

from pydantic import BeforeValidator

from rubix_like.config.quantities import as_tuple
from rubix_like.config.settings import AbstractSettings

Names = Annotated[tuple[str, ...], BeforeValidator(as_tuple)]


class LabelSettings(AbstractSettings):
    """Datasets in which every particle carries the number of its halo and subhalo; of several names the first."""

    halo: Names = ()
    subhalo: Names = ()
    within_halo: bool = False
    """Whether the numbers of subhaloes start anew in every halo."""
