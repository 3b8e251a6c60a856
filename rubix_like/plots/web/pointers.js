// What the mouse, fingers and keys do on the two pictures. `page` is what main.js makes: state and actions.

/** Move: the spectrum there. Click: an aperture of one spaxel. With the tools circle and box: drag one open. */
function listenToImage(page, canvas) {
  const { state, image, change } = page;
  let start = null; // the spaxel where the pointer went down
  canvas.addEventListener("pointerdown", (event) => {
    const { spaxel, inside } = image.spaxelAt(event);
    if (event.button !== 0 || !inside) return;
    change({ cursor: spaxel });
    if (state.tool === "spaxel") return;
    start = spaxel;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const { spaxel, at, inside } = image.spaxelAt(event);
    if (inside && !state.anchor) change({ cursor: spaxel });
    if (start) page.preview(start, state.tool === "circle" ? at : spaxel);
  });
  canvas.addEventListener("pointerup", () => {
    if (start) page.finish(start);
    start = null;
  });
  canvas.addEventListener("pointercancel", () => {
    start = null;
    change({ preview: null });
  });
  canvas.addEventListener("click", (event) => {
    const { spaxel, inside } = image.spaxelAt(event);
    if (inside && state.tool === "spaxel") page.toggle(spaxel);
  });
  canvas.addEventListener("keydown", (event) => {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Enter" || event.key === " ") page.enter();
    else if (event.key === "Escape") change({ anchor: null, preview: null });
    else if (steps[event.key]) page.move(steps[event.key], event.shiftKey ? 5 : 1);
    else return;
    event.preventDefault();
  });
}

/** Move: the wavelength there. Drag: a band. Two fingers, the wheel once the picture was clicked, and keys: zoom. */
function listenToSpectrum(page, canvas) {
  const { state, spectrum, change, cube } = page;
  const down = new Map(); // pointers that are down: {fraction, wavelength}
  let start = null; // {wavelength, x, band} where the first one went down
  const mark = (event) => change({ bin: nearestBin(cube, spectrum.wavelengthAt(event)) });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    const wavelength = spectrum.wavelengthAt(event);
    if (down.size && start) page.setBand(start.band);
    start = down.size ? null : { wavelength, x: event.offsetX, band: state.band };
    down.set(event.pointerId, { wavelength, fraction: spectrum.fractionAt(event) });
    canvas.setPointerCapture(event.pointerId);
    mark(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (down.has(event.pointerId)) down.get(event.pointerId).fraction = spectrum.fractionAt(event);
    if (down.size === 2) return page.setView(pinched([...down.values()]));
    mark(event);
    if (start && Math.abs(event.offsetX - start.x) > 3) page.setBand([start.wavelength, spectrum.wavelengthAt(event)]);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => {
      down.delete(event.pointerId);
      start = null;
    });
  }
  canvas.addEventListener("wheel", (event) => {
    if (document.activeElement !== canvas) return;
    event.preventDefault();
    page.zoom(event.deltaY < 0 ? 0.8 : 1.25, spectrum.wavelengthAt(event));
  });
  canvas.addEventListener("keydown", (event) => {
    const actions = {
      ArrowLeft: () => page.moveBin(-1, event.shiftKey),
      ArrowRight: () => page.moveBin(1, event.shiftKey),
      Escape: () => page.setBand(null),
      "+": () => page.zoom(0.5),
      "-": () => page.zoom(2),
      ",": () => page.shift(-0.5),
      ".": () => page.shift(0.5),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  });
}

/** The range in which two fingers keep the wavelengths that they were put on. */
function pinched([one, other]) {
  const span = (other.wavelength - one.wavelength) / (other.fraction - one.fraction);
  return span > 0 && Number.isFinite(span)
    ? [one.wavelength - one.fraction * span, one.wavelength + (1 - one.fraction) * span]
    : null;
}
