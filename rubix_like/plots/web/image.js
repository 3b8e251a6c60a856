// The image of the field: colours, axes in arcsec, colour bar, directions, scale bar, cursor and pins.

const IMAGE_MARGIN = { left: 46, right: 88, top: 10, bottom: 40 };

function imageView(cube, canvas) {
  let box = { left: 0, top: 0, width: 1, height: 1 };
  const [left, right, bottom, top] = cube.extent;

  function draw(image, cursor, pins) {
    const margin = IMAGE_MARGIN;
    const width = Math.max(canvas.clientWidth - margin.left - margin.right, 60);
    const height = Math.min(Math.max((width * cube.n_y) / cube.n_x, 40), 900);
    box = { left: margin.left, top: margin.top, width, height };
    const context = prepare(canvas, height + margin.top + margin.bottom);
    paint(context, image);
    drawAxes(context);
    drawColorBar(context, image);
    drawSky(context);
    for (const pin of pins) mark(context, pin, pin.color, 3);
    if (cursor) mark(context, cursor, "#ffffff", 1.5);
  }

  function paint(context, image) {
    const picture = new ImageData(cube.n_x, cube.n_y);
    const table = colorTable(image.scale.colors);
    const none = image.kind === "brightness" ? [0, 0, 0] : color("none").match(/\w\w/g).map((word) => parseInt(word, 16));
    image.values.forEach((value, index) => {
      const place = cube.n_x * (cube.n_y - 1 - Math.floor(index / cube.n_x)) + (index % cube.n_x);
      const fraction = scaleFraction(image.scale, value);
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

  function drawColorBar(context, image) {
    const x = box.left + box.width + 10;
    const table = colorTable(image.scale.colors);
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
    const { low, high, logarithmic } = image.scale;
    for (const value of logarithmic ? logTicks(low, high) : ticks(low, high, 5)) {
      const y = box.top + (1 - scaleFraction(image.scale, value)) * box.height;
      line(context, x + 12, y, x + 8, y);
      context.fillText(words(value, 3), x + 16, y);
    }
    verticalText(context, image.unit, canvas.clientWidth - 9, box.top + box.height / 2);
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
    const [wide, high] = [box.width / cube.n_x, box.height / cube.n_y];
    const [frame, tall] = [Math.max(wide, 8), Math.max(high, 8)];
    const corner = [box.left + (x + 0.5) * wide - frame / 2, box.top + (cube.n_y - y - 0.5) * high - tall / 2];
    for (const [ink, thickness] of [["#000000", width + 2], [style, width]]) {
      context.strokeStyle = ink;
      context.lineWidth = thickness;
      context.strokeRect(...corner, frame, tall);
    }
    context.lineWidth = 1;
  }

  /** The spaxel under the pointer, or null beside the image. */
  function spaxelAt(event) {
    const x = Math.floor(((event.offsetX - box.left) / box.width) * cube.n_x);
    const y = cube.n_y - 1 - Math.floor(((event.offsetY - box.top) / box.height) * cube.n_y);
    return x >= 0 && x < cube.n_x && y >= 0 && y < cube.n_y ? { x, y } : null;
  }

  return { draw, spaxelAt, box: () => box };
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}
