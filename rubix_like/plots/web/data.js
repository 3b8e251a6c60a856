// The cube in this page: numbers out of base64, spectra, narrow-band images, places on the sky.

const MASKED = 65535; // the code of a masked voxel

function decodeBase64(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < letters.length; index++) bytes[index] = letters.charCodeAt(index);
  return bytes.buffer;
}

/** Codes of 16 bits with the lowest value and the step of every spaxel; null where the page has none. */
function readLayer(id, numbers) {
  if (!numbers) return null;
  return {
    codes: new Uint16Array(decodeBase64(document.getElementById(id).textContent)),
    low: new Float64Array(decodeBase64(numbers.low)),
    step: new Float64Array(decodeBase64(numbers.step)),
  };
}

function readCube() {
  const cube = JSON.parse(document.getElementById("cube-data").textContent);
  return {
    ...cube,
    wavelength: new Float64Array(decodeBase64(cube.wavelength)),
    edges: new Float64Array(decodeBase64(cube.edges)),
    images: cube.images.map((image) => ({ ...image, values: new Float32Array(decodeBase64(image.values)) })),
    flux: readLayer("flux-data", cube.flux),
    sigma: readLayer("sigma-data", cube.sigma),
  };
}

/** One spaxel of a layer, NaN where masked. */
function decodeSpaxel(cube, layer, spaxel) {
  const start = spaxel * cube.n_wave;
  const low = layer.low[spaxel];
  const step = layer.step[spaxel];
  return Float64Array.from(layer.codes.subarray(start, start + cube.n_wave), (code) =>
    code === MASKED ? NaN : low + step * code,
  );
}

/** Flux and, where the cube has a variance, sigma of spaxel (x, y). */
function spectrumOf(cube, x, y) {
  const spaxel = y * cube.n_x + x;
  return {
    flux: decodeSpaxel(cube, cube.flux, spaxel),
    sigma: cube.sigma ? decodeSpaxel(cube, cube.sigma, spaxel) : null,
  };
}

/** First and last bin (exclusive) whose centres lie in the band; the nearest bin where there is none. */
function bandBins(cube, [low, high]) {
  let first = cube.wavelength.findIndex((value) => value >= low);
  if (first < 0) first = cube.n_wave - 1;
  let last = first;
  while (last < cube.n_wave && cube.wavelength[last] <= high) last++;
  if (last > first) return [first, last];
  const nearest = nearestBin(cube, (low + high) / 2);
  return [nearest, nearest + 1];
}

function nearestBin(cube, wavelength) {
  let best = 0;
  cube.wavelength.forEach((value, index) => {
    if (Math.abs(value - wavelength) < Math.abs(cube.wavelength[best] - wavelength)) best = index;
  });
  return best;
}

/** Narrow band: the plain mean of the flux over the good bins of the band, per square arcsecond. */
function bandImage(cube, band) {
  const [first, last] = bandBins(cube, band);
  const values = new Float32Array(cube.n_x * cube.n_y);
  for (let spaxel = 0; spaxel < values.length; spaxel++) {
    let [sum, count] = [0, 0];
    for (let index = spaxel * cube.n_wave + first; index < spaxel * cube.n_wave + last; index++) {
      if (cube.flux.codes[index] !== MASKED) {
        sum += cube.flux.codes[index];
        count += 1;
      }
    }
    const mean = cube.flux.low[spaxel] + (cube.flux.step[spaxel] * sum) / count;
    values[spaxel] = count ? mean / cube.pixel_scale ** 2 : NaN;
  }
  const title = `${band[0].toFixed(1)} to ${band[1].toFixed(1)} Å`;
  return { title, unit: cube.band_unit, kind: "brightness", values, scale: brightnessScale(values) };
}

/** Where spaxel (x, y) of the page is: the cube's columns and rows, arcsec East and North, RA and Dec in deg. */
function placeOf(cube, x, y) {
  const columns = [x * cube.block, Math.min((x + 1) * cube.block, cube.cube_n_x) - 1];
  const rows = [y * cube.block, Math.min((y + 1) * cube.block, cube.cube_n_y) - 1];
  const step = [(columns[0] + columns[1]) / 2 - cube.center[0], (rows[0] + rows[1]) / 2 - cube.center[1]];
  const [east, north] = cube.matrix.map((row) => row[0] * step[0] + row[1] * step[1]);
  return { columns, rows, east, north, ...skyOf(cube, east, north) };
}

/** The tangent plane back to the sphere (Calabretta & Greisen 2002, A&A 395, 1077, section 5.1.3). */
function skyOf(cube, east, north) {
  const radian = Math.PI / 180;
  const [xi, eta, dec0] = [(east / 3600) * radian, (north / 3600) * radian, cube.dec * radian];
  const depth = Math.cos(dec0) - eta * Math.sin(dec0);
  const turn = Math.atan2(xi, depth);
  const height = (Math.sin(dec0) + eta * Math.cos(dec0)) * Math.cos(turn);
  return { ra: (cube.ra + turn / radian + 360) % 360, dec: Math.atan2(height, depth) / radian };
}

/** The (x, y) of the brightest spaxel of an image. */
function brightestSpaxel(cube, values) {
  let best = 0;
  values.forEach((value, index) => {
    if (!(value <= values[best])) best = Number.isFinite(value) ? index : best;
  });
  return { x: best % cube.n_x, y: Math.floor(best / cube.n_x) };
}
