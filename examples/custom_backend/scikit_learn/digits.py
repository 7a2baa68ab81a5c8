"""Train a pipeline that has seen few nines, and write it with the data it was not trained on: something to repair.

python digits.py     makes digits.skops and digits.npz in the current folder
"""

from __future__ import annotations

import numpy as np
import skops.io
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

inputs, labels = load_digits(return_X_y=True)
seen = np.arange(len(labels)) < 800
few = seen & ((labels != 9) | (np.arange(len(labels)) < 60))
model = make_pipeline(StandardScaler(), MLPClassifier([32], alpha=0.01, max_iter=300, random_state=0))
model.fit(inputs[few], labels[few])
skops.io.dump(model, "digits.skops")
np.savez("digits.npz", x=inputs[~seen].astype(np.float32), y=labels[~seen])
print(f"digits.skops is right on {model.score(inputs[~seen], labels[~seen]):.1%} of digits.npz")
