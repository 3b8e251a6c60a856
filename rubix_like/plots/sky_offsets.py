"""Where the spaxels of a cube are on the sky: offsets from the field's centre, directions, kiloparsecs."""

from dataclasses import dataclass

import numpy as np

from rubix_like.cube.cube import Cube
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.footprint import AbstractGridded, Footprint
from rubix_like.cube.maps import Maps


@dataclass(frozen=True)
class SkyOffsets(AbstractGridded):
    """The plane of the sky of a cube, in arcsec from the field's centre; spaxels (x, y) count from 0.

    `matrix` ((2, 2), arcsec) turns steps along x and y into offsets East and North: the cube's CD matrix. `center` is
    the spaxel position (x, y) of the field's centre. `kpc_per_arcsec` is None where the cube knows no distance.
    """

    footprint: Footprint
    matrix: tuple[tuple[float, float], tuple[float, float]]
    center: tuple[float, float]
    kpc_per_arcsec: float | None

    @property
    def north_is_up(self) -> bool:
        """Whether rows run along North and columns along East (and not at an angle)."""
        return bool(abs(self.matrix[0][1]) + abs(self.matrix[1][0]) < 1e-6 * self.pixel_scale)

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top edge of the picture: arcsec against x (so that East is left) and along y."""
        (x, y), side = self.center, self.pixel_scale
        return (x + 0.5) * side, (x + 0.5 - self.n_x) * side, -(y + 0.5) * side, (self.n_y - y - 0.5) * side

    def offset(self, x: float | int, y: float | int) -> tuple[float, float]:
        """Arcsec East and North of the field's centre of the spaxel position (x, y), counted from 0."""
        step = np.array([x - self.center[0], y - self.center[1]])
        east, north = np.array(self.matrix) @ step + 0.0
        return float(east), float(north)

    def directions(self) -> dict[str, tuple[float, float]]:
        """Unit steps on the picture (right, up) towards North and East."""
        inverse = np.linalg.inv(np.array(self.matrix))
        steps = {"N": inverse @ np.array([0.0, 1.0]), "E": inverse @ np.array([1.0, 0.0])}
        return {name: (float(s[0] / np.hypot(*s)), float(s[1] / np.hypot(*s))) for name, s in steps.items()}


def sky_of(cube: Cube | ShardedCube | Maps) -> SkyOffsets:
    """The sky of a cube or of maps, from their world coordinates and, for kpc, their distance."""
    cards = {keyword: value for keyword, value, _ in cube.wcs_cards}
    rows = tuple((3600.0 * float(cards[f"CD{row}_1"]), 3600.0 * float(cards[f"CD{row}_2"])) for row in (1, 2))
    return SkyOffsets(
        footprint=cube.footprint,
        matrix=(rows[0], rows[1]),
        center=(cards["CRPIX1"] - 1.0, cards["CRPIX2"] - 1.0),
        kpc_per_arcsec=_kpc_per_arcsec(cube),
    )


def _kpc_per_arcsec(cube: Cube | ShardedCube | Maps) -> float | None:
    """D_A = D_L / (1 + z)^2 as kpc per arcsec; None where the cube does not know its distance."""
    distance, redshift = cube.meta.get("luminosity_distance"), cube.meta.get("redshift")
    if not isinstance(distance, int | float) or not isinstance(redshift, int | float):
        return None
    return float(np.radians(1 / 3600) * 1000 * distance / (1 + redshift) ** 2)


def scale_bar(sky: SkyOffsets) -> tuple[float, str]:
    """Length (arcsec) and label of a bar of a round number of kpc (or arcsec), at most a quarter of the field wide."""
    per_arcsec, unit = (sky.kpc_per_arcsec, " kpc") if sky.kpc_per_arcsec else (1.0, "″")
    target = 0.25 * sky.n_x * sky.pixel_scale * per_arcsec
    decade = 10.0 ** np.floor(np.log10(target))
    length = float(decade * max(step for step in (1, 2, 5) if step * decade <= target))
    return length / per_arcsec, f"{length:g}{unit}"


def cube_title(cube: Cube | ShardedCube | Maps) -> str:
    """Object, instrument, redshift and inclination, as far as known."""
    meta = cube.meta
    words = [str(meta[key]) for key in ("object", "instrument") if meta.get(key)]
    if meta.get("redshift") is not None:
        words.append(f"z = {meta['redshift']:g}")
    if meta.get("inclination") is not None:
        words.append(f"inclination {meta['inclination']:g}°")
    return "   ·   ".join(words) or "mock cube"
