"""The subjects: which network on which data, how it is trained, and where its weights are kept.

A trained network is a `.safetensors` file beside a `.json` of what it reached, in `ARACHNE_CACHE` (default
`~/.cache/arachne-study`), outside the project. One that was trained by another recipe is trained again.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

import arachne
from examples.study import networks
from examples.study.data import SubjectData, scale_inputs, subject_data, word_vectors
from examples.study.training import Recipe, Say, Trained, predict_classes, train


@dataclass(frozen=True)
class Subject:
    """A network on a data set.

    Attributes:
        name: `data set-network`.
        data: The data set's short name.
        make: The network's factory in `examples.study.networks`.
        recipe: How it is trained.
        seed: Of its weights and the order of its inputs.
        fill: Puts in what is not trained, such as word vectors.
    """

    name: str
    data: str
    make: Callable[[], nn.Module]
    recipe: Recipe
    seed: int = 0
    fill: Callable[[nn.Module], None] | None = None

    def build(self) -> nn.Module:
        """The network before training."""
        network = self.make()
        if self.fill is not None:
            self.fill(network)
        return network

    @property
    def factory(self) -> str:
        """The factory as `arachne.load` takes it."""
        return f"{self.make.__module__}:{self.make.__name__}"


def _with_word_vectors(network: nn.Module) -> None:
    network.get_buffer("vectors").copy_(torch.from_numpy(word_vectors()))


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("fm-mlp", "fm", networks.fm_mlp, Recipe(epochs=14, rate=4e-3)),
        Subject("fm-cnn", "fm", networks.fm_cnn, Recipe(epochs=6, rate=4e-3, bfloat16=True)),
        Subject("c10-cnn", "c10", networks.c10_cnn, Recipe(7, rate=2e-3, batch=256, decay=0.05, bfloat16=True)),
        Subject("gtsrb-cnn", "gtsrb", networks.gtsrb_cnn, Recipe(5, rate=1e-3, batch=64, decay=0.05, bfloat16=True)),
        Subject(
            "tweets-lstm",
            "tweets",
            networks.tweets_lstm,
            Recipe(8, rate=3e-3, batch=64),
            fill=_with_word_vectors,
        ),
        Subject("lfw-vgg", "lfw", networks.lfw_vgg, Recipe(12, rate=2e-3, mirrored=True, shifted=3, bfloat16=True)),
        Subject(
            "c10-resnet",
            "c10",
            networks.c10_resnet,
            Recipe(12, 5e-3, 256, decay=0.05, patience=8, mirrored=True, shifted=4, smoothing=0.1, bfloat16=True),
        ),
        Subject("c10-cnn1", "c10", networks.c10_cnn1, Recipe(7, 2e-3, decay=0.02, mirrored=True, bfloat16=True)),
        Subject("c10-cnn2", "c10", networks.c10_cnn2, Recipe(4, 4e-3, decay=0.02, mirrored=True, bfloat16=True)),
        Subject("c10-cnn3", "c10", networks.c10_cnn3, Recipe(6, 4e-3, decay=0.02, mirrored=True, bfloat16=True)),
        Subject("gtsrb-idsia", "gtsrb", networks.gtsrb_idsia, Recipe(3, rate=2e-3, decay=0.05, bfloat16=True)),
    )
}


def cache_folder() -> Path:
    """`ARACHNE_CACHE`, or `~/.cache/arachne-study`."""
    return Path(os.environ.get("ARACHNE_CACHE") or Path.home() / ".cache" / "arachne-study")


def weights_of(name: str) -> Path:
    """Where a subject's or a planted fault's weights are kept."""
    return cache_folder() / f"{name}.safetensors"


def facts_of(name: str) -> dict[str, Any] | None:
    """Return the facts about a trained network; None if it is not trained."""
    path = weights_of(name).with_suffix(".json")
    if not (path.is_file() and weights_of(name).is_file()):
        return None
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def is_trained(name: str, made_by: dict[str, Any]) -> bool:
    """Whether a network is in the cache and was made in just this way."""
    facts = facts_of(name)
    return facts is not None and facts["made_by"] == made_by


def made_by(subject: Subject) -> dict[str, Any]:
    """Everything that decides a subject's weights, for `is_trained`."""
    return {"data": subject.data, "network": subject.factory, "seed": subject.seed, "recipe": asdict(subject.recipe)}


def train_subject(subject: Subject, *, say: Say = print) -> None:
    """Train a clean subject and keep it."""
    data = subject_data(subject.data)
    trained = train(
        subject.build,
        data.train,
        data.train_labels,
        subject.recipe,
        seed=subject.seed,
        groups=data.train_groups,
        say=say,
    )
    accuracy = float(np.mean(predict_classes(trained.network, data.test) == data.test_labels))
    keep(subject.name, trained, made_by(subject), {"test_accuracy": accuracy})


def keep(name: str, trained: Trained, made_by: dict[str, Any], found: dict[str, Any]) -> None:
    """Write weights and facts; the facts come last, so that an interrupted run is no finished one."""
    path = weights_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "name": name,
        "made_by": made_by,
        "aside_accuracy": trained.accuracy_aside,
        **found,
        "epochs": trained.epochs,
        "seconds": round(trained.seconds, 1),
        "weights": sum(parameter.numel() for parameter in trained.network.parameters()),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "python": platform.python_version()},
    }
    path.with_suffix(".json").unlink(missing_ok=True)
    partial = path.with_suffix(".partial")
    state = {key: value.contiguous() for key, value in trained.network.state_dict().items()}
    save_file(state, partial)
    partial.replace(path)
    partial.write_text(json.dumps(facts, indent=1) + "\n")
    partial.replace(path.with_suffix(".json"))


def load_subject(name: str) -> arachne.ModelBackend:
    """A trained clean subject, open for repair."""
    return arachne.load(SUBJECTS[name].factory, weights=weights_of(name))


def whole_test(name: str) -> arachne.LabelledData:
    """A subject's whole test set, scaled."""
    data: SubjectData = subject_data(SUBJECTS[name].data)
    return arachne.LabelledData(
        scale_inputs(data.test), data.test_labels, class_names=data.class_names, columns=data.test_columns, source=name
    )
