// The spectra: lines with their one-sigma bands, the chosen band, marks of lines, the wavelength under the pointer.

const SPECTRUM_MARGIN = { left: 70, right: 20, top: 12, bottom: 40 };

function spectrumView(cube, canvas) {
  let box = { left: 0, top: 0, width: 1, height: 1 };
  let range = [cube.edges[0], cube.edges[cube.n_wave]];
  let limits = [0, 1];

  /**
   * `lines`: [{flux, sigma, color}], the last one on top; `view`: shown wavelengths; `bands`: [{range, color}];
   * `bin`: the marked bin; `marks`: [{name, wavelength, kind}] of spectral lines.
   */
  function draw(lines, view, bands, bin, marks) {
    const margin = SPECTRUM_MARGIN;
    const width = Math.max(canvas.clientWidth - margin.left - margin.right, 60);
    box = { left: margin.left, top: margin.top, width, height: Math.min(Math.max(width * 0.45, 200), 380) };
    range = view;
    limits = yLimits(lines);
    const context = prepare(canvas, box.height + margin.top + margin.bottom);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    for (const band of bands) drawBand(context, band);
    drawGrid(context);
    for (const spectrum of lines) drawLine(context, spectrum);
    drawMarks(context, marks);
    drawCursor(context, lines, bin);
    context.restore();
    drawLabels(context);
  }

  function xOf(wavelength) {
    return box.left + ((wavelength - range[0]) / (range[1] - range[0])) * box.width;
  }

  function yOf(flux) {
    return box.top + (1 - (flux - limits[0]) / (limits[1] - limits[0])) * box.height;
  }

  /** The bins that are (partly) in view: first, last (exclusive). */
  function shown() {
    const first = cube.edges.findIndex((edge) => edge > range[0]) - 1;
    const last = cube.edges.findIndex((edge) => edge >= range[1]);
    return [Math.max(first, 0), last < 0 ? cube.n_wave : last];
  }

  function yLimits(lines) {
    let [low, high] = [Infinity, -Infinity];
    const [first, last] = shown();
    for (const { flux, sigma } of lines) {
      for (let bin = first; bin < last; bin++) {
        const width = (sigma && sigma[bin]) || 0; // none where sigma is NaN
        if (flux[bin] - width < low) low = flux[bin] - width;
        if (flux[bin] + width > high) high = flux[bin] + width;
      }
    }
    if (!(low < high)) return Number.isFinite(low) ? [low - 1, low + 1] : [0, 1];
    const edge = 0.06 * (high - low);
    return [low - edge, high + edge];
  }

  function drawBand(context, { range: [low, high], color: style }) {
    context.fillStyle = style;
    context.fillRect(xOf(low), box.top, Math.max(xOf(high) - xOf(low), 1), box.height);
  }

  /** Dashed lines; names where there is room, those of the first marks first: emission at the top, absorption below. */
  function drawMarks(context, marks) {
    const named = { emission: [], absorption: [] };
    context.save();
    context.setLineDash([4, 4]);
    context.textBaseline = "bottom";
    for (const { name, wavelength, kind } of marks) {
      const x = xOf(wavelength);
      if (x < box.left || x > box.left + box.width) continue;
      context.strokeStyle = color(kind);
      context.fillStyle = color(kind);
      line(context, x, box.top, x, box.top + box.height);
      if (x < box.left + 13 || named[kind].some((other) => Math.abs(x - other) < 14)) continue;
      named[kind].push(x);
      context.save();
      context.textAlign = kind === "emission" ? "right" : "left";
      context.translate(x - 1, kind === "emission" ? box.top + 4 : box.top + box.height - 4);
      context.rotate(-Math.PI / 2);
      context.setLineDash([]);
      context.lineWidth = 4;
      context.lineJoin = "round";
      context.strokeStyle = color("panel");
      context.strokeText(name, 0, 0);
      context.fillText(name, 0, 0);
      context.restore();
    }
    context.restore();
  }

  function drawGrid(context) {
    context.strokeStyle = color("grid");
    for (const value of xTicks()) line(context, xOf(value), box.top, xOf(value), box.top + box.height);
    for (const value of yTicks()) line(context, box.left, yOf(value), box.left + box.width, yOf(value));
  }

  function xTicks() {
    return ticks(range[0], range[1], Math.max(box.width / 65, 2));
  }

  function yTicks() {
    return ticks(limits[0], limits[1], box.height / 45);
  }

  function drawLine(context, { flux, sigma, color: style }) {
    const [first, last] = shown();
    if (sigma) drawErrors(context, flux, sigma, style, first, last);
    context.strokeStyle = style;
    context.beginPath();
    let down = false;
    for (let bin = first; bin < last; bin++) {
      const [x, y] = [xOf(cube.wavelength[bin]), yOf(flux[bin])];
      if (Number.isNaN(y)) down = false;
      else if (down) context.lineTo(x, y);
      else {
        const alone = !Number.isFinite(flux[bin + 1]);
        context.moveTo(alone ? x - 1 : x, y);
        if (alone) context.lineTo(x + 1, y);
        down = true;
      }
    }
    context.stroke();
  }

  /** Flux - sigma to flux + sigma, filled, bin by bin. */
  function drawErrors(context, flux, sigma, style, first, last) {
    context.save();
    context.globalAlpha = 0.3;
    context.fillStyle = style;
    context.beginPath();
    for (let bin = first; bin < last; bin++) {
      if (Number.isNaN(flux[bin]) || Number.isNaN(sigma[bin])) continue;
      const [left, right] = [xOf(cube.edges[bin]), xOf(cube.edges[bin + 1])];
      const top = yOf(flux[bin] + sigma[bin]);
      context.rect(left, top, right - left, yOf(flux[bin] - sigma[bin]) - top);
    }
    context.fill();
    context.restore();
  }

  function drawCursor(context, lines, bin) {
    if (bin === null) return;
    const x = xOf(cube.wavelength[bin]);
    context.strokeStyle = color("soft");
    line(context, x, box.top, x, box.top + box.height);
    for (const { flux, color: style } of lines) {
      if (Number.isNaN(flux[bin])) continue;
      context.fillStyle = style;
      context.beginPath();
      context.arc(x, yOf(flux[bin]), 3, 0, 2 * Math.PI);
      context.fill();
    }
  }

  function drawLabels(context) {
    context.strokeStyle = color("soft");
    context.strokeRect(box.left, box.top, box.width, box.height);
    context.fillStyle = color("ink");
    context.textAlign = "center";
    context.textBaseline = "top";
    const foot = box.top + box.height;
    for (const value of xTicks()) context.fillText(words(value, 6), xOf(value), foot + 5);
    context.fillText(`wavelength in ${cube.medium} (Å)`, box.left + box.width / 2, foot + 22);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of yTicks()) context.fillText(words(value, 4), box.left - 6, yOf(value));
    verticalText(context, cube.flux_unit, 10, box.top + box.height / 2, box.height);
  }

  /** How far along the axis the pointer is, from 0 to 1. */
  function fractionAt(event) {
    return Math.min(Math.max((event.offsetX - box.left) / box.width, 0), 1);
  }

  /** The wavelength under the pointer, within the shown range. */
  function wavelengthAt(event) {
    return range[0] + fractionAt(event) * (range[1] - range[0]);
  }

  return { draw, wavelengthAt, fractionAt, xOf, yOf };
}
