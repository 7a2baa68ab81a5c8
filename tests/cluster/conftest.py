"""A small convolutional network as a file, more digits than one shard holds, and two workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from arachne.data.labelled import LabelledData
from tests.backends import golden

if TYPE_CHECKING:
    from distributed import Client

COPIES = 2


@pytest.fixture(scope="session")
def data() -> LabelledData:
    """Digits, and copies of them with noise: 3,594 inputs."""
    whole, rng = golden.digits(), np.random.default_rng(0)
    inputs = np.asarray(whole.inputs)
    noisy = [inputs + 0.15 * number * rng.standard_normal(inputs.shape) for number in range(COPIES)]
    return LabelledData(np.concatenate(noisy).astype(np.float32), np.tile(whole.labels, COPIES))


@pytest.fixture(scope="session")
def data_file(data: LabelledData, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in a file."""
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    np.savez(path, x=np.asarray(data.inputs), y=data.labels)
    return path


@pytest.fixture(scope="session")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network, which reads some noisy digits as others."""
    onnx = pytest.importorskip("onnx")
    from arachne_onnx.conformance import model_of

    path = tmp_path_factory.mktemp("model") / "cnn.onnx"
    onnx.save(model_of(golden.network("cnn")), path)
    return path


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    """Two workers, shared by all tests of a process that leave them alive."""
    pytest.importorskip("distributed")
    from arachne.cluster.starting import local_client

    with local_client(2, lambda text: None) as found:
        yield found
