// The cube in this page: numbers out of packed text, spectra of apertures, images of bands.

/** The bytes of base64 of a DEFLATE stream. */
async function unpack(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let index = 0; index < letters.length; index++) bytes[index] = letters.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

const textOf = (id) => document.getElementById(id).textContent;

async function readCube() {
  const cube = JSON.parse(textOf("cube-data"));
  const count = cube.n_x * cube.n_y;
  const values = new Float32Array(await unpack(textOf("images-data")));
  return {
    ...cube,
    wavelength: new Float64Array(await unpack(cube.wavelength)),
    edges: new Float64Array(await unpack(cube.edges)),
    images: cube.images.map((image, n) => ({ ...image, values: values.subarray(n * count, (n + 1) * count) })),
    flux: await readLayer(cube, "flux-data", cube.flux),
    sigma: cube.sigma && (await readLayer(cube, "sigma-data", cube.sigma)),
    weights: blockSizes(cube),
  };
}

/** Codes of 16 bits with the lowest value and the step of every spaxel, as plots/page_layers.py packs them. */
async function readLayer({ n_y, n_x, n_wave }, id, { low, step }) {
  const bytes = new Uint8Array(await unpack(textOf(id)));
  const codes = new Uint16Array(n_y * n_x * n_wave);
  const row = n_x * n_wave;
  for (let start = 0; start < codes.length; start += row) {
    for (let index = 0, code = 0; index < row; index++) {
      if (index % n_wave === 0) code = 0;
      const folded = (bytes[2 * start + index] << 8) | bytes[2 * start + row + index];
      code = (code + ((folded >>> 1) ^ -(folded & 1))) & 0xffff;
      codes[start + index] = code;
    }
  }
  return { codes, low: new Float64Array(await unpack(low)), step: new Float64Array(await unpack(step)) };
}

/** How many spaxels of the cube every spaxel of the page stands for. */
function blockSizes({ n_x, n_y, block, cube_n_x, cube_n_y }) {
  const side = (index, count) => Math.min((index + 1) * block, count) - index * block;
  return Float64Array.from({ length: n_x * n_y }, (_, index) =>
    side(index % n_x, cube_n_x) * side(Math.floor(index / n_x), cube_n_y),
  );
}

/** The codes of a spaxel in a layer, the lowest value and the step. */
function spaxelCodes({ n_wave }, { codes, low, step }, spaxel) {
  return [codes.subarray(spaxel * n_wave, (spaxel + 1) * n_wave), low[spaxel], step[spaxel]];
}

/**
 * The spectrum of some spaxels: the sum over their good voxels, or the mean per spaxel of the cube, with its sigma (of
 * independent noise; null where the cube has no variance) and the number of spaxels of the cube in every bin.
 */
function spectrumOf(cube, spaxels, statistic = "mean") {
  const [flux, count] = [new Float64Array(cube.n_wave), new Float64Array(cube.n_wave)];
  const sigma = cube.sigma && new Float64Array(cube.n_wave);
  const { masked } = cube;
  for (const spaxel of spaxels) {
    const weight = cube.weights[spaxel];
    const [codes, low, step] = spaxelCodes(cube, cube.flux, spaxel);
    const [errors, least, width] = sigma ? spaxelCodes(cube, cube.sigma, spaxel) : [codes, 0, 0];
    for (let bin = 0; bin < cube.n_wave; bin++) {
      if (codes[bin] === masked) continue;
      flux[bin] += weight * (low + step * codes[bin]);
      count[bin] += weight;
      if (sigma) sigma[bin] += errors[bin] === masked ? NaN : (weight * (least + width * errors[bin])) ** 2;
    }
  }
  for (let bin = 0; bin < cube.n_wave; bin++) {
    const divisor = count[bin] === 0 ? NaN : statistic === "sum" ? 1 : count[bin];
    flux[bin] = count[bin] ? flux[bin] / divisor : NaN;
    if (sigma) sigma[bin] = Math.sqrt(sigma[bin]) / divisor;
  }
  return { flux, sigma, count };
}

/** The spaxels whose centres lie in an aperture: {shape, x, y} and a circle's radius or a box's other corner. */
function spaxelsIn(cube, { shape, x, y, radius, to }) {
  const inside = {
    spaxel: (i, j) => i === x && j === y,
    circle: (i, j) => Math.hypot(i - x, j - y) <= radius + 1e-9,
    box: (i, j) => (i - x) * (i - to?.x) <= 0 && (j - y) * (j - to?.y) <= 0,
  }[shape];
  const found = [];
  for (let index = 0; index < cube.n_x * cube.n_y; index++) {
    if (inside(index % cube.n_x, Math.floor(index / cube.n_x))) found.push(index);
  }
  return found;
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

/** The bins beside a band, as many on each side as it has itself, within the cube. */
function besideBand(cube, [first, last]) {
  const width = last - first;
  return [[Math.max(first - width, 0), first], [last, Math.min(last + width, cube.n_wave)]];
}

/** The bin that a wavelength lies in, the first or last one beyond the ends. */
function nearestBin(cube, wavelength) {
  const next = cube.edges.findIndex((edge) => edge > wavelength);
  return next < 0 ? cube.n_wave - 1 : Math.max(next - 1, 0);
}

/**
 * The mean of the flux of a spaxel over its good bins in [first, last), each by its width, and the wavelength of their
 * middle; NaN where there is none.
 */
function meanFlux(cube, spaxel, [first, last]) {
  let [light, moment, total] = [0, 0, 0];
  for (let bin = first; bin < last; bin++) {
    const code = cube.flux.codes[spaxel * cube.n_wave + bin];
    if (code === cube.masked) continue;
    const width = cube.edges[bin + 1] - cube.edges[bin];
    light += width * code;
    moment += width * cube.wavelength[bin];
    total += width;
  }
  if (!total) return { flux: NaN, wavelength: NaN };
  return { flux: cube.flux.low[spaxel] + (cube.flux.step[spaxel] * light) / total, wavelength: moment / total };
}

/** The flux at a wavelength on the line through the means of both sides, or the mean of the side that there is. */
function continuum(cube, spaxel, beside, wavelength) {
  const [left, right] = beside.map((range) => meanFlux(cube, spaxel, range));
  if (Number.isNaN(left.flux)) return right.flux;
  if (Number.isNaN(right.flux)) return left.flux;
  const share = (wavelength - left.wavelength) / (right.wavelength - left.wavelength);
  return left.flux + share * (right.flux - left.flux);
}

/** The image of bins [first, last), per square arcsecond; less the continuum by both sides where that is subtracted. */
function binsImage(cube, bins, title, subtracted = false) {
  const beside = besideBand(cube, bins);
  const values = Float32Array.from({ length: cube.n_x * cube.n_y }, (_, spaxel) => {
    const { flux, wavelength } = meanFlux(cube, spaxel, bins);
    return (flux - (subtracted ? continuum(cube, spaxel, beside, wavelength) : 0)) / cube.pixel_scale ** 2;
  });
  return { title, unit: cube.band_unit, kind: "brightness", line: "", values, scale: brightnessScale(values) };
}
