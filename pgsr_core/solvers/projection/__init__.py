"""The cumulative program on the whole tree at once, and its exact integers."""

from pgsr_core.solvers.projection.layout import ProjectionInputError
from pgsr_core.solvers.projection.program import Projection, project
from pgsr_core.solvers.projection.rounding import round_consistently

__all__ = ["Projection", "ProjectionInputError", "project", "round_consistently"]
