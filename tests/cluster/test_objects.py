"""Model objects in hand: workers get their weights and make the network again, or one sentence says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import arachne
from arachne.choose.budget import Budget
from arachne.data.labelled import LabelledData
from arachne.errors import UsageError
from arachne.model.values import Array
from arachne.settings import Settings, make_localiser, make_searcher

if TYPE_CHECKING:
    from distributed import Client

pytest.importorskip("distributed")

BEHIND_A_CUT = Settings(
    localiser=make_localiser("contrast", include=("first",)),
    searcher=make_searcher("margin", steps=24, folds=2),
    budget=Budget(max_break=0.5),
)


def assert_same_patch(model: Any, data: LabelledData, settings: Settings, client: Client, folder: Path) -> None:
    alone = arachne.repair(model, data, "top:1", settings=settings)
    shared = arachne.repair(model, data, "top:1", settings=settings, cluster=client)
    assert len(alone.patch)
    found = []
    for name, result in (("alone", alone), ("shared", shared)):
        result.patch.save(folder / f"{name}.json")
        found.append((folder / f"{name}.json").read_bytes())
    assert found[0] == found[1]


def fitted_head(features: Array, data: LabelledData) -> Array:
    """A last layer by least squares over few of the inputs, so that some of the others are misread."""
    few = slice(0, 400)
    return np.asarray(np.linalg.lstsq(features[few], np.eye(10)[data.labels[few]], rcond=1e-2)[0], np.float32)


@pytest.mark.backend("torch")
def test_a_pytorch_object_goes_as_its_weights_and_its_class(client: Client, data: LabelledData, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.cluster.networks import Digits

    torch.manual_seed(0)
    model = Digits().eval()
    with torch.no_grad():
        features = torch.relu(model.first(torch.from_numpy(np.asarray(data.inputs)))).flatten(1).numpy()
        model.head.weight.copy_(torch.from_numpy(fitted_head(features, data).T))
        model.head.bias.zero_()
    assert_same_patch(model, data, BEHIND_A_CUT, client, tmp_path)


@pytest.mark.backend("torch")
def test_a_pytorch_object_that_no_worker_can_make_is_refused_before_anything_is_computed(
    client: Client, data: LabelledData
) -> None:
    nn = pytest.importorskip("torch.nn")
    from tests.cluster.networks import Digits, Sized

    class Local(Digits):
        """Lives in this function alone."""

    for model, name in (
        (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), "Sequential"),
        (Local(), "Local"),
        (Sized(3), "Sized"),
    ):
        with pytest.raises(
            UsageError, match=f"class '.*{name}' again; give the model as a file, or as 'module:factory'"
        ):
            arachne.repair(model, data, "top:1", cluster=client)


@pytest.mark.backend("keras")
def test_a_keras_object_goes_as_a_keras_file(client: Client, data: LabelledData, tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    inputs = np.asarray(data.inputs).reshape(-1, 8, 8, 1)
    moved = LabelledData(inputs, data.labels)
    first = keras.layers.Conv2D(4, 3, padding="same", activation="relu", name="first")
    model = keras.Sequential(
        [keras.Input((8, 8, 1)), first, keras.layers.Flatten(), keras.layers.Dense(10, name="head")]
    )
    features = np.asarray(keras.ops.reshape(first(inputs), (len(inputs), -1)))
    model.get_layer("head").set_weights([fitted_head(features, data), np.zeros(10, np.float32)])
    assert_same_patch(
        model, moved, Settings(searcher=make_searcher("bias"), budget=Budget(max_break=0.2)), client, tmp_path
    )
