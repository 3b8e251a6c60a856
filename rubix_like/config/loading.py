"""Load a checked `RunConfig` from a file, a packaged name or a dict, with overrides."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from rubix_like.arguments import named_arguments
from rubix_like.config.messages import explain, without_unset
from rubix_like.config.plug_ins import detector_sections
from rubix_like.config.readers.components import ComponentsReader
from rubix_like.config.run_config import RunConfig
from rubix_like.config.sections.instrument import (
    ArmSettings,
    InstrumentSettings,
    is_complete,
    over_recorded,
    with_arms,
    with_preset,
)
from rubix_like.config.sections.observation import REPLACED, ObservationChanges, Observations
from rubix_like.config.sections.pipeline import load_pipeline
from rubix_like.config.settings import AbstractSettings
from rubix_like.config.yaml_files import find_file, parse_yaml, read_section
from rubix_like.errors import ConfigError, expect_path, nearest
from rubix_like.runtime.files.outputs import check_regular, with_addition
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import shortened

_SEEDS_BETWEEN_OBSERVATIONS = 1_000_003
"""A prime, so that observations share no noise with the runs of other seeds that people count up."""

_KEYS_OF_ARM = frozenset(ArmSettings.model_fields)
"""Keys of an instrument that each of its arms has separately."""

_ARMS = frozenset({"arm", "arms", "join"})
"""Keys of an instrument that say which arms there are."""

ConfigSource = str | Path | Mapping[str, Any] | RunConfig
"""A YAML file, the name of a packaged configuration, its sections, or a checked one."""


@named_arguments
@exits_as_errors()
def load_config(source: ConfigSource, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The checked configuration in `source`, with `overrides` put on top.

    `source` is the path of a YAML file, the name of a packaged configuration ("quickstart"), a dict of sections or a
    RunConfig; none of them is changed. `overrides` maps dotted keys to values, text being read as YAML:
    `{"observation.inclination": "40 deg", "noise.signal_to_noise": 50, "instrument.psf": "null"}`. An override below a
    missing or null section creates it; `galaxy.disc.mass` sets the mass of the smooth component called disc. Together
    with `instrument.arm`, overrides of `instrument.wavelength`, `lsf` and `detector` change that arm. Raises
    ConfigError that names the key, what was expected and what came.
    """
    if isinstance(source, RunConfig) and not overrides:
        return source
    sections, place = read_sections(source)
    sections = with_overrides(sections, overrides or {})
    if isinstance(source, str | Path):
        sections = _with_name(sections, Path(source).stem)
    return check_sections(sections, f"{place} (with overrides)" if overrides else place)


def observations_of(config: RunConfig) -> dict[str, RunConfig]:
    """The run of each observation by its name: of those in `observations`, or of the arms of the instrument that are
    not joined, each with separate noise and files; none for a run of one observation. Raises ConfigError that names
    the observation."""
    every = observation_overrides(config)
    paths = {name: {"output.path": with_addition(config.output.path, f"_{name}")} for name in every}
    return {name: load_config(config, {**overrides, **paths[name]}) for name, overrides in every.items()}


def check_one_observation(config: RunConfig, what: str, of_all: str = "") -> None:
    """Raise ConfigError for several observations, or arms, where `what` is of one; `of_all`: what takes several."""
    remedy = f"; for all use {of_all}" if of_all else ""
    if config.observations is not None:
        raise ConfigError(
            f"observations: expected null for {what}, which is of one observation; leave it out, and give an "
            f"instrument{remedy}"
        )
    if config.instrument.arms is not None:
        arms = ", ".join(config.instrument.arms)
        raise ConfigError(f"instrument.arm: expected one of {arms} for {what}, which is of one observation{remedy}")


def observation_overrides(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The settings that the run of each observation changes, by name and dotted key.

    The observation after n others, counting arms, has the noise seed (without noise that of systematic errors) that is
    1000003 n higher, so that its recorded run makes it alone. Raises ConfigError that names the observation.
    """
    if config.observations is None:
        return {} if config.instrument.join else _arm_overrides(config)
    found: dict[str, dict[str, Any]] = {}
    before = 0
    for name, changes in config.observations.items():
        overrides = {"observations": None, **changes.overrides()}
        with naming_observation(name):
            overrides |= _unused_sections(config, overrides)
            changed = check_sections(with_overrides(dict(config), overrides), "its settings")
        found[name] = overrides | _seed_override(changed, before, changes)
        before += max(1, len(changed.instrument.arms or ()))
    return found


@contextmanager
def naming_observation(name: str) -> Iterator[None]:
    """Name one of several observations in every ConfigError raised inside; the empty name names nothing."""
    try:
        yield
    except ConfigError as error:
        if not name:
            raise
        raise ConfigError(f"observations.{name}: {str(error).removeprefix('its settings: ')}") from error


def _unused_sections(config: RunConfig, overrides: Mapping[str, Any]) -> dict[str, None]:
    """Overrides with None for the sections of plug-in stages on the cube that this observation neither uses in its
    pipeline nor states."""
    candidates = set(config.model_extra or {}) - {key.partition(".")[0] for key in overrides}
    if not candidates:
        return {}
    listed = {stage.name for stage in load_pipeline(overrides.get("pipeline", config.pipeline)).cube}
    return {name: None for name in detector_sections() if name in candidates - listed}


def _seed_override(config: RunConfig, before: int, changes: ObservationChanges | None = None) -> dict[str, Any]:
    """The seed of the noise, or without noise of systematic errors, of an observation after others; none where it
    states one."""
    for name in ("noise", "systematics"):
        section = getattr(config, name)
        if section is not None:
            given = {} if changes is None else getattr(changes, name) or {}
            seed = (section.seed + before * _SEEDS_BETWEEN_OBSERVATIONS) % 2**32
            return {} if "seed" in given else {f"{name}.seed": seed}
    return {}


def arms_of(config: RunConfig) -> dict[str, RunConfig]:
    """The run of each arm of the instrument by the arm's name, each with independent noise; none for an instrument
    without arms."""
    return {name: load_config(config, overrides) for name, overrides in _arm_overrides(config).items()}


def _arm_overrides(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The settings that the run of each arm changes. Gaps and missing wavelengths are those of the arms that see
    them."""
    return {
        name: {"instrument.arm": name, **_seen_gaps(config, name), **_seed_override(config, number)}
        for number, name in enumerate(config.instrument.arms or ())
    }


def _seen_gaps(config: RunConfig, name: str) -> dict[str, Any]:
    """Gaps and missing regions without those that only other arms see, where there are such."""
    arms, systematics = config.instrument.arms or {}, config.systematics
    if systematics is None:
        return {}

    def is_elsewhere(span: tuple[float, float] | None) -> bool:
        seen = [other for other, arm in arms.items() if span is None or arm.wavelength.reaches(*span)]
        return bool(seen) and name not in seen

    gaps = [span for span in systematics.gaps if not is_elsewhere(span)]
    missing = [region.model_dump() for region in systematics.missing if not is_elsewhere(region.wavelength)]
    fewer = {"systematics.gaps": gaps} if len(gaps) < len(systematics.gaps) else {}
    return fewer | ({"systematics.missing": missing} if len(missing) < len(systematics.missing) else {})


def _with_name(sections: dict[str, Any], name: str) -> dict[str, Any]:
    """The sections with the name of their file, unless they state one."""
    output = {} if sections.get("output") is None else sections["output"]
    if not isinstance(output, Mapping) or output.get("configuration") is not None:
        return sections
    return {**sections, "output": {**output, "configuration": name}}


def check_sections(sections: Mapping[str, Any], place: str) -> RunConfig:
    """The checked configuration of sections from `place`; raises ConfigError."""
    check_regular(sections, "")
    sections = _with_first_instrument(without_unset(sections), place)
    try:
        config = RunConfig.model_validate(sections)
    except ValidationError as error:
        raise ConfigError(explain(error, RunConfig, place)) from error
    if config.observations is None:
        return config
    try:
        observation_overrides(config)
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error
    return config


class _SeveralSettings(AbstractSettings):
    observations: Observations


def _with_first_instrument(sections: dict[str, Any], place: str) -> dict[str, Any]:
    """The sections with the instrument of the first of several observations, where each of them has one.

    Raises ConfigError for observations that cannot be, one without an instrument, and sections that they all replace.
    """
    if sections.get("observations") is None:
        return sections
    try:
        several = _SeveralSettings.model_validate({"observations": sections["observations"]}).observations
    except ValidationError as error:
        raise ConfigError(explain(error, _SeveralSettings, place)) from error
    sections = {**sections, "observations": several}
    changes = {name: observation.overrides() for name, observation in several.items()}
    stated = {name: sections.get(name) for name in REPLACED}
    instrument = sections.get("instrument")
    if not (isinstance(instrument, InstrumentSettings) or is_complete(_values_of(instrument))):  # else recorded
        stated["instrument"] = instrument
    for key, section in stated.items():
        if section is not None and all(key in overrides for overrides in changes.values()):
            raise ConfigError(
                f"{place}: {key}: every observation ({', '.join(several)}) has its own, so that it would change "
                f"nothing; give observations.{next(iter(several))}.{key} and so on, or leave it out"
            )
    without = [name for name, overrides in changes.items() if "instrument" not in overrides]
    if without and instrument is None:
        raise ConfigError(
            f"{place}: observations.{without[0]}.instrument: expected a section with the key 'name' (beside "
            f"observations there is no instrument), got none; name it, or give an instrument for all"
        )
    if without:
        return sections
    name = next(iter(changes))
    section = changes[name]["instrument"]
    try:
        return {**sections, "instrument": InstrumentSettings.model_validate(section)}
    except ValidationError as error:
        raise ConfigError(explain(error, InstrumentSettings, f"{place}: observations.{name}.instrument")) from error
    except ConfigError as error:
        raise ConfigError(f"{place}: observations.{name}.instrument: {error}") from error


def read_sections(source: ConfigSource) -> tuple[dict[str, Any], str]:
    """The sections of `source` and the words for it in an error."""
    if isinstance(source, RunConfig):
        return dict(source), "configuration"
    if isinstance(source, Mapping):
        return dict(source), "configuration"
    expect_path(source, "configuration", "a file, the name of a packaged one, a dict or a RunConfig")
    path = source if isinstance(source, Path) and source.is_file() else find_file("configs", str(source))
    return read_section(path), str(path)


def with_overrides(sections: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the sections with `overrides` put on top, as `load_config` takes them; keys of an arm last, once the
    arm is chosen, whatever the order."""
    of_arm = [key for key in overrides if _instrument_key(key) in _KEYS_OF_ARM]
    sections = dict(sections)
    for key in (key for key in overrides if key not in of_arm):
        sections = _overridden(sections, key, overrides[key])
    if of_arm or any(_instrument_key(key) in _ARMS for key in overrides):
        sections = _with_recorded_arms(sections, of_arm)
    for key in of_arm:
        sections = _overridden(sections, key, overrides[key])
    return sections


def _instrument_key(key: str) -> str:
    """The key of the section `instrument` that a dotted key is, or is below; empty for one of another section."""
    section, _, rest = key.partition(".")
    return rest.partition(".")[0] if section == "instrument" else ""


def _with_recorded_arms(sections: dict[str, Any], of_arm: Sequence[str]) -> dict[str, Any]:
    """The sections, with a recorded instrument reduced to the chosen arm, else brought in line with its changed arms.

    Raises ConfigError for overrides `of_arm` where no arm is chosen.
    """
    values = _values_of(sections.get("instrument"))
    if not is_complete(values) or not isinstance(values.get("arms"), Mapping):
        return sections
    if of_arm and values.get("arm") is None:
        name, key = next(iter(values["arms"]), "NAME"), of_arm[0].removeprefix("instrument.")
        raise ConfigError(
            f"override '{of_arm[0]}': expected it in one of the arms, e.g. instrument.arms.{name}.{key}, or with the "
            f"arm that is observed, e.g. instrument.arm={name}; got it beside the arms {', '.join(values['arms'])}"
        )
    try:
        return {**sections, "instrument": with_arms(values, {})}
    except ValueError as error:
        raise ConfigError(f"instrument: {error}") from error


def _overridden(sections: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of `sections` in which the dotted `key` holds `value`; only the sections on the way are copied."""
    path = _key_steps(key)
    if not all((*path[:-1], *path[-1].split("."))):
        raise ConfigError(f"override '{key}': expected a dotted key such as observation.redshift")
    _check_observation(sections, path, key)
    if isinstance(value, str):
        value = parse_yaml(value, f"override '{shortened(f'{key}={value}', 120)}'")
    if _instrument_key(key):
        instrument, own_key = _values_of(sections.get("instrument")), key.removeprefix("instrument.")
        _check_arm(instrument, own_key)
        _check_recorded(instrument, own_key, value)
        if is_complete(instrument):
            value = over_recorded(instrument, own_key, value)
    return _placed(sections, path, value, key)


def _check_observation(sections: Mapping[str, Any], path: Sequence[str], key: str) -> None:
    """Refuse a key of an unknown observation, and one of `instrument` where every observation has a separate one."""
    known = sections.get("observations")
    if path[0] == "instrument" and isinstance(known, Mapping) and known:
        changes = [_values_of(observation) for observation in known.values() if observation is not None]
        if all(_values_of(observation.get("instrument")).get("name") for observation in changes):
            raise ConfigError(
                f"override '{key}': every observation ({', '.join(map(str, known))}) has its own instrument, so that "
                f"it would change nothing; give observations.{next(iter(known))}.{key}"
            )
    if path[0] == "observations" and len(path) > 2 and isinstance(known, Mapping) and path[1] not in known:
        raise ConfigError(
            f"override '{key}': expected one of the observations {', '.join(map(str, known))}, got '{path[1]}'"
            f"{nearest(path[1], [str(name) for name in known])}"
        )


def _placed(
    section: Mapping[str, Any], path: Sequence[str], value: object, key: str, above: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A copy of the section that lies below the keys `above`, with `value` at `path` below it."""
    name, *rest = path
    if not rest:
        return {**section, name: value}
    here = (*above, name)
    below = _as_section(section.get(name), ".".join(here), key)
    placed = _placed_in_component if here == ("galaxy",) and _names_component(below, rest) else _placed
    return {**section, name: placed(below, rest, value, key, here)}


def _names_component(galaxy: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether a path below the section `galaxy` begins with the name of a component, of a galaxy of such."""
    first, *rest = path
    is_named = first not in ComponentsReader.model_fields or (first == "components" and bool(rest))
    return is_named and galaxy.get("reader") == "components" and isinstance(galaxy.get("components"), list | tuple)


def _placed_in_component(
    galaxy: Mapping[str, Any], path: Sequence[str], value: object, key: str, above: tuple[str, ...]
) -> dict[str, Any]:
    """A copy of the section `galaxy` with `value` in the component that `path` names: `disc.mass`, or
    `components.disc.mass`. Raises ConfigError where there is no such component."""
    name, *rest = path[1:] if path[0] == "components" else path
    components = [_as_section(part, f"galaxy.components[{n}]", key) for n, part in enumerate(galaxy["components"])]
    names = [str(component.get("name")) for component in components]
    if name not in names:
        others = list(ComponentsReader.model_fields) if path[0] == name else []
        words = ", or a key of the section galaxy" if others else ""
        raise ConfigError(
            f"override '{key}': expected the name of a component ({', '.join(names)}){words}, got '{name}'"
            f"{nearest(name, [*names, *others])}"
        )
    number, here = names.index(name), (*above, name)
    if rest:
        components[number] = _placed(components[number], rest, value, key, here)
    else:
        components[number] = {"name": name, **_as_section(value, ".".join(here), key)}
    return {**galaxy, "components": components}


def _key_steps(key: str) -> list[str]:
    """The sections on the way to `key` and its last name; the names of free parameters have dots of their own."""
    for section in ("fit.free", "fit.start"):
        if key.startswith(f"{section}."):
            return [*section.split("."), key.removeprefix(f"{section}.")]
    return key.split(".")


def _as_section(value: object, name: str, key: str) -> dict[str, Any]:
    """A copy of the section `name` on the way to `key`: an empty one where there is none."""
    if value is None:
        return {}
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        return dict(value)
    raise ConfigError(f"override '{key}': expected '{name}' to be a section, got the value {value!r}")


def _values_of(section: object) -> Mapping[str, Any]:
    if isinstance(section, BaseModel):
        return section.model_dump()
    return section if isinstance(section, Mapping) else {}


def _check_recorded(values: Mapping[str, Any], key: str, value: object) -> None:
    """Refuse to call a fully recorded instrument, or the only arm that it has, by another name: its values would stay
    those of the old one."""
    if not is_complete(values):
        return
    if key in {"name", "based_on"} and values[key] != value:
        whole = f"name: {value}"
    elif key == "arm" and values.get("arms") is None and values.get("arm") != value:
        whole = f"name: {values['name']}, arm: {'null' if value is None else value}"
    else:
        return
    recorded = values["name"] if values.get("arm") is None else f"{values['name']}, arm {values['arm']}"
    raise ConfigError(
        f"override 'instrument.{key}={value}': the configuration records every value of '{recorded}', which would "
        f"stay; override the file that it was loaded from, or give the whole section, 'instrument={{{whole}}}'"
    )


def _check_arm(values: Mapping[str, Any], key: str) -> None:
    """Refuse a key of an arm that the instrument lacks; a whole new arm can be added."""
    first, _, rest = key.partition(".")
    name, _, below = rest.partition(".")
    if first != "arms" or not below or not values:
        return
    arms = (values if is_complete(values) else with_preset(values)).get("arms")
    if isinstance(arms, Mapping) and name not in arms:
        raise ConfigError(
            f"override 'instrument.{key}': expected one of the arms {', '.join(arms)}, got '{name}'"
            f"{nearest(name, list(arms))}"
        )
