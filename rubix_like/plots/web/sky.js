// Where spaxels are: on the cube, on the sky; and lines of equal light.

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

/** Straight pieces [x0, y0, x1, y1] of the line where an image has a value, by the squares between spaxel centres. */
function contour({ n_x, n_y }, values, level) {
  const pieces = [];
  for (let y = 0; y + 1 < n_y; y++) {
    for (let x = 0; x + 1 < n_x; x++) {
      const corners = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1]];
      const heights = corners.map(([i, j]) => values[j * n_x + i] - level);
      if (heights.some(Number.isNaN)) continue;
      const crossings = [];
      corners.forEach((from, side) => {
        const [a, b, to] = [heights[side], heights[(side + 1) % 4], corners[(side + 1) % 4]];
        if (a < 0 === b < 0) return;
        crossings.push([0, 1].map((axis) => from[axis] + (a / (a - b)) * (to[axis] - from[axis])));
      });
      for (let n = 0; n + 1 < crossings.length; n += 2) pieces.push([...crossings[n], ...crossings[n + 1]]);
    }
  }
  return pieces;
}
