// What both canvases need: sizes, ticks, lines, numbers in words.

const byId = (id) => document.getElementById(id);

/** Pixels per CSS pixel of what is drawn; 0: the screen's own. Pictures for export have more. */
const sharpness = { ratio: 0 };

/** The 2-D context of a canvas of `height` CSS pixels, scaled so that lengths are CSS pixels; cleared. */
function prepare(canvas, height) {
  const ratio = sharpness.ratio || window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return context;
}

/** A colour of the style sheet, by its name there: color("ink"). */
function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** About `count` round numbers from low to high. */
function ticks(low, high, count) {
  if (!(high - low > 1e-9 * Math.max(Math.abs(low), Math.abs(high)))) return [low]; // equal but for rounding
  const rough = (high - low) / count;
  const decade = 10 ** Math.floor(Math.log10(rough));
  const step = decade * [1, 2, 5, 10].find((factor) => factor * decade >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index++) found.push(index * step);
  return found;
}

/** Powers of ten from low to high, with 2 and 5 between them where they are few; round numbers where there are none. */
function logTicks(low, high) {
  const found = [];
  const factors = high / low < 200 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    found.push(...factors.map((factor) => factor * 10 ** power).filter((value) => value >= low && value <= high));
  }
  return found.length > 1 ? found : ticks(low, high, 4);
}

const SUPERSCRIPTS = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

/** A number of `digits` significant digits, as 1.2×10⁷ where it is large or small. */
function words(value, digits = 5) {
  if (!Number.isFinite(value)) return "no data";
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-3 && size < 1e5)) return minus(Number(value.toPrecision(digits)).toString());
  const [mantissa, power] = value.toExponential(digits - 1).split("e");
  const raised = [...power.replace("+", "")].map((letter) => SUPERSCRIPTS[letter]).join("");
  return minus(Number(mantissa) === 1 ? `10${raised}` : `${Number(mantissa)}×10${raised}`);
}

/** A unit that begins with a power of ten, to be written after a number. */
function times(unit) {
  return unit.startsWith("10") ? `× ${unit}` : unit;
}

function minus(text) {
  return text.replace("-", "−");
}

function signed(value, digits) {
  return (value < 0 ? "−" : "+") + Math.abs(value).toFixed(digits);
}

/** Text turned by a quarter, reading upwards, centred at (x, y), narrower letters where it is longer than `room`. */
function verticalText(context, text, x, y, room) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(text, 0, 0, room);
  context.restore();
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
