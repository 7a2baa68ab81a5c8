"""Methods that a repair is compared with: fine-tuning, retraining, Apricot, MODE, DeepFault."""

from __future__ import annotations

from arachne.rivals.apricot import Apricot
from arachne.rivals.deepfault import DeepFault
from arachne.rivals.fine_tuning import Retrain, Ridge, Tune
from arachne.rivals.mode import Mode

__all__ = ["Apricot", "DeepFault", "Mode", "Retrain", "Ridge", "Tune"]
