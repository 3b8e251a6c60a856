"""What writes a layout's cubes as FITS files: as they are, or with compressed images."""

from collections.abc import Callable
from pathlib import Path

from rubix_like.config.file_layouts import UNPACKED, Packing
from rubix_like.cube.cube_parts import ShardedCube
from rubix_like.cube.files.fits_compressed import write_compressed
from rubix_like.cube.files.fits_images import Member, plan_file, write_fits
from rubix_like.runtime.processes.process_group import AbstractProcessGroup


def fits_writer(
    members: Callable[[ShardedCube], list[Member]],
) -> Callable[[ShardedCube, Path, AbstractProcessGroup, Packing], None]:
    """What writes a cube as a FITS file of these members."""

    def write(cube: ShardedCube, path: Path, team: AbstractProcessGroup, packing: Packing = UNPACKED) -> None:
        if packing.is_none:
            write_fits(plan_file(members(cube)), cube, path, team)
        else:
            team.exchange(lambda: write_compressed(members(cube), cube, path, packing))

    return write
