"""Memory and time of samplers against devices and meshes, for the same samples.

    python tests/benchmarks/sampling_scaling.py [--stars 5000] [--output sampling_scaling.json]

A synthetic galaxy on 10 x 10 spaxels and 300 bins, 64-bit numbers, eight chains (some steps of NUTS) or eight samples
of geoVI, on meshes (rows, devices of a row) of up to 8 virtual CPU devices. `at once`: samples that a row computes at
the same time. Memory is that of one device, as XLA plans the compiled program: arguments, results and what it computes
with. The draws are the same on all meshes, hence so are the gradients. Meshes take turns, so that other work on the
machine meets all of them alike; times are medians, `processor` that of all threads.
"""

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
from fit_calibration import MANGA, draw_mock, laplace_at
from posterior_calibration import FREE, make, settings_of

from rubix_like import make_mesh
from rubix_like.inference.posterior.problem import everywhere, placed, with_rows
from rubix_like.inference.samplers import chains as nuts_chains
from rubix_like.inference.samplers import variational
from rubix_like.inference.samplers.chains import Whitening
from rubix_like.inference.samplers.nuts import NutsSampler
from rubix_like.runtime.mesh.mesh import DeviceLayout

N_SAMPLE = 8
N_DEVICES = 8
STEPS = 4
ALL_AT_ONCE = tuple((rows, 1, N_SAMPLE // rows) for rows in (1, 2, 4, 8))
LAYOUTS = (
    *ALL_AT_ONCE,
    *((rows, 1, 1) for rows in (1, 2, 4)),
    *((rows, N_DEVICES // rows, 1) for rows in (1, 2, 4)),
)
"""(rows, devices of a row, samples of a row at once)."""


def prepare(n_stars):
    """(problem, what chains and samples begin with as host arrays: the same for all meshes)."""
    problem = make(n_stars, FREE, MANGA, starts=1)
    truth, own = draw_mock(problem, 0, other=False)
    whitening = Whitening.of(truth, np.linalg.cholesky(laplace_at(own, truth).covariance))
    settings = settings_of("nuts", 1, chains=N_SAMPLE, warmup=100, draws=100)
    chains = next(nuts_chains.run_chains(own.posterior, problem.pipeline.mesh, NutsSampler(settings), whitening))
    expansion = variational._expanded(own.posterior, problem.pipeline.mesh, truth)
    leaves, expansion = jax.tree.map(
        np.asarray, ((own.posterior.likelihood.flux, own.posterior.likelihood.inverse_sigma), expansion)
    )
    likelihood = eqx.tree_at(lambda own: (own.flux, own.inverse_sigma), problem.posterior.likelihood, leaves)
    posterior = dataclasses.replace(problem.posterior, likelihood=likelihood)
    return dataclasses.replace(problem, posterior=posterior), (settings, whitening, chains, expansion)


def on_mesh(problem, rows, row):
    """The problem on `rows` x `row` devices."""
    pipeline = problem.pipeline
    layout = DeviceLayout.build(make_mesh(rows * row), pipeline.plan.n_wave, sharded=False)
    pipeline = dataclasses.replace(pipeline, layout=layout, tables=jax.device_get(pipeline.tables))
    return with_rows(dataclasses.replace(problem, data=(problem.data[0].on(pipeline),)), rows)


def compiled(method, problem, begun, at_once):
    """(program, its arguments) of some steps of NUTS, or of samples of geoVI."""
    settings, whitening, chains, expansion = begun
    mesh = problem.pipeline.mesh
    posterior = everywhere(jax.device_get(problem.posterior), mesh)
    if method == "geovi":
        signs = np.tile([1.0, -1.0], N_SAMPLE // 2)
        items = placed((np.repeat(chains.keys[: N_SAMPLE // 2], 2, axis=0), signs), mesh)
        given = posterior, items, everywhere(expansion, mesh), everywhere(np.asarray(5e-7), mesh)
        lowered = variational._draw.lower(given[0], mesh, *given[1:], curved=True, at_once=at_once)
        return lowered.compile(), given
    sampler = NutsSampler(settings)
    kernel = everywhere(sampler.kernel(len(whitening.centre)), mesh)
    density = everywhere(nuts_chains.LogDensity(posterior, jax.device_get(whitening)), mesh)
    structure = jax.tree.structure(jax.eval_shape(kernel.begin, density, whitening.centre))
    state = jax.tree.unflatten(structure, chains.state)
    numbers = everywhere((np.int32(0), np.int32(STEPS)), mesh)
    given = kernel, density, placed((state, chains.keys), mesh), numbers
    columns = tuple((name, own.kind) for name, own in sampler.statistics.items())
    return nuts_chains._run.lower(*given, mesh=mesh, at_once=at_once, columns=columns).compile(), given


def megabytes(program):
    """Of one device, by kind."""
    found = program.memory_analysis()
    return {kind: getattr(found, f"{kind}_size_in_bytes") / 1e6 for kind in ("argument", "output", "temp")}


def timed(program, given):
    """(seconds one waits, processor seconds, result)."""
    wall, processor = time.perf_counter(), time.process_time()
    made = jax.block_until_ready(program(*given))
    return time.perf_counter() - wall, time.process_time() - processor, made


def first_numbers(method, made):
    """(the samples, how many gradients they took: of NUTS only)."""
    if method == "geovi":
        return np.asarray(made.way), None
    return np.asarray(made[1].latent)[:, :STEPS], int(np.asarray(made[1].n_leapfrog).sum())


def measure(n_stars, repeats, output):
    """Rows of the tables; memory is written as soon as it is known."""
    problem, begun = prepare(n_stars)
    lines, programs, samples = [], [], []
    for method, (rows, row, at_once) in [("nuts", own) for own in LAYOUTS] + [("geovi", own) for own in ALL_AT_ONCE]:
        programs.append(compiled(method, on_mesh(problem, rows, row), begun, at_once))
        who = {"method": method, "rows": rows, "row": row, "at_once": at_once}
        lines.append(who | megabytes(programs[-1][0]) | {"wall": [], "processor": []})
        output.write_text(json.dumps(lines))
        print(lines[-1], flush=True)
    for turn in range(1 + repeats):
        for line, own in zip(lines, programs, strict=True):
            wall, processor, made = timed(*own)
            found, line["gradients"] = first_numbers(line["method"], made)
            first = next(index for index, own in enumerate(lines) if own["method"] == line["method"])
            samples.append(found)
            line["differs"] = float(np.abs(found - samples[first]).max())
            if turn:
                line["wall"].append(wall)
                line["processor"].append(processor)
        output.write_text(json.dumps(lines))
    return lines


def table(lines):
    """In Markdown."""
    columns = (
        *("", "rows x devices of a row", "at once", "MB of a device: computed with", "arguments, results"),
        *("wall s", "processor s", "samples differ by"),
    )
    body = [
        f"| {own['method']} | {own['rows']} x {own['row']} | {own['at_once']} | {own['temp']:.1f} "
        f"| {own['argument'] + own['output']:.1f} | {statistics.median(own['wall']):.2f} "
        f"| {statistics.median(own['processor']):.2f} | {own['differs']:.0e} |"
        for own in lines
    ]
    gradients = {own["gradients"] for own in lines if own["method"] == "nuts"}
    return "\n".join(
        [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *body, "", f"gradients of NUTS: {gradients}"]
    )


def main():
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stars", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("sampling_scaling.json"))
    given = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", N_DEVICES)

    jax.config.update("jax_enable_x64", True)
    lines = measure(given.stars, given.repeats, given.output)
    print(f"\n{table(lines)}")


if __name__ == "__main__":
    main()
