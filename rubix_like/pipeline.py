"""A pipeline: everything planned once from a configuration, then a function from a galaxy to a cube."""

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy import ndarray

from rubix_like.census import Census, census_of
from rubix_like.config import RunConfig, load_config
from rubix_like.counters import check_counters
from rubix_like.cube import OUTSIDE_SSP, Cube, Meta
from rubix_like.detector import Medium, Sampling
from rubix_like.errors import ConfigError
from rubix_like.galaxy import Galaxy, GalaxyInfo
from rubix_like.layout import Layout
from rubix_like.model import Observed, Voxels, compiled_observe, lay_out, table_specs
from rubix_like.parameters import Parameters
from rubix_like.planning import Planned, plan_run
from rubix_like.pointing import Pointing, pointings_of
from rubix_like.products.maps import Maps, ProductAxes, make_maps
from rubix_like.products.planning import product_axes
from rubix_like.provenance import describe_run
from rubix_like.sharding import WAVE_AXIS, check_mesh, make_mesh, particle_shardings, replicated, shard
from rubix_like.ssp import load_ssp
from rubix_like.tables import Plan, Tables, as_dtype
from rubix_like.validation import validate


@dataclass(frozen=True, eq=False)
class Frame:
    """What every cube of a pipeline shares and no device needs (host arrays, float64).

    The mask of a voxel is `spaxel_bits | wave_bits`: kept apart, so that planning needs no memory of a cube's size.
    """

    wavelength: ndarray
    wave_edges: ndarray
    lsf_fwhm: ndarray
    spaxel_bits: Int[ndarray, "y x"]
    wave_bits: Int[ndarray, " wave"]
    medium: Medium
    sampling: Sampling
    pixel_scale: float
    meta: Meta
    notes: tuple[str, ...]
    pointings: tuple[Pointing, ...]
    products: ProductAxes | None


class Pipeline(eqx.Module):
    """From galaxies to mock cubes; call it with a Galaxy.

    `plan` holds the sizes, `tables` the arrays, `parameters` what can be varied or fitted (leaves under the YAML's
    dotted names). A pipeline is itself a pytree, so it can be passed to a jitted function as an argument.
    """

    tables: Tables
    parameters: Parameters
    noise_key: PRNGKeyArray | None
    plan: Plan = eqx.field(static=True)
    layout: Layout = eqx.field(static=True)
    frame: Frame = eqx.field(static=True)

    @classmethod
    def from_config(
        cls,
        config: RunConfig | str | Path | dict[str, Any],
        galaxy: Galaxy | None = None,
        mesh: Mesh | None = None,
        info: GalaxyInfo | None = None,
        census: Census | None = None,
    ) -> "Pipeline":
        """Plan a run. The concrete `galaxy` fixes alignment and velocity range; `info` goes into the cube's header.

        `census` stands for a galaxy that is never held as a whole. Without either `observation.align: stars` is
        refused. `mesh` needs one axis, "data"; by default it spans `devices.data`. Raises ConfigError for settings and
        ValueError for particles that cannot be used.
        """
        config = load_config(config)
        _check_precision(config)
        library = load_ssp(config)
        if galaxy is not None:
            galaxy = validate(galaxy, None if info is None else info.universe_age)
            census = census or census_of(config, library, galaxy)
        planned = plan_run(config, library, census)
        layout = _layout(config, planned, mesh)
        dtype = planned.plan.dtype
        key = None if config.noise is None else jax.random.key(config.noise.seed)
        tables = as_dtype(lay_out(planned.tables, layout), dtype)
        return cls(
            tables=jax.device_put(tables, layout.shardings(table_specs(tables, layout))),
            parameters=Parameters.build(config, dtype),
            noise_key=key,
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
        return self.frame.notes

    @property
    def pointings(self) -> tuple[Pointing, ...]:
        """The fields of `observation.pointings`; none where it is null."""
        return self.frame.pointings

    @property
    def velocity_limit(self) -> Float[Array | ndarray, ""]:
        """Largest |v_los| in km/s that every component can paint."""
        return functools.reduce(jnp.minimum, [component.painter.velocity_limit for component in self.tables.paint])

    def __call__(
        self, galaxy: Galaxy, parameters: Parameters | None = None, *, key: PRNGKeyArray | None = None
    ) -> Cube:
        """The cube of `galaxy`, with other `parameters` or another noise `key` than the configuration's where given.

        Differentiable in galaxy and parameters. On concrete input, particles that are not finite or faster than the
        planned velocity range raise ValueError; inside jit or grad they are only counted (`Cube.counters`).
        """
        arguments = self.arguments(galaxy, parameters, key=key)
        return self.to_cube(self.compiled(*arguments)(*arguments))

    def at(self, pointing: Pointing) -> "Pipeline":
        """This pipeline with the parameters, the noise key and the header of another field; compiles nothing anew."""
        return dataclasses.replace(
            self,
            parameters=pointing.displaced(self.parameters),
            noise_key=None if self.noise_key is None else jax.random.fold_in(self.noise_key, pointing.number),
            frame=dataclasses.replace(self.frame, meta=pointing.described(self.frame.meta)),
        )

    def observe_pointings(
        self, galaxy: Galaxy, parameters: Parameters | None = None, *, key: PRNGKeyArray | None = None
    ) -> tuple[Cube, ...]:
        """One cube per pointing, each with noise of its own; `parameters` and `key` are those of the observation."""
        if not self.pointings:
            raise ConfigError("observation.pointings: expected a list of pointings, got null; call the pipeline itself")
        own = self.parameters if parameters is None else parameters
        base = dataclasses.replace(self, parameters=own, noise_key=self.noise_key if key is None else key)
        placed = shard(as_dtype(galaxy, self.plan.dtype), self.mesh)
        return tuple(base.at(pointing)(placed) for pointing in self.pointings)

    def lower(self, galaxy: Galaxy, parameters: Parameters | None = None) -> Any:
        """The lowered computation for a galaxy of this size (`.compile()`, `.compile().as_text()`)."""
        arguments = self.arguments(galaxy, parameters)
        return self.compiled(*arguments).lower(*arguments)

    def trace(self, galaxy: Galaxy, parameters: Parameters | None = None) -> Any:
        """The traced computation for a galaxy of this size (`.jaxpr`)."""
        arguments = self.arguments(galaxy, parameters)
        return self.compiled(*arguments).trace(*arguments)

    def arguments(
        self, galaxy: Galaxy, parameters: Parameters | None = None, *, key: PRNGKeyArray | None = None
    ) -> tuple[Tables, Parameters, Galaxy, PRNGKeyArray | None]:
        """What the compiled function takes: tables, parameters, the galaxy placed on the mesh, the noise key."""
        placed = shard(as_dtype(galaxy, self.plan.dtype), self.mesh)
        chosen = as_dtype(self.parameters if parameters is None else parameters, self.plan.dtype)
        chosen_key = self.noise_key if key is None else key
        chosen, chosen_key = jax.device_put((chosen, chosen_key), replicated(self.mesh))
        return self.tables, chosen, placed, chosen_key

    def compiled(self, tables: Tables, parameters: Parameters, placed: Galaxy, key: Any) -> Any:  # noqa: ARG002
        """The compiled function for such `arguments`; shared with every pipeline of the same plan and layout."""
        specs = self.layout.shardings(table_specs(tables, self.layout)), particle_shardings(placed, self.mesh)
        shardings, structure = jax.tree.flatten(specs)
        return compiled_observe(self.plan, self.layout, tuple(shardings), structure)

    def to_cube(self, observed: Observed) -> Cube:
        """The public cube from what the compiled function returns, after a look at the counters."""
        check_counters(observed.counters, self.velocity_limit)
        frame = self.frame
        voxels = self._without_padding(observed.voxels)
        light, light_velocity = observed.moments[:, :, 0], observed.moments[:, :, 1]
        empty = light <= 0
        nothing = jnp.full_like(light, jnp.nan)
        return Cube(
            flux=voxels.flux,
            variance=voxels.variance,
            truth=voxels.truth,
            mask=frame.spaxel_bits[:, :, None] | frame.wave_bits[None, None, :],
            wavelength=frame.wavelength,
            wave_edges=frame.wave_edges,
            lsf_fwhm=frame.lsf_fwhm,
            mean_v_los=jnp.where(empty, nothing, light_velocity / jnp.where(empty, jnp.ones_like(light), light)),
            counters=observed.counters,
            medium=frame.medium,
            sampling=frame.sampling,
            pixel_scale=frame.pixel_scale,
            meta=frame.meta,
            maps=self._maps(observed),
        )

    def _without_padding(self, voxels: Voxels) -> Voxels:
        """The detector's own bins: of parts that are not even, on the host, for no device may hold them all."""
        n_wave, split = self.plan.n_wave, self.layout.split
        if self.layout.gathered or split.n_padded == n_wave:
            return voxels

        def cut(own: Any) -> Any:
            return own[:, :, :n_wave] if isinstance(own, Tracer) else np.asarray(own)[:, :, :n_wave]

        return jax.tree.map(cut, voxels)

    def _maps(self, observed: Observed) -> Maps | None:
        frame = self.frame
        if observed.products is None or frame.products is None:
            return None
        return make_maps(
            observed.products,
            frame.products,
            frame.spaxel_bits,
            observed.counters,
            pixel_scale=frame.pixel_scale,
            meta=frame.meta,
        )


def _layout(config: RunConfig, planned: Planned, mesh: Mesh | None) -> Layout:
    """The run's devices and what each of them holds."""
    devices = config.devices
    if mesh is None:
        mesh = make_mesh(None if devices.data == "all" else devices.data, devices.wave)
    sharded = devices.output == "sharded" or (devices.output is None and WAVE_AXIS in check_mesh(mesh).axis_names)
    return Layout.build(mesh, planned.plan.n_wave, sharded=sharded)


def _check_precision(config: RunConfig) -> None:
    if config.engine.precision == "float64" and not jax.config.read("jax_enable_x64"):
        raise ConfigError(
            "engine.precision: expected 64-bit numbers to be switched on in JAX for float64, got 32-bit; call "
            "jax.config.update('jax_enable_x64', True) before anything else"
        )


def make_frame(planned: Planned, info: GalaxyInfo | None) -> Frame:
    """The cube's axes, mask and header for a planned run."""
    setup = planned.setup
    bins = setup.instrument.bins
    stages = [stage.report() for stage in planned.tables.cube]
    painters = [component.painter.report() for component in planned.tables.paint]
    widths = [stage.lsf_fwhm for stage in stages if stage.lsf_fwhm is not None]
    if len(widths) > 1:
        raise ConfigError(
            f"pipeline.cube: expected one 'degrade_lsf' (each starts from the instrument's line spread), got "
            f"{len(widths)}; keep the widest"
        )
    notes = (*planned.notes, *(note for stage in stages for note in stage.notes))
    return Frame(
        wavelength=bins.wavelength,
        wave_edges=bins.edges,
        lsf_fwhm=widths[-1] if widths else setup.spread.widths(bins.wavelength)[1],
        spaxel_bits=_combined([stage.spaxel_bits for stage in stages], setup.instrument.inside.shape),
        wave_bits=_combined(
            [np.where(setup.covered, 0, OUTSIDE_SSP), *(stage.wave_bits for stage in stages)], (bins.n_wave,)
        ),
        medium=bins.medium,
        sampling=bins.sampling,
        pixel_scale=float(setup.instrument.pixel_scale),
        meta=describe_run(setup, planned.plan, info, [*painters, *(stage.meta for stage in stages)], notes),
        notes=notes,
        pointings=pointings_of(setup.config.observation),
        products=product_axes(setup, planned.tables.products),
    )


def _combined(bits: list[ndarray | None], shape: tuple[int, ...]) -> Int[ndarray, "..."]:
    """All mask bits of one kind together."""
    return functools.reduce(
        np.bitwise_or, [own.astype(np.int32) for own in bits if own is not None], np.zeros(shape, dtype=np.int32)
    )
