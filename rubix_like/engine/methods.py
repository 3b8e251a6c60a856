"""The painters by the name that `engine.method` gives them."""

from jaxtyping import Float
from numpy import ndarray

from rubix_like.config.plug_ins import METHODS
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup
from rubix_like.physics.template_axes import TemplateAxes


def build_painter(templates: Float[ndarray, "template rest"], axes: TemplateAxes, setup: Setup) -> AbstractPainter:
    """The painter of the setup's method for templates on the library's rest-frame nodes."""
    return METHODS.find(setup.method)(templates, axes, setup)
