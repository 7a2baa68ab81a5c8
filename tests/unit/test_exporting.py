"""Code that exporters to ONNX share: sentences, silence, and inputs to try an export with."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping

import numpy as np
import pytest

from arachne.adapting.exporting import ANY_LENGTH, exporter_faults, quiet_exporter, random_inputs
from arachne.errors import BackendUnavailableError, ModelError
from arachne.model.values import LayerInfo, ParameterInfo


def fail(error: Exception) -> None:
    with exporter_faults():
        raise error


def test_the_first_line_of_what_an_exporter_raises_is_the_reason() -> None:
    with pytest.raises(ModelError, match=r"^the model cannot be exported to ONNX: no rule for aten::fft$") as caught:
        fail(RuntimeError("\n  no rule for aten::fft.\nand a page of advice"))
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(ModelError, match=r"to ONNX: ZeroDivisionError$"):
        fail(ZeroDivisionError())


def test_a_missing_exporter_is_told_with_what_to_install() -> None:
    with pytest.raises(BackendUnavailableError, match=r"not installed \(tf2onnx\): pip install"):
        fail(ImportError("gone", name="tf2onnx"))


def test_an_exporter_is_not_heard_and_logging_is_as_before(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with quiet_exporter():
        print("[torch.onnx] Obtain model graph...")
        logging.getLogger("exporter").warning("constant folding not applied")
        warnings.warn("np.object is gone", DeprecationWarning, stacklevel=1)
    assert (capsys.readouterr().out, caplog.text) == ("", "")
    logging.getLogger("exporter").warning("heard again")
    assert "heard again" in caplog.text


def test_random_inputs_have_the_shapes_and_dtypes_taken_and_fit_the_smallest_table() -> None:
    tables = [
        LayerInfo(name, "embedding", {"weight": ParameterInfo((rows, 4), "float32")})
        for name, rows in [("words", 50), ("tags", 3)]
    ]
    inputs = random_inputs({"image": ((4, None, 3), "float16"), "words": ((200,), "int32")}, 5, tables)
    assert isinstance(inputs, Mapping)
    assert inputs["image"].shape == (5, 4, ANY_LENGTH, 3)
    assert [str(inputs[name].dtype) for name in ("image", "words")] == ["float16", "int32"]
    assert set(np.unique(inputs["words"])) == {0, 1, 2}


def test_a_single_input_is_an_array_and_the_seed_decides_it() -> None:
    given = [random_inputs({"x": ((3,), "bfloat16")}, 4, [], seed=seed) for seed in (0, 0, 1)]
    first, again, other = (array for array in given if isinstance(array, np.ndarray))
    assert first.dtype == np.float32
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
