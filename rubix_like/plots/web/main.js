// What is chosen, what the pointer and the keys do, and the numbers beside the pictures.

const byId = (id) => document.getElementById(id);

function startPage() {
  const cube = readCube();
  const image = imageView(cube, byId("image"));
  const spectrum = spectrumView(cube, byId("spectrum"));
  const whole = [cube.edges[0], cube.edges[cube.n_wave]];
  const state = {
    cursor: brightestSpaxel(cube, cube.images[0].values),
    pins: [], // {x, y, color, flux, sigma}
    shown: 0, // index of an image, or "band"
    band: null,
    bandImage: null,
    bin: Math.floor(cube.n_wave / 2),
    view: whole,
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
    return state.shown === "band" ? state.bandImage : cube.images[state.shown];
  }

  function draw() {
    const under = { ...spectrumOf(cube, state.cursor.x, state.cursor.y), color: color("ink") };
    image.draw(shownImage(), state.cursor, state.pins);
    spectrum.draw([...state.pins, under], state.view, state.band, state.bin);
    writeReadout(under);
    writePins();
    writeBand();
    byId("image-choice").value = String(state.shown);
  }

  function writeReadout({ flux, sigma }) {
    const { x, y } = state.cursor;
    const place = placeOf(cube, x, y);
    const span = ([first, last]) => (first === last ? `${first}` : `${first}-${last}`);
    const shown = shownImage();
    byId("read-spaxel").textContent = `${span(place.columns)}, ${span(place.rows)}`;
    byId("read-offset").textContent = `${signed(place.east, 2)}″, ${signed(place.north, 2)}″`;
    byId("read-sky").textContent = `${place.ra.toFixed(6)}°, ${signed(place.dec, 6)}°`;
    byId("read-image-name").textContent = shown.title;
    byId("read-image").textContent = withUnit(shown.values[y * cube.n_x + x], shown.unit);
    byId("read-wavelength").textContent = `${cube.wavelength[state.bin].toFixed(2)} Å`;
    byId("read-flux").textContent = fluxText(flux[state.bin], sigma && sigma[state.bin]);
  }

  function withUnit(value, unit) {
    return Number.isFinite(value) ? `${words(value)} ${times(unit)}`.trim() : "no data";
  }

  function fluxText(flux, sigma) {
    if (!Number.isFinite(flux)) return "masked";
    const value = sigma === null ? words(flux) : `(${words(flux)} ± ${words(sigma, 3)})`;
    return `${value} ${times(cube.flux_unit)}`;
  }

  function writePins() {
    const items = state.pins.map((pin) => {
      const item = document.createElement("li");
      const swatch = item.appendChild(document.createElement("span"));
      swatch.className = "swatch";
      swatch.style.background = pin.color;
      const place = placeOf(cube, pin.x, pin.y);
      item.append(`(${place.columns[0]}, ${place.rows[0]})  ${words(pin.flux[state.bin], 4)}`);
      const button = item.appendChild(document.createElement("button"));
      button.textContent = "×";
      button.setAttribute("aria-label", `Remove the pin at (${place.columns[0]}, ${place.rows[0]})`);
      button.addEventListener("click", () => togglePin(pin));
      return item;
    });
    byId("pins").replaceChildren(...items);
  }

  function writeBand() {
    const [first, last] = state.band ? bandBins(cube, state.band) : [0, 0];
    byId("band-text").textContent = state.band
      ? `The image is the plain mean over ${last - first} bin${last - first > 1 ? "s" : ""} of the band; nothing is subtracted.`
      : "";
    for (const id of ["band-clear", "zoom-band"]) byId(id).disabled = !state.band;
    byId("zoom-all").disabled = state.view === whole;
    byId("image-choice").lastElementChild.disabled = !state.band;
  }

  /** Pin a spaxel, or remove its pin; the first colour that is free. */
  function togglePin({ x, y }) {
    const rest = state.pins.filter((pin) => pin.x !== x || pin.y !== y);
    if (rest.length === state.pins.length) {
      const free = cube.spaxel_colors.find((candidate) => !state.pins.some((pin) => pin.color === candidate));
      if (!free) return say(`At most ${cube.spaxel_colors.length} spaxels can be pinned; remove one first.`);
      rest.push({ x, y, color: free, ...spectrumOf(cube, x, y) });
      say(`Pinned ${rest.length} of ${cube.spaxel_colors.length}.`);
    } else say("Pin removed.");
    return change({ pins: rest });
  }

  function setBand(one, other) {
    const inside = (value) => Math.min(Math.max(value, whole[0]), whole[1]);
    const band = [inside(Math.min(one, other)), inside(Math.max(one, other))];
    byId("band-low").value = band[0].toFixed(1);
    byId("band-high").value = band[1].toFixed(1);
    change({ band, bandImage: bandImage(cube, band), shown: "band" });
  }

  function clearBand() {
    byId("band-form").reset();
    change({ band: null, bandImage: null, shown: state.shown === "band" ? 0 : state.shown });
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

  function listenToImage() {
    const canvas = byId("image");
    const follow = (event) => {
      const spaxel = image.spaxelAt(event);
      if (spaxel) change({ cursor: spaxel });
      return spaxel;
    };
    canvas.addEventListener("pointermove", follow);
    canvas.addEventListener("click", (event) => {
      const spaxel = follow(event);
      if (spaxel) togglePin(spaxel);
    });
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (event.key === "Enter" || event.key === " ") togglePin(state.cursor);
      else if (steps[event.key]) move(steps[event.key], event.shiftKey ? 5 : 1);
      else return;
      event.preventDefault();
    });
  }

  function move([right, up], by) {
    const within = (value, count) => Math.min(Math.max(value, 0), count - 1);
    const { x, y } = state.cursor;
    change({ cursor: { x: within(x + by * right, cube.n_x), y: within(y + by * up, cube.n_y) } });
    sayReadout();
  }

  function listenToSpectrum() {
    const canvas = byId("spectrum");
    let start = null; // {wavelength, x} where the pointer went down
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = { wavelength: spectrum.wavelengthAt(event), x: event.offsetX };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const wavelength = spectrum.wavelengthAt(event);
      change({ bin: nearestBin(cube, wavelength) });
      if (start && Math.abs(event.offsetX - start.x) > 3) setBand(start.wavelength, wavelength);
    });
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (start = null));
    canvas.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key === "Escape") clearBand();
      else if (steps[event.key]) moveBin(steps[event.key], event.shiftKey);
      else return;
      event.preventDefault();
    });
  }

  /** To the next bin; with Shift the band's end that is at the marked bin moves along. */
  function moveBin(step, widen) {
    const before = cube.wavelength[state.bin];
    const bin = Math.min(Math.max(state.bin + step, 0), cube.n_wave - 1);
    change({ bin });
    if (widen) {
      const [low, high] = state.band || [before, before];
      const fixed = Math.abs(before - low) < Math.abs(before - high) ? high : low;
      setBand(fixed, cube.wavelength[bin]);
    }
    sayReadout();
  }

  function listenToForms() {
    const choice = byId("image-choice");
    const lines = {};
    cube.images.forEach((entry, index) => {
      if (entry.line && !lines[entry.line]) {
        lines[entry.line] = choice.appendChild(document.createElement("optgroup"));
        lines[entry.line].label = entry.line;
      }
      (lines[entry.line] || choice).appendChild(new Option(entry.title, String(index)));
    });
    choice.add(new Option("narrow band", "band"));
    choice.addEventListener("change", () =>
      change({ shown: choice.value === "band" ? "band" : Number(choice.value) }),
    );
    byId("band-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const [low, high] = ["band-low", "band-high"].map((id) => byId(id).valueAsNumber);
      if (Number.isFinite(low) && Number.isFinite(high)) setBand(low, high);
      else say("A band needs two numbers.");
    });
    byId("band-clear").addEventListener("click", clearBand);
    byId("zoom-band").addEventListener("click", () => change({ view: zoomed(state.band) }));
    byId("zoom-all").addEventListener("click", () => change({ view: whole }));
  }

  /** The band with as much room again, at least 8 bins, within the cube. */
  function zoomed([low, high]) {
    const room = Math.max((high - low) / 2, 4 * (cube.edges[state.bin + 1] - cube.edges[state.bin]));
    return [Math.max(low - room, whole[0]), Math.min(high + room, whole[1])];
  }

  listenToImage();
  listenToSpectrum();
  listenToForms();
  for (const [x, y] of cube.start.pins) togglePin({ x, y });
  if (cube.start.band) setBand(...cube.start.band);
  window.addEventListener("resize", () => change({}));
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => change({}));
  draw();
  return { cube, state, image, spectrum, shownImage };
}

const page = startPage();
