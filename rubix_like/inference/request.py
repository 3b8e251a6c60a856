"""The request for a fit: its settings, from the configuration and from Python, and its data."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rubix_like.config import RunConfig, load_config
from rubix_like.config.data_sets import DataSetSettings
from rubix_like.config.loading import ConfigSource, check_one_observation
from rubix_like.config.sections.fit import FitSettings
from rubix_like.config.yaml_files import parse_yaml
from rubix_like.cube.cube import Cube
from rubix_like.cube.observed import ObservedCube, observed_from, read_observed
from rubix_like.errors import ConfigError, expect_path
from rubix_like.forward.pipeline import Pipeline
from rubix_like.galaxy.galaxy_model import AbstractGalaxyModel, without_units
from rubix_like.inference.data_sets import DataSet, check_free_names, check_unstated, read_sets, split_sets
from rubix_like.inference.posterior.free_parameters import check_free_of
from rubix_like.inference.posterior.priors import AbstractPrior, Priors, as_sections, section_of
from rubix_like.inference.search.optimisers import make_optimiser
from rubix_like.readers.synthetic import SyntheticReader
from rubix_like.runs.run_files import named_files
from rubix_like.runtime.files.outputs import Named, given_files

OneCube = str | Path | Cube | ObservedCube
"""An observed cube, or its file."""

Data = OneCube | Mapping[str, OneCube | Mapping[str, Any]]
"""An observed cube, or several sets of data by name: each a cube, its file, or a section as in `fit.data`, in which
`cube`, `image` and `spectrum` may be objects (ObservedCube), too."""


@dataclass(frozen=True)
class Request:
    """A fit as it was asked for, checked; `model`: what to fit; `data`: of several sets those given in Python."""

    config: RunConfig
    settings: FitSettings
    model: RunConfig | Pipeline
    data: OneCube | Mapping[str, Cube | ObservedCube]

    @property
    def sets(self) -> Mapping[str, DataSetSettings] | None:
        """The sections of several sets of data; None of one cube."""
        return self.settings.data if isinstance(self.settings.data, Mapping) else None

    def read(self) -> tuple[DataSet, ...]:
        """The data sets, or the one cube, which has no name."""
        if self.sets is not None and isinstance(self.data, Mapping):
            return read_sets(self.sets, self.data)
        match self.data:
            case ObservedCube():
                observed = self.data
            case Cube():
                observed = observed_from(self.data)
            case str() | os.PathLike():
                observed = read_observed(self.data, **self.stated)
            case _:
                raise TypeError("expected one cube, got several sets of data")
        return (DataSet("", DataSetSettings(), observed),)

    @property
    def stated(self) -> dict[str, Any]:
        """The statements of the settings on the data's file, as `read_observed` takes it."""
        return {name: getattr(self.settings, f"data_{name}") for name in ("medium", "units", "pixel_scale", "hdu")}

    def files(self, source: object, **others: object) -> tuple[Named, ...]:
        """Files that are read, and must not be replaced: what the settings name, the data, `source` (the configuration,
        where it is a file) and what else is called by its name."""
        given = {"fit.data": self.data, "configuration": source, **others}
        of_sets = (
            (f"fit.data.{name}", file) for name, data_set in (self.sets or {}).items() for file in data_set.files
        )
        return (*named_files(self.config), *of_sets, *given_files(given))


def read_request(
    config_or_pipeline: ConfigSource | Pipeline,
    data: Data | None,
    free: Priors | None,
    output: str | Path | None,
    settings: Mapping[str, Any],
    galaxy: Any = None,
) -> Request:
    """The settings of the configuration and of the call, joined and checked; nothing is read or computed.
    `galaxy`: what is given in place of the configuration's."""
    given = {f"fit.{name}": value for name, value in settings.items()}
    if free is not None:
        given["fit.free"] = as_sections("fit.free", free)
    if isinstance(settings.get("noise_scale"), AbstractPrior):
        given["fit.noise_scale"] = section_of(settings["noise_scale"])
    if output is not None:
        given["fit.output"] = Path(expect_path(output, "output"))
    source = config_or_pipeline
    if isinstance(source, Pipeline):
        source.check_alone()
        source = parse_yaml(str(source.frame.meta["config"]), "the pipeline's configuration")
    section, objects = _data_section(source, data)
    config = load_config(source, overrides=given | section)
    if config.observations is not None:
        check_one_observation(config, "a fit, whose data sets name their instruments (fit.data.NAME.instrument)")
    configured = None if config.fit is None else config.fit.data
    chosen: OneCube | Mapping[str, Cube | ObservedCube] | None = objects
    if not isinstance(configured, Mapping):
        chosen = configured if data is None or isinstance(data, Mapping) else data
    if config.fit is None or not config.fit.free:
        too = "; and data: expected an observed cube, got none" if chosen is None else ""
        raise ConfigError(
            "fit.free: expected at least one parameter with its prior, got none; e.g. "
            f"fit: {{free: {{observation.inclination: {{uniform: [10 deg, 80 deg]}}}}}}{too}"
        )
    if chosen is None:
        raise ConfigError("data: expected an observed cube, got none; give its file, or fit.data in the configuration")
    if isinstance(config.fit.data, Mapping):
        check_free_names(config.fit.free, config.fit.data)
        if isinstance(config_or_pipeline, Pipeline):
            raise ConfigError(
                "fit.data: expected one cube beside a pipeline, got several sets of data; give the configuration, of "
                "which a pipeline of each set is made"
            )
    check_free_of(config, galaxy)
    make_optimiser(config.fit.optimiser, 1, 1)
    error, galaxy_section = config.fit.model_error, config.galaxy
    others = range(0) if error is None else range(error.seed, error.seed + error.draws)
    if isinstance(galaxy_section, SyntheticReader) and galaxy_section.seed in others:
        raise ConfigError(
            f"fit.model_error.seed: expected seeds of other draws than the galaxy's, {galaxy_section.seed}, got "
            f"{others[0]} to {others[-1]}; set it to {galaxy_section.seed + 1}"
        )
    model = config_or_pipeline if isinstance(config_or_pipeline, Pipeline) else config
    request = Request(config, config.fit, model, chosen)
    if isinstance(chosen, Cube | ObservedCube):
        check_unstated("fit.data_", request.stated)
    return request


def _data_section(source: ConfigSource, data: Data | None) -> tuple[dict[str, Any], Mapping[str, Cube | ObservedCube]]:
    """The section of the configuration for data given in Python, and the cubes among several sets."""
    if data is None:
        return {}, {}
    settings = load_config(source).fit
    if not isinstance(data, Mapping):
        if settings is not None and isinstance(settings.data, Mapping):
            raise ConfigError(
                f"fit.data: the configuration has the data sets {', '.join(settings.data)}, got one cube; leave it "
                f"out, give a cube for each set by its name, or set fit.data: null to fit this cube alone"
            )
        if isinstance(data, Cube | ObservedCube):
            return {"fit.data": None}, {}
        return {"fit.data": Path(expect_path(data, "data", "an observed cube or its file"))}, {}
    sections, objects = split_sets(data)
    known = settings.data if settings is not None and isinstance(settings.data, Mapping) else {}
    files = {"cube", "image", "spectrum", "fibres"}
    found = {
        name: data_set.model_dump(exclude=files if name in sections else set()) for name, data_set in known.items()
    }
    joined = found | {name: found.get(name, {}) | dict(section) for name, section in sections.items()}
    for name, given in data.items():
        for kind, beside in (("image", "filter"), ("spectrum", "aperture")):
            held = isinstance(given, Mapping) and isinstance(given.get(kind), Cube | ObservedCube)
            if held and joined[name].get(beside) is None:
                raise ConfigError(f"fit.data.{name}.{kind}: expected {beside} beside it, got none")
    return {"fit.data": joined}, objects


def data_lines(config: RunConfig) -> Iterator[str]:
    """Lines on the content of the files of a fit's data, as they are read; a note for those that are not there yet.

    Raises ConfigError or ValueError for those that cannot be read.
    """
    if config.fit is None or config.fit.data is None:
        return
    data = config.fit.data
    for name in [name for name, section in data.items() if section.file] if isinstance(data, Mapping) else [""]:
        place = f"fit.data.{name}" if name else "fit.data"
        try:
            if isinstance(data, Mapping):
                observed = read_sets({name: data[name]}, {})[0].observed
            else:
                observed = Request(config, config.fit, config, data).read()[0].observed
        except FileNotFoundError as error:
            yield f"note        {place}: {error}"
            continue
        yield f"data        {observed.source}: {observed!r}"
        yield from (f"note        {place}: {note}" for note in observed.notes)
    yield "fit         takes grid and points from these data; the lines below describe `rubix-like run`"


def one_galaxy(galaxy: Any, model: AbstractGalaxyModel | None) -> Any:
    """The galaxy that is given, or the model in its place; ConfigError for both."""
    if galaxy is not None and model is not None:
        raise ConfigError("model: expected a galaxy or a model in its place, got both; leave one of them out")
    return galaxy if model is None else without_units(model)
