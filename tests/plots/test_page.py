"""The page of a cube in a real browser: mouse, keys, narrow bands, small and dark screens, hostile names.

What the page shows is compared with the cube that it was made of. Needs Chromium and its driver (Debian's chromium and
chromium-driver) and selenium; skipped without them, and with --slow only.
"""

import base64
import io
import re
import shutil

import numpy as np
import pytest
from matplotlib import colormaps, image
from small import noisy_cube

from rubix_like.cube.cube_sums import white_light
from rubix_like.cube.meta import Meta
from rubix_like.plots.choice import Choice
from rubix_like.plots.derived import SkyImage, band_image
from rubix_like.plots.page import write_page
from rubix_like.plots.sky_offsets import sky_of

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
)
PROGRAMS = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "chromedriver": ("chromedriver",)}
NUMBER = re.compile(r"(−?[\d.]+)(?:×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?")
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
def cube():
    return noisy_cube()


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
        np.testing.assert_allclose(flux, cube.flux[y, x, k], rtol=2e-5, atol=1e-3)
        np.testing.assert_allclose(sigma, np.sqrt(cube.variance[y, x, k]), rtol=5e-3)
        assert page.text("read-flux").endswith("× 10⁻²⁰ erg s⁻¹ cm⁻² Å⁻¹")
    page.mouse("spectrum", page.wavelength(float(cube.wavelength[1])))
    assert page.text("read-flux") == "masked"


def test_the_whole_spectrum_is_that_of_the_cube(page, cube):
    shown = page.run("const s = spectrumOf(page.cube, 4, 3); return [[...s.flux], [...s.sigma]]")
    flux, sigma = (np.array([np.nan if v is None else v for v in values], float) for values in shown)
    good = np.asarray(cube.mask)[3, 4] == 0
    assert (np.isfinite(flux) == good).all()
    np.testing.assert_allclose(flux[good], np.asarray(cube.flux)[3, 4][good], atol=1e-3)
    np.testing.assert_allclose(sigma[good], np.sqrt(np.asarray(cube.variance))[3, 4][good], atol=1e-4)


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
    np.testing.assert_allclose(np.array(shown, float).reshape(5, 6), expected, rtol=1e-4)
    inside = np.sum((np.asarray(cube.wavelength) >= low) & (np.asarray(cube.wavelength) <= high))
    assert f"over {inside} bins" in page.text("band-text")
    page.mouse("image", page.spaxel(2, 3))
    np.testing.assert_allclose(numbers(page.text("read-image"))[0], expected[3, 2], rtol=1e-4)
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
        np.testing.assert_allclose(numbers(text.split(")")[1])[0], cube.flux[y, x, k], rtol=1e-3)
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
    np.testing.assert_allclose(shown, expected, rtol=1e-4)
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
    page = Page(browser, write_page(cube, tmp_path / "cube.html", Choice(((5, 3),), (4765.0, 4780.0)), limit=12_000))
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
    np.testing.assert_allclose(numbers(page.text("read-flux"))[0], block.mean(), rtol=1e-3)
    page.mouse("image", page.spaxel(4, 4))
    assert page.text("read-spaxel") == "8, 8"
    assert page.errors() == []
