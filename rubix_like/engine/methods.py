"""The painters by the name that `engine.method` gives them."""

from rubix_like.arguments import named_arguments
from rubix_like.config.plug_ins import LINE_METHODS, METHODS
from rubix_like.engine.painter import AbstractPainter
from rubix_like.engine.setup import Setup, SourcePlan


@named_arguments
def build_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's templates."""
    return METHODS.find(plan.method)(plan, setup)


@named_arguments
def build_line_painter(plan: SourcePlan, setup: Setup) -> AbstractPainter:
    """The painter of the plan's method for the plan's lines (`plan_lines`)."""
    return LINE_METHODS.find(plan.method)(plan, setup)
