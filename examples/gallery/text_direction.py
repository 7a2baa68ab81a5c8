"""RapidOCR's text-direction classifier: is a line upside down? Inputs are lines in fonts of this system."""

from __future__ import annotations

import importlib.util
import pydoc_data.topics
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from examples.gallery.exhibit import Arrays, Exhibit, MissingError

INSTALL = "pip install --no-deps rapidocr_onnxruntime==1.4.4 && apt-get install fonts-dejavu fonts-liberation"
FONTS = Path("/usr/share/fonts/truetype")
FAMILIES = ("dejavu", "liberation")
LINES, MOST_WORDS = 1200, 8
HEIGHT, WIDTH, SIZE, MARGIN = 48, 192, 40, 4
LETTERS = re.compile(r"\b[a-z]{3,8}\b")


def make_data() -> Arrays:
    """Draw lines of Python's own documentation, every second one upside down, as RapidOCR hands them over."""
    fonts = sorted(path for family in FAMILIES for path in FONTS.glob(f"{family}/*.ttf"))
    if not fonts or importlib.util.find_spec("PIL") is None:
        raise MissingError(f"fonts and Pillow are needed: {INSTALL}")
    rng = np.random.default_rng(0)
    known = sorted(set(LETTERS.findall(" ".join(pydoc_data.topics.topics.values()))))
    sizes = rng.integers(1, MOST_WORDS + 1, LINES)
    lines = [" ".join(map(str, rng.choice(known, size))) for size in sizes]
    labels = np.arange(LINES) % 2
    chosen = [fonts[int(number)] for number in rng.integers(len(fonts), size=LINES)]
    drawn = [draw(*one) for one in zip(lines, chosen, labels == 1, strict=True)]
    return {
        "x": np.stack(drawn),
        "y": labels,
        "class_names": np.array(["upright", "upside down"]),
        "meta_words": sizes.astype(str),
        "meta_font": np.array([path.stem for path in chosen]),
    }


def draw(line: str, path: Path, upside_down: bool) -> npt.NDArray[np.float32]:
    """Return a line as the model takes it: 48 pixels high, numbers from -1 to 1, zeros behind it."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.truetype(str(path), SIZE)
    left, top, right, bottom = map(int, font.getbbox(line))
    picture = Image.new("RGB", (right - left + 2 * MARGIN, bottom - top + 2 * MARGIN), "white")
    ImageDraw.Draw(picture).text((MARGIN - left, MARGIN - top), line, font=font, fill="black")
    if upside_down:
        picture = picture.rotate(180)
    width = min(WIDTH, -(-HEIGHT * picture.width // picture.height))
    pixels = np.asarray(picture.resize((width, HEIGHT), Image.Resampling.BILINEAR), np.float32) / 255
    whole = np.zeros((3, HEIGHT, WIDTH), np.float32)
    whole[:, :, :width] = (pixels.transpose(2, 0, 1) - 0.5) / 0.5
    return whole


EXHIBIT = Exhibit(
    name="text-direction",
    title="RapidOCR takes long lines that are upside down for upright",
    package="rapidocr-onnxruntime",
    install=INSTALL,
    model="rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    make_data=make_data,
    inputs=f"lines of one to {MOST_WORDS} words from Python's own documentation in DejaVu and Liberation "
    "fonts, every second one upside down",
    target="upside down:upright",
    options=("--include", "fc_0"),
    remark="Long lines are squeezed into 192 pixels. The repair is of the last layer alone.",
)
