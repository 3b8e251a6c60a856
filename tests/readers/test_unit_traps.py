"""Units of every simulation: each factor of CGS, a and h against a table written by hand; dropping one shows."""

import h5py
import numpy as np
import pytest
from small_snapshots import SMALL, YEARS_OF_KPC_PER_KMS, A, H, N, state_units, write_small
from snapshot_reading import opened_by

from rubix_like.extend import load_field_map, resource_names

FAMILIES = {"stars": "PartType4", "gas": "PartType0"}


def stored(path, group):
    with h5py.File(path) as file:
        found = {}
        file[group].visititems(lambda name, item: found.update({name: item[()]} if hasattr(item, "shape") else {}))
    return found


def is_snapshot(field_map):
    """Whether the stars are in groups as in the snapshots of GADGET and the codes after it."""
    return "PartType4" in field_map.stars.groups


def test_every_packaged_simulation_has_a_file_by_hand():
    """And none of its quantities is left out of the table."""
    maps = {name: load_field_map(name) for name in resource_names("simulations")}
    hdf5 = {name: found for name, found in maps.items() if "hdf5" in found.container and is_snapshot(found)}
    assert set(hdf5) == set(SMALL)
    without_expansion = {"birth_time"}
    for name, field_map in hdf5.items():
        assert field_map.title
        assert field_map.source
        for family in FAMILIES:
            known = set(getattr(SMALL[name], family)) | set(getattr(SMALL[name], f"pure_{family}"))
            assert set(getattr(field_map, family).fields) - without_expansion == known, (name, family)


@pytest.mark.parametrize("name", SMALL)
def test_every_factor(tmp_path, name):
    path = write_small(tmp_path / "a.hdf5", name)
    field_map = load_field_map(name)
    for family, group in FAMILIES.items():
        raw = stored(path, group)
        with opened_by(field_map, path) as snapshot:
            table = snapshot.read(family, 0, N)
        for quantity, (dataset, factor, a, h) in getattr(SMALL[name], family).items():
            expected = raw[dataset] * (factor * A**a * H**h)
            np.testing.assert_allclose(table[quantity], expected, rtol=1e-9, err_msg=f"{family} {quantity}")
        for quantity, of in getattr(SMALL[name], f"pure_{family}").items():
            expected = of(raw) if callable(of) else raw[of]
            np.testing.assert_allclose(table[quantity], expected, rtol=1e-12, err_msg=f"{family} {quantity}")


def forget_units(file):
    """Take away what the datasets state of themselves."""
    for group in FAMILIES.values():
        for dataset in file[group].values():
            for key in list(dataset.attrs):
                del dataset.attrs[key]


@pytest.mark.parametrize("name", SMALL)
def test_a_dropped_power_of_the_field_map_shows(tmp_path, name):
    """Where the file states nothing, the powers are the field map's: without one the factor is off by just it."""
    path = write_small(tmp_path / "a.hdf5", name, forget_units)
    with opened_by(load_field_map(name), path) as snapshot:
        for family, group in FAMILIES.items():
            places = snapshot.places(family, group)
            for quantity, (dataset, factor, a, h) in getattr(SMALL[name], family).items():
                field = places[quantity][0]
                full = snapshot.conversion(quantity, field, group, dataset).factor(snapshot.epoch)
                assert full == pytest.approx(factor * A**a * H**h, rel=1e-9), (family, quantity)
                for power, base, dropped in (("a", A, a), ("h", H, h)):
                    without = field.model_copy(update={power: 0.0})
                    partial = snapshot.conversion(quantity, without, group, dataset).factor(snapshot.epoch)
                    assert full / partial == pytest.approx(base**dropped, rel=1e-12), (family, quantity, power)


@pytest.mark.parametrize("name", [name for name, small in SMALL.items() if small.cgs])
def test_what_the_file_states_goes_first(tmp_path, name):
    """Another CGS factor, power of a and of h in the attributes change the result by just these factors.

    Not where units are known: another CGS factor is damage there.
    """
    small, field_map = SMALL[name], load_field_map(name)
    times = 1.0 if field_map.fixed_units else 3.0
    changes, tables = {"more_a": 1.0, "more_h": -1.0, "times": times}, []
    path = write_small(tmp_path / "a.hdf5", name)
    for change in ({}, changes):
        with h5py.File(path, "r+") as file:
            for family in FAMILIES:
                state_units(file, name, family, **change)
        with opened_by(field_map, path) as snapshot:
            tables.append({family: snapshot.read(family, 0, N) for family in FAMILIES})
    for family in FAMILIES:
        for quantity in getattr(small, family):
            expected = 1.0 if quantity in small.stubborn else times * A / H
            found = tables[1][family][quantity] / tables[0][family][quantity]
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"{family} {quantity}")


def test_rounded_constants_of_a_code_are_its_unit(tmp_path):
    """1.989e43 g is 1e10 Msun and 3.08e24 cm is 1 Mpc; 2 % off is another unit."""
    path = write_small(tmp_path / "a.hdf5", "eagle")

    def mass(factor):
        with h5py.File(path, "r+") as file:
            file["PartType4/Mass"].attrs["CGSConversionFactor"] = factor
        with opened_by(load_field_map("eagle"), path) as snapshot:
            return snapshot.read("stars", 0, N)["mass"]

    for factor in (1.989e43, 2e43):
        np.testing.assert_array_equal(mass(factor), mass(1.988409870698051e43))
    with pytest.raises(ValueError, match=r"got 2.03e\+43 in its"):
        mass(2.03e43)


@pytest.mark.parametrize("name", ["eagle", "horizon_agn", "magneticum", "illustris"])
def test_a_damaged_factor_of_a_known_simulation_is_refused(tmp_path, name):
    """By what the small file is known to be made of, each dataset alone; 0.5 % off is rounding."""
    small, field_map = SMALL[name], load_field_map(name)
    for family, group in FAMILIES.items():
        known = [quantity for quantity in getattr(small, family) if quantity not in small.stubborn]
        dataset = getattr(small, family)[known[-1]][0]
        path = write_small(
            tmp_path / f"{family}.hdf5", name, lambda file, family=family: state_units(file, name, family)
        )
        before = 1.0
        for ratio in (1000.0, 0.98, 1.005):
            with h5py.File(path, "r+") as file:
                file[f"{group}/{dataset}"].attrs[small.cgs] *= ratio / before
            before = ratio
            with opened_by(field_map, path) as snapshot:
                if ratio == 1.005:
                    snapshot.read(family, 0, N)
                    continue
                with pytest.raises(
                    ValueError, match=rf"{group}/{dataset}: expected a CGS factor of .* got .* download"
                ):
                    snapshot.read(family, 0, N)


def test_a_factor_goes_with_the_units_in_the_header(tmp_path):
    """A run of AREPO in Mpc: its datasets state Mpc, and kpc is damage."""

    def change(file, factor):
        file["Header"].attrs.update(
            {"UnitLength_in_cm": 3.085678e24, "UnitMass_in_g": 1.989e43, "UnitVelocity_in_cm_per_s": 1e5}
        )
        state_units(file, "illustris", "stars")
        file["PartType4/Coordinates"].attrs["to_cgs"] = factor
        file["PartType4/StellarHsml"].attrs["to_cgs"] = 3.085678e24

    path = write_small(tmp_path / "a.hdf5", "illustris", lambda file: change(file, 3.085678e24))
    with opened_by(load_field_map("illustris"), path) as snapshot:
        position = snapshot.read("stars", 0, N)["position"]
    np.testing.assert_allclose(position, stored(path, "PartType4")["Coordinates"] * 1e3 * A / H, rtol=1e-3)
    path = write_small(tmp_path / "b.hdf5", "illustris", lambda file: change(file, 3.085678e21))
    with (
        opened_by(load_field_map("illustris"), path) as snapshot,
        pytest.raises(ValueError, match="expected a CGS factor"),
    ):
        snapshot.read("stars", 0, N)


@pytest.mark.parametrize("name", ["illustris", "simba"])
def test_whole_numbers_in_a_known_simulation_are_refused(tmp_path, name):
    """Metallicities of 0 that were cast to integers."""

    def change(file):
        stars = file["PartType4"]
        dataset = load_field_map(name).stars.fields["metallicity"].find(set(stars), lambda key: stars[key].shape)[1][0]
        values = file[f"PartType4/{dataset}"][()]
        del file[f"PartType4/{dataset}"]
        file[f"PartType4/{dataset}"] = values.astype(np.int32)

    path = write_small(tmp_path / "a.hdf5", name, change)
    with opened_by(load_field_map(name), path) as snapshot, pytest.raises(ValueError, match=r"whole ones \(int32\)"):
        snapshot.read("stars", 0, N)


@pytest.mark.parametrize(
    ("name", "place", "length", "mass", "velocity"),
    [
        ("gadget", "Parameters", "UnitLength_in_cm", "UnitMass_in_g", "UnitVelocity_in_cm_per_s"),
        ("illustris", "Header", "UnitLength_in_cm", "UnitMass_in_g", "UnitVelocity_in_cm_per_s"),
        ("gizmo", "Header", "UnitLength_In_CGS", "UnitMass_In_CGS", "UnitVelocity_In_CGS"),
    ],
)
def test_units_of_the_run_in_the_header(tmp_path, name, place, length, mass, velocity):
    """A run in Mpc, Msun and m/s: every quantity in code units follows, rates in Msun/yr do not."""

    def change(file):
        attributes = file.require_group(place).attrs
        attributes[length], attributes[mass], attributes[velocity] = 3.085678e24, 1.989e33, 100.0

    plain = write_small(tmp_path / "a.hdf5", name)
    other = write_small(tmp_path / "b.hdf5", name, change)
    ratios = {
        "position": 1e3,
        "smoothing_length": 1e3,
        "mass": 1e-10,
        "initial_mass": 1e-10,
        "dust_mass": 1e-10,
        "density": 1e-19,
        "velocity": 1e-3,
        "internal_energy": 1e-6,
        "star_formation_rate": 1.0,
        "temperature": 1.0,
    }
    for family in FAMILIES:
        with opened_by(load_field_map(name), plain) as one, opened_by(load_field_map(name), other) as two:
            first, second = one.read(family, 0, N), two.read(family, 0, N)
            box = two.box_size / one.box_size
        for quantity in getattr(SMALL[name], family):
            ratio = second[quantity] / first[quantity]
            np.testing.assert_allclose(ratio, ratios[quantity], rtol=1e-3, err_msg=quantity)
        assert box == pytest.approx(1e3, rel=1e-3)


def test_a_quotient_of_masses_has_no_unit(tmp_path):
    """What Magneticum's files state of the masses of metals is not of their fraction."""

    def change(file):
        for group in FAMILIES.values():
            file[f"{group}/Metallicity"].attrs.update(
                {"CGSConversionFactor": 1.989e43, "aexp-scale-exponent": 0.0, "h-scale-exponent": -1.0}
            )

    path = write_small(tmp_path / "a.hdf5", "magneticum", change)
    raw = stored(path, "PartType4")
    with opened_by(load_field_map("magneticum"), path) as snapshot:
        metallicity = snapshot.read("stars", 0, N)["metallicity"]
    np.testing.assert_allclose(metallicity, raw["Metallicity"][:, 1:].sum(axis=1) / raw["InitialMass"], rtol=1e-12)


def test_swift_says_that_a_value_is_physical(tmp_path):
    def change(file):
        state_units(file, "swift", "gas")
        file["PartType0/Densities"].attrs["Value stored as physical"] = np.array([1])
        file["PartType0/Coordinates"].attrs["Value stored as physical"] = np.array([0])

    path = write_small(tmp_path / "a.hdf5", "swift", change)
    with opened_by(load_field_map("swift"), path) as snapshot:
        table = snapshot.read("gas", 0, N)
    raw = stored(path, "PartType0")
    np.testing.assert_allclose(table["density"], raw["Densities"] * 10, rtol=1e-9)
    np.testing.assert_allclose(table["position"], raw["Coordinates"] * 1e3 * A, rtol=1e-9)


def test_swift_rates_below_zero_are_times(tmp_path):
    def change(file):
        file["PartType0/StarFormationRates"][1] = -0.4

    path = write_small(tmp_path / "a.hdf5", "swift", change)
    with opened_by(load_field_map("swift"), path) as snapshot:
        rate = snapshot.read("gas", 0, N)["star_formation_rate"]
    assert rate[1] == 0
    assert (rate[[0, 2, 3]] > 0).all()


def test_a_run_without_expansion_has_times_in_units_of_code(tmp_path):
    """kpc/(km/s) over h, positions in kpc/h and no powers of a; stars of the initial conditions count."""

    def change(file):
        file["Header"].attrs.update({"Time": 0.9, "Redshift": 0.0, "Omega0": 0.0, "OmegaLambda": 0.0})
        for name in ("Coordinates", "Velocities", "Masses"):
            file[f"PartType2/{name}"] = file[f"PartType4/{name}"][()] + 1

    path = write_small(tmp_path / "a.hdf5", "gizmo", change)
    with opened_by(load_field_map("gizmo"), path) as snapshot:
        assert snapshot.epoch.cosmology is None
        assert snapshot.groups("stars") == {"PartType4": N, "PartType2": N}
        assert snapshot.now == pytest.approx(0.9 * YEARS_OF_KPC_PER_KMS / H)
        table = snapshot.read("stars", 0, 2 * N)
    raw = stored(path, "PartType4")
    np.testing.assert_allclose(table["birth_time"][:N], raw["StellarFormationTime"] * YEARS_OF_KPC_PER_KMS / H)
    np.testing.assert_allclose(table["position"][:N], raw["Coordinates"] / H)
    np.testing.assert_allclose(table["velocity"][N:], raw["Velocities"] + 1)


@pytest.mark.parametrize("name", ["gizmo", "gadget"])
def test_low_resolution_dark_matter_of_a_zoom_is_not_read_as_stars(tmp_path, name):
    def change(file):
        file["PartType2/Coordinates"] = np.ones((7, 3))
        file["PartType2/Velocities"] = np.ones((7, 3))
        file["PartType2/Masses"] = np.ones(7)

    path = write_small(tmp_path / "a.hdf5", name, change)
    with opened_by(load_field_map(name), path) as snapshot:
        assert snapshot.count("stars") == N


@pytest.mark.parametrize(("stated", "expands"), [(0, False), (1, True)])
def test_whether_a_run_expands_may_be_stated(tmp_path, stated, expands):
    """At time 1 and redshift 0 the header's numbers alone leave it open."""

    def change(file):
        file["Header"].attrs.update({"Time": 1.0, "Redshift": 0.0})
        file.create_group("Parameters").attrs["ComovingIntegrationOn"] = stated

    path = write_small(tmp_path / "a.hdf5", "gadget", change)
    with opened_by(load_field_map("gadget"), path) as snapshot:
        assert (snapshot.epoch.cosmology is not None) == expands


def test_masses_of_the_mass_table(tmp_path):
    def change(file):
        del file["PartType4/Masses"]
        file["Header"].attrs["MassTable"] = np.array([0, 0, 0, 0, 3e-4, 0])

    path = write_small(tmp_path / "a.hdf5", "gadget", change)
    with opened_by(load_field_map("gadget"), path) as snapshot:
        np.testing.assert_allclose(snapshot.read("stars", 0, N)["mass"], 3e6 / H)


def test_elements_of_swift_under_names_of_their_own(tmp_path):
    """The layout of SimSpin: ElementMassFractions is a group."""

    def change(file):
        del file["PartType0/ElementMassFractions"]
        file["PartType0/ElementMassFractions/Hydrogen"] = np.full(N, 0.7)
        file["PartType0/ElementMassFractions/Oxygen"] = np.full(N, 0.01)

    path = write_small(tmp_path / "a.hdf5", "swift", change)
    with opened_by(load_field_map("swift"), path) as snapshot:
        table = snapshot.read("gas", 0, N)
    assert (table["hydrogen_fraction"] == 0.7).all()
    assert (table["oxygen_fraction"] == 0.01).all()
