// Lines at a redshift: where they are on the detector; in air by Ciddor 1996 (Applied Optics 35, 1566), as in
// physics/air.py.

function refractiveIndex(vacuum) {
  if (vacuum < 2000) return 1;
  const s2 = (1e4 / vacuum) ** 2;
  return 1 + 1e-8 * (5792105 / (238.0185 - s2) + 167917 / (57.362 - s2));
}

/** The wavelength in the cube's medium of a line at rest in vacuum. */
function observedWavelength(cube, rest, redshift) {
  const vacuum = rest * (1 + redshift);
  return cube.medium === "air" ? vacuum / refractiveIndex(vacuum) : vacuum;
}

/** The wavelength at rest in vacuum of one in the cube's medium. */
function restWavelength(cube, wavelength, redshift) {
  let vacuum = wavelength;
  for (let n = 0; n < 4 && cube.medium === "air"; n++) vacuum = wavelength * refractiveIndex(vacuum);
  return vacuum / (1 + redshift);
}

/** The marks of the lines of a kind (or "all") within the cube: {name, wavelength, kind}. */
function lineMarks(cube, kind, redshift) {
  const [first, last] = [cube.edges[0], cube.edges[cube.n_wave]];
  return cube.lines
    .filter((own) => kind === "all" || own.kind === kind)
    .map((own) => ({ ...own, wavelength: observedWavelength(cube, own.rest, redshift) }))
    .filter(({ wavelength }) => wavelength >= first && wavelength <= last);
}
