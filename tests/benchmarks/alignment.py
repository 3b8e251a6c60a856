"""Real galaxies turned by `observation.align`: their axes, and the position angles of their mocks at inclination 60.

    python tests/benchmarks/alignment.py [FOLDER]

Prints the table of docs/geometry.md for the files of FOLDER (../shared/data/galaxies). All is measured by numpy from
particles and maps; the package reads the files and makes the mocks. `test_alignment_mocks.py` holds it.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import rubix_like as rl

INCLINATION, POSITION_ANGLE = 60.0, 30.0
ROTATING: float = 0.6
"""kappa_rot above which a galaxy is a disc (Sales et al. 2010, MNRAS 409, 1541, section 3.2)."""

_SIDE, _SPAXEL, _R50 = 31, 0.5, 2.5
"""Spaxels along the field's side, arcsec of a spaxel's side, arcsec of r50: the field is 6.2 r50 wide."""
_PAINTED = 20_000
"""Of more stars every k-th is painted; all are aligned by."""

_FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "galaxies"


@dataclass(frozen=True)
class Measured:
    """Of a galaxy, angles in deg: `before` and `after` are those between the angular momentum of the stars within r50
    and the short axis of sum m r r^T of all stars, and Z of `align: stars`; `errors`: by alignment, photometric and
    kinematic position angle of the mock less what was asked for; `meta`: of the mock with `align: stars`; `moved`: by
    how many km/s the bulk velocity is not the plain mean of the stars within r50, of which `clipped` do not count."""

    name: str
    n_stars: int
    kappa_rot: float
    before: float
    after: float
    meta: Mapping[str, Any]
    errors: Mapping[str, tuple[float, float]]
    moved: float
    clipped: int

    @property
    def row(self) -> str:
        """Of the table."""
        meta = self.meta
        angles = [f"{error:+.0f}" for by in ("stars", "angular_momentum") for error in self.errors[by]]
        cells = (
            *(self.name, str(self.n_stars), f"{self.kappa_rot:.2f}", f"{self.before:.0f}", f"{self.after:.0f}"),
            *(f"{meta['align_angle']:.0f}", f"{meta['axis_ratio_b_a']:.2f}", f"{meta['axis_ratio_c_a']:.2f}", *angles),
            *(str(self.clipped), f"{self.moved:.1f}"),
        )
        return f"| {' | '.join(cells)} |"


HEADER = (
    "| file | stars | kappa_rot | old axis to L | Z to L | ALIGNANG | b/a | c/a | photometric | kinematic | "
    "photometric (L) | kinematic (L) | clipped | moved |\n|" + "---|" * 14
)


def files_of(folder: Path) -> list[Path]:
    """All galaxies of a folder but those without velocities."""
    return [path for path in sorted(folder.iterdir()) if "camels" not in path.name]


def measure(path: Path, ways: tuple[str, ...] = ("angular_momentum", "stars")) -> Measured:
    """Load a galaxy, look at its stars, and make its mocks, aligned in these ways, of which the last is `stars`."""
    config = _config(path, "none", 10.0)
    galaxy, info = rl.load_galaxy(config), rl.load_galaxy_info(config)
    position, velocity, mass = arrays_of(galaxy)
    r50 = half_mass_radius(position, mass)
    inner, twice = (np.linalg.norm(position, axis=1) <= factor * r50 for factor in (1, 2))
    spin = _spin(position, velocity, mass, inner)
    old = np.linalg.eigh(position.T @ (mass[:, None] * position))[1][:, 0]
    mocks = {by: mock(path, galaxy, by) for by in ways}
    _, pole, meta = mocks["stars"]
    return Measured(
        name=path.name,
        n_stars=len(mass),
        kappa_rot=kappa_rot(position, velocity, mass, twice),
        before=_axis_angle(old, spin),
        after=_axis_angle(pole, spin),
        meta=meta,
        errors={by: errors for by, (errors, _, _) in mocks.items()},
        moved=float(np.linalg.norm(np.average(velocity[inner], axis=0, weights=mass[inner]))),
        clipped=sum(int(note.split()[0]) for note in info.notes if "left out of the bulk velocity" in note),
    )


def arrays_of(galaxy: rl.Galaxy) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Position, velocity and mass of the stars."""
    stars = galaxy.stars
    position, velocity, mass = (np.asarray(x, dtype=float) for x in (stars.position, stars.velocity, stars.mass))
    return position, velocity, mass


def half_mass_radius(position: np.ndarray, mass: np.ndarray) -> float:
    """About the origin."""
    radius = np.linalg.norm(position, axis=1)
    order = np.argsort(radius)
    return float(radius[order][np.searchsorted(np.cumsum(mass[order]), mass.sum() / 2)])


def mock(path: Path, galaxy: rl.Galaxy, by: str) -> tuple[tuple[float, float], np.ndarray, Mapping[str, Any]]:
    """Errors of the photometric and the kinematic position angle of a mock of the galaxy, Z on the axes of its arrays,
    and the header."""
    position, _, mass = arrays_of(galaxy)
    pipeline = rl.Pipeline.from_config(_config(path, by, 206.265 * half_mass_radius(position, mass) / _R50), galaxy)
    step = -(-len(mass) // _PAINTED)
    cube = pipeline(rl.Galaxy(stars=jax.tree.map(lambda leaf: leaf[::step], galaxy.stars)))
    light, motion = np.nan_to_num(cube.image().value), np.asarray(cube.mean_v_los, dtype=float)
    errors = (
        _apart(photometric_angle(light), POSITION_ANGLE, 180.0),
        _apart(kinematic_angle(light, motion), POSITION_ANGLE, 360.0),
    )
    return errors, np.asarray(pipeline.tables.alignment)[2], cube.meta


def _config(path: Path, by: str, distance: float) -> rl.RunConfig:
    return rl.load_config(
        {
            "galaxy": {"path": str(path), "ages": {"youngest": 2.0}},
            "observation": {
                **{"redshift": 0, "distance": distance, "align": by},
                **{"inclination": INCLINATION, "position_angle": POSITION_ANGLE},
            },
            "instrument": {
                **{"name": "muse", "pixel_scale": _SPAXEL, "fov": _SIDE * _SPAXEL, "psf": None, "lsf": None},
                "wavelength": {"start": 7000.0, "stop": 7005.0, "step": 1.25},
            },
            "engine": {"method": "direct", "deposit": "tsc"},
        }
    )


def _spin(position, velocity, mass, which):
    total = mass[which] @ np.cross(position[which], velocity[which])
    return total / np.linalg.norm(total)


def kappa_rot(position, velocity, mass, which):
    """Share of the kinetic energy that is in rotation about the angular momentum, of `which` stars."""
    pole = _spin(position, velocity, mass, which)
    position, velocity, mass = position[which], velocity[which], mass[which]
    height = position @ pole
    radius = np.sqrt(np.maximum(np.sum(position**2, axis=1) - height**2, 1e-20))
    around = np.cross(position, velocity) @ pole / radius
    return float(mass @ around**2 / (mass @ np.sum(velocity**2, axis=1)))


def _offsets():
    """(East, North) in arcsec of every spaxel."""
    rows, columns = np.mgrid[:_SIDE, :_SIDE] - (_SIDE - 1) / 2
    return -columns * _SPAXEL, rows * _SPAXEL


def photometric_angle(light):
    """Of the long axis of the light, by second moments within 2 r50 of the centre, made elliptical by iteration."""
    east, north = _offsets()
    stretched, tensor = east**2 + north**2, np.eye(2)
    for _ in range(20):
        weight = np.where(stretched <= (2 * _R50) ** 2, light, 0.0)
        tensor = np.array([[(weight * a * b).sum() for a in (east, north)] for b in (east, north)]) / weight.sum()
        inverse = np.linalg.inv(tensor) * np.sqrt(np.linalg.det(tensor))
        stretched = inverse[0, 0] * east**2 + 2 * inverse[0, 1] * east * north + inverse[1, 1] * north**2
    axis = np.linalg.eigh(tensor)[1][:, 1]
    return float(np.rad2deg(np.arctan2(axis[0], axis[1])))


def kinematic_angle(light, velocity):
    """Of the receding side, by the map that is even across the major axis and odd across the minor one and fits best
    (Krajnovic et al. 2006, MNRAS 366, 787, appendix C), spaxels weighted by their light, within 2 r50."""
    east, north = _offsets()
    lit = (light > 0) & (east**2 + north**2 <= (2 * _R50) ** 2)
    moving = np.where(lit, velocity, 0.0)
    moving = np.where(lit, moving - (light[lit] @ moving[lit]) / light[lit].sum(), 0.0)
    weight = np.where(lit, light, 0.0)
    misfits = []
    for angle in range(180):
        sine, cosine = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
        along, across = east * sine + north * cosine, east * cosine - north * sine
        symmetric, count = np.zeros_like(light), np.zeros_like(light)
        for odd, even in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
            a, b = odd * along, even * across
            there = a * sine + b * cosine, a * cosine - b * sine
            share = _between(weight, *there)
            symmetric += odd * _between(weight * moving, *there)
            count += share
        model = symmetric / np.maximum(count, 1e-30)
        misfits.append((weight * (moving - model) ** 2).sum())
    best = float(np.argmin(misfits))
    dipole = (weight * moving * (east * np.sin(np.deg2rad(best)) + north * np.cos(np.deg2rad(best)))).sum()
    return best if dipole > 0 else best + 180.0


def _between(image, east, north):
    """Bilinear between spaxels; 0 outside."""
    column, row = (_SIDE - 1) / 2 - east / _SPAXEL, (_SIDE - 1) / 2 + north / _SPAXEL
    left, low = np.floor(column).astype(int), np.floor(row).astype(int)
    total = np.zeros_like(image)
    for x, y in ((left, low), (left + 1, low), (left, low + 1), (left + 1, low + 1)):
        share = (1 - np.abs(column - x)) * (1 - np.abs(row - y))
        inside = (x >= 0) & (x < _SIDE) & (y >= 0) & (y < _SIDE)
        total += np.where(inside, share * image[np.clip(y, 0, _SIDE - 1), np.clip(x, 0, _SIDE - 1)], 0.0)
    return total


def _apart(found, expected, period):
    return (found - expected + period / 2) % period - period / 2


def _axis_angle(axis, direction):
    return float(np.rad2deg(np.arctan2(np.linalg.norm(np.cross(axis, direction)), abs(axis @ direction))))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=_FOLDER)
    print(HEADER)
    for own in files_of(parser.parse_args().folder):
        print(measure(own).row, flush=True)
