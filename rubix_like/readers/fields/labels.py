"""The datasets in which particles carry the numbers of their haloes and subhaloes."""

from rubix_like.config.quantities import Texts
from rubix_like.config.settings import AbstractSettings


class LabelSettings(AbstractSettings):
    """Datasets in which every particle carries the number of its halo and subhalo; of several names the first."""

    halo: Texts = ()
    subhalo: Texts = ()
    within_halo: bool = False
    """Whether the numbers of subhaloes start anew in every halo."""
