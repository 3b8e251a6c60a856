"""Which parameters of a model are free: their declarations by name, their priors within the declared limits."""

import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from rubix_like.config import RunConfig
from rubix_like.config.messages import dotted_keys, near_among
from rubix_like.config.parameters import Declaration, Parameter, as_settings, declarations
from rubix_like.config.quantities import Kms, Kpc, Msun, Number, is_unit
from rubix_like.config.readers.components import SECTIONS, ComponentsReader, component_declarations
from rubix_like.config.sections.fit import CorrelatedSettings, FitSettings
from rubix_like.config.settings import AbstractSettings
from rubix_like.errors import ConfigError, nearest_words, suggest
from rubix_like.forward.census import log_universe_age
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, named_leaves, without_units
from rubix_like.galaxy.limits import LARGEST, limits_of
from rubix_like.galaxy.validation import AGE_SLACK
from rubix_like.inference.likelihoods.voxel_errors import AbstractErrorDistribution
from rubix_like.inference.posterior.fit_model import (
    GALAXY,
    LIKELIHOOD,
    NOISE_SCALE,
    OF_GALAXY,
    STARS,
    V_LOS,
    ComponentsSource,
    Correlated,
    Free,
    FreeParameter,
    Latent,
    leaf_at,
    read_prior,
    read_values,
    shown,
)
from rubix_like.inference.posterior.priors import JOINABLE, AbstractPrior
from rubix_like.physics.templates import TemplateAxes
from rubix_like.readers.model_readers import AbstractModelReader
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runtime.notes import WARNING, Note

REACH: float = 4.0
"""Latents up to which a prior has to stay within the limits: all but 6e-5 of it."""

SMALLEST_LATENT: float = -8.0
"""Latent of the noise scale that is taken for its lower limit."""

_ROUNDING = 1e-4

_OF_NOISE = "noise."
"""Beginning of the names of parameters of the noise."""

_TURN = 360.0
"""deg."""

_NEEDED = {
    GALAXY: "a galaxy with parameters (galaxy: {reader: synthetic}, or components), got one that was read from a file, "
    "or given; leave the given one out (galaxy=..., galaxies=...), or free parameters of its stars, e.g. stars.v_los",
    STARS: "a galaxy that is read from a file, or given, got one with parameters; free those, e.g. galaxy.stellar_mass",
}
"""Beginning of names of parameters -> the galaxy that they need, what came and the remedy."""

_SCALE = "factor on the standard deviations of the data"


def _within(field: str) -> Any:
    low, high = limits_of(field)
    return Field(ge=low, le=high)


class StarParameters(AbstractSettings):
    """Parameters that can be free of each star of a given galaxy."""

    position: Annotated[Kpc, _within("position"), Parameter(moves=True)]
    """Place of every star of a given galaxy: (x, y, z)."""
    velocity: Annotated[Kms, _within("velocity"), Parameter()]
    """Velocity of every star: (x, y, z)."""
    v_los: Annotated[Kms, _within("velocity"), Parameter()]
    """Velocity of every star along the line of sight; the rest of its velocity stays."""
    initial_mass: Annotated[Msun, _within("initial_mass"), Parameter()]
    """Mass of every star at birth."""
    log_age: Annotated[Number, _within("log_age"), Parameter(axis="age")]
    """log10(age / yr) of every star."""
    metallicity: Annotated[Number, _within("metallicity"), Parameter(axis="metallicity")]
    """Metal mass fraction Z of every star."""


class LikelihoodParameters(AbstractSettings):
    """Parameters that can be free of the likelihoods of this package."""

    degrees_of_freedom: Annotated[Number, Field(gt=0, le=1e6), Parameter()]
    """Of Student's t, with `fit.likelihood: {kind: student_t}`: 1 has the heaviest tails, 30 is nearly normal."""


@functools.cache
def known_parameters() -> dict[str, Declaration]:
    """Every parameter of the package itself that can be free: of a run, of a synthetic galaxy, of given stars."""
    return {
        **declarations(RunConfig),
        **declarations(LikelihoodParameters, LIKELIHOOD),
        **declarations(SyntheticReader, GALAXY),
        **declarations(StarParameters, STARS),
    }


def declarations_of(names: Collection[str]) -> dict[str, Declaration]:
    """The declarations of the parameters among some names, those of plug-ins among them."""
    known = dict(known_parameters())
    for name in names:
        first, _, key = name.removeprefix(GALAXY).partition(".")
        of_component = component_declarations().get(key)
        if name.startswith(GALAXY) and first and of_component is not None and name not in known:
            known[name] = dataclasses.replace(of_component, name=name)
    brought = {name.partition(".")[0] for name in names if name not in known}
    for key, section in RunConfig.sections(*brought).items():
        known |= declarations(section, f"{key}.")
    return {name: known[name] for name in names if name in known}


def declared_by(model: AbstractGalaxyModel) -> dict[str, Declaration]:
    """The parameters of a user model: its float leaves; ConfigError for units that are none, or of others."""
    units, kind, known = model.units, type(model).__name__, named_leaves(model)
    for name, unit in units.items():
        if isinstance(number := getattr(model, name, None), int):
            raise ConfigError(
                f"units: expected parameters, got '{name}' of {kind}, a field of the int {number}, which is none; "
                f"annotate it as float"
            )
        if name not in known:
            raise ConfigError(f"units: unknown parameter '{name}' of {kind}{suggest(name, known)}")
        if not is_unit(unit):
            raise ConfigError(f"units: unknown unit {unit!r} of '{name}' of {kind}; take a name that astropy knows")
    return {
        f"{GALAXY}{name}": Declaration(
            f"{GALAXY}{name}", units.get(name, ""), Parameter(moves=True), Any, None, f"{name} of {kind}"
        )
        for name in known
    }


_NO_OTHERS: Mapping[str, Declaration] = MappingProxyType({})


def find_parameter(name: str, others: Mapping[str, Declaration] = _NO_OTHERS) -> Declaration:
    """The declaration of a parameter; ConfigError for what cannot be free. `others`: of a user's galaxy model."""
    if name in others:
        return others[name]
    if name.startswith(GALAXY) and any(other.startswith(GALAXY) for other in others):
        words = [other.removeprefix(GALAXY) for other in others]
        near, listing = nearest_words(name.removeprefix(GALAXY), words, 1), ", ".join(others)
        hint = f"; did you mean '{GALAXY}{near[0]}'?" if near else f"; its float fields that are not static: {listing}"
        raise ConfigError(f"fit.free: unknown parameter '{name}' of the model{hint}")
    found = declarations_of([name])
    if found:
        return found[name]
    if name == NOISE_SCALE:
        raise ConfigError(f"fit.free.{name}: expected its prior as fit.noise_scale, got it among the free parameters")
    first, _, key = name.partition(".")
    if name.startswith(LIKELIHOOD) and key:
        return Declaration(name, "", Parameter(), Any, None, f"Parameter '{key}' of the likelihood")
    if name in set(dotted_keys(RunConfig)):
        beside = ", ".join(known for known in known_parameters() if known.startswith(f"{first}.")) or "none"
        raise ConfigError(
            f"fit.free.{name}: expected a parameter, got a setting that is fixed; leave it out (parameters of "
            f"'{first}': {beside})"
        )
    if first == "galaxy" and "." in key:
        component, _, below = key.partition(".")
        section, _, word = below.partition(".")
        kinds = SECTIONS[section].kinds() if section in SECTIONS else []
        fixed = [kind for kind in kinds if word in kind.model_fields]
        if fixed:
            beside = dict.fromkeys(known for kind in fixed for known in declarations(kind, f"{component}.{section}."))
            raise ConfigError(
                f"fit.free.{name}: expected a parameter, got a setting that is fixed; leave it out (parameters of its "
                f"section: {', '.join(map(GALAXY.__add__, beside)) or 'none'})"
            )
        near = [f"galaxy.{component}.{key}" for key in component_declarations()]
        raise ConfigError(
            f"fit.free: unknown parameter '{name}' of a smooth component{suggest(name, near)}; '{below}' is none of "
            f"the parameters in docs/components.md"
        )
    of_section = [other for other in known_parameters() if other.partition(".")[0] == first]
    beside, last_word = of_section or list(known_parameters()), "_" + name.rpartition(".")[2]
    near = near_among(name, beside, 0.6 if of_section else 0.8) or [
        known for known in beside if known.endswith(last_word)
    ]
    if f"{GALAXY}{name}" in others:
        near = [f"{GALAXY}{name}"]
    hint = f"; did you mean '{near[0]}'?" if near else f"; known: {', '.join(beside)}"
    raise ConfigError(f"fit.free: unknown parameter '{name}'{hint}")


def check_free(
    free: Mapping[str, Any], others: Mapping[str, Declaration] = _NO_OTHERS, *, with_noise: bool = False
) -> None:
    """Raise ConfigError for what can be seen to be wrong with free parameters before there is a model.

    `with_noise`: whether parameters of the noise may be among them, as in simulations.
    """
    for name, prior in free.items():
        declared = find_parameter(name, others)
        if name.startswith(_OF_NOISE) and not with_noise:
            raise ConfigError(
                f"fit.free.{name}: expected a parameter of the model, which has no noise (a fit takes it from the "
                f"data's variance), got one of the noise; leave it out, free fit.noise_scale, or give it as "
                f"simulate.free.{name}"
            )
        of_galaxy = isinstance(prior, Mapping) and OF_GALAXY in str(prior)
        if not (of_galaxy and name.startswith((GALAXY, STARS))):
            _read_prior(declared, prior, None)


def check_free_of(config: RunConfig, galaxy: Any = None) -> None:
    """Raise ConfigError for what can be seen to be wrong with the free parameters of a configuration, and with those of
    its start; `galaxy`: what is given in place of the configuration's."""
    settings = config.fit or FitSettings()
    if not (settings.free or settings.start):
        return
    model = galaxy
    if galaxy is None and isinstance(config.galaxy, AbstractModelReader):
        model = without_units(config.galaxy.model())
    declared = declared_by(model) if isinstance(model, AbstractGalaxyModel) else {}
    of_galaxy = [name for name in settings.free if name.startswith(GALAXY)]
    if isinstance(model, AbstractGalaxyModel) and of_galaxy and not declared:
        raise ConfigError(
            f"fit.free.{of_galaxy[0]}: expected a float field of {type(model).__name__}, which has none; annotate its "
            f"parameters as float"
        )
    has_parts = bool(declared) or isinstance(galaxy, ComponentsSource) or isinstance(config.galaxy, ComponentsReader)
    below = [name for name in of_galaxy if "." in name.removeprefix(GALAXY)]
    if below and not has_parts:
        reader = "null" if config.galaxy is None else f"{{reader: {getattr(config.galaxy, 'reader', '?')}}}"
        kind = f"galaxy: {reader}" if galaxy is None else f"a {type(galaxy).__name__} as the galaxy"
        raise ConfigError(
            f"fit.free.{below[0]}: expected a galaxy with a part '{below[0].split('.')[1]}', got {kind}; give "
            f"galaxy: {{reader: components, ...}} with a component of this name, or a model of your own as model=..."
        )
    if galaxy is None and isinstance(config.galaxy, ComponentsReader):
        known = [component.name for component in config.galaxy.components]
        for place, names in (("fit.free", settings.free), ("fit.start", settings.start or {})):
            for name in names:
                check_component(f"{place}.{name}", name, known)
    check_free(settings.free, declared)


def read_free(
    settings: FitSettings,
    trees: Mapping[str, Any],
    deposit: str | None,
    others: Mapping[str, Declaration] = _NO_OTHERS,
) -> Free:
    """The free parameters with their shapes; ConfigError for one that the model does not have, or cannot follow.

    `deposit`: that of the model; None where it is not differentiated. `trees`: what the names are leaves of: "galaxy."
    a synthetic galaxy, "stars." stars, "" the run's parameters; and "stars.v_los" the stars' velocities along the
    line of sight.
    """
    if not settings.free:
        raise ConfigError("fit.free: expected at least one parameter with its prior, got none")
    if V_LOS in settings.free and "stars.velocity" in settings.free:
        raise ConfigError(
            f"fit.free: expected stars.velocity or {V_LOS}, which is a part of it, got both; keep {V_LOS}"
        )
    parameters = []
    for name, prior in settings.free.items():
        declared = find_parameter(name, others)
        if deposit == "nearest" and declared.mark.moves:
            raise ConfigError(
                f"fit.free.{name}: expected engine.deposit cic, tsc or smoothed, got nearest, which gives it no "
                f"gradient; set engine.deposit: tsc"
            )
        leaf = leaf_of(name, trees)
        shape = jnp.shape(leaf)
        chosen = _read_prior(declared, prior, leaf if name.startswith((GALAXY, STARS)) else None)
        for numbers in jax.tree.leaves(chosen):
            pairs = zip(numbers.shape[::-1], shape[::-1], strict=False)
            if jnp.ndim(numbers) > len(shape) or any(n not in {1, m} for n, m in pairs):
                raise ConfigError(
                    f"fit.free.{name}: expected one number for all, or numbers of the parameter's shape {shape}, got "
                    f"some of shape {jnp.shape(numbers)}"
                )
        _check_range(declared, chosen, shape)
        parameters.append(FreeParameter(chosen, name, shape, declared.unit, declared.meaning))
    correlated = read_correlated(settings.correlated, parameters)
    if settings.noise_scale is not None:
        scale = read_prior(NOISE_SCALE, settings.noise_scale, "")
        if not float(scale.value(np.asarray(SMALLEST_LATENT))) > 0:
            raise ConfigError(
                f"fit.{NOISE_SCALE}: expected a prior above 0, e.g. {{log_uniform: [0.5, 2]}}, got {shown(scale)}"
            )
        parameters.append(FreeParameter(scale, NOISE_SCALE, meaning=_SCALE))
    return Free(tuple(parameters), correlated)


def read_correlated(
    groups: Iterable[CorrelatedSettings], parameters: Iterable[FreeParameter]
) -> tuple[Correlated, ...]:
    """The groups of free parameters with correlated priors; ConfigError for others, and for priors that cannot be."""
    known, found = {parameter.name: parameter for parameter in parameters}, []
    left = dict(known)
    for group in groups:
        for name in group.parameters:
            if name not in known:
                raise ConfigError(f"fit.correlated: '{name}' is no free parameter{suggest(name, known)}")
            if name not in left:
                raise ConfigError(f"fit.correlated: expected each parameter once, got '{name}' again; join its groups")
            parameter = left.pop(name)
            if parameter.shape or not isinstance(parameter.prior, JOINABLE):
                shape = f" of shape {parameter.shape}" if parameter.shape else ""
                raise ConfigError(
                    f"fit.correlated: expected single numbers with priors normal or log_normal, got {name}: "
                    f"{shown(parameter.prior)}{shape}; change its prior, or leave it out"
                )
        found.append(Correlated(np.linalg.cholesky(np.array(group.correlation, np.float64)), group.parameters))
    return tuple(found)


def _read_prior(declared: Declaration, prior: Any, leaf: Any) -> AbstractPrior:
    """The prior of a parameter; the error says what its numbers are where they have no unit."""
    try:
        return read_prior(declared.name, prior, declared.unit, leaf)
    except ConfigError as error:
        if declared.unit or "expected a finite number" not in str(error):
            raise
        raise ConfigError(f"{error}; {declared.name}: {declared.meaning}") from error


def leaf_of(name: str, trees: Mapping[str, Any]) -> Any:
    """The array that a name stands for, with its values."""
    if name.startswith(LIKELIHOOD):
        key, errors = name.removeprefix(LIKELIHOOD), trees.get(LIKELIHOOD)
        is_distribution = isinstance(errors, AbstractErrorDistribution)
        known = [field.name for field in dataclasses.fields(errors)] if is_distribution else []
        if key not in known:
            raise ConfigError(
                f"fit.free.{name}: expected a parameter of the likelihood '{getattr(errors, 'kind', 'gaussian')}' "
                f"({', '.join(known) or 'it has none'}), got another; set fit.likelihood.kind, or leave it out"
            )
        return np.asarray(getattr(errors, key))
    prefix = next((prefix for prefix in (GALAXY, STARS) if name.startswith(prefix)), "")
    if prefix not in trees:
        raise ConfigError(f"fit.free.{name}: expected {_NEEDED[prefix]}")
    if name in trees:
        return trees[name]
    if isinstance(trees[prefix], SimpleNamespace):
        check_component(f"fit.free.{name}", name, list(vars(trees[prefix])))
    try:
        leaf = leaf_at(trees[prefix], name.removeprefix(prefix))
    except AttributeError:
        leaf = None
    if leaf is None and prefix == GALAXY:
        raise ConfigError(
            f"fit.free.{name}: expected a number as {name}, got none: it is null and follows another parameter, or the "
            f"galaxy has no such component, section or key of its kind; give it one, such as the middle of its prior"
        )
    if prefix == GALAXY and not isinstance(leaf, np.ndarray | jax.Array | float | int | np.generic):
        raise ConfigError(f"fit.free.{name}: expected a number, got a section; free its keys, e.g. {name}.central")
    if leaf is None:
        section = name.rpartition(".")[0]
        raise ConfigError(
            f"fit.free.{name}: expected a run whose section '{section}' has it, got null, or another kind; give it one"
        )
    if not np.size(leaf):
        raise ConfigError(
            f"fit.free.{name}: expected values to begin with as {name}, got none: what is left out there is solved "
            f"for; leave it out of fit.free"
        )
    return leaf


def check_component(place: str, name: str, known: Sequence[str]) -> None:
    """Raise ConfigError if a parameter galaxy.NAME... names none of the `known` components."""
    first, _, below = name.removeprefix(GALAXY).partition(".")
    if not name.startswith(GALAXY) or first in known:
        return
    ends = [key for key in component_declarations() if first.endswith(key.replace(".", "_"))]  # stellar_mass in mass
    keys = [] if below else ends[:1] or nearest_words(first, component_declarations(), 1)
    meant = " or ".join(f"'{GALAXY}{component}.{key}'" for component in known for key in keys)
    hint = f"; did you mean {meant}?" if meant else suggest(first, known)
    raise ConfigError(
        f"{place}: expected the name of a component after 'galaxy.' ({', '.join(known)}), got '{first}'{hint}"
    )


def read_start(start: Mapping[str, Any] | None, free: Free, trees: Mapping[str, Any]) -> Latent | None:
    """The latents of the values of `fit.start`; parameters that it leaves out are at the medians of their priors.

    A value is a number, or an array of the parameter's shape; `galaxy` stands for those that the galaxy has. Raises
    ConfigError for unknown names and for values of another shape or outside their prior.
    """
    if start is None:
        return None
    for name in start:
        if name not in free.names:
            raise ConfigError(f"fit.start: '{name}' is no free parameter{suggest(name, free.names)}")
    medians = free.values(np.zeros(free.n_latent))
    values = {}
    for parameter in free.parameters:
        name = parameter.name
        given = start.get(name, medians[name])
        if isinstance(given, str) and given.strip() == OF_GALAXY:
            given = leaf_of(name, trees)
        value = np.asarray(read_values(f"fit.start.{name}", given, parameter.unit))
        try:
            values[name] = np.broadcast_to(value, parameter.shape)
        except ValueError as error:
            raise ConfigError(
                f"fit.start.{name}: expected a number or an array of shape {parameter.shape}, got one of {value.shape}"
            ) from error
    try:
        return free.latent(values)
    except ValueError as error:
        raise ConfigError(f"fit.start.{error}") from error


def _check_range(declared: Declaration, prior: AbstractPrior, shape: tuple[int, ...]) -> None:
    name, unit = declared.name, declared.unit
    low, high = _reach(prior, shape)
    if unit == "km/s" and not np.max(np.abs([low, high])) <= LARGEST["velocity"]:
        raise ConfigError(
            f"fit.free.{name}: expected velocities below that of light, got a prior from {np.min(low):.4g} to "
            f"{np.max(high):.4g} km/s; check its unit"
        )
    for value in (*settings_of(name, low), *settings_of(name, high)):
        fault = declared.fault(value.tolist())
        if fault is not None:
            raise ConfigError(
                f"fit.free.{name}: expected a prior within the parameter's limits, got one that reaches "
                f"{value.flat[0]:.4g}{f' {unit}' if unit else ''} at {REACH:g} sigma: {fault}; take a narrower one, or "
                f"uniform, log_normal or truncated_normal"
            )
    if unit == "deg" and np.max(high - low) > _TURN:
        raise ConfigError(
            f"fit.free.{name}: expected a prior within {_TURN:g} deg, got one from {np.min(low):.4g} to "
            f"{np.max(high):.4g} deg, in which the same model comes several times"
        )


def _reach(prior: AbstractPrior, shape: tuple[int, ...]) -> tuple[ndarray, ndarray]:
    """Lowest and highest value up to the latent `REACH`, of each value of an array."""
    low, high = (np.asarray(prior.value(np.full(shape, latent)), np.float64) for latent in (-REACH, REACH))
    return low, high


def settings_of(name: str, values: Float[ndarray, "..."]) -> Iterable[Any]:
    """Values as the setting of a parameter has them, one after the other; of all stars the smallest and the largest."""
    if name.startswith(STARS):
        return values.min(), values.max()
    return as_settings(values)


def library_notes(free: Free, axes: TemplateAxes) -> tuple[str, ...]:
    """Says so where priors of ages and metallicities leave the SSP library; ConfigError for one wholly beyond it."""
    notes = []
    for parameter, axis in _populations(free):
        nodes = np.asarray(axes.nodes[axes.names.index(axis)], np.float64)[[0, -1]]
        first, last = 10**nodes if axis == "metallicity" else nodes
        lower, upper = _reach(parameter.prior, parameter.shape)
        low, high = float(lower.min()), float(upper.max())
        text = f"the SSP library's range, {first:.4g} to {last:.4g}"
        if high < first or low > last:
            raise ConfigError(
                f"fit.free.{parameter.name}: expected a prior that overlaps with {text}, got {low:.4g} to {high:.4g}"
            )
        if low < first * (1 - _ROUNDING) or high > last * (1 + _ROUNDING):
            sentence = f"{parameter.name}: its prior, {low:.4g} to {high:.4g}, leaves {text}"
            notes.append(Note("prior.beyond_library", f"{sentence}; stars beyond shine as at its end", WARNING))
    return tuple(notes)


def age_notes(free: Free, config: RunConfig) -> tuple[str, ...]:
    """Says so where priors allow for stars that are older than the Universe at the galaxy's redshift."""
    oldest = log_universe_age(config)
    notes = []
    for parameter, axis in _populations(free):
        highest = float(_reach(parameter.prior, parameter.shape)[1].max())
        if axis == "age" and highest > oldest + AGE_SLACK:
            text = (
                f"{parameter.name}: its prior reaches {highest:.4g}, older than the Universe at redshift "
                f"{config.observation.redshift:g}, {oldest:.4g} ({10 ** (oldest - 9):.3g} Gyr)"
            )
            notes.append(Note("prior.older_than_universe", text, WARNING))
    return tuple(notes)


def _populations(free: Free) -> list[tuple[FreeParameter, str]]:
    """Free ages and metallicities, with their axis in an SSP library."""
    axes = {name: declared.mark.axis for name, declared in declarations_of(free.names).items()}
    return [(parameter, axis) for parameter in free.parameters if (axis := axes.get(parameter.name)) is not None]
