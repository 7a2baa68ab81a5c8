"""A task: classes in an order, of a model that gives one logit for each step from a class to the next."""

from dataclasses import dataclass

import numpy as np

from arachne.errors import DataError, ModelError
from arachne.tasks import Decisions, Task


@dataclass(frozen=True, kw_only=True)
class Ordinal(Task):
    """Classes in an order, such as grades: outputs `(n, classes - 1)`, each a logit of being above one class.

    The score of a class is the sum of the logits of all steps below it, so that the class decided for is the one behind
    as many steps as are more likely taken than not.
    """

    name = "ordinal"
    ONE_LABEL = True

    def read(self, outputs, labels):
        scores = np.concatenate([np.zeros_like(outputs[:, :1]), np.cumsum(outputs, axis=1)], axis=1)
        return Decisions(scores, labels, np.arange(len(labels)))

    def pull_back(self, gradient, outputs, labels):
        above = np.cumsum(gradient[:, :0:-1], axis=1)[:, ::-1]
        return above.astype(outputs.dtype)

    def check(self, outputs, labels):
        if labels.shape != (len(outputs),) or labels.min() < 0 or labels.max() >= self.n_classes(outputs):
            raise DataError(f"expected one class from 0 to {self.n_classes(outputs) - 1} for each input as its label")

    def n_classes(self, outputs):
        if outputs.ndim != 2:
            raise ModelError(f"expected outputs of shape (inputs, steps) from the model, got {outputs.shape}")
        return outputs.shape[1] + 1

    def label_as_decided(self, outputs):
        return self.decide(self.read(outputs, np.zeros(len(outputs), np.int64)).scores)
