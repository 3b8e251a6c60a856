// What is chosen, and the numbers and forms beside the pictures.

const CONTOURS = [0.9, 0.5, 0.25, 0.1, 0.03, 0.01]; // of the brightest white light

async function startPage() {
  const cube = await readCube();
  const image = imageView(cube, byId("image"));
  const spectrum = spectrumView(cube, byId("spectrum"));
  const whole = [cube.edges[0], cube.edges[cube.n_wave]];
  const white = cube.images[0].values;
  const state = {
    cursor: brightestSpaxel(cube, white),
    tool: "spaxel", // or "circle", "box"
    statistic: "sum", // or "mean"
    anchor: null, // where an aperture was begun by the keyboard
    preview: null, // an aperture that is being drawn
    pins: [], // apertures with their spectra: {shape, x, y, radius, to, label, color, spaxels, flux, sigma, count}
    shown: "0", // index of an image, or "slice", "band"
    looks: {}, // how an image is shown: {stretch, colors, percent, low, high}
    contours: false,
    band: null,
    bandImage: null,
    subtracted: false,
    bin: Math.floor(cube.n_wave / 2),
    view: whole,
    lines: "",
    redshift: cube.redshift,
  };
  let waiting = false;

  function change(changes) {
    Object.assign(state, changes);
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  }

  function shownImage() {
    if (state.shown === "band") return state.bandImage;
    if (state.shown !== "slice") return cube.images[state.shown];
    return binsImage(cube, [state.bin, state.bin + 1], `${cube.wavelength[state.bin].toFixed(2)} Å`);
  }

  function draw() {
    const under = state.preview || spectrumOf(cube, [state.cursor.y * cube.n_x + state.cursor.x]);
    const shown = shownImage();
    drawImage(shown);
    drawSpectrum(under);
    writeReadout(shown, under);
    writePins();
    writeBand();
    writeLook(shown);
    byId("image-choice").value = state.shown;
  }

  function drawImage(shown) {
    const peak = white.reduce((most, value) => (value > most ? value : most), 0);
    const levels = state.contours && { values: white, at: CONTOURS.map((share) => share * peak) };
    const outlines = state.preview ? [...state.pins, { ...state.preview, color: "#ffffff" }] : state.pins;
    image.draw(shown, chosenScale(shown, state.looks[state.shown]), state.cursor, outlines, levels);
  }

  function drawSpectrum(under) {
    const bands = [];
    if (state.band && state.subtracted) {
      for (const [first, last] of besideBand(cube, bandBins(cube, state.band))) {
        if (last > first) bands.push({ range: [cube.edges[first], cube.edges[last]], color: color("beside") });
      }
    }
    if (state.band) bands.push({ range: state.band, color: color("band") });
    const lines = [...state.pins, { ...under, color: color("ink") }];
    spectrum.draw(lines, state.view, bands, state.bin, state.lines ? lineMarks(cube, state.lines, state.redshift) : []);
  }

  function writeReadout(shown, { flux, sigma }) {
    const { x, y } = state.cursor;
    const place = placeOf(cube, x, y);
    const span = ([first, last]) => (first === last ? `${first}` : `${first}-${last}`);
    const wavelength = cube.wavelength[state.bin];
    const texts = {
      "read-spaxel": `${span(place.columns)}, ${span(place.rows)}`,
      "read-offset": `${signed(place.east, 2)}″, ${signed(place.north, 2)}″`,
      "read-sky": `${place.ra.toFixed(6)}°, ${signed(place.dec, 6)}°`,
      "read-image-name": shown.title,
      "read-image": withUnit(shown.values[y * cube.n_x + x], shown.unit),
      "read-wavelength": `${wavelength.toFixed(2)} Å`,
      "read-rest": `${restWavelength(cube, wavelength, state.redshift).toFixed(2)} Å`,
      "read-flux-name": state.preview ? `flux, ${state.preview.label}` : "flux per spaxel",
      "read-flux": fluxText(flux[state.bin], sigma && sigma[state.bin]),
    };
    for (const [id, text] of Object.entries(texts)) byId(id).textContent = text;
  }

  function withUnit(value, unit) {
    return Number.isFinite(value) ? `${words(value)} ${times(unit)}`.trim() : "no data";
  }

  function fluxText(flux, sigma) {
    if (!Number.isFinite(flux)) return "masked";
    const value = Number.isFinite(sigma) && sigma !== null ? `(${words(flux)} ± ${words(sigma, 3)})` : words(flux);
    return `${value} ${times(cube.flux_unit)}`;
  }

  function writePins() {
    const items = state.pins.map((pin) => {
      const item = document.createElement("li");
      const swatch = item.appendChild(document.createElement("span"));
      swatch.className = "swatch";
      swatch.style.background = pin.color;
      const error = pin.sigma && Number.isFinite(pin.sigma[state.bin]) ? ` ± ${words(pin.sigma[state.bin], 3)}` : "";
      item.append(`${pin.label}: ${words(pin.flux[state.bin])}${error}`);
      const button = item.appendChild(document.createElement("button"));
      button.textContent = "×";
      button.setAttribute("aria-label", `Remove ${pin.label}`);
      button.addEventListener("click", () => remove(pin));
      return item;
    });
    byId("pins").replaceChildren(...items);
  }

  function writeBand() {
    const [first, last] = state.band ? bandBins(cube, state.band) : [0, 0];
    const rest = state.subtracted ? "less the line through those of as many bins on both sides" : "nothing is subtracted";
    byId("band-text").textContent = state.band
      ? `The image is the mean over ${last - first} bin${last - first > 1 ? "s" : ""} of the band; ${rest}.`
      : "";
    for (const id of ["band-clear", "zoom-band"]) byId(id).disabled = !state.band;
    byId("zoom-all").disabled = state.view === whole;
    byId("image-choice").lastElementChild.disabled = !state.band;
  }

  function writeLook(shown) {
    const look = state.looks[state.shown] || {};
    const scale = chosenScale(shown, look);
    for (const name of ["stretch", "colors", "percent"]) byId(name).value = look[name] || "";
    for (const name of ["low", "high"]) {
      const field = byId(`look-${name}`);
      if (document.activeElement !== field) field.value = Number(scale[name].toPrecision(4));
    }
  }

  /** An aperture with its spectrum, of the chosen tool, from a spaxel to a position. */
  function measured({ shape, x, y, radius, to }) {
    const spaxels = spaxelsIn(cube, { shape, x, y, radius, to });
    const count = spaxels.reduce((sum, spaxel) => sum + cube.weights[spaxel], 0);
    const [from, end] = [placeOf(cube, x, y), placeOf(cube, (to || { x }).x, (to || { y }).y)];
    const place = ({ columns, rows }) => `(${columns[0]}, ${rows[0]})`;
    const number = `${count} spaxel${count > 1 ? "s" : ""}`;
    const label = {
      spaxel: () => place(from),
      circle: () => `circle of ${words(radius * cube.block * cube.pixel_scale, 3)}″ at ${place(from)}, ${number}`,
      box: () => `box from ${place(from)} to ${place(end)}, ${number}`,
    }[shape]();
    const statistic = shape === "spaxel" ? "mean" : state.statistic;
    return { shape, x, y, radius, to, label, spaxels, ...spectrumOf(cube, spaxels, statistic) };
  }

  function preview({ x, y }, to) {
    const radius = Math.hypot(to.x - x, to.y - y);
    change({ preview: measured({ shape: state.tool, x, y, radius, to }) });
  }

  /** End an aperture that was begun at a spaxel: a click of the circle has the radius of the form. */
  function finish({ x, y }) {
    const drawn = state.preview;
    const radius = byId("radius").valueAsNumber / (cube.block * cube.pixel_scale);
    const clicked = state.tool === "circle" && !(drawn && drawn.radius >= 0.5);
    change({ anchor: null, preview: null });
    if (!clicked) add(drawn || measured({ shape: state.tool, x, y, to: { x, y } }));
    else if (radius >= 0) add(measured({ shape: "circle", x, y, radius }));
    else say("A circle needs a radius.");
  }

  /** Pin an aperture in the first colour that is free. */
  function add(aperture) {
    const free = cube.spaxel_colors.find((candidate) => !state.pins.some((pin) => pin.color === candidate));
    if (!free) return say(`At most ${cube.spaxel_colors.length} apertures can be pinned; remove one first.`);
    change({ pins: [...state.pins, { ...aperture, color: free }] });
    return say(`Pinned ${state.pins.length} of ${cube.spaxel_colors.length}: ${aperture.label}.`);
  }

  function remove(pin) {
    change({ pins: state.pins.filter((own) => own !== pin) });
    say("Aperture removed.");
  }

  /** Pin a spaxel, or remove its pin. */
  function toggle({ x, y }) {
    const found = state.pins.find((pin) => pin.shape === "spaxel" && pin.x === x && pin.y === y);
    if (found) remove(found);
    else add(measured({ shape: "spaxel", x, y }));
  }

  /** The key Enter: pin the spaxel, or begin and end a circle or box. */
  function enter() {
    if (state.tool === "spaxel") return toggle(state.cursor);
    if (state.anchor) return finish(state.anchor);
    change({ anchor: state.cursor });
    return say(`A ${state.tool} begins at ${state.cursor.x}, ${state.cursor.y}; arrows open it, Enter ends it.`);
  }

  function move([right, up], by) {
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const { x, y } = state.cursor;
    change({ cursor: { x: within(x + by * right, cube.n_x), y: within(y + by * up, cube.n_y) } });
    if (state.anchor) preview(state.anchor, state.cursor);
    sayReadout();
  }

  /** Choose a band by its two ends (in any order), or none. */
  function setBand(ends) {
    if (!ends) {
      byId("band-form").reset();
      byId("subtract").checked = state.subtracted;
      return change({ band: null, bandImage: null, shown: state.shown === "band" ? "0" : state.shown });
    }
    const band = ends.map((value) => Math.min(Math.max(value, whole[0]), whole[1])).sort((a, b) => a - b);
    const title = `${band[0].toFixed(1)} to ${band[1].toFixed(1)} Å`;
    [byId("band-low").value, byId("band-high").value] = band.map((value) => value.toFixed(1));
    const bandImage = binsImage(cube, bandBins(cube, band), title, state.subtracted);
    return change({ band, bandImage, shown: "band" });
  }

  /** To the next bin; with Shift the band's end that is at the marked bin moves along. */
  function moveBin(step, widen) {
    const before = cube.wavelength[state.bin];
    const bin = Math.min(Math.max(state.bin + step, 0), cube.n_wave - 1);
    change({ bin });
    if (widen) {
      const [low, high] = state.band || [before, before];
      const fixed = Math.abs(before - low) < Math.abs(before - high) ? high : low;
      setBand([fixed, cube.wavelength[bin]]);
    }
    sayReadout();
  }

  /** Show these wavelengths, as far as the cube has them; at least four bins. */
  function setView(view) {
    if (!view) return;
    const middle = nearestBin(cube, (view[0] + view[1]) / 2);
    const least = 4 * (cube.edges[middle + 1] - cube.edges[middle]);
    const span = Math.min(Math.max(view[1] - view[0], least), whole[1] - whole[0]);
    const low = Math.min(Math.max((view[0] + view[1] - span) / 2, whole[0]), whole[1] - span);
    change({ view: span < whole[1] - whole[0] ? [low, low + span] : whole });
  }

  function zoom(factor, around = cube.wavelength[state.bin]) {
    setView(state.view.map((end) => around + factor * (end - around)));
  }

  function shift(by) {
    const step = by * (state.view[1] - state.view[0]);
    setView(state.view.map((end) => end + step));
  }

  function say(text) {
    byId("status").textContent = text;
  }

  /** What a screen reader hears after a key. */
  function sayReadout() {
    requestAnimationFrame(() => {
      const parts = ["read-spaxel", "read-image", "read-wavelength", "read-flux"].map((id) => byId(id).textContent);
      say(`Spaxel ${parts[0]}: ${parts[1]}; at ${parts[2]}: ${parts[3]}`);
    });
  }

  function fillChoices() {
    const choice = byId("image-choice");
    choice.replaceChildren(); // in a page that a browser saved they are there
    byId("colors").length = 1;
    const lines = {};
    cube.images.forEach((entry, index) => {
      if (entry.line && !lines[entry.line]) {
        lines[entry.line] = choice.appendChild(document.createElement("optgroup"));
        lines[entry.line].label = entry.line;
      }
      (lines[entry.line] || choice).appendChild(new Option(entry.title, String(index)));
    });
    choice.add(new Option("slice at the marked wavelength", "slice"));
    choice.add(new Option("narrow band", "band"));
    for (const name of Object.keys(COLOR_MAPS)) byId("colors").add(new Option(name, name));
    byId("redshift").value = cube.redshift;
    byId("radius").value = Number((0.1 * cube.cube_n_x * cube.pixel_scale).toPrecision(2));
  }

  function listenToForms() {
    const on = (id, action, name = "change") => byId(id).addEventListener(name, () => action(byId(id)));
    on("image-choice", ({ value }) => change({ shown: value }));
    on("tool", ({ value }) => setTool(value));
    on("statistic", ({ value }) => setStatistic(value));
    for (const name of ["stretch", "colors", "percent"]) on(name, ({ value }) => setLook({ [name]: value }));
    on("look-low", ({ valueAsNumber }) => setLook({ low: Number.isFinite(valueAsNumber) ? valueAsNumber : null }));
    on("look-high", ({ valueAsNumber }) => setLook({ high: Number.isFinite(valueAsNumber) ? valueAsNumber : null }));
    on("contours", ({ checked }) => change({ contours: checked }));
    on("line-choice", ({ value }) => change({ lines: value }));
    on("redshift", ({ valueAsNumber }) => valueAsNumber > -1 && change({ redshift: valueAsNumber }), "input");
    on("subtract", ({ checked }) => {
      state.subtracted = checked;
      if (state.band) setBand(state.band);
    });
    byId("band-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const ends = ["band-low", "band-high"].map((id) => byId(id).valueAsNumber);
      if (ends.every(Number.isFinite)) setBand(ends);
      else say("A band needs two numbers.");
    });
    const clicks = {
      "band-clear": () => setBand(null),
      "zoom-band": () => setView(roomAround(state.band)),
      "zoom-all": () => change({ view: whole }),
      "zoom-in": () => zoom(0.5),
      "zoom-out": () => zoom(2),
      "shift-left": () => shift(-0.5),
      "shift-right": () => shift(0.5),
      "save-csv": saveSpectra,
      "save-image": () => saveCanvas("image", `${cube.title}: ${shownImage().title}`),
      "save-spectrum": () => saveCanvas("spectrum", cube.title),
    };
    for (const [id, action] of Object.entries(clicks)) on(id, action, "click");
  }

  function setTool(tool) {
    const opening = "Enter begins and ends it, arrows open it, Escape drops it";
    const [drag, keys] = {
      spaxel: ["Move over a spaxel for its spectrum; a tap or click pins it.", "arrows move (Shift: by 5), Enter pins"],
      circle: ["Drag from the centre to the edge, or click for the radius above.", opening],
      box: ["Drag from corner to corner.", opening],
    }[tool];
    byId("image").style.touchAction = tool === "spaxel" ? "pan-y" : "none"; // a finger draws and does not scroll
    byId("radius-label").hidden = tool !== "circle";
    byId("drag-help").textContent = drag;
    byId("key-help").textContent = `Keys: ${keys}.`;
    change({ tool, anchor: null, preview: null });
  }

  function setStatistic(statistic) {
    state.statistic = statistic;
    change({ pins: state.pins.map((pin) => ({ ...measured(pin), color: pin.color })) });
  }

  /** Change how the shown image looks; a percentile takes the place of limits. */
  function setLook(changes) {
    const look = { ...state.looks[state.shown], ...changes };
    if ("percent" in changes) [look.low, look.high] = [null, null];
    change({ looks: { ...state.looks, [state.shown]: look } });
  }

  /** The band with as much room again, at least 8 bins. */
  function roomAround([low, high]) {
    const room = Math.max((high - low) / 2, 4 * (cube.edges[state.bin + 1] - cube.edges[state.bin]));
    return [low - room, high + room];
  }

  function saveCanvas(id, title) {
    savePicture(`${id}.png`, byId(id), title, state.pins, draw);
  }

  /** The pinned spectra, or the one of the marked spaxel. */
  function saveSpectra() {
    const spectra = state.pins.length ? state.pins : [measured({ shape: "spaxel", ...state.cursor })];
    const statistic = { sum: "sums of apertures are over good voxels", mean: "means per spaxel" }[state.statistic];
    saveFile("spectra.csv", new Blob([spectraText(cube, spectra, statistic)], { type: "text/csv" }));
  }

  const page = { cube, state, image, spectrum, shownImage, change, preview, finish, toggle, enter, move };
  Object.assign(page, { setBand, moveBin, setView, zoom, shift });
  fillChoices();
  setTool("spaxel");
  listenToImage(page, byId("image"));
  listenToSpectrum(page, byId("spectrum"));
  listenToForms();
  for (const [x, y] of cube.start.pins) toggle({ x, y });
  if (cube.start.band) setBand(cube.start.band);
  window.addEventListener("resize", () => change({}));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change({}));
  draw();
  byId("reading").hidden = true;
  return page;
}

let page = null;
startPage().then(
  (started) => (page = started),
  (error) => {
    byId("reading").textContent = `This page cannot be drawn (${error.message}); it needs a browser of 2023 or later.`;
    throw error;
  },
);
