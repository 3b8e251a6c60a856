"""hats-import, LSDB's own tool, makes a HATS catalogue of the spaxels of our tables."""

import numpy as np
import pyarrow.parquet
import pytest
from small import full_cube


@pytest.mark.filterwarnings("ignore")  # of Dask, which it works with
def test_spaxels_become_a_catalogue_of_the_sky(client, tmp_path):
    """Every spaxel once, in the pixel of its place by healpy's order, with its whole spectrum."""
    client("hats_import")
    arguments = client("hats_import.catalog.arguments")
    cube = full_cube()
    path = cube.write(tmp_path / "cube.parquet")
    client("hats_import.pipeline").pipeline(
        arguments.ImportArguments(
            ra_column="ra",
            dec_column="dec",
            input_file_list=[str(path)],
            file_reader="parquet",
            output_artifact_name="mock",
            output_path=str(tmp_path),
            dask_n_workers=1,
            progress_bar=False,
        )
    )
    catalogue = client("hats").read_hats(tmp_path / "mock")
    assert catalogue.catalog_info.total_rows == 15
    (part,) = (tmp_path / "mock").rglob("Npix*.parquet")
    table = pyarrow.parquet.read_table(part)
    order = np.argsort(np.asarray(table["y"]) * 5 + np.asarray(table["x"]))
    flux = np.stack(table["flux"].to_pylist())[order]
    np.testing.assert_array_equal(flux.reshape(3, 5, 4), cube.flux)
