// The image of the field: colours, axes in arcsec, colour bar, directions, scale bar, contours, cursor and apertures.

const IMAGE_MARGIN = { left: 46, right: 88, top: 10, bottom: 40 };

function imageView(cube, canvas) {
  let box = { left: 0, top: 0, width: 1, height: 1 };
  const [left, right, bottom, top] = cube.extent;

  /** `scale`: of its colours; `apertures`: [{shape, x, y, radius, to, color}]; `levels`: {values, at} of contours. */
  function draw(image, scale, cursor, apertures, levels) {
    const margin = IMAGE_MARGIN;
    const width = Math.max(canvas.clientWidth - margin.left - margin.right, 60);
    const height = Math.min(Math.max((width * cube.n_y) / cube.n_x, 40), 900);
    box = { left: margin.left, top: margin.top, width, height };
    const context = prepare(canvas, height + margin.top + margin.bottom);
    paint(context, image, scale);
    if (levels) drawContours(context, levels);
    drawAxes(context);
    drawColorBar(context, image, scale);
    drawSky(context);
    for (const aperture of apertures) outline(context, aperture);
    mark(context, cursor, "#ffffff", 1.5);
  }

  function paint(context, image, scale) {
    const picture = new ImageData(cube.n_x, cube.n_y);
    const table = colorTable(scale.colors);
    const none = image.kind === "brightness" ? [0, 0, 0] : color("none").match(/\w\w/g).map((word) => parseInt(word, 16));
    image.values.forEach((value, index) => {
      const place = cube.n_x * (cube.n_y - 1 - Math.floor(index / cube.n_x)) + (index % cube.n_x);
      const fraction = scaleFraction(scale, value);
      const start = 3 * Math.round(255 * Math.min(Math.max(fraction, 0), 1));
      const rgb = Number.isNaN(fraction) ? none : table.subarray(start, start + 3);
      picture.data.set([...rgb, 255], 4 * place);
    });
    const small = new OffscreenCanvas(cube.n_x, cube.n_y);
    small.getContext("2d").putImageData(picture, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, box.left, box.top, box.width, box.height);
  }

  function drawAxes(context) {
    context.strokeStyle = color("soft");
    context.fillStyle = color("ink");
    context.strokeRect(box.left, box.top, box.width, box.height);
    context.textAlign = "center";
    context.textBaseline = "top";
    const foot = box.top + box.height;
    for (const value of ticks(right, left, Math.max(box.width / 70, 2))) {
      const x = box.left + ((left - value) / (left - right)) * box.width;
      line(context, x, foot, x, foot - 4);
      context.fillText(words(value, 3), x, foot + 5);
    }
    context.fillText(cube.north_is_up ? "East (arcsec)" : "offset (arcsec)", box.left + box.width / 2, foot + 22);
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const value of ticks(bottom, top, Math.max(box.height / 60, 2))) {
      const y = foot - ((value - bottom) / (top - bottom)) * box.height;
      line(context, box.left, y, box.left + 4, y);
      context.fillText(words(value, 3), box.left - 5, y);
    }
    verticalText(context, cube.north_is_up ? "North (arcsec)" : "offset (arcsec)", 9, box.top + box.height / 2);
  }

  function drawColorBar(context, image, scale) {
    const x = box.left + box.width + 10;
    const table = colorTable(scale.colors);
    for (let row = 0; row < box.height; row++) {
      const start = 3 * Math.round(255 * (1 - row / box.height));
      context.fillStyle = `rgb(${table.subarray(start, start + 3).join(" ")})`;
      context.fillRect(x, box.top + row, 12, Math.min(1.5, box.height - row));
    }
    context.strokeStyle = color("soft");
    context.strokeRect(x, box.top, 12, box.height);
    context.fillStyle = color("ink");
    context.textAlign = "left";
    context.textBaseline = "middle";
    let free = Infinity; // above it there is room for the next number
    for (const value of scale.stretch === "log" ? logTicks(scale.low, scale.high) : ticks(scale.low, scale.high, 5)) {
      const y = box.top + (1 - scaleFraction(scale, value)) * box.height;
      if (y > free) continue;
      free = y - 13;
      line(context, x + 12, y, x + 8, y);
      context.fillText(words(value, 3), x + 16, y);
    }
    const stretch = scale.stretch === "linear" ? "" : `${image.unit ? ", " : ""}${scale.stretch} scale`;
    verticalText(context, image.unit + stretch, canvas.clientWidth - 9, box.top + box.height / 2, box.height + 16);
  }

  function drawContours(context, { values, at }) {
    for (const [style, width] of [["rgb(0 0 0 / 55%)", 2.5], ["#ffffff", 1]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      for (const level of at) {
        for (const [x0, y0, x1, y1] of contour(cube, values, level)) {
          context.moveTo(...placeIn(x0, y0));
          context.lineTo(...placeIn(x1, y1));
        }
      }
      context.stroke();
    }
    context.lineWidth = 1;
  }

  /** Canvas pixels of a position in spaxels: whole numbers are their centres. */
  function placeIn(x, y) {
    return [box.left + ((x + 0.5) / cube.n_x) * box.width, box.top + (1 - (y + 0.5) / cube.n_y) * box.height];
  }

  /** Arrows towards North and East in the lower right, a scale bar in the lower left, legible on any colour. */
  function drawSky(context) {
    const arrow = Math.min(22, box.width / 8);
    const steps = Object.entries(cube.directions);
    const furthest = (axis, sign) => Math.max(0, ...steps.map(([, step]) => sign * step[axis]));
    const foot = [
      box.left + box.width - 16 - (arrow + 4) * furthest(0, 1),
      box.top + box.height - 14 - (arrow + 4) * furthest(1, -1),
    ];
    const length = (cube.scale_bar.arcsec / (left - right)) * box.width;
    const start = [box.left + 12, box.top + box.height - 12];
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const [style, width] of [["rgb(0 0 0 / 70%)", 3.5], ["#ffffff", 1.5]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      line(context, ...start, start[0] + length, start[1]);
      for (const [, step] of steps) line(context, ...foot, foot[0] + arrow * step[0], foot[1] - arrow * step[1]);
    }
    context.lineWidth = 1;
    outlined(context, cube.scale_bar.label, start[0] + length / 2, start[1] - 10);
    for (const [name, step] of steps) {
      outlined(context, name, foot[0] + (arrow + 8) * step[0], foot[1] - (arrow + 8) * step[1]);
    }
  }

  function outlined(context, text, x, y) {
    context.strokeStyle = "rgb(0 0 0 / 70%)";
    context.lineWidth = 3;
    context.strokeText(text, x, y);
    context.fillStyle = "#ffffff";
    context.fillText(text, x, y);
    context.lineWidth = 1;
  }

  /** A frame around a spaxel, at least 8 pixels wide. */
  function mark(context, { x, y }, style, width) {
    const [frame, tall] = [Math.max(box.width / cube.n_x, 8), Math.max(box.height / cube.n_y, 8)];
    const [left, top] = placeIn(x, y);
    twice(context, style, width, () => context.strokeRect(left - frame / 2, top - tall / 2, frame, tall));
  }

  function outline(context, { shape, x, y, radius, to, color: style }) {
    if (shape === "spaxel") return mark(context, { x, y }, style, 3);
    const [wide, high] = [box.width / cube.n_x, box.height / cube.n_y];
    return twice(context, style, 2.5, () => {
      if (shape === "circle") {
        context.beginPath();
        context.ellipse(...placeIn(x, y), radius * wide, radius * high, 0, 0, 2 * Math.PI);
        context.stroke();
      } else {
        const corner = placeIn(Math.min(x, to.x) - 0.5, Math.max(y, to.y) + 0.5);
        context.strokeRect(...corner, (Math.abs(x - to.x) + 1) * wide, (Math.abs(y - to.y) + 1) * high);
      }
    });
  }

  /** On a black edge, so that it is seen on any colour; within the picture. */
  function twice(context, style, width, stroke) {
    context.save();
    context.beginPath();
    context.rect(box.left - 4, box.top - 4, box.width + 8, box.height + 8);
    context.clip();
    for (const [ink, thickness] of [["#000000", width + 2], [style, width]]) {
      context.strokeStyle = ink;
      context.lineWidth = thickness;
      stroke();
    }
    context.restore();
  }

  /** The position under the pointer in spaxels (whole numbers are centres), and the spaxel there or nearest to it. */
  function spaxelAt(event) {
    const at = {
      x: ((event.offsetX - box.left) / box.width) * cube.n_x - 0.5,
      y: (1 - (event.offsetY - box.top) / box.height) * cube.n_y - 0.5,
    };
    const nearest = (value, count) => Math.min(Math.max(Math.round(value), 0), count - 1);
    const spaxel = { x: nearest(at.x, cube.n_x), y: nearest(at.y, cube.n_y) };
    return { spaxel, at, inside: Math.abs(spaxel.x - at.x) <= 0.5 && Math.abs(spaxel.y - at.y) <= 0.5 };
  }

  return { draw, spaxelAt, box: () => box };
}
