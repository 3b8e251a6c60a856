"""The painters by the name that `engine.method` gives them."""

from jaxtyping import Float
from numpy import ndarray

from rubix_like.lookup import TemplateAxes
from rubix_like.painter import AbstractPainter
from rubix_like.registry import Registry
from rubix_like.setup import Setup

METHODS = Registry(
    "method",
    "rubix_like.methods",
    {"basis": "rubix_like.basis_plan:build_basis_painter", "direct": "rubix_like.direct:DirectPainter.build"},
)


def build_painter(templates: Float[ndarray, "template rest"], axes: TemplateAxes, setup: Setup) -> AbstractPainter:
    """The painter of the setup's method for templates on the library's rest-frame nodes."""
    return METHODS.find(setup.method)(templates, axes, setup)
