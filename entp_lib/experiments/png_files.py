"""Finished PNG files: whether two look equal, in fewer bytes, and all there are."""

import io
from pathlib import Path

import numpy as np

from entp_lib import paths


def looks_equal(path: Path, data: bytes) -> bool:
    """Whether a PNG differs from ``data``, another one, in nothing but rounding.

    Their texts are the same, and less than 0.1 % of the pixels differ, by at most 3 of 255 levels. A cut or damaged
    file looks like none.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            old, about = np.asarray(image.convert("RGBA"), dtype=int), (image.mode, image.text)
    except (OSError, SyntaxError, ValueError):  # what Pillow has for files that are cut, empty or no pictures
        return False
    with Image.open(io.BytesIO(data)) as image:
        new = np.asarray(image.convert("RGBA"), dtype=int)
        if old.shape != new.shape or about != (image.mode, image.text):
            return False
    apart = np.abs(old - new).max(axis=-1)
    return apart.max() <= 3 and (apart > 0).mean() < 0.001


def lean(png: bytes) -> bytes:
    """The same picture in fewer bytes: without transparency that it does not use, and in 256 colours.

    Colours stay as they are where 0.2 % of the pixels or more would change by over 24 of 255 levels; so does a picture
    in which a pixel is transparent.
    """
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if image.mode not in ("RGB", "RGBA") or (image.mode == "RGBA" and image.getextrema()[3] != (255, 255)):
            return png
        plain = image.convert("RGB")
    few = plain.quantize(256, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    apart = np.abs(np.asarray(few.convert("RGB"), dtype=int) - np.asarray(plain, dtype=int)).max(axis=-1)
    buffer = io.BytesIO()
    (few if (apart > 24).mean() < 0.002 else plain).save(buffer, format="PNG", optimize=True)
    return min(buffer.getvalue(), png, key=len)


def gallery() -> list[tuple[Path, str]]:
    """Every finished PNG with its alt text and provenance, in the order of the notebooks."""
    from PIL import Image

    found = []
    for path in sorted(paths.figures().glob("*.png")):
        with Image.open(path) as image:
            found.append((path, image.text.get("Description", "")))
    return found
