// What can be saved: spectra as CSV, the two pictures as PNG.

function saveFile(name, blob) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/**
 * Spectra [{label, flux, sigma, count}] (`how` they are made of spaxels) as comma-separated values: wavelength, then
 * flux, sigma and number of spaxels of each; comments after #. Voxels without a value are empty.
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

/** Draw again with three times the pixels; save the canvas below a title and the apertures' labels, in their colours. */
function savePicture(name, canvas, title, pins, draw) {
  sharpness.ratio = 3;
  draw();
  const picture = document.createElement("canvas");
  const rows = [{ label: title, color: color("ink") }, ...pins];
  const [row, edge] = [20 * sharpness.ratio, 8 * sharpness.ratio];
  [picture.width, picture.height] = [canvas.width, canvas.height + rows.length * row + edge];
  const context = picture.getContext("2d");
  context.fillStyle = color("page");
  context.fillRect(0, 0, picture.width, picture.height);
  context.font = `${13 * sharpness.ratio}px system-ui, sans-serif`;
  rows.forEach(({ label, color: style }, n) => {
    context.fillStyle = style;
    context.fillText(label, edge, (n + 1) * row - edge / 4, picture.width - 2 * edge);
  });
  context.drawImage(canvas, 0, picture.height - canvas.height);
  sharpness.ratio = 0;
  draw();
  picture.toBlob((blob) => saveFile(name, blob), "image/png");
}
