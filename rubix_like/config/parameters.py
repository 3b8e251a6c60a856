"""Which settings are parameters: numbers of the model that can be changed, fitted and sampled without a compilation.

A parameter is declared once, by a mark on its setting. Its unit, limits and meaning are the setting's; leaves of
the model, limits of priors, result files and the documentation's table follow from them.
"""

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from numpy import ndarray
from pydantic import BaseModel, BeforeValidator, TypeAdapter, ValidationError

from rubix_like.arguments import expect_fields
from rubix_like.config.messages import explain_value
from rubix_like.config.settings import described_settings, sections_in
from rubix_like.errors import ConfigError


def _one_prior(name: str, prior: object) -> dict[str, tuple[Any, ...]]:
    """The checked prior `{kind: numbers}` of one parameter; ValueError for anything else."""
    if not isinstance(prior, dict) or len(prior) != 1:
        raise ValueError(f"{name}: expected one prior with its numbers, e.g. {{uniform: [0, 1]}}, got {prior!r}")
    (kind, numbers), *_ = prior.items()
    if isinstance(numbers, Mapping):
        raise ValueError(
            f"{name}: expected names with dots, e.g. {name}.{kind}: {{uniform: [0, 1]}}, got the section {prior!r}"
        )
    if not isinstance(numbers, list | tuple):
        raise ValueError(f"{name}: expected a list of numbers after '{kind}', got {numbers!r}")
    return {str(kind): tuple(numbers)}


def _priors_by_name(value: object) -> dict[str, dict[str, tuple[Any, ...]]]:
    if not isinstance(value, dict):
        raise ValueError(f"expected parameters with their priors, got {value!r}")
    return {name: _one_prior(name, prior) for name, prior in value.items()}


Prior = Annotated[
    dict[str, tuple[Any, ...]], BeforeValidator(lambda value, info: _one_prior(str(info.field_name), value))
]
"""{kind of a prior: numbers}."""

PriorsByName = Annotated[dict[str, dict[str, tuple[Any, ...]]], BeforeValidator(_priors_by_name)]
"""Dotted name of a parameter -> {kind of its prior: numbers}."""

Role = Literal[
    "",
    "mass",
    "scale_length",
    "half_light_radius",
    "width",
    "inclination",
    "position_angle",
    "centre",
    "systemic",
    "rotation",
]
"""What a parameter is in the picture of a galaxy."""


@dataclass(frozen=True)
class Parameter:
    """Marks a setting as a parameter: `inclination: Annotated[Degree | None, Parameter(moves=True)] = None`.

    `moves`: it acts through the particles' places on the sky, of which the deposit `nearest` has no gradient. `axis`:
    the axis of an SSP library on which its values lie ("age", "metallicity"). `role`: what it is in the picture of a
    galaxy, from which a fit guesses where to start; empty: nothing that a cube shows at once.
    """

    moves: bool = False
    axis: str | None = None
    role: Role = ""

    def __post_init__(self) -> None:
        expect_fields(self)


@dataclass(frozen=True)
class Declaration:
    """A declared parameter: dotted name, unit (empty: a number), mark, the setting's type and section, or
    where no setting declares it, `words` on what it is."""

    name: str
    unit: str
    mark: Parameter
    form: Any
    section: type[BaseModel] | None
    words: str = ""

    @property
    def meaning(self) -> str:
        """The docstring of the setting, on one line."""
        if self.section is None:
            return self.words
        text = described_settings(self.section)[self.name.rpartition(".")[2]].description
        return " ".join((text or "").split()).removesuffix(".")

    def fault(self, value: object) -> str | None:
        """The message on a value beyond the limits of its setting; None for one within."""
        try:
            self._form.validate_python(value)
        except ValidationError as error:
            return explain_value(error)
        return None

    def refused(self, values: ndarray) -> tuple[ndarray, str] | None:
        """The first value that the limits of the setting refuse, and what is wrong with it; None if nothing is.

        `values`: an array as the setting has it, or rows of what it has.
        """
        if self.fault(values.tolist()) is None:
            return None
        faults = ((row, self.fault(row.tolist())) for row in as_settings(values))
        return next(((row, fault) for row, fault in faults if fault is not None), None)

    @functools.cached_property
    def _form(self) -> Any:
        return TypeAdapter(self.form)


def as_settings(values: ndarray) -> Iterable[Any]:
    """The rows of an array, which are what a setting holds one or a list of."""
    return values.reshape(-1, *values.shape[-1:]) if values.ndim else (values,)


def declarations(settings: type[BaseModel], prefix: str = "") -> dict[str, Declaration]:
    """The parameters among some settings and those of the sections below, by dotted name."""
    return dict(_declared(settings, prefix))


@functools.cache
def _declared(settings: type[BaseModel], prefix: str) -> dict[str, Declaration]:
    """Once for each class, as a run asks for those of all its sections many times."""
    found = {}
    for name, field in settings.model_fields.items():
        mark = _mark(settings, name)
        if mark is not None:
            form = Annotated[field.annotation, *field.metadata]
            units = (getattr(item, "unit", None) for item in metadata_of(form))
            found[prefix + name] = Declaration(prefix + name, next(filter(None, units), ""), mark, form, settings)
        for section in _sections(settings)[name]:
            found |= declarations(section, f"{prefix}{name}.")
    return found


@functools.cache
def _sections(settings: type[BaseModel]) -> dict[str, tuple[type[BaseModel], ...]]:
    return {key: tuple(sections_in(field.annotation)) for key, field in settings.model_fields.items()}


def parameter_values(settings: BaseModel) -> dict[str, Any]:
    """The values of the parameters among some settings and those of the sections below; null ones are left out."""
    found = {}
    for name in declarations(type(settings)):  # None below a section that is null, or of a kind that has no such key
        value = functools.reduce(lambda section, key: getattr(section, key, None), name.split("."), settings)
        if value is not None:
            found[name] = value
    return found


def missing_in(settings: type[BaseModel], present: Collection[str], prefix: str = "") -> Iterator[str]:
    """Names of parameters that are missing beside those `present`, and of sections that can be null."""
    for key, field in settings.model_fields.items():
        name = prefix + key
        if _mark(settings, key) is not None and name not in present:
            yield name
        for section in _sections(settings)[key]:
            if type(None) not in get_args(field.annotation) or any(other.startswith(f"{name}.") for other in present):
                yield from missing_in(section, present, f"{name}.")
            else:
                yield from [name] if declarations(section) else []


def _mark(settings: type[BaseModel], key: str) -> Parameter | None:
    """The mark of a setting; None where it has none. Raises ConfigError for the class in place of a mark."""
    for item in settings.model_fields[key].metadata:
        if item is Parameter:
            raise ConfigError(
                f"{settings.__name__}.{key}: expected the mark Parameter(), got the class Parameter; write its "
                f"parentheses"
            )
        if isinstance(item, Parameter):
            return item
    return None


def metadata_of(annotation: Any) -> Iterator[Any]:
    """All that a type is annotated with, and the types within it, outermost first."""
    yield from getattr(annotation, "__metadata__", ())
    for inner in get_args(annotation):
        yield from metadata_of(inner)
