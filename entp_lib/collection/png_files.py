"""Finished PNG files: whether two look equal, without needless transparency, and all there are."""

import io
from pathlib import Path

import numpy as np

from entp_lib import paths


def looks_equal(path: Path, data: bytes) -> bool:
    """Whether a PNG differs from ``data``, another one, in nothing but rounding.

    Their texts are the same, and less than 0.1 % of the pixels differ, by at most 3 of 255 levels.
    """
    from PIL import Image

    with Image.open(path) as old, Image.open(io.BytesIO(data)) as new:
        if (old.size, old.mode, old.text) != (new.size, new.mode, new.text):
            return False
        apart = np.abs(np.asarray(old, dtype=int) - np.asarray(new, dtype=int)).max(axis=-1)
    return apart.max() <= 3 and (apart > 0).mean() < 0.001


def opaque(png: bytes) -> bytes:
    """The same picture without a channel of transparency; unchanged where a pixel is transparent or there is none."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        if image.mode != "RGBA" or image.getextrema()[3] != (255, 255):
            return png
        buffer = io.BytesIO()
        image.convert("RGB").save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def gallery() -> list[tuple[Path, str]]:
    """Every finished PNG with its alt text and provenance, in the order of the notebooks."""
    from PIL import Image

    found = []
    for path in sorted(paths.figures().glob("*.png")):
        with Image.open(path) as image:
            found.append((path, image.text.get("Description", "")))
    return found
