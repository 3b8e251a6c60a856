// What can be saved: spectra as CSV, the two pictures as PNG.

function saveFile(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * Spectra [{label, flux, sigma, count}] (`how` they are made of spaxels) as comma-separated values: wavelength, then flux, sigma and number of spaxels of
 * each; comments after #. Voxels without a value are empty.
 */
function spectraText(cube, spectra, how) {
  const cell = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(9))) : "");
  const columns = spectra.flatMap(({ flux, sigma, count }, n) => [
    [`flux_${n + 1}`, flux],
    ...(sigma ? [[`sigma_${n + 1}`, sigma]] : []),
    [`spaxels_${n + 1}`, count],
  ]);
  const comment = (text) => `# ${text}`.replace(/\s+/g, " ");
  const lines = [
    comment(cube.title),
    comment(`wavelength in Angstrom, in ${cube.medium}; flux and sigma in ${cube.flux_unit}; ${how}`),
    ...spectra.map(({ label }, n) => comment(`${n + 1}: ${label}`)),
    ["wavelength", ...columns.map(([name]) => name)].join(","),
  ];
  cube.wavelength.forEach((wavelength, bin) =>
    lines.push([wavelength, ...columns.map(([, values]) => values[bin])].map(cell).join(",")),
  );
  return lines.join("\n") + "\n";
}

/** Draw again with three times the pixels, and save the canvas below a title. */
function savePicture(name, canvas, title, draw) {
  sharpness.ratio = 3;
  draw();
  const picture = document.createElement("canvas");
  const room = 26 * sharpness.ratio;
  [picture.width, picture.height] = [canvas.width, canvas.height + room];
  const context = picture.getContext("2d");
  context.fillStyle = color("page");
  context.fillRect(0, 0, picture.width, picture.height);
  context.fillStyle = color("ink");
  context.font = `${13 * sharpness.ratio}px system-ui, sans-serif`;
  context.fillText(title, 8 * sharpness.ratio, 18 * sharpness.ratio, picture.width - 16 * sharpness.ratio);
  context.drawImage(canvas, 0, room);
  sharpness.ratio = 0;
  draw();
  picture.toBlob((blob) => saveFile(name, blob), "image/png");
}
