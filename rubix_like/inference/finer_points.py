"""A second search with more quadrature points of smooth components, where those that were chosen are too few."""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from rubix_like.config import RunConfig, load_config
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.yaml_files import parse_yaml
from rubix_like.forward.pipeline import Pipeline
from rubix_like.inference.checks.optima import AS_LIKELY
from rubix_like.inference.checks.quadrature_error import QuadratureError
from rubix_like.inference.request import Request
from rubix_like.inference.results.fit_result import FitResult
from rubix_like.inference.search.search_state import SearchState
from rubix_like.readers.model_readers import MOST

_TIMES = 8
"""Most times as many points: the advice is for errors that fall as 1 / points, and they fall faster."""

_APART = 0.02
"""Difference of a latent, in its prior's standard deviations, from which on two ends of starts are two places."""

_AT_FIRST = "the quadrature points chosen at first"


class Finer(NamedTuple):
    """The request with more points, and the latents at which its search begins."""

    request: Request
    starts: Float[ndarray, "start latent"]
    note: str


def chooses_points(request: Request) -> bool:
    """Whether the numbers of points are ours to choose: those of a configuration's components that says none."""
    config = request.model
    return (
        isinstance(config, RunConfig) and isinstance(config.galaxy, ComponentsReader) and config.galaxy.points is None
    )


def finer_request(request: Request, error: QuadratureError, found: SearchState) -> Finer | None:
    """The request to search again, by the error at the best fit; None where the points do for the data."""
    if error.wanted is None:
        return None
    number = max(error.numbers.values())
    wanted = min(error.wanted, _TIMES * number, MOST)
    if wanted <= number:
        return None
    note = (
        f"{_AT_FIRST} ({error.points}) erred by {error.largest:.2g} of the noise at the best fit; it was fitted again "
        f"from there with galaxy.points: {wanted}"
    )
    return Finer(with_points(request, wanted), places_of(found), note)


def note_on_points(notes: Iterable[str]) -> tuple[str, ...]:
    """The note on more points among others."""
    return tuple(own for own in notes if own.startswith(_AT_FIRST))


def points_of(request: Request) -> int | None:
    """The number of points of every component, where the request has one."""
    galaxy = request.config.galaxy
    return galaxy.points if isinstance(galaxy, ComponentsReader) else None


def with_points(request: Request, number: int) -> Request:
    """The request with so many points of every component."""
    if isinstance(request.model, Pipeline) or not isinstance(request.config.galaxy, ComponentsReader):
        raise TypeError("expected a configuration of components, got another galaxy")
    galaxy = request.config.galaxy.model_copy(update={"points": number})
    config = request.config.model_copy(update={"galaxy": galaxy})
    return dataclasses.replace(request, config=config, model=config)


def like_fitted(request: Request, fitted: FitResult) -> Request:
    """The request with as many points as the fit that it begins at ended with."""
    if not chooses_points(request):
        return request
    galaxy = load_config(parse_yaml(fitted.config, "the configuration of `fitted`")).galaxy
    points = galaxy.points if isinstance(galaxy, ComponentsReader) else None
    return request if points is None else with_points(request, points)


def places_of(found: SearchState) -> Float[ndarray, "start latent"]:
    """Places where starts ended that fit almost as well as the best one, which is the first; each place once."""
    near = np.flatnonzero(found.converged & (found.loss - found.loss[found.best] <= AS_LIKELY))
    places = [found.latent[found.best]]
    for number in near[np.argsort(found.loss[near])]:
        latent = found.latent[number]
        if all(np.abs(latent - own).max() > _APART for own in places):
            places.append(latent)
    return np.stack(places)
