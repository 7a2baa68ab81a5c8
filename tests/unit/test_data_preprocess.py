from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

from arachne.data.preprocess import Preprocess
from arachne.errors import DataError, EnvironmentFaultError, UsageError
from arachne.model.values import Array

DIGITS = load_digits().images.astype(np.uint8)
PHOTO = load_sample_image("china.jpg")[100:164, 100:196]


def run(text: str, inputs: Array) -> Array:
    return np.asarray(Preprocess.parse(text)(inputs))


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of the user's in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "my_preparation.py"
    path.write_text(
        "import numpy as np\n"
        "def halve(batch):\n    return batch / 2\n"
        "def name(batch):\n    return {'a': batch, 'b': batch[:, 0]}\n"
        "def lose(batch):\n    return batch[:1]\n"
        "def fail(batch):\n    raise RuntimeError('no such luck')\n"
        "def nothing(batch):\n    return None\n"
    )
    yield path
    sys.modules.pop("my_preparation", None)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("resize=48 scale=1/255", "resize=48x48 scale=1/255"),
        ("  resize=48x64   crop=40 ", "resize=48x64 crop=40x40"),
        ("mean=0.490,.5,1 std=2.0", "mean=0.49,0.5,1 std=2"),
        ("scale=0.0039215686 layout=nchw", "scale=0.0039215686 layout=nchw"),
        (
            "grey rgb flatten dtype=float16 shape=1x8x8 shorter=9",
            "grey rgb flatten dtype=float16 shape=1x8x8 shorter=9",
        ),
    ],
)
def test_text_has_a_canonical_form_that_means_the_same(text: str, canonical: str) -> None:
    steps = Preprocess.parse(text)
    assert str(steps) == canonical
    assert Preprocess.parse(canonical) == steps
    assert hash(Preprocess.parse(canonical)) == hash(steps)


def test_no_steps_leave_inputs_as_they_are() -> None:
    assert Preprocess.parse(None)(DIGITS) is DIGITS
    assert not Preprocess.parse("")


def test_scale_is_bit_for_bit_a_division() -> None:
    levels = np.arange(256, dtype=np.uint8)[:, None]
    assert np.array_equal(run("scale=1/255", levels), levels.astype(np.float32) / np.float32(255))
    assert run("scale=2/4", levels).dtype == np.float32
    assert run("scale=0.5", levels)[3, 0] == 1.5


def test_mean_and_std_follow_the_channels() -> None:
    images = np.stack([PHOTO, PHOTO])
    wanted = (images / 255 - np.array([0.4, 0.5, 0.6])) / np.array([0.2, 0.25, 0.5])
    text = "scale=1/255 mean=0.4,0.5,0.6 std=0.2,0.25,0.5"
    assert np.allclose(run(text, images), wanted, atol=1e-6)
    assert np.allclose(run(f"layout=nchw {text}", images), wanted.transpose(0, 3, 1, 2), atol=1e-6)
    assert np.allclose(run("mean=1,2 std=2", np.ones((3, 2))), [[0, -0.5]] * 3)
    assert run("mean=3", DIGITS)[0, 0, 0] == -3


def test_resize_is_pillows_and_works_on_floats_and_any_layout() -> None:
    images = PHOTO[None]
    wanted = np.asarray(Image.fromarray(PHOTO).resize((20, 10), Image.Resampling.BILINEAR))
    assert np.array_equal(run("resize=10x20", images)[0], wanted)
    floats = run("resize=10x20", images.astype(np.float32))
    assert np.abs(floats[0] - wanted).max() <= 1
    first = run("layout=nchw resize=10x20", images)
    assert np.array_equal(first[0], wanted.transpose(2, 0, 1))
    assert run("resize=16", DIGITS[:3]).shape == (3, 16, 16)
    assert run("resize=16", DIGITS[:3].astype(np.int32)).dtype == np.int32


def test_resize_averages_when_it_shrinks() -> None:
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))[None]
    assert np.ptp(run("resize=4", stripes).astype(int)) < 40


def test_shorter_keeps_the_proportions_and_crop_takes_the_centre() -> None:
    assert run("shorter=32", PHOTO[None]).shape == (1, 32, 48, 3)
    assert np.array_equal(run("crop=10x20", PHOTO[None])[0], PHOTO[27:37, 38:58])
    assert np.array_equal(run("layout=nchw crop=10x20", PHOTO[None])[0], PHOTO[27:37, 38:58].transpose(2, 0, 1))
    with pytest.raises(DataError, match="cannot crop images of 8x8 to 9x9; resize them first"):
        run("crop=9", DIGITS)


def test_grey_is_pillows_and_rgb_repeats() -> None:
    grey = np.asarray(Image.fromarray(PHOTO).convert("L"))
    assert np.array_equal(run("grey", PHOTO[None])[0, ..., 0], grey)
    assert np.allclose(run("grey", PHOTO[None] / np.float32(255))[0, ..., 0] * 255, grey, atol=1)
    assert run("grey rgb", PHOTO[None]).shape == (1, 64, 96, 3)
    assert run("rgb", DIGITS[:2]).shape == (2, 8, 8, 3)
    assert run("rgb", np.zeros((2, 5, 5, 4))).shape == (2, 5, 5, 3)
    assert run("grey", DIGITS[:2]).shape == (2, 8, 8)
    for text in ("grey", "rgb"):
        with pytest.raises(DataError, match="of 7 channels"):
            run(text, np.zeros((2, 5, 5, 7)))


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("layout=nchw", (2, 8, 6, 3), (2, 3, 8, 6)),
        ("layout=nchw", (2, 3, 8, 6), (2, 3, 8, 6)),
        ("layout=nchw", (2, 8, 6), (2, 1, 8, 6)),
        ("layout=nhwc", (2, 3, 8, 6), (2, 8, 6, 3)),
        ("layout=nhwc", (2, 8, 6), (2, 8, 6, 1)),
        ("layout=nhwc", (2, 8, 6, 1), (2, 8, 6, 1)),
        ("layout=nchw layout=nhwc", (2, 8, 6, 3), (2, 8, 6, 3)),
        ("flatten", (2, 8, 6, 3), (2, 144)),
        ("shape=1x8x6", (2, 48), (2, 1, 8, 6)),
    ],
)
def test_shapes_change_as_told(text: str, before: tuple[int, ...], after: tuple[int, ...]) -> None:
    assert run(text, np.zeros(before, np.float32)).shape == after


def test_dtype_is_changed() -> None:
    assert run("dtype=int64", DIGITS).dtype == np.int64


def test_many_batches_give_the_same_as_one() -> None:
    many = np.tile(DIGITS, (2, 1, 1))
    together = run("scale=1/16 mean=0.5 layout=nchw", many)
    assert np.array_equal(together, (many.astype(np.float32) / 16 - np.float32(0.5))[:, None])


def test_a_users_function_is_called_on_batches(module: Path) -> None:
    steps = Preprocess.parse("scale=2 my_preparation:halve")
    assert str(steps) == "scale=2 my_preparation:halve"
    assert np.array_equal(np.asarray(steps(DIGITS)), DIGITS)
    named = Preprocess.parse("my_preparation:name")(DIGITS)
    assert isinstance(named, dict)
    assert named["b"].shape == (1797, 8)
    assert str(module.parent) not in sys.path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("my_preparation:lose", r"made 1 inputs of \d+"),
        ("my_preparation:fail", "preprocessing 'my_preparation:fail' failed: RuntimeError: no such luck"),
        ("my_preparation:nothing", "expected the inputs to be an array"),
        ("my_preparation:name scale=2", "'scale=2' works on one input array, got several: a, b"),
    ],
)
def test_a_users_function_that_fails_is_named(module: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Preprocess.parse(text)(DIGITS)


def test_unknown_functions_and_modules_are_refused(module: Path) -> None:
    with pytest.raises(UsageError, match="has no function 'halv'; did you mean 'halve'"):
        Preprocess.parse("my_preparation:halv")
    with pytest.raises(UsageError, match="no module 'my_preparatoin'"):
        Preprocess.parse("my_preparatoin:halve")
    with pytest.raises(UsageError, match=r"expected a function as 'package.module:function'"):
        Preprocess.parse("my-preparation:halve")
    module.with_name("broken_module.py").write_text("import not_installed_anywhere\n")
    with pytest.raises(
        EnvironmentFaultError, match="module 'broken_module' needs a package that is not installed here"
    ):
        Preprocess.parse("broken_module:f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resiz=48", "no preprocessing step 'resiz'; did you mean 'resize'"),
        ("resize", "'resize' takes a value, as in 'resize=48', got 'resize'"),
        ("resize=", "takes a value"),
        ("resize=0", "whole numbers above 0, got '0'"),
        ("resize=48x", "whole numbers above 0, got '48x'"),
        ("resize=axb", "whole numbers above 0, got 'axb'"),
        ("shorter=3x4", "'shorter' takes one number"),
        ("flatten=1", "'flatten' takes no value"),
        ("scale=big", "'scale' takes numbers, got 'big'"),
        ("scale=1/0", "divides by zero"),
        ("scale=nan", "takes numbers"),
        ("std=1,0,1", "divides by zero"),
        ("mean=1,,2", "takes numbers, got '1,,2'"),
        ("layout=nhcw", "no layout 'nhcw'; did you mean"),
        ("dtype=float23", "no dtype 'float23' for inputs; did you mean 'float32'"),
        ("scale='1", "cannot read the preprocessing"),
    ],
)
def test_bad_steps_are_refused_in_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Preprocess.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shape", "message"),
    [
        ("resize=4", (2, 5), r"expected images of shape \(height, width, channels\), got inputs of shape \(5,\)"),
        ("mean=1,2", (2, 5, 5, 3), r"'mean' has 2 numbers, which fit no channels of inputs of shape \(5, 5, 3\)"),
        ("shape=3x3", (2, 8), r"'shape=3x3' does not fit inputs of shape \(8,\)"),
        ("layout=nchw", (2, 8), "expected images"),
    ],
)
def test_inputs_that_do_not_fit_a_step_are_refused(text: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run(text, np.zeros(shape))
