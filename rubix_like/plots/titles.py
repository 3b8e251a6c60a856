"""What a cube is called on pictures and pages."""

from rubix_like.cube import Cube
from rubix_like.cube_parts import CubeParts


def cube_title(cube: Cube | CubeParts) -> str:
    """Object, instrument, redshift and inclination, as far as known."""
    meta = cube.meta
    words = [str(meta[key]) for key in ("object", "instrument") if meta.get(key)]
    if meta.get("redshift") is not None:
        words.append(f"z = {meta['redshift']:g}")
    if meta.get("inclination") is not None:
        words.append(f"inclination {meta['inclination']:g}°")
    return "   ·   ".join(words) or "mock cube"
