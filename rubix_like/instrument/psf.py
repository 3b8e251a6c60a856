"""Point-spread functions: their images on the grid of spaxels, at one or several wavelengths.

Widths are those before the spaxel's box. An image holds the share of the light of a star in each painted cell that a
spaxel sees: the profile integrated over the spaxel, sharpened by what the deposit spreads the star. It is
differentiable in the widths and becomes the single spaxel where they go to 0.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy import ndarray

from rubix_like.config import PSFSettings
from rubix_like.constants import FWHM_PER_SIGMA
from rubix_like.errors import ConfigError
from rubix_like.instrument.painting import ON_SPAXELS, Painting
from rubix_like.instrument.psf_images import adaptive_images, load_psf_image, on_spaxels, sharpening, warn_off_centre
from rubix_like.instrument.psf_profile import (
    WavelengthNodes,
    gaussian_weights_in_spaxel,
    moffat_image,
    shared_out,
    sharpened,
)

USUAL_CHANGE: float = 0.05
"""Relative change of each width (and of beta - 1) that the PSF is planned for: enough for its gradient."""

_LARGEST_REACH = 1000
_FARTHEST = 1e9


class PSFParameters(eqx.Module):
    """`parameters.instrument.psf`, each None where the kind of PSF has none (`PSFSettings.numbers`).

    | field | shape | |
    |---|---|---|
    | fwhm | (), (component,), (table,) or (component, table) | arcsec; of each Gaussian, at each of `psf.wavelength` |
    | beta | () or (table,) | of a Moffat |
    | fraction | (component,) | of each Gaussian; only their ratios matter |
    """

    fwhm: Float[Array | ndarray, "..."] | None = None
    beta: Float[Array | ndarray, "..."] | None = None
    fraction: Float[Array | ndarray, " component"] | None = None


class PSF(eqx.Module):
    """The PSF of an instrument; its widths are `Parameters.instrument.psf`.

    | field | shape | |
    |---|---|---|
    | pixel_scale | scalar | arcsec per spaxel side |
    | table_wavelength | (table,) or None | Angstrom, where the parameters' widths are given; None: at all |
    | nodes | WavelengthNodes or None | where images are worked out, and the polynomials between; None: one for all |
    | image | (node or 1, side, side) or None | of a PSF that is an image, before it is sharpened; linear between |
    | sharpening | scalar | variance (cells^2) of the deposit that such an image is sharpened by |
    | lost | scalar | fraction of the light beyond the image, given back within |
    | enclosed | scalar | fraction of a point source's light that the reach is to hold |
    | reach | static | spaxels on each side that the light is spread to |
    | change | scalar | relative change of its widths that it is planned for |
    | painting | static | how the stars are painted that it acts on |
    """

    pixel_scale: Float[Array | ndarray, ""]
    table_wavelength: Float[Array | ndarray, " table"] | None
    nodes: WavelengthNodes | None
    image: Float[Array | ndarray, "node side side"] | None
    sharpening: Float[Array | ndarray, ""]
    lost: Float[Array | ndarray, ""]
    enclosed: Float[Array | ndarray, ""]
    change: Float[Array | ndarray, ""]
    kind: str = eqx.field(static=True)
    reach: int = eqx.field(static=True)
    painting: Painting = eqx.field(static=True)

    @classmethod
    def build(
        cls,
        settings: PSFSettings,
        pixel_scale: float,
        wavelength: Float[ndarray, " wave"],
        painting: Painting = ON_SPAXELS,
        change: float = USUAL_CHANGE,
        like: "PSF | None" = None,
    ) -> "PSF":
        """The PSF that checked settings describe, for a detector's wavelengths (Angstrom in its medium).

        Of settings with a `field` it has the reach and the nodes that the profiles of all places need. `like`: another
        one whose reach and nodes an image is to have.
        """
        table = None if settings.wavelength is None else np.asarray(settings.wavelength)
        range_ = float(wavelength[0]), float(wavelength[-1])
        image, nodes, variance = None, None, 0.0
        if settings.is_profile:
            every = settings.every_place
            if table is not None:
                widths = np.concatenate([place.width_table for place in every])
                nodes = WavelengthNodes.of_table(table, widths, range_, change)
            reaches, losses = zip(*(_reach(place, pixel_scale) for place in every), strict=True)
            reach, lost = max(reaches), max(losses)
        else:
            given = None if like is None else (like.reach, like.nodes)
            image, nodes, reach, lost = _of_image(settings.every_place[0], pixel_scale, range_, painting.cells, given)
            variance = sharpening(image, painting)
        _check_reach(reach, settings, pixel_scale)
        return cls(
            pixel_scale=np.asarray(pixel_scale),
            table_wavelength=table,
            nodes=nodes,
            image=image,
            sharpening=np.asarray(variance),
            painting=painting,
            kind=settings.kind,
            reach=reach,
            lost=np.asarray(lost),
            enclosed=np.asarray(settings.enclosed),
            change=np.asarray(change),
        )

    @property
    def node_wavelength(self) -> Float[Array | ndarray, " node"] | None:
        """Angstrom, where images are worked out; None: one for all wavelengths."""
        return None if self.nodes is None else self.nodes.wavelength

    @property
    def n_place(self) -> int:
        """Number of PSFs: the one for the whole field."""
        return 1

    @property
    def is_separable(self) -> bool:
        """Whether it is a sum of Gaussians, the same at all wavelengths: `axis_weights` say it all."""
        return self.nodes is None and self.kind in ("gaussian", "gaussians")

    def widest(self, beta: Float[ndarray, "..."] | None) -> Float[ndarray, "..."]:
        """FWHM (arcsec) of the widest profile that the reach holds: `enclosed` of the light, after changes of the width
        and of beta - 1 by `USUAL_CHANGE`. Host only."""
        wings = None if beta is None else np.asarray(1.0 + (beta - 1.0) * (1.0 + USUAL_CHANGE))
        held = self.reach * float(self.pixel_scale) / _enclosing_radius(float(self.enclosed), wings)
        return np.asarray(held * (1.0 + USUAL_CHANGE))

    def axis_weights(self, parameters: PSFParameters) -> tuple[tuple[Float[Array, ""], Float[Array, " offset"]], ...]:
        """(share of the light, weights of cells along one axis) of each Gaussian of a separable PSF."""
        widths = jnp.atleast_1d(_given(parameters.fwhm)) / self.pixel_scale
        weights = [gaussian_weights_in_spaxel(fwhm, self.reach, self.painting) for fwhm in widths]
        if parameters.fraction is None:
            return ((jnp.ones_like(widths[0]), weights[0]),)
        return tuple(zip(parameters.fraction / parameters.fraction.sum(), weights, strict=True))

    def images(self, parameters: PSFParameters) -> Float[Array, "node side side"]:
        """Images at `node_wavelength` (or the one for all), as wide as the cells of 2 reach + 1 spaxels.

        The weights of the cells at one place within their spaxels have the sum 1.
        """
        if self.image is not None:
            variance = jnp.asarray(self.sharpening)
            return jax.vmap(lambda image: of_file(image, variance, self.painting))(jnp.asarray(self.image))
        fwhm, beta = self._at_nodes(_given(parameters.fwhm) / self.pixel_scale, _array(parameters.beta))
        fraction = _array(parameters.fraction)
        if self.nodes is None:
            return self._profile(fwhm[0], None if beta is None else beta[0], fraction)[None]
        if beta is None:
            return jax.vmap(lambda width: self._profile(width, None, fraction))(fwhm)
        return jax.vmap(lambda width, exponent: self._profile(width, exponent, fraction))(fwhm, beta)

    def at_nodes(
        self, parameters: PSFParameters
    ) -> tuple[Float[Array, "node *component"], Float[Array, " node"] | None]:
        """FWHM (arcsec; of each Gaussian where there are several) and beta at `node_wavelength`, or the one for all."""
        return self._at_nodes(_given(parameters.fwhm), _array(parameters.beta))

    def _at_nodes(
        self, fwhm: Float[Array, "..."], beta: Float[Array, "..."] | None
    ) -> tuple[Float[Array, "node *component"], Float[Array, " node"] | None]:
        if self.nodes is None:
            return fwhm[None], None if beta is None else beta[None]
        if self.table_wavelength is None:  # the same at all nodes
            n_node = self.nodes.n_node
            every = jnp.broadcast_to(fwhm, (n_node, *fwhm.shape))
            return every, None if beta is None else jnp.broadcast_to(beta, (n_node,))
        place = node_shares(jnp.asarray(self.nodes.wavelength), jnp.asarray(self.table_wavelength))
        return jnp.einsum("kt,...t->k...", place, fwhm), None if beta is None else place @ beta

    def image_at(self, parameters: PSFParameters, wavelength: Float[Array | ndarray, ""]) -> Float[Array, "side side"]:
        """The image at one wavelength (Angstrom in the detector's medium)."""
        images = self.images(parameters)
        if self.nodes is None:
            return images[0]
        return jnp.einsum("k,kyx->yx", self.nodes.shares(jnp.asarray(wavelength)[None])[0], images)

    def _profile(
        self, fwhm: Float[Array, "..."], beta: Float[Array, ""] | None, fraction: Float[Array, " component"] | None
    ) -> Float[Array, "side side"]:
        if beta is not None:
            return moffat_image(fwhm, beta, self.reach, self.painting)
        share = jnp.ones((1,), fwhm.dtype) if fraction is None else fraction / fraction.sum()
        widths = jnp.atleast_1d(fwhm)
        weights = jax.vmap(lambda width: gaussian_weights_in_spaxel(width, self.reach, self.painting))(widths)
        return jnp.einsum("c,cy,cx->yx", share, weights, weights)

    def node_images(self, parameters: PSFParameters) -> Float[Array, "node side side"]:
        """The images at the nodes: `images`."""
        return self.images(parameters)


def of_file(
    image: Float[Array, "wider wider"], variance: Float[Array, ""], painting: Painting
) -> Float[Array, "side side"]:
    """An image on the painted cells, sharpened by a variance of the deposit (cells^2)."""
    rows = sharpened(image, 0, variance)
    return shared_out(sharpened(rows, 1, variance), painting.cells)


def moffat_lost(radius: float, fwhm: float, beta: float) -> float:
    """Fraction of a Moffat's light beyond a radius: (1 + (r / alpha)^2)^(1 - beta)."""
    alpha2 = fwhm**2 / (4.0 * (2.0 ** (1.0 / beta) - 1.0))
    return float((1.0 + radius**2 / alpha2) ** (1.0 - beta))


def node_shares(wavelength: Float[Array, " wave"], nodes: Float[Array, " node"]) -> Float[Array, "wave node"]:
    """Weights of a linear interpolation between nodes, constant beyond the first and the last."""
    if len(nodes) == 1:
        return jnp.ones((len(wavelength), 1), nodes.dtype)
    return jax.vmap(lambda row: jnp.interp(wavelength, nodes, row), out_axes=1)(jnp.eye(len(nodes), dtype=nodes.dtype))


def _given(value: Float[Array | ndarray, "..."] | None) -> Float[Array, "..."]:
    if value is None:
        raise ValueError("parameters.instrument.psf.fwhm: expected the PSF's widths (arcsec), got None")
    return jnp.asarray(value)


def _array(value: Float[Array | ndarray, "..."] | None) -> Float[Array, "..."] | None:
    return None if value is None else jnp.asarray(value)


def _check_reach(reach: int, settings: PSFSettings, pixel_scale: float) -> None:
    """Raise ConfigError for light that reaches too far."""
    if reach <= _LARGEST_REACH:
        return
    remedies = [*(["lower psf.file_scale"] if settings.kind == "image" else []), "lower psf.enclosed"]
    remedies.append("use larger spaxels")
    if settings.is_profile:
        widest = float(settings.fwhm_table.max())
        beta = _least_beta(settings)
        most = _LARGEST_REACH * pixel_scale / float(_enclosing_radius(settings.enclosed, beta))
        unit = 10.0 ** (np.floor(np.log10(most)) - 2)  # of the third digit, which is rounded down
        narrower = f"take an FWHM of at most {np.floor(most / unit) * unit:.3g} arcsec in place of {widest:.4g}"
        remedies = [narrower, *([] if beta is None else ["raise psf.beta"]), *remedies]
    raise ConfigError(
        f"instrument.psf: expected the fraction psf.enclosed = {settings.enclosed:g} of the light within "
        f"{_LARGEST_REACH} spaxels, got {reach:.3g}; {', or '.join(remedies)}"
    )


def _least_beta(settings: PSFSettings) -> Float[ndarray, ""] | None:
    return np.asarray(settings.width_table[1].min()) if settings.kind == "moffat" else None


def _of_image(
    settings: PSFSettings,
    pixel_scale: float,
    range_: tuple[float, float],
    cells: int,
    like: tuple[int, WavelengthNodes | None] | None,
) -> tuple[Float[ndarray, "node side side"], WavelengthNodes | None, int, float]:
    """Images on the painted cells, between which wavelengths they are polynomials, their reach and the light beyond."""
    if settings.optics is not None:
        given = None
        if like is not None:
            one_bin = WavelengthNodes(np.array(range_[:1]), degree=1)
            given = like[0], one_bin if like[1] is None else like[1]
        found = adaptive_images(settings.optics, pixel_scale, range_, settings.enclosed, cells, given)
        return found._replace(nodes=None) if range_[0] == range_[1] else found
    planes, scale, table = load_psf_image(settings)
    if table is not None and not (table[0] <= range_[1] and table[-1] >= range_[0]):
        raise ConfigError(
            f"instrument.psf.file: expected planes at the detector's wavelengths, {range_[0]:.6g} to {range_[1]:.6g} "
            f"Angstrom, got planes from {table[0]:.6g} to {table[-1]:.6g} Angstrom in {settings.file}; compute them "
            f"for this range, change instrument.wavelength, or give psf.wavelength where the file has another unit"
        )
    warn_off_centre(planes, scale, settings.file)
    least = 0 if like is None else like[0]
    image, reach, lost = on_spaxels(planes, scale / pixel_scale, settings.enclosed, cells, least)
    return image, None if table is None else WavelengthNodes(table, degree=1), reach, lost


def _enclosing_radius(enclosed: float, beta: Float[ndarray, "..."] | None) -> Float[ndarray, "..."]:
    """Radius, in FWHM, within which a profile has a fraction of its light: of a Gaussian where beta is None."""
    if beta is None:
        return np.asarray(np.sqrt(-2.0 * np.log(1.0 - enclosed)) / FWHM_PER_SIGMA)
    alpha = 1.0 / (2.0 * np.sqrt(2.0 ** (1.0 / beta) - 1.0))
    return np.asarray(alpha * np.sqrt(np.minimum((1.0 - enclosed) ** (1.0 / (1.0 - beta)) - 1.0, 1e30)))


def _reach(settings: PSFSettings, pixel_scale: float) -> tuple[int, float]:
    """Spaxels on each side for the widest profile, and the largest fraction of light beyond."""
    widest = float(settings.fwhm_table.max()) / pixel_scale
    beta = _least_beta(settings)
    reach = max(2, int(np.ceil(min(widest * float(_enclosing_radius(settings.enclosed, beta)), _FARTHEST))))
    if beta is None:
        return reach, float(np.exp(-0.5 * (reach / (widest / FWHM_PER_SIGMA)) ** 2))
    return reach, moffat_lost(float(reach), widest, float(beta))
