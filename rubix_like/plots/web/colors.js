// Colour maps as 33 evenly spaced colours each: magma, viridis (N. Smith, S. van der Walt) and cividis
// (J. Nunez, C. Anderton, R. Renslow 2018) as released into the public domain (CC0) with matplotlib; RdBu is
// ColorBrewer's (C. Brewer), reversed; grey is linear.

const COLOR_MAPS = {
  magma:
    "0000040303120a0822130d341d114729115a36106b440f7651127c5d177f6a1c81762181832681902a819c2e7faa337d" +
    "b73779c43c75d0416fdc4869e75263ef5d5ef56b5cf9795dfc8961fd9869fea772feb67cfec488fed395fde2a3fcf0b2" +
    "fcfdbf",
  viridis:
    "440154470d6048186a482374472d7b4537814240863e49893b528b375b8d33638d2f6b8e2c728e297a8e26828e23898e" +
    "21918c1f988b1fa08822a78528ae8032b67a3fbc734ec36b5ec96270cf5784d44b98d83eaddc30c2df23d8e219ece51b" +
    "fde725",
  cividis:
    "00224e00285b002e6a0533711a386f273e6e32436d3b496c434e6c4b546c535a6d5a5f6e61656f686a716f7073767676" +
    "7d7c788482798c8878938e789b9476a39a74aba072b4a76fbcae6cc4b468cdbb63d5c25edec958e7d150f0d846f9e03a" +
    "fee838",
  RdBu_r:
    "0530610e41791752901f63a82a71b23480b93f8ec0529dc86bacd184bcd99bc9e0aed3e6c2ddecd4e6f1e0ecf3ecf2f5" +
    "f7f6f6f9eee7fbe5d8fddcc9fbccb4f8bb9ef5aa89ee9677e48066db6b55d05548c53e3dba2832ab162a930e267c0722" +
    "67001f",
  Greys_r:
    "000000ffffff",
};

/** The colours of a map as 256 x 3 bytes. */
function colorTable(name) {
  const words = COLOR_MAPS[name].match(/.{6}/g).map((word) => [0, 2, 4].map((k) => parseInt(word.slice(k, k + 2), 16)));
  const table = new Uint8ClampedArray(256 * 3);
  for (let index = 0; index < 256; index++) {
    const place = (index / 255) * (words.length - 1);
    const below = Math.min(Math.floor(place), words.length - 2);
    for (let k = 0; k < 3; k++) {
      table[3 * index + k] = words[below][k] + (place - below) * (words[below + 1][k] - words[below][k]);
    }
  }
  return table;
}

const SOFTENING = 10; // asinh: linear below 1 / SOFTENING of the range, logarithmic above

/** Where a value lies on a scale: 0 at its low end, 1 at its high end, NaN where it has no colour. */
function scaleFraction({ low, high, stretch, colors }, value) {
  if (stretch === "log") return value > 0 ? Math.log(value / low) / Math.log(high / low) : NaN;
  const fraction = (value - low) / (high - low);
  if (stretch !== "asinh") return fraction;
  const curve = (part) => Math.asinh(SOFTENING * part) / Math.asinh(SOFTENING);
  return colors === DIVERGING ? (1 + curve(2 * fraction - 1)) / 2 : curve(fraction);
}

const DIVERGING = "RdBu_r";

/** The scale of an image as it was chosen: {stretch, colors, percent, low, high}, each its own where it is missing. */
function chosenScale(image, look = {}) {
  const own = image.scale;
  let stretch = look.stretch || own.stretch;
  const limits = look.percent ? percentiles(image, look.percent) : [own.low, own.high];
  let [low, high] = [look.low ?? limits[0], look.high ?? limits[1]];
  if (stretch === "log" && !(low > 0)) {
    const positive = Math.max(faintest(image.values), high * 1e-4);
    if (positive < high) low = positive;
    else stretch = "linear"; // nothing is above 0
  }
  if (!(high > low)) high = low + (Math.abs(low) || 1);
  return { colors: look.colors || own.colors, low, high, stretch };
}

/** The limits that leave out the same share at both ends; of velocities and the like, around their middle. */
function percentiles({ values, scale }, percent) {
  const middle = scale.colors === DIVERGING ? (scale.low + scale.high) / 2 : null;
  const found = values.filter(Number.isFinite).map((value) => (middle === null ? value : Math.abs(value - middle)));
  if (!found.length) return [scale.low, scale.high];
  const sorted = found.sort();
  const at = (share) => {
    const place = share * (sorted.length - 1);
    const below = Math.floor(place);
    return sorted[below] + (place - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
  };
  const out = (1 - percent / 100) / 2;
  return middle === null ? [at(out), at(1 - out)] : [middle - at(1 - 2 * out), middle + at(1 - 2 * out)];
}

function faintest(values) {
  return values.reduce((least, value) => (value > 0 && value < least ? value : least), Infinity);
}

/** Logarithmic colours for light, from its faintest value, or the noise, to its peak (as the pictures have them). */
function brightnessScale(values) {
  const found = values.filter(Number.isFinite);
  const peak = found.reduce((a, b) => Math.max(a, b), 0);
  if (peak <= 0) return { colors: "magma", low: 0, high: 1, stretch: "linear" };
  const negative = found.filter((value) => value < 0);
  const noise = negative.length ? Math.sqrt(negative.reduce((sum, v) => sum + v * v, 0) / negative.length) : 0;
  const low = Math.max(faintest(found), noise, peak * 1e-4);
  const [from, stretch] = low < peak ? [low, "log"] : [0, "linear"];
  return { colors: "magma", low: from, high: peak, stretch };
}
