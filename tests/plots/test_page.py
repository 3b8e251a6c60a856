"""The page of a cube in a real browser: mouse, fingers, keys, apertures, bands, lines, exports, hostile names.

What the page shows is compared with the cube that it was made of. Needs Chromium and its driver (Debian's chromium and
chromium-driver) and selenium; skipped without them, and with --slow only.
"""

import base64
import io
import re
import shutil
import time

import numpy as np
import pytest
from astropy.table import Table
from astropy.visualization import AsinhStretch
from matplotlib import colormaps, image
from small import noisy_cube, white_light

from rubix_like import Cube
from rubix_like.extend import Choice, Meta, WavelengthBins, to_air, write_page
from rubix_like.plots.images import SkyImage, band_image, sky_of

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
)
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "chromedriver": ("chromedriver",)}
NUMBER = re.compile(r"(−?[\d.]+)(?:×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?")
BAND_ERROR = 3 / 64 / 0.2**2
"""Flux is rounded by at most 1/64 of a spaxel's median sigma, which is below 3; images are per square arcsecond."""

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    found = {name: next(filter(None, map(shutil.which, names)), None) for name, names in PROGRAMS.items()}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        pytest.skip(f"no {' and no '.join(missing)} on the path (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = found["chromium"]
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(found["chromedriver"]))
    yield driver
    driver.quit()


class Page:
    """An opened page: what is shown in it, and a mouse and keys to use it with."""

    def __init__(self, driver, path, width=1200, height=1000, dark=False):
        self.driver = driver
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.set_scheme(dark)
        driver.get(path.as_uri())
        self.wait("return page !== null || /cannot/.test(document.body.innerText)")

    def wait(self, condition):
        """Until a script returns true."""
        until = time.monotonic() + 30
        while not self.run(condition):
            assert time.monotonic() < until, (condition, self.errors())
            time.sleep(0.02)

    def set_scheme(self, dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def run(self, script):
        return self.driver.execute_script(script)

    def settle(self):
        """Wait until what was changed is drawn."""
        self.driver.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()));"
        )

    def element(self, name):
        return self.driver.find_element("id", name)

    def text(self, name):
        return self.element(name).text

    def mouse(self, name, *steps):
        """Move over the canvas to each (x, y) of its own pixels; "down", "up" and "click" between them."""
        from selenium.webdriver.common.action_chains import ActionChains  # noqa: PLC0415 (an optional package)

        canvas = self.element(name)
        width, height = self.run(f"const c = document.getElementById('{name}'); return [c.clientWidth, c.clientHeight]")
        actions = ActionChains(self.driver, duration=20)
        for step in steps:
            if isinstance(step, str):
                {"down": actions.click_and_hold, "up": actions.release, "click": actions.click}[step]()
            else:
                offset = [round(place - size // 2) for place, size in zip(step, (width, height), strict=True)]
                actions.move_to_element_with_offset(canvas, *offset)
        actions.perform()
        self.settle()

    def choose(self, name, value):
        """An option of a list, as a person chooses it."""
        from selenium.webdriver.support.select import Select  # noqa: PLC0415 (an optional package)

        Select(self.element(name)).select_by_value(value)
        self.settle()

    def fill(self, name, value):
        self.keys(name, "\ue009a\ue000", str(value), "\ue004")  # Control and A, the number, Tab

    def fingers(self, name, *paths):
        """Fingers that move together, each along its places on the canvas."""
        left, top = self.run(f"const b = byId('{name}').getBoundingClientRect(); return [b.left, b.top]")
        for step, kind in enumerate(["touchStart", *["touchMove"] * (len(paths[0]) - 1), "touchEnd"]):
            places = [] if kind == "touchEnd" else [path[step] for path in paths]
            points = [{"x": left + x, "y": top + y, "id": n} for n, (x, y) in enumerate(places)]
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
            self.settle()

    def keys(self, name, *keys):
        self.element(name).send_keys(*keys)
        self.settle()

    def spaxel(self, x, y):
        """Canvas pixels of the middle of a spaxel."""
        box, (n_x, n_y) = self.run("return page.image.box()"), self.run("return [page.cube.n_x, page.cube.n_y]")
        return box["left"] + (x + 0.5) / n_x * box["width"], box["top"] + (1 - (y + 0.5) / n_y) * box["height"]

    def wavelength(self, value):
        """Canvas pixels of a wavelength, half-way up the spectrum."""
        return self.run(f"return page.spectrum.xOf({value})"), 100

    def pixels(self, name):
        """(y, x, RGB) of a canvas."""
        url = self.run(f"return document.getElementById('{name}').toDataURL()")
        return image.imread(io.BytesIO(base64.b64decode(url.partition(",")[2])))[..., :3] * 255

    def errors(self):
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def numbers(text):
    """The numbers of a text like '(1.2 ± 0.1) × 10⁻²⁰ erg', the powers of the unit left out."""
    values = NUMBER.findall(text.partition(" × 10")[0])
    return [float(value.replace("−", "-")) * 10.0 ** int((power or "0").translate(RAISED)) for value, power in values]


@pytest.fixture(scope="module")
def cube(tmp_path_factory):
    """As it comes back from its FITS file."""
    return Cube.read(noisy_cube().write(tmp_path_factory.mktemp("cube") / "cube.fits"))


@pytest.fixture
def page(browser, cube, tmp_path):
    velocity = np.linspace(-120.0, 150.0, 30).reshape(5, 6)
    maps = (SkyImage("mean velocity", velocity, "km s⁻¹"), SkyImage("flux of Ha", velocity**2, line="Ha"))
    opened = Page(browser, write_page(cube, tmp_path / "cube.html", Choice(maps=maps)))
    yield opened
    assert opened.errors() == []
    assert opened.run("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize(("x", "y"), [(3, 2), (5, 4), (1, 0)])
def test_the_spaxel_under_the_mouse_and_its_numbers(page, cube, x, y):
    page.mouse("image", page.spaxel(x, y))
    assert page.text("read-spaxel") == f"{x}, {y}"
    east, north = numbers(page.text("read-offset").replace("+", ""))
    np.testing.assert_allclose((east, north), sky_of(cube).offset(x, y), atol=0.0051)
    ra, dec = numbers(page.text("read-sky").replace("+", ""))
    np.testing.assert_allclose((ra, dec), cube.wcs.celestial.pixel_to_world_values(x, y), atol=1e-6)
    assert page.text("read-image-name") == "white light"
    np.testing.assert_allclose(numbers(page.text("read-image"))[0], white_light(cube)[y, x] / 0.04, rtol=2e-5)
    for k in (5, 20, 39):
        page.mouse("spectrum", page.wavelength(float(cube.wavelength[k])))
        assert page.text("read-wavelength") == f"{cube.wavelength[k]:.2f} Å"
        flux, sigma = numbers(page.text("read-flux"))
        np.testing.assert_allclose(flux, cube.flux[y, x, k], atol=3 / 64)
        np.testing.assert_allclose(sigma, np.sqrt(cube.variance[y, x, k]), rtol=5e-3)
        assert page.text("read-flux").endswith("× 10⁻²⁰ erg s⁻¹ cm⁻² Å⁻¹")
    page.mouse("spectrum", page.wavelength(float(cube.wavelength[1])))
    assert page.text("read-flux") == "masked"


def test_the_whole_spectrum_is_that_of_the_cube(page, cube):
    shown = page.run("const s = spectrumOf(page.cube, [3 * 6 + 4]); return [[...s.flux], [...s.sigma]]")
    flux, sigma = (np.array([np.nan if v is None else v for v in values], float) for values in shown)
    good = np.asarray(cube.mask)[3, 4] == 0
    assert (np.isfinite(flux) == good).all()
    expected = np.sqrt(np.asarray(cube.variance, np.float64))[3, 4][good]
    noise = np.median(expected)
    np.testing.assert_allclose(flux[good], np.asarray(cube.flux)[3, 4][good], atol=noise / 63)
    np.testing.assert_allclose(sigma[good], expected, atol=noise / 1000)


def test_the_drawn_line_lies_on_the_flux(browser, tmp_path):
    smooth = 20 + 8 * np.sin(np.arange(40) / 6)
    flux = np.broadcast_to(smooth, (5, 6, 40)).astype(np.float32)
    page = Page(browser, write_page(noisy_cube(flux=flux, variance=None), tmp_path / "cube.html"))
    page.mouse("image", page.spaxel(3, 2), "click", page.spaxel(0, 0))
    assert page.text("read-flux") == "masked"
    blue = np.abs(page.pixels("spectrum") - [0x00, 0x72, 0xB2]).sum(axis=2) < 120
    for k in (4, 12, 25, 38):
        wavelength = 4749.9 + 1.25 * (k + 0.5)
        column = round(page.run(f"return page.spectrum.xOf({wavelength})"))
        rows = np.flatnonzero(blue[:, column])
        assert rows.size
        assert abs(rows.mean() - page.run(f"return page.spectrum.yOf({flux[2, 3, k]})")) < 2.5


def expected_color(scale, value):
    fraction = np.log(value / scale["low"]) / np.log(scale["high"] / scale["low"])
    return np.array(colormaps[scale["colors"]](np.clip(fraction, 0, 1))[:3]) * 255


def test_a_dragged_band_gives_the_narrow_band_image(page, cube):
    start, stop = page.wavelength(4765.0), page.wavelength(4780.0)
    page.mouse("spectrum", start, "down", page.wavelength(4770.0), stop, "up")
    low, high = page.run("return page.state.band")
    assert abs(low - 4765.0) < 0.2
    assert abs(high - 4780.0) < 0.2
    assert page.run("return document.getElementById('image-choice').value") == "band"
    assert page.element("band-low").get_property("value") == f"{low:.1f}"
    expected = band_image(cube, (low, high)).values
    shown = page.run("return [...page.shownImage().values]")
    np.testing.assert_allclose(np.array(shown, float).reshape(5, 6), expected, atol=BAND_ERROR)
    inside = np.sum((np.asarray(cube.wavelength) >= low) & (np.asarray(cube.wavelength) <= high))
    assert f"over {inside} bins" in page.text("band-text")
    page.mouse("image", page.spaxel(2, 3))
    np.testing.assert_allclose(numbers(page.text("read-image"))[0], expected[3, 2], atol=BAND_ERROR)
    pixels, scale = page.pixels("image"), page.run("return page.shownImage().scale")
    for x, y in ((1, 1), (4, 3), (5, 0)):
        column, row = (round(place) for place in page.spaxel(x, y))
        np.testing.assert_allclose(pixels[row, column], expected_color(scale, expected[y, x]), atol=8)
    column, row = (round(place) for place in page.spaxel(0, 0))
    np.testing.assert_array_equal(pixels[row, column], 0)
    page.mouse("spectrum", page.wavelength(4790.0), "down", "up")
    assert page.run("return page.state.band") == [low, high]
    page.element("zoom-band").click()
    page.settle()
    view = page.run("return page.state.view")
    assert low - 20 < view[0] < low
    assert high < view[1] < high + 20
    page.element("band-clear").click()
    page.settle()
    assert page.text("read-image-name") == "white light"


def test_pins(page, cube):
    page.mouse("image", page.spaxel(3, 2), "click", page.spaxel(1, 4), "click", page.spaxel(5, 0))
    pins = [item.text for item in page.driver.find_elements("css selector", "#pins li")]
    k = page.run("return page.state.bin")
    for text, (x, y) in zip(pins, ((3, 2), (1, 4)), strict=True):
        assert text.startswith(f"({x}, {y})")
        np.testing.assert_allclose(numbers(text.split(")")[1])[0], cube.flux[y, x, k], atol=3 / 64)
    assert len({pin["color"] for pin in page.run("return page.state.pins.map(({color}) => ({color}))")}) == 2
    page.driver.find_element("css selector", "#pins button").click()
    page.settle()
    assert page.run("return page.state.pins.map(({x, y}) => [x, y])") == [[1, 4]]
    page.mouse("image", page.spaxel(1, 4), "click")
    assert page.run("return page.state.pins.length") == 0
    for n in range(9):
        page.mouse("image", page.spaxel(n % 6, n // 6), "click")
    assert page.run("return page.state.pins.length") == 8
    assert "At most 8" in page.element("status").get_property("textContent")


def test_maps_can_be_chosen(page):
    page.keys("image-choice", "mean vel")
    page.mouse("image", page.spaxel(5, 4))
    assert (page.text("read-image-name"), page.text("read-image")) == ("mean velocity", "150 km s⁻¹")
    page.mouse("image", page.spaxel(0, 0))
    assert page.text("read-image") == "−120 km s⁻¹"
    row, column = (round(place) for place in page.spaxel(5, 4)[::-1])
    red, _, blue = page.pixels("image")[row, column]
    assert red > blue + 50
    assert page.run("return document.querySelector('#image-choice optgroup[label=Ha] option').text") == "flux of Ha"
    page.run("const own = byId('image-choice'); own.value = '2'; own.dispatchEvent(new Event('change'))")
    page.mouse("image", page.spaxel(0, 0))
    assert (page.text("read-image-name"), page.text("read-image")) == ("flux of Ha", "14400")


def test_everything_by_keyboard(page, cube):
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415 (an optional package)

    page.run("page.state.cursor = { x: 2, y: 2 }")
    page.keys("image", Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ENTER)
    assert page.text("read-spaxel") == "3, 3"
    assert page.run("return page.state.pins.map(({x, y}) => [x, y])") == [[3, 3]]
    assert page.element("status").get_property("textContent").startswith(("Pinned 1", "Spaxel 3, 3"))
    page.keys("image", Keys.SHIFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.text("read-spaxel") == "0, 3"
    before = page.run("return page.state.bin")
    page.keys("spectrum", Keys.ARROW_RIGHT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert page.run("return page.state.bin") == before - 1
    page.keys("spectrum", Keys.SHIFT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    band = page.run("return page.state.band")
    np.testing.assert_allclose(band, np.asarray(cube.wavelength)[[before - 1, before + 1]])
    page.keys("spectrum", Keys.ESCAPE)
    assert page.run("return page.state.band") is None
    page.keys("band-low", "4760")
    page.keys("band-high", "4770", Keys.ENTER)
    expected = band_image(cube, (4760.0, 4770.0)).values
    shown = np.array(page.run("return [...page.shownImage().values]"), float).reshape(5, 6)
    np.testing.assert_allclose(shown, expected, atol=BAND_ERROR)
    order = page.run(
        "return [...document.querySelectorAll('[tabindex], select, input, button')].map((e) => e.tabIndex)"
    )
    assert set(order) == {0}


def test_a_small_screen(browser, cube, tmp_path):
    maps = (SkyImage("mean metal mass fraction, weighted by light, before the PSF (truth)", np.ones((5, 6))),)
    page = Page(browser, write_page(cube, tmp_path / "cube.html", Choice(maps=maps)), 360, 740)
    assert page.run("return [document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    for name in ("image", "spectrum", "image-choice", "band-high", "zoom-all"):
        left, right = page.run(
            f"const b = document.getElementById('{name}').getBoundingClientRect(); return [b.left, b.right]"
        )
        assert 0 <= left < right <= 360
    page.mouse("image", page.spaxel(4, 3), "click")
    assert page.text("read-spaxel") == "4, 3"
    assert page.text("pins").startswith("(4, 3)")


def test_light_and_dark(browser, cube, tmp_path):
    page = Page(browser, write_page(cube, tmp_path / "cube.html"), dark=True)
    background = "return getComputedStyle(document.body).backgroundColor"
    page.settle()
    assert page.run(background) == "rgb(21, 23, 26)"
    dark = page.pixels("spectrum")
    page.set_scheme(False)
    page.settle()
    assert page.run(background) == "rgb(255, 255, 255)"
    assert (page.pixels("spectrum") != dark).any()


def test_names_from_the_header_are_harmless(browser, tmp_path):
    words = "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    meta = {"object": words, "instrument": words, "note_one": words, "ssp_library": words}
    cube = noisy_cube(meta=Meta(meta))
    maps = (SkyImage(words, np.ones((5, 6)), words),)
    page = Page(browser, write_page(cube, tmp_path / "cube.html", Choice(maps=maps)))
    page.keys("image-choice", "</script>")
    page.mouse("image", page.spaxel(2, 2), "click")
    assert page.run("return window.hit") is None
    assert words in page.text("read-image")
    assert words in page.driver.find_element("css selector", "h1").text
    assert page.run("return document.querySelectorAll('img').length") == 0
    assert page.errors() == []


def test_scripts_that_are_not_the_pages_own_do_not_run(browser, cube, tmp_path):
    path = write_page(cube, tmp_path / "cube.html")
    path.write_text(path.read_text().replace("</body>", "<script>window.hit = 1</script></body>"))
    page = Page(browser, path)
    assert page.run("return window.hit") is None
    assert any("Content Security Policy" in entry["message"] for entry in page.errors())


def test_a_page_of_blocks(browser, tmp_path):
    cube = noisy_cube(9, 9, 60)
    page = Page(browser, write_page(cube, tmp_path / "cube.html", Choice(((5, 3),), (4765.0, 4780.0)), limit=4_000))
    assert "means over 2 x 2 spaxels" in page.driver.find_element("css selector", ".note").text
    assert page.run("return page.state.pins.map(({x, y}) => [x, y])") == [[2, 1]]
    assert page.run("return page.state.band") == [4765.0, 4780.0]
    page.mouse("image", page.spaxel(2, 1))
    assert page.text("read-spaxel") == "4-5, 2-3"
    np.testing.assert_allclose(numbers(page.text("read-offset").replace("+", "")), [-0.1, -0.3], atol=1e-9)
    page.mouse("spectrum", page.wavelength(4790.0))
    k = page.run("return page.state.bin")
    per_bin = 60 // page.run("return page.cube.n_wave")
    block = np.asarray(cube.flux, np.float64)[2:4, 4:6, per_bin * k : per_bin * (k + 1)]
    np.testing.assert_allclose(numbers(page.text("read-flux"))[0], block.mean(), atol=3 / 64)
    page.mouse("image", page.spaxel(4, 4))
    assert page.text("read-spaxel") == "8, 8"
    page.choose("tool", "box")
    page.mouse("image", page.spaxel(1, 1), "down", page.spaxel(4, 4), "up")
    bins = np.s_[2:9, 2:9, per_bin * k : per_bin * (k + 1)]
    flux, variance = (np.asarray(values, np.float64)[bins] for values in (cube.flux, cube.variance))
    found = page.run(f"const pin = page.state.pins[1]; return [pin.label, pin.flux[{k}], pin.sigma[{k}]]")
    assert found[0] == "box from (2, 2) to (8, 8), 49 spaxels", "49 of the cube are 16 of the page"
    assert found[1] == pytest.approx(flux.mean(axis=2).sum(), abs=49 * 3 / 64)
    assert found[2] == pytest.approx(np.sqrt(variance.sum()) / per_bin, rel=5e-3)
    assert page.errors() == []


def summed(cube, inside):
    """Sum over the good voxels of some spaxels ((y, x) bool), its sigma, and their number, by numpy from the cube."""
    good = (np.asarray(cube.mask) == 0) & inside[..., None]
    flux, variance = (np.where(good, np.asarray(values, np.float64), 0.0) for values in (cube.flux, cube.variance))
    return flux.sum(axis=(0, 1)), np.sqrt(variance.sum(axis=(0, 1))), good.sum(axis=(0, 1))


def test_apertures_by_dragging(page, cube, tmp_path):
    """A circle and a box, their sums with errors on the page and in the CSV file, their means."""
    rows, columns = np.mgrid[:5, :6]
    circle, box = np.hypot(columns - 3, rows - 2) <= 1.6, (columns <= 2) & (rows <= 1)
    page.choose("tool", "circle")
    edge = np.array(page.spaxel(3, 2)) + 1.6 * (np.array(page.spaxel(4, 2)) - page.spaxel(3, 2))
    page.mouse("image", page.spaxel(3, 2), "down", page.spaxel(4, 2), tuple(edge), "up")
    page.choose("tool", "box")
    page.mouse("image", page.spaxel(2, 0), "down", page.spaxel(0, 1), "up")
    names = [item.text for item in page.driver.find_elements("css selector", "#pins li")]
    assert re.match(r"circle of 0\.3[12]\d?″ at \(3, 2\), 9 spaxels: ", names[0])
    assert names[1].startswith("box from (2, 0) to (0, 1), 6 spaxels: ")
    k = page.run("return page.state.bin")
    for name, inside in zip(names, (circle, box), strict=True):
        flux, sigma, _ = summed(cube, inside)
        np.testing.assert_allclose(numbers(name.split(": ")[1]), (flux[k], sigma[k]), rtol=5e-3)
    saved = save(page, tmp_path, "save-csv", "spectra.csv")
    table = Table.read(saved, format="ascii.csv", comment="#")
    np.testing.assert_allclose(table["wavelength"], cube.wavelength, rtol=1e-8)
    for n, inside in enumerate((circle, box), 1):
        flux, sigma, count = summed(cube, inside)
        np.testing.assert_array_equal(table[f"spaxels_{n}"], count)
        known = count > 0
        np.testing.assert_allclose(table[f"flux_{n}"][known], flux[known], atol=inside.sum() * 3 / 64)
        np.testing.assert_allclose(table[f"sigma_{n}"][known], sigma[known], rtol=2e-3)
        assert table[f"flux_{n}"].mask[~known].all()
    assert "# 2: box from (2, 0) to (0, 1), 6 spaxels" in saved.read_text()
    page.choose("statistic", "mean")
    flux, _, count = summed(cube, circle)
    np.testing.assert_allclose(page.run("return [...page.state.pins[0].flux]")[5:], flux[5:] / count[5:], atol=3 / 64)


def save(page, folder, button, name):
    """The file that a button saves."""
    behaviour = {"behavior": "allow", "downloadPath": str(folder)}
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    page.element(button).click()
    until = time.monotonic() + 20
    # Chromium holds the name with an empty file until the download has been renamed to it
    while not ((folder / name).is_file() and (folder / name).stat().st_size):
        assert time.monotonic() < until, sorted(folder.iterdir())
        time.sleep(0.05)
    return folder / name


def test_apertures_by_keyboard_and_radius(page, cube):
    from selenium.webdriver.common.keys import Keys  # noqa: PLC0415 (an optional package)

    page.run("page.state.cursor = { x: 1, y: 1 }")
    page.choose("tool", "box")
    page.keys("image", Keys.ENTER, Keys.ARROW_RIGHT, Keys.ARROW_UP, Keys.ARROW_UP, Keys.ENTER)
    page.keys("image", Keys.ENTER, Keys.ARROW_RIGHT, Keys.ESCAPE)
    page.choose("tool", "circle")
    page.fill("radius", 0.25)
    page.mouse("image", page.spaxel(4, 2), "click")
    rows, columns = np.mgrid[:5, :6]
    insides = (columns >= 1) & (columns <= 2) & (rows >= 1) & (rows <= 3), np.hypot(columns - 4, rows - 2) <= 1.25
    found = page.run("return page.state.pins.map(({ spaxels }) => spaxels)")
    assert found == [np.flatnonzero(inside).tolist() for inside in insides]


def test_lines_at_a_redshift(page, cube):
    """Marks where lines are at the redshift of the header, in air, or at another one; and wavelengths at rest."""
    page.choose("line-choice", "emission")
    assert page.element("redshift").get_property("value") == "0.05"
    marks = "return lineMarks(page.cube, page.state.lines, page.state.redshift).map((m) => [m.name, m.wavelength])"
    assert page.run(marks) == []
    before = page.pixels("spectrum")
    page.fill("redshift", -0.02)
    found = dict(page.run(marks))
    assert set(found) == {"Hb"}
    np.testing.assert_allclose(found["Hb"], to_air(np.array([4862.691 * 0.98]))[0], rtol=1e-9)
    column = round(page.run(f"return page.spectrum.xOf({found['Hb']})"))
    changed = np.abs(page.pixels("spectrum") - before).sum(axis=2) > 60
    assert changed[:, column - 1 : column + 2].any(axis=1).mean() > 0.3
    page.mouse("spectrum", page.wavelength(found["Hb"]))
    shown = float(page.text("read-wavelength").removesuffix(" Å"))
    rest = float(page.text("read-rest").removesuffix(" Å"))
    np.testing.assert_allclose(to_air(np.array([rest * 0.98]))[0], shown, atol=0.011)


def test_stretch_colours_and_percentiles(page, cube):
    page.element("look").click()
    values = white_light(cube) / 0.04
    finite = values[values > 0]
    page.choose("percent", "90")
    page.choose("stretch", "asinh")
    page.choose("colors", "viridis")
    scale = page.run("return chosenScale(page.shownImage(), page.state.looks[0])")
    low, high = np.percentile(finite, (5, 95))
    np.testing.assert_allclose((scale["low"], scale["high"]), (low, high), rtol=1e-5)
    fraction = np.clip((values[3, 2] - low) / (high - low), 0, 1)
    column, row = (round(place) for place in page.spaxel(2, 3))
    wanted = np.array(colormaps["viridis"](AsinhStretch(0.1)(np.array([fraction]))[0])[:3]) * 255
    np.testing.assert_allclose(page.pixels("image")[row, column], wanted, atol=8)
    page.choose("stretch", "linear")
    page.fill("look-low", 0)
    page.fill("look-high", 2 * values[3, 2])
    wanted = np.array(colormaps["viridis"](0.5)[:3]) * 255
    np.testing.assert_allclose(page.pixels("image")[row, column], wanted, atol=8)
    page.keys("image-choice", "mean vel")
    assert page.element("stretch").get_property("value") == "", "every image has its own look"
    page.choose("percent", "98")
    scale = page.run("return chosenScale(page.shownImage(), page.state.looks[1])")
    assert scale["low"] == pytest.approx(-scale["high"], rel=1e-6)
    page.element("contours").click()
    page.keys("image-choice", "white")
    page.fill("look-low", -2)
    page.fill("look-high", -1)
    page.choose("stretch", "log")
    assert page.run("return chosenScale(page.shownImage(), page.state.looks[0]).stretch") == "linear", "nothing above 0"


def test_a_slice_and_a_band_less_its_sides(page, cube):
    flux, good = np.asarray(cube.flux, np.float64), np.asarray(cube.mask) == 0
    page.choose("image-choice", "slice")
    page.mouse("spectrum", page.wavelength(float(cube.wavelength[20])))
    page.mouse("image", page.spaxel(4, 1))
    np.testing.assert_allclose(numbers(page.text("read-image"))[0], flux[1, 4, 20] / 0.04, atol=BAND_ERROR)
    page.element("subtract").click()
    page.fill("band-low", cube.wavelength[10] - 0.3)
    page.fill("band-high", cube.wavelength[13] + 0.3)
    page.keys("band-high", "\ue007")
    expected = (flux[..., 10:14].mean(axis=2) - flux[..., [*range(6, 10), *range(14, 18)]].mean(axis=2)) / 0.04
    shown = np.array(page.run("return [...page.shownImage().values]"), float).reshape(5, 6)
    np.testing.assert_allclose(shown[good.any(axis=2)], expected[good.any(axis=2)], atol=2 * BAND_ERROR)


def test_bands_of_uneven_bins(browser, tmp_path):
    """The bin under the pointer; means by the bins' widths; less the line through both sides, which a slope is."""
    widths = np.linspace(0.5, 4.0, 40)
    edges = 4750 + np.append(0, np.cumsum(widths))
    bins = WavelengthBins.of_table(0.5 * (edges[1:] + edges[:-1]), edges, "air")
    flux = np.broadcast_to(3 * (bins.wavelength - 4740), (5, 6, 40)).copy()
    flux[..., 20] += 50
    own = Cube(flux, np.zeros((5, 6, 40), np.int32), bins, noisy_cube().footprint, meta=Meta({}))
    page = Page(browser, write_page(own, tmp_path / "uneven.html"))
    inside = edges[:-1] + 0.02 * widths
    assert page.run(f"return {inside.tolist()}.map((own) => nearestBin(page.cube, own))") == list(range(40))
    band = [float(bins.wavelength[18]) - 0.1, float(bins.wavelength[22]) + 0.1]
    for subtracted in (False, True):
        page.run(f"page.state.subtracted = {str(subtracted).lower()}; page.setBand({band})")
        line = 50 * widths[20] / widths[18:23].sum()
        mean = np.average(flux[0, 0, 18:23], weights=widths[18:23])
        shown = page.run("return [...page.shownImage().values]")
        np.testing.assert_allclose(shown, (line if subtracted else mean) / 0.04, atol=0.2)


def test_pictures_are_saved(page, tmp_path):
    page.mouse("image", page.spaxel(2, 2), "click")
    for button, name in (("save-image", "image.png"), ("save-spectrum", "spectrum.png")):
        saved = image.imread(save(page, tmp_path, button, name))[..., :3] * 255
        canvas = f"byId('{name.removesuffix('.png')}')"
        width, height = page.run(f"return [{canvas}.clientWidth, {canvas}.clientHeight]")
        wanted = (3 * (height + 48), 3 * width)
        np.testing.assert_allclose(
            saved.shape[:2], wanted, atol=2, err_msg="three times as sharp, below two rows of text"
        )
        label = np.abs(saved[60:120] - [0x00, 0x72, 0xB2]).sum(axis=2) < 30
        assert label.sum() > 100, "in the colour of the pinned spaxel"
    assert page.run("return document.getElementById('image').width") == page.run("return byId('image').clientWidth")


def test_a_page_that_the_browser_saved(browser, cube, page, tmp_path):
    saved = tmp_path / "saved.html"
    saved.write_text(page.run("return '<!doctype html>' + document.documentElement.outerHTML"), encoding="utf-8")
    options = page.run("return [byId('image-choice').length, byId('colors').length]")
    again = Page(browser, saved)
    assert again.run("return [byId('image-choice').length, byId('colors').length]") == options
    again.mouse("image", again.spaxel(3, 2))
    assert again.text("read-spaxel") == "3, 2"
    assert all("inline style" in entry["message"] for entry in again.errors()), "sizes of canvases, which it sets again"


def test_fingers(browser, cube, tmp_path):
    """A tap pins, a drag draws a box without scrolling, two fingers zoom."""
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 2})
    page = Page(browser, write_page(cube, tmp_path / "cube.html"), 390, 844)
    page.fingers("image", [page.spaxel(4, 3)])
    page.wait("return page.state.pins.length === 1")
    assert page.text("pins").startswith("(4, 3)")
    page.choose("tool", "box")
    page.fingers("image", [page.spaxel(1, 1), page.spaxel(2, 2), page.spaxel(3, 3)])
    assert page.run("return page.state.pins[1].spaxels.length") == 9
    page.run("byId('spectrum').scrollIntoView()")
    left, right = page.wavelength(4770.0), page.wavelength(4780.0)
    page.fingers("spectrum", [left, page.wavelength(4760.0)], [right, page.wavelength(4790.0)])
    low, high = page.run("return page.state.view")
    assert high - low == pytest.approx(50 / 3, rel=0.1), "the fingers are three times as far apart"
    assert page.run("return page.state.band") is None
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
    assert page.errors() == []


def test_zoom_by_buttons_keys_and_wheel(page, cube):
    first, last = cube.wave_edges[[0, -1]]
    page.element("zoom-in").click()
    page.settle()
    low, high = page.run("return page.state.view")
    assert high - low == pytest.approx((last - first) / 2)
    page.keys("spectrum", "+", ",")
    assert page.run("return page.state.view[1] - page.state.view[0]") == pytest.approx((last - first) / 4)
    page.keys("spectrum", "-", "-", "-")
    assert page.run("return page.state.view") == pytest.approx([first, last])
    page.mouse("spectrum", page.wavelength(4770.0), "click")
    page.run("byId('spectrum').focus()")
    page.run("byId('spectrum').dispatchEvent(new WheelEvent('wheel', { deltaY: -1, cancelable: true }))")
    assert page.run("return page.state.view[1] - page.state.view[0]") == pytest.approx(0.8 * (last - first))


def cubes():
    lines = np.zeros((5, 6, 40), np.float32)
    lines[2:4, 2:5, 18:22] = np.array([1.0, 5.0, 4.0, 1.0]) * 1e4
    holes = np.asarray(noisy_cube().flux).copy()
    holes[3, 2, 10:20] = np.nan
    log = WavelengthBins(3622.0, 1e-4, 40, "log", "vacuum")
    return {
        "no number": noisy_cube(flux=holes),
        "no variance": noisy_cube(variance=None),
        "log wavelength": noisy_cube(bins=log),
        "nothing masked": noisy_cube(mask=np.zeros((5, 6, 40), np.int32)),
        "all masked": noisy_cube(mask=np.ones((5, 6, 40), np.int32)),
        "lines only": noisy_cube(flux=lines, variance=None, mask=np.zeros((5, 6, 40), np.int32)),
        "no redshift": noisy_cube(meta=Meta({})),
    }


@pytest.mark.parametrize("kind", list(cubes()))
def test_cubes_of_every_kind(browser, tmp_path, kind):
    cube = cubes()[kind]
    page = Page(browser, write_page(cube, tmp_path / "cube.html"))
    page.choose("tool", "box")
    page.mouse("image", page.spaxel(1, 1), "down", page.spaxel(4, 3), "up")
    page.choose("line-choice", "all")
    page.choose("image-choice", "slice")
    page.mouse("spectrum", page.wavelength(float(cube.wavelength[19])))
    inside = np.zeros((5, 6), bool)
    inside[1:4, 1:5] = True
    good = (np.asarray(cube.mask) == 0) & inside[..., None] & np.isfinite(np.asarray(cube.flux))
    flux = np.sum(np.asarray(cube.flux, np.float64), axis=(0, 1), where=good)
    shown = np.array(page.run("return [...page.state.pins[0].flux]"), float)
    np.testing.assert_array_equal(np.isfinite(shown), good.any(axis=(0, 1)))
    known = np.isfinite(shown)
    np.testing.assert_allclose(shown[known], flux[known], rtol=1e-4, atol=12 * 3 / 64)
    if cube.variance is None:
        assert page.run("return page.state.pins[0].sigma") is None
    page.mouse("image", page.spaxel(2, 3))
    assert page.text("read-wavelength") == f"{cube.wavelength[19]:.2f} Å"
    assert page.errors() == []
