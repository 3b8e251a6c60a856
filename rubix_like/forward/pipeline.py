"""A pipeline: everything planned once from a configuration, then a function from a galaxy to a cube."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Float, PRNGKeyArray
from numpy import ndarray

from rubix_like.arguments import named_arguments
from rubix_like.config import RunConfig, load_config
from rubix_like.config.loading import naming_observation, observations_of
from rubix_like.config.plug_ins import detector_sections
from rubix_like.config.sections.dust import DUST_COLUMN
from rubix_like.config.sections.observation import SHARED_KEYS
from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube, parts_of
from rubix_like.cube.fibres.fibre_spectra import FibreSpectra
from rubix_like.cube.maps import Maps
from rubix_like.engine.basis import BasisPainter, may_paint_together
from rubix_like.engine.painter import check_counters
from rubix_like.errors import ConfigError, expect, nearest
from rubix_like.forward.census import Census, take_census
from rubix_like.forward.cube_header import Header, make_frame
from rubix_like.forward.fields.dust_column import check_dust
from rubix_like.forward.model import Group, Observed, PassInputs, lay_out, table_specs
from rubix_like.forward.not_finite import Model, count_not_finite, explain_not_finite, first_maker
from rubix_like.forward.parameters import Parameters, displaced
from rubix_like.forward.planned_ranges import check_lengths_within_plan, check_within_plan
from rubix_like.forward.planning import mesh_of, plan_layout, plan_run
from rubix_like.forward.products.product import make_maps
from rubix_like.forward.programs import Signature, compiled_observe, compiled_together, observe_slabs
from rubix_like.forward.resolved import Resolved, naming_arm, resolve, settle_deposit
from rubix_like.forward.run_notes import call_notes
from rubix_like.forward.sources.stars import STAR_SOURCE, star_counters
from rubix_like.forward.stages.base import Voxels
from rubix_like.forward.tables import Plan, Tables
from rubix_like.galaxy.particles import Galaxy, GalaxyInfo
from rubix_like.galaxy.placing import shard
from rubix_like.galaxy.validation import integer_notes, validate
from rubix_like.instrument.pointing import Pointing
from rubix_like.runtime.mesh.mesh import DeviceLayout, as_dtype, own_copy, put, replicated
from rubix_like.runtime.notes import note_lines
from rubix_like.runtime.registry import exits_as_errors
from rubix_like.runtime.words import counted, html_table

Chosen = Parameters | Mapping[str, Any] | None
"""All parameters, or some of them by dotted name, each in its unit or a quantity; None: the configuration's."""


ModelChoice = tuple[Parameters, PRNGKeyArray | None]
"""Parameters and noise key of a call."""


ONLY = "cube"
"""The name of the only observation of a run."""


class Pipeline(eqx.Module):
    """A function from galaxies to mock cubes, built by `Pipeline.from_config`; call it with a Galaxy.

    `plan` holds the sizes, `tables` the arrays, `parameters` what can be varied or fitted (leaves under the YAML's
    dotted names). A pipeline is itself a pytree, so it can be passed to a jitted function as an argument.

    A configuration with several `observations`, or arms that are not joined, gives the pipeline of the first one,
    `name`, which holds the `others`; `observe` makes the cubes of all. `groups`: the names of the observations that
    each program paints; `together`: whether one pass over the particles of each source paints all of a group.
    """

    tables: Tables
    parameters: Parameters
    noise_key: PRNGKeyArray | None
    plan: Plan = eqx.field(static=True)
    layout: DeviceLayout = eqx.field(static=True)
    frame: Header = eqx.field(static=True)
    others: tuple["Pipeline", ...] = ()
    name: str = eqx.field(static=True, default=ONLY)
    groups: tuple[tuple[str, ...], ...] = eqx.field(static=True, default=())
    together: tuple[bool, ...] = eqx.field(static=True, default=())

    def __reduce__(self) -> tuple[Any, ...]:
        trees = (jax.tree.map(np.asarray, tree) for tree in (self.tables, self.parameters))
        static = (self.plan, self.layout, self.frame, self.others, self.name, self.groups, self.together)
        return _unpickled, (*trees, self.noise_key, *static)

    def __hash__(self) -> int:
        """A number that equal pipelines share, so that `jax.jit` takes a pipeline as the function that it is."""
        return hash((self.plan, self.layout))

    def __repr__(self) -> str:
        plan, frame = self.plan, self.frame
        if self.others:
            return f"Pipeline of {', '.join(self.observations)}; observe(galaxy) gives a cube for each"
        return (
            f"Pipeline('{frame.meta['pipeline']}' for {frame.meta['instrument'] or 'an instrument'}: {frame.n_x} x "
            f"{frame.n_y} spaxels, {plan.n_wave} bins, method {plan.method}, {counted(self.mesh.size, 'device')})"
        )

    def _repr_html_(self) -> str:
        if self.others:
            rows = [(name, repr(pipeline)) for name, pipeline in self.observations.items()]
            return html_table("Pipeline", rows, notes=note_lines(self.notes))
        meta, frame, plan = self.frame.meta, self.frame, self.plan
        edges = frame.wave_edges
        rows = [
            ("pipeline", f"{meta['pipeline']}: {', '.join(plan.sources)}"),
            ("instrument", str(meta["instrument"])),
            ("spaxels", f"{frame.n_x} x {frame.n_y} of {frame.pixel_scale:g} arcsec"),
            ("wavelengths", f"{plan.n_wave} bins, {edges[0]:.2f}-{edges[-1]:.2f} Å ({frame.medium})"),
            ("SSP library", str(meta.get("ssp_library", "none"))),
            ("engine", f"method {plan.method} ({meta['method_reason']}), {plan.dtype}"),
            ("deposit", f"{plan.deposit} ({meta['deposit_reason']})"),
            ("devices", f"{self.mesh.size} x {self.mesh.devices.flat[0].device_kind}"),
            ("call it", "pipeline(galaxy), pipeline(galaxy, parameters)"),
        ]
        return html_table("Pipeline", rows, notes=note_lines(self.notes))

    @classmethod
    @named_arguments
    @exits_as_errors()
    def from_config(
        cls,
        config: RunConfig | str | Path | dict[str, Any],
        galaxy: Galaxy | None = None,
        mesh: Mesh | None = None,
        info: GalaxyInfo | None = None,
        census: Census | None = None,
        resolved: Resolved | None = None,
    ) -> "Pipeline":
        """Plan a run. The concrete `galaxy` fixes alignment and velocity range; `info` goes into the cube's header.

        `census` stands for a galaxy that is never held as a whole. Without either any `observation.align` but
        `none` is refused. `mesh` has the axis "data", and "wave" where bins are painted apart; by default it is as
        `devices` says; `resolved`: what `resolve(config)` gave, where the caller has it. Raises ConfigError for
        settings that cannot be used, a cube beyond the memory among them, and ValueError for particles that cannot.

        Of several observations each is planned for the galaxy, so that neither `census` nor `resolved` is taken; arms
        that are to be joined are refused, as `run` joins them.
        """
        config = load_config(config)
        _check_numbers(config.engine.precision)
        several = separate_observations(config)
        if several:
            for argument, given in (("census", census), ("resolved", resolved)):
                if given is not None:
                    raise ConfigError(
                        f"{argument}: expected that of one observation, got one beside {', '.join(several)}; leave it "
                        f"out, and give the galaxy"
                    )
            pipelines: dict[str, Pipeline] = {}
            for name, (observation, run) in several.items():
                with naming_observation(observation):
                    pipelines[name] = cls.from_config(run, galaxy, mesh, info)
            return _of_several(pipelines)
        mesh = mesh_of(config.devices) if mesh is None else mesh
        of_user = resolved is None  # a fit plans with more points than its galaxy has
        resolved = resolve(config) if resolved is None else resolved.checked_for(config)
        if galaxy is not None:
            galaxy = validate(galaxy, None if info is None else info.universe_age)
            census = census or take_census(config, resolved, [galaxy])
            if of_user and info is not None and info.n_stars not in (0, census.n_stars):
                raise ConfigError(
                    f"info: expected that of the galaxy, with {counted(census.n_stars, 'star')}, got one with n_stars "
                    f"{info.n_stars}; the header would describe another galaxy"
                )
        crowding, lengths = (None, None) if census is None else (census.crowding, census.all_lengths)
        config, resolved = settle_deposit(config, resolved, crowding, 0 if lengths is None else lengths.n_lacking)
        with naming_arm(config.instrument):
            planned = plan_run(config, resolved, census)
        if galaxy is not None:
            planned = dataclasses.replace(planned, notes=(*integer_notes(galaxy), *planned.notes))
        layout = plan_layout(config.devices, mesh, planned.plan.n_wave, planned.projected)
        dtype = planned.plan.dtype
        tables = as_dtype(lay_out(planned.tables, layout), dtype)
        noise, noise_key = config.noise, None
        if noise is not None or config.systematics is not None:
            noise_key = jax.random.key(0 if noise is None else noise.seed)
        return cls(
            tables=put(tables, layout.shardings(table_specs(tables, layout))),
            parameters=Parameters.build(config, dtype),
            noise_key=noise_key,
            plan=planned.plan,
            layout=layout,
            frame=make_frame(planned, info),
        )

    @property
    def mesh(self) -> Mesh:
        """The devices, along "data" and, where bins are painted apart, "wave"."""
        return self.layout.mesh

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user on what was planned, e.g. that the SSP library is coarser than the instrument."""
        return tuple(dict.fromkeys(note for pipeline in (self, *self.others) for note in pipeline.frame.notes))

    @property
    def pointings(self) -> tuple[Pointing, ...]:
        """The fields of `observation.pointings`; none where it is null."""
        return self.frame.pointings

    @property
    def observations(self) -> dict[str, "Pipeline"]:
        """The pipeline of each observation by name, also of the only one."""
        return {pipeline.name: dataclasses.replace(pipeline, others=(), groups=()) for pipeline in (self, *self.others)}

    @property
    def velocity_limit(self) -> Float[Array | ndarray, ""]:
        """Largest |v_los| in km/s that every source can paint."""
        return functools.reduce(jnp.minimum, [source.painter.velocity_limit for source in self.tables.paint])

    @named_arguments
    @exits_as_errors()
    def __call__(self, galaxy: Galaxy, parameters: Chosen = None, *, key: PRNGKeyArray | None = None) -> Cube:
        """The cube of `galaxy`, with other `parameters` or another noise `key` than the configuration's where given.

        `parameters`: the whole tree, or numbers by dotted name, each in its setting's unit; the others stay.

        Differentiable in galaxy and parameters. On concrete input, particles that are not finite or faster than the
        planned velocity range raise ValueError; inside jit or grad they are only counted (`Cube.counters`).
        """
        chosen = self.chosen(parameters, key)
        return _cubes_of([dataclasses.replace(self, parameters=chosen[0], noise_key=chosen[1])], galaxy)[0]

    @named_arguments
    @exits_as_errors()
    def observe(self, galaxy: Galaxy, parameters: Chosen = None, *, key: PRNGKeyArray | None = None) -> dict[str, Cube]:
        """The cube of every observation and pointing of `galaxy`, by name: `muse`, of several pointings `muse_1`; of
        one observation without a name `cube`, or the pointings' names.

        `parameters`, `key`: as in a call; numbers by dotted name hold for all observations that have them, and after
        `observations.NAME.` for one alone, as those of an instrument, noise or systematic errors must be given where
        there are several. Each cube has independent noise. Differentiable.

        Observations that see the particles alike are painted in one pass; the others, and pointings, follow each other,
        and nothing is compiled for a pointing.
        """
        found: dict[str, dict[str, Cube]] = {name: {} for name in self.observations}
        placed = shard(as_dtype(galaxy, self.plan.dtype), self.mesh)
        for group in self._prepared_groups(parameters, key):
            for views in views_of(group):
                for view, cube in zip(views, _cubes_of(views, placed), strict=True):
                    found[view.name][_label(view)] = cube
        return {label: cube for cubes in found.values() for label, cube in cubes.items()}

    def _prepared_groups(self, parameters: Chosen, key: PRNGKeyArray | None) -> list[list["Pipeline"]]:
        """The pipelines of each group with the parameters and noise keys of a call."""
        every = self.observations
        is_only = self.name == ONLY or isinstance(parameters, Parameters)
        if is_only and not self.others:
            chosen: Mapping[str, Chosen] = {self.name: parameters}
        else:
            known = {name: pipeline.parameters.named() for name, pipeline in every.items()}
            chosen = parameters_by_name(known, parameters)
        ready: dict[str, Pipeline] = {}
        for number, (name, pipeline) in enumerate(every.items()):
            next_key = key if key is None or number == 0 else jax.random.fold_in(key, number * _KEYS_BETWEEN)
            with naming_observation("" if name == ONLY else name):
                numbers, noise_key = pipeline.chosen(chosen[name], next_key)
            ready[name] = dataclasses.replace(pipeline, parameters=numbers, noise_key=noise_key)
        found: dict[Any, list[Pipeline]] = {}
        for number, group in enumerate(self.groups or ((self.name,),)):
            for name in group:  # apart where a call gives them other numbers that particles are seen by
                numbers = chosen[name]
                given = numbers.items() if isinstance(numbers, Mapping) else ()
                seen_by = frozenset((key, id(value)) for key, value in given if not _is_of_detector(key))
                found.setdefault((number, seen_by), []).append(ready[name])
        return list(found.values())

    @named_arguments
    def at(self, pointing: Pointing) -> "Pipeline":
        """This pipeline with the parameters, the noise key and the header of one of its `pointings`, and with none of
        them left; nothing is recompiled. Raises ConfigError for another pointing."""
        self.check_alone()
        if pointing not in self.pointings:
            names = ", ".join(known.name for known in self.pointings) or "it has none"
            raise ConfigError(f"pointing: expected one of pipeline.pointings ({names}), got another, '{pointing.name}'")
        return dataclasses.replace(
            self,
            parameters=displaced(self.parameters, pointing),
            noise_key=None if self.noise_key is None else jax.random.fold_in(self.noise_key, pointing.number),
            frame=dataclasses.replace(self.frame, meta=pointing.described(self.frame.meta), pointings=()),
        )

    @named_arguments
    def turned(self, config: RunConfig) -> "Pipeline":
        """This pipeline for a configuration that differs from the present in `planned_alike` settings alone: with its
        parameters, and its header; nothing is planned or compiled anew."""
        self.check_alone()
        engine = config.engine.model_copy(update={"deposit": self.plan.deposit})
        config = config.model_copy(update={"engine": engine})
        observation = config.observation
        angles = {name: getattr(observation, name) for name in ("inclination", "position_angle")}
        return dataclasses.replace(
            self,
            parameters=Parameters.build(config, self.plan.dtype),
            frame=dataclasses.replace(self.frame, meta=self.frame.meta.replace(**angles, config=config.to_yaml())),
        )

    @named_arguments
    def observe_pointings(
        self, galaxy: Galaxy, parameters: Chosen = None, *, key: PRNGKeyArray | None = None
    ) -> tuple[Cube, ...]:
        """One cube per pointing, each with independent noise; `parameters` and `key` are those of the observation."""
        self.check_alone()
        if not self.pointings:
            raise ConfigError("observation.pointings: expected a list of pointings, got null; call the pipeline itself")
        return tuple(self.observe(galaxy, parameters, key=key).values())

    @named_arguments
    @exits_as_errors()
    def observe_slabs(
        self, slabs: Iterable[Galaxy], parameters: Chosen = None, *, key: PRNGKeyArray | None = None
    ) -> Cube:
        """The cube of a galaxy in parts, each made by `slabs` while the one before is painted: only two are in memory.

        The parts have the same columns; those of about one length, or shorter than one before, share a compilation, and
        may be empty. Build the pipeline from a `census`, or without a galaxy. One with fields goes through the slabs
        twice, so it refuses a generator by ValueError. Not differentiable. Raises as a call.
        """
        chosen, chosen_key = self.chosen(parameters, key)
        inputs = PassInputs.of(self.tables, chosen, chosen_key)
        (observed,) = observe_slabs(Group.of(self.plan, self.layout), inputs, slabs)
        cube = self.to_cube(observed)
        self.check_finite(observed, lambda: slabs, (chosen, chosen_key))
        self._warn(cube)
        return cube

    @named_arguments
    def lower(self, galaxy: Galaxy, parameters: Chosen = None) -> Any:
        """The lowered computation for a galaxy of this size (`.compile()`, `.compile().as_text()`)."""
        arguments = self.arguments(galaxy, parameters)
        return self.compiled(*arguments).lower(*arguments)

    @named_arguments
    def trace(self, galaxy: Galaxy, parameters: Chosen = None) -> Any:
        """The traced computation for a galaxy of this size (`.jaxpr`)."""
        arguments = self.arguments(galaxy, parameters)
        return self.compiled(*arguments).trace(*arguments)

    def arguments(
        self, galaxy: Galaxy, parameters: Chosen = None, *, key: PRNGKeyArray | None = None
    ) -> tuple[Tables, Parameters, Galaxy, PRNGKeyArray | None]:
        """Arguments of the compiled function: tables, parameters, the galaxy placed on the mesh, the noise key."""
        chosen, chosen_key = self.chosen(parameters, key)
        galaxy = as_dtype(galaxy, self.plan.dtype)
        check_lengths_within_plan(self.tables, galaxy)
        return self.tables, chosen, shard(galaxy, self.mesh), chosen_key

    def chosen(
        self, parameters: Chosen = None, key: PRNGKeyArray | None = None
    ) -> tuple[Parameters, PRNGKeyArray | None]:
        """Parameters and noise key, the configuration's where not given, on the mesh.

        Raises ConfigError for parameters that are not of this run, beyond their limits or beyond the plan, and for a
        pipeline of several observations.
        """
        self.check_alone()
        values = self.parameters
        if isinstance(parameters, Mapping):
            values = values.changed(parameters)
        else:
            wanted = "numbers by dotted name, or rl.Parameters"
            every = values if parameters is None else expect(parameters, Parameters, "parameters", wanted)
            values = values.replaced(every)
        chosen = as_dtype(values, self.plan.dtype)
        check_within_plan(self.tables, chosen)
        return put((chosen, self.noise_key if key is None else key), replicated(self.mesh))

    def compiled(self, tables: Tables, parameters: Parameters, placed: Galaxy, key: Any) -> Any:  # noqa: ARG002
        """The compiled function for such `arguments`; shared with every pipeline of the same plan and layout."""
        return compiled_observe(self.plan, self.layout, Signature.of((tables,), placed))

    def to_cube(self, observed: Observed, galaxy: Galaxy | None = None, chosen: ModelChoice | None = None) -> Cube:
        """The public cube from what the compiled function returns, after a look at the counters; where `galaxy` is
        given, an error names the speed that its particles need, and the stage that made them what cannot be; `chosen`
        as in `check_finite`."""
        observed = own_copy(observed)
        frame, voxels = self.frame, self._without_padding(observed.voxels)
        return Cube(
            flux=voxels.flux,
            variance=voxels.variance,
            truth=voxels.truth,
            mask=frame.mask() if voxels.bits is None else voxels.bits | frame.mask(),
            contributions=voxels.contributions or {},
            **self._described(observed, galaxy, chosen),
        )

    def to_parts(self, observed: Observed) -> ShardedCube:
        """The cube, its voxels left in parts on the devices of this process."""
        observed = own_copy(observed)
        frame, voxels = self.frame, observed.voxels
        return ShardedCube(
            parts=parts_of(*voxels),
            mask_bits=(frame.spaxel_bits[:, :, None], frame.wave_bits[None, None, :]),
            has_variance=voxels.variance is not None,
            has_truth=voxels.truth is not None,
            voxel_flags=frame.voxel_bits,
            contributions=tuple(voxels.contributions or {}),
            **self._described(observed),
        )

    def result(self, observed: Observed) -> Cube | ShardedCube:
        """The cube, or its parts where no device holds all of it."""
        return self.to_cube(observed) if self.layout.gathered else self.to_parts(observed)

    def check_finite(
        self,
        observed: Observed,
        galaxies: Callable[[], Iterable[Galaxy]],
        chosen: ModelChoice | None = None,
    ) -> None:
        """Raise ValueError, which says what made them, for NaN, inf or a variance below 0 in voxels without a mask bit,
        and for a variance that is 0 in all voxels of a cube with light. It does nothing while tracing.

        `galaxies`: the particles that were observed, as a whole or in slabs; `chosen`: the parameters and the key, the
        configuration's where not given.
        """
        voxels = observed.voxels
        if isinstance(voxels.flux, Tracer):
            return
        arrays = (voxels.flux, voxels.variance, voxels.truth)
        n_bad = int(count_not_finite(self.frame, arrays, voxels.bits, observed.counters))
        if n_bad:
            why = explain_not_finite(self._model(chosen), galaxies, self.frame.meta.get("ssp_library"))
            raise ValueError(
                f"cube: expected finite numbers, got NaN or inf in {n_bad} voxels or particles (or variances below 0): "
                f"{why}"
            )

    def check_alone(self) -> None:
        """Raise ConfigError for a pipeline of several observations."""
        if self.others:
            names = ", ".join(self.observations)
            raise ConfigError(
                f"pipeline: expected one of a single observation, got one of {names}; use pipeline.observe(galaxy), "
                f"which gives a cube for each, or pipeline.observations['{self.name}']"
            )

    def _warn(self, cube: Cube) -> None:
        """Log what is unlikely of the particles of a call, unless the notes on those of the plan say it."""
        for note in call_notes(cube.counters):
            if note not in self.notes:
                logging.getLogger("rubix_like").warning(note)

    def _model(self, chosen: ModelChoice | None) -> Model:
        return Model(self.plan, self.layout, self.tables, *(chosen or self.chosen()))

    def _described(
        self, observed: Observed, galaxy: Galaxy | None = None, chosen: ModelChoice | None = None
    ) -> dict[str, Any]:
        """All of a cube but its voxels and mask; raises ValueError for counters that cannot be."""
        for name, source in zip(self.plan.sources, self.tables.paint, strict=True):
            what = name if name == source.kind else f"particles of source '{name}'"
            fastest = None if galaxy is None else functools.partial(_fastest, galaxy, (chosen or self.chosen())[0])
            maker = None if galaxy is None else lambda: first_maker(self._model(chosen), galaxy)
            check_counters(observed.counters[name], what, own_copy(source.painter.velocity_limit), fastest, maker)
        if DUST_COLUMN in observed.counters:
            check_dust(own_copy(observed.counters[DUST_COLUMN]))
        frame = self.frame
        return {
            "bins": frame.bins,
            "lsf_fwhm": frame.lsf_fwhm,
            "mean_v_los": _mean_v_los(observed.moments),
            "counters": star_counters(observed.counters),
            "source_counters": {name: counts for name, counts in observed.counters.items() if name != STAR_SOURCE},
            "footprint": frame.footprint,
            "meta": frame.meta,
            "maps": self._maps(observed),
            "fibres": self._fibres(observed),
        }

    def _without_padding(self, voxels: Voxels) -> Voxels:
        """The bins without padding: of parts that are not even, on the host, for no device may hold them all."""
        n_wave, split = self.plan.n_wave, self.layout.split
        if self.layout.gathered or split.n_padded == n_wave:
            return voxels

        def cut(array: Any) -> Any:
            return array[:, :, :n_wave] if isinstance(array, Tracer) else np.asarray(array)[:, :, :n_wave]

        return jax.tree.map(cut, voxels)

    def _fibres(self, observed: Observed) -> FibreSpectra | None:
        frame, spectra = self.frame.fibres, observed.fibres
        if spectra is None or frame is None:
            return None
        return FibreSpectra(
            flux=spectra.flux,
            variance=spectra.variance,
            truth=spectra.truth,
            places=frame.places,
            weights=frame.weights,
            mask=self.frame.wave_bits,
            layout=frame.layout,
            bits=spectra.bits,
            contributions=spectra.contributions or {},
        )

    def _maps(self, observed: Observed) -> Maps | None:
        frame = self.frame
        if observed.products is None or frame.products is None:
            return None
        return make_maps(
            observed.products,
            self.tables.products,
            frame.products,
            frame.spaxel_bits,
            star_counters(observed.counters),
            footprint=frame.footprint,
            meta=frame.meta,
        )


def planned_alike(first: RunConfig, second: RunConfig) -> bool:
    """Whether two configurations differ, if at all, in how far and where to the galaxy is turned, and in its offset:
    parameters that nothing is planned by, as long as there are angles in both or in neither."""

    def without_pose(config: RunConfig) -> RunConfig:
        observation = config.observation
        angles = {name: getattr(observation, name) for name in ("inclination", "position_angle")}
        same = {name: None if angle is None else 0.0 for name, angle in angles.items()} | {"offset": (0.0, 0.0)}
        return config.model_copy(update={"observation": observation.model_copy(update=same)})

    return without_pose(first) == without_pose(second)


def _unpickled(
    tables: Tables,
    parameters: Parameters,
    noise_key: PRNGKeyArray | None,
    plan: Plan,
    layout: DeviceLayout,
    *others: Any,
) -> Pipeline:
    """A pipeline on the devices of this process; raises ConfigError where JAX has no 64-bit numbers for it."""
    _check_numbers(plan.dtype)
    placed = put(tables, layout.shardings(table_specs(tables, layout)))
    leaves = jax.tree.map(jnp.asarray, parameters)
    return Pipeline(placed, leaves, noise_key, plan, layout, *others)


def separate_observations(config: RunConfig) -> dict[str, tuple[str, RunConfig]]:
    """(name in `observations`, configuration) of each of several observations by its name, arms apart; none for a
    run of one.

    Raises ConfigError for arms that are to be joined.
    """
    several: dict[str, tuple[str, RunConfig]] = {}
    for name, observation in observations_of(config).items():
        known = "" if config.observations is None else name
        with naming_observation(known):
            inner = separate_observations(observation)
        several |= {f"{name}_{arm}": (known, run) for arm, (_, run) in inner.items()} or {name: (known, observation)}
    if config.instrument.join and config.observations is None:
        arms = ", ".join(config.instrument.arms or ())
        raise ConfigError(
            f"instrument.arm: expected one of {arms} for a pipeline, which does not join arms, got null; set "
            f"instrument.join: false, or use rubix_like.run, which joins them"
        )
    return several


def _of_several(pipelines: Mapping[str, Pipeline]) -> Pipeline:
    groups = alike_groups([named_pipeline(pipeline, name) for name, pipeline in pipelines.items()])
    found = {pipeline.name: pipeline for group in groups for pipeline in group}
    first, *others = (found[name] for name in pipelines)
    names = tuple(tuple(pipeline.name for pipeline in group) for group in groups)
    return dataclasses.replace(first, others=tuple(others), groups=names)


def alike_groups(pipelines: Sequence[Pipeline]) -> list[list[Pipeline]]:
    """The pipelines in groups, each of which one program paints in one pass; they know which sources (`together`)."""
    groups: list[list[Pipeline]] = []
    for pipeline in pipelines:
        for group in groups:
            first = group[0]
            same_field = first.mesh == pipeline.mesh and first.pointings == pipeline.pointings
            alike = same_field and eqx.tree_equal(_seen_in_common(first), _seen_in_common(pipeline))
            if alike and any(_sources_together((first, pipeline))):
                group.append(pipeline)
                break
        else:
            groups.append([pipeline])
    return [
        [dataclasses.replace(pipeline, together=_sources_together(group)) for pipeline in group] for group in groups
    ]


def _sources_together(pipelines: Sequence[Pipeline]) -> tuple[bool, ...]:
    """Whether one pass over a source's particles paints it for all pipelines, by source."""
    sources = zip(*(pipeline.tables.paint for pipeline in pipelines), strict=True)
    return tuple(may_paint_together([source.painter for source in each]) for each in sources)


def _seen_in_common(pipeline: Pipeline) -> Any:
    """The parts of a pipeline that decide how particles are seen before a painter sees them."""
    tables = pipeline.tables
    sources = tuple(eqx.tree_at(lambda source: source.painter, source, None) for source in tables.paint)
    common = dataclasses.replace(tables, paint=sources, cube=(), cube_names=(), products=())
    plan = dataclasses.replace(pipeline.plan, method="", n_wave=0, n_fibre=0, cube=())
    parameters = {name: value for name, value in pipeline.parameters.named().items() if not _is_of_detector(name)}
    return common, parameters, plan, [product.kind for product in tables.products]


def plan_together(
    configs: Mapping[str, RunConfig],
    resolved: Mapping[str, Resolved],
    census: Mapping[str, Census],
    info: GalaxyInfo | None = None,
    mesh: Mesh | None = None,
) -> dict[str, Pipeline]:
    """The pipelines of arms that are joined, or of one observation, by name, planned for the particles of their
    censuses. The velocity nodes of each source are as close in all of them as in the one that needs the closest, so
    that they can be painted together."""

    def plan(name: str, objects: Resolved) -> Pipeline:
        pipeline = Pipeline.from_config(configs[name], mesh=mesh, info=info, census=census[name], resolved=objects)
        return named_pipeline(pipeline, name)

    pipelines = {name: plan(name, objects) for name, objects in resolved.items()}
    steps = [
        {
            source: float(painted.painter.nodes.step)
            for source, painted in zip(pipeline.plan.sources, pipeline.tables.paint, strict=True)
            if isinstance(painted.painter, BasisPainter)
        }
        for pipeline in pipelines.values()
    ]
    finest = {
        source: min(step[source] for step in steps) for source in steps[0] if all(source in step for step in steps)
    }
    for name, step in zip(pipelines, steps, strict=True):
        if any(step[source] > nodes for source, nodes in finest.items()):
            pipelines[name] = plan(name, dataclasses.replace(resolved[name], velocity_steps=finest))
    return pipelines


_OF_DETECTOR = ("instrument", "noise", "systematics")
"""Sections whose parameters act after the particles are painted, beside those of plug-ins' stages on the cube."""

_OBSERVATIONS = "observations."
"""How the names of numbers begin that are given for one of several observations."""

_KEYS_BETWEEN = 1_000_003
"""What is folded into the noise key of a call for each observation after the first."""


def _is_of_detector(name: str) -> bool:
    section = name.partition(".")[0]
    return section in _OF_DETECTOR or section in detector_sections()


def parameters_by_name(known: Mapping[str, Collection[str]], parameters: Chosen) -> dict[str, dict[str, Any]]:
    """The numbers of each of several observations, which have parameters of the `known` names; ConfigError for names
    that none of them has, and for numbers of a detector that do not say whose."""
    found: dict[str, dict[str, Any]] = {name: {} for name in known}
    if parameters is None:
        return found
    if not isinstance(parameters, Mapping):
        raise ConfigError(
            f"parameters: expected numbers by dotted name beside several observations ({', '.join(known)}), got "
            f"{type(parameters).__name__}"
        )
    of_observation = [name for name in parameters if str(name).startswith(_OBSERVATIONS)]
    for name in (name for name in parameters if name not in of_observation):
        having = [observation for observation, names in known.items() if name in names]
        first, _, rest = str(name).partition(".")
        if first in _OF_DETECTOR and having and len(known) > 1:
            raise ConfigError(
                f"parameters: expected the observation whose number '{name}' is, got none; write "
                f"'{_OBSERVATIONS}{having[0]}.{name}'"
            )
        if not having and first in known:
            raise ConfigError(f"parameters: expected '{_OBSERVATIONS}{first}.{rest or 'KEY'}', got '{name}'")
        for observation in having or list(known)[:1]:  # which refuses it
            found[observation][name] = parameters[name]
    for name in of_observation:
        observation, _, key = str(name).removeprefix(_OBSERVATIONS).partition(".")
        arms = [other for other in known if other.startswith(f"{observation}_")]
        chosen = [observation] if observation in known else arms
        section, _, last = key.partition(".")
        if not chosen or not key:
            raise ConfigError(
                f"parameters: expected a number of one of the observations, '{_OBSERVATIONS}NAME.KEY' with one of "
                f"{', '.join(known)}, got '{name}'{nearest(observation, list(known))}"
            )
        if not _is_of_detector(key) and (section != "observation" or last in SHARED_KEYS[section][0]):
            raise ConfigError(f"parameters: expected '{key}' for all observations, which see one galaxy, got '{name}'")
        for other in chosen:
            found[other][key] = parameters[name]
    return found


def named_pipeline(pipeline: Pipeline, name: str) -> Pipeline:
    """The pipeline with this `name`, which the header of its cubes has, too."""
    frame = dataclasses.replace(pipeline.frame, meta=pipeline.frame.meta.replace(observation=name))
    return dataclasses.replace(pipeline, name=name, frame=frame)


def views_of(pipelines: Sequence[Pipeline]) -> Iterator[list[Pipeline]]:
    """The pipelines of a group as they are at each of its pointings, one after the other."""
    for number in range(max(1, len(pipelines[0].pointings))):
        yield view_of(pipelines, number)


def view_of(pipelines: Sequence[Pipeline], pointing: int) -> list[Pipeline]:
    """The pipelines of a group as they are at one pointing (from 0); 0 is the only field of those without pointings."""
    if not pipelines[0].pointings:
        return list(pipelines)
    return [pipeline.at(pipeline.pointings[pointing]) for pipeline in pipelines]


def _label(view: Pipeline) -> str:
    pointing = view.frame.meta.get("pointing_name")
    if pointing is None:
        return view.name
    return str(pointing) if view.name == ONLY else f"{view.name}_{pointing}"


class PipelineGroup(NamedTuple):
    """Pipelines of one galaxy whose cubes one program makes; one of `alike_groups`."""

    pipelines: Sequence[Pipeline]

    @property
    def group(self) -> Group:
        """Their plans and layouts, and which sources are painted in one pass."""
        first, *others = self.pipelines
        if not others:
            return Group.of(first.plan, first.layout)
        plans, layouts = zip(*((pipeline.plan, pipeline.layout) for pipeline in self.pipelines), strict=True)
        return Group(plans, layouts, first.together)

    def inputs(self) -> PassInputs:
        """The inputs of the first pass over the particles."""
        chosen, keys = zip(*(pipeline.chosen() for pipeline in self.pipelines), strict=True)
        return PassInputs(tuple(pipeline.tables for pipeline in self.pipelines), chosen, keys, {})

    def lower(self, galaxy: Galaxy) -> Any:
        """The lowered computation for a galaxy of this size; of one observation, that of its pipeline."""
        arguments = self.arguments(galaxy)
        return self.compiled(*arguments).lower(*arguments)

    def observed(self, galaxy: Galaxy, compiled: Any = None) -> tuple[Observed, ...]:
        """The results of each observation, by what `lower` gave, compiled (None: by what this process has compiled)."""
        arguments = self.arguments(galaxy)
        found = (compiled or self.compiled(*arguments))(*arguments)
        return found if len(self.pipelines) > 1 else (found,)

    def arguments(self, galaxy: Galaxy) -> tuple[Any, Any, Galaxy, Any]:
        """Tables, parameters, the galaxy placed on the mesh, noise keys; of a group of one those of its pipeline."""
        first = self.pipelines[0]
        if len(self.pipelines) == 1:
            return first.arguments(galaxy)
        inputs, galaxy = self.inputs(), as_dtype(galaxy, first.plan.dtype)
        for tables in inputs.tables:
            check_lengths_within_plan(tables, galaxy)
        return inputs.tables, inputs.parameters, shard(galaxy, first.mesh), inputs.keys

    def compiled(self, tables: Any, parameters: Any, placed: Galaxy, keys: Any) -> Any:
        """The jitted function of such `arguments`; that of a group of one is shared with calls of its pipeline."""
        if len(self.pipelines) == 1:
            return self.pipelines[0].compiled(tables, parameters, placed, keys)
        return compiled_together(self.group, Signature.of(tables, placed))


def _cubes_of(views: Sequence[Pipeline], galaxy: Galaxy) -> list[Cube]:
    """The cubes of observations that one program makes; raises as a call of a pipeline."""
    cubes = []
    for view, observed in zip(views, PipelineGroup(views).observed(galaxy), strict=True):
        chosen = view.parameters, view.noise_key
        cube = view.to_cube(observed, galaxy, chosen)
        view.check_finite(observed, lambda: (galaxy,), chosen)
        view._warn(cube)
        cubes.append(cube)
    return cubes


@jax.jit
def _mean_v_los(moments: Float[Array, "y x 2"]) -> Float[Array, "y x"]:
    """The mean velocity of the light (km/s), NaN in spaxels without any."""
    light, light_velocity = moments[:, :, 0], moments[:, :, 1]
    empty = light <= 0
    mean = light_velocity / jnp.where(empty, jnp.ones_like(light), light)
    return jnp.where(empty, jnp.full_like(light, jnp.nan), mean)


def _check_numbers(dtype: str) -> None:
    if dtype == "float64" and not jax.config.read("jax_enable_x64"):
        raise ConfigError(
            "engine.precision: expected 64-bit numbers to be switched on in JAX for float64, got 32-bit; call "
            "jax.config.update('jax_enable_x64', True) before anything else"
        )


def _fastest(galaxy: Galaxy, parameters: Parameters) -> float:
    """Largest |v_los| (km/s) that a particle can have, whatever its direction."""
    kinds = [particles for particles in (galaxy.stars, galaxy.gas) if particles is not None]
    highest = max(np.linalg.norm(np.asarray(kind.velocity, np.float64), axis=1).max(initial=0) for kind in kinds)
    random = galaxy.stars.random_velocity
    spread = 0.0 if random is None else float(np.abs(np.asarray(random)).max(initial=0))
    return float(highest) + spread + abs(float(parameters.observation.velocity_offset))
