"""Checks of cuts and files; each docstring is the sentence of the contract it checks."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from arachne.decisions.losses import cross_entropy
from arachne.model.backend import ModelBackend
from arachne.model.cut import PlainCut, temporary_weights, weights_of
from arachne.testing.model.subject import NotHereError, Subject, equal, expect


def a_cut_is_a_changed_model(subject: Subject) -> None:
    """A cut with changed weights gives the scores of a model with those weights, of all rows and of some."""
    some = np.array([3, 0, 3]) % subject.n
    for info in subject.layers:
        cut, weights = subject.backend.cut(subject.inputs, [info.name]), subject.perturb(info.name)
        with temporary_weights(subject.backend, weights):
            expected = subject.backend.forward(subject.inputs)
        subject.same(cut.scores_with(weights), expected, f"cut at '{info.name}'")
        subject.same(cut.scores_with(weights, some), expected[some], f"cut at '{info.name}', some rows")
        if cut.continues_from_outputs:
            subject.same(cut.scores_from_outputs(cut.outputs()), subject.scores, f"continued from '{info.name}'")
            again = cut.scores_from_outputs(cut.outputs(some), some)
            subject.same(again, subject.scores[some], f"continued from '{info.name}', some rows")


def a_cut_keeps_its_weights(subject: Subject) -> None:
    """Weights that are set on the model afterwards, in the layers cut at or in any other, do not reach a cut."""
    info = subject.layers[0]
    cut, weights = subject.backend.cut(subject.inputs, [info.name]), subject.perturb(info.name)
    outputs, changed = cut.outputs(), cut.scores_with(weights)
    for other in subject.layers:
        subject.set(subject.perturb(other.name))
        after = f"cut at '{info.name}', '{other.name}' was set"
        subject.same(cut.outputs(), outputs, f"outputs, {after}")
        subject.same(cut.scores_with({}), subject.scores, after)
        subject.same(cut.scores_with(weights), changed, f"other weights, {after}")
        if cut.continues_from_outputs:
            subject.same(cut.scores_from_outputs(outputs), subject.scores, f"continued, {after}")


def gradients_behind_a_cut_are_the_models(subject: Subject) -> None:
    """Gradients behind a cut are those that full passes give."""
    subject.needs_gradients()
    loss = cross_entropy(subject.labels)
    for info in subject.layers:
        weights = subject.perturb(info.name)
        found = subject.backend.cut(subject.inputs, [info.name]).weight_gradients(weights, loss)
        expected = PlainCut(subject.backend, subject.inputs, [info.name]).weight_gradients(weights, loss)
        expect(set(found) == set(expected), f"behind '{info.name}' there are gradients of {sorted(found)}")
        for key, values in expected.items():
            subject.same(found[key], values, ".".join(key))


def a_saved_model_is_the_model(subject: Subject) -> None:
    """A model that is saved and opened again has the same weights and scores; the one in memory stays."""
    with _saving_to(subject) as path:
        subject.set(subject.perturb(subject.layers[-1].name))
        scores = subject.backend.forward(subject.inputs)
        subject.backend.save(path)
        again = _reload(subject, path)
        subject.same(again.forward(subject.inputs), scores, "the scores of the file")
        for key, values in weights_of(subject.backend).items():
            subject.same(again.get_weights(key[0])[key[1]], values, f"'{'.'.join(key)}' of the file")
        subject.same(subject.backend.forward(subject.inputs), scores, "the scores of the model afterwards")


def a_file_holds_the_weights(subject: Subject) -> None:
    """A file's weights by address are the model's, and putting others in and the old ones back gives the same bytes."""
    if type(subject.backend).weight_file.__func__ is ModelBackend.weight_file.__func__:  # type: ignore[attr-defined]
        raise NotHereError(f"backend '{subject.backend.NAME}' does not define weight_file")
    with _saving_to(subject) as path:
        subject.backend.save(path)
        file = type(subject.backend).weight_file(path)
        for info in subject.layers:
            for parameter, values in subject.backend.get_weights(info.name).items():
                equal(file.read(info.name, parameter), values, f"'{info.name}.{parameter}' in the file")
        weights = subject.perturb(subject.layers[-1].name)
        there, back = path.with_name(f"there{path.suffix}"), path.with_name(f"back{path.suffix}")
        file.rewrite(there, weights)
        type(subject.backend).weight_file(there).rewrite(back, {key: file.read(*key) for key in weights})
        expect(there.read_bytes() != path.read_bytes(), "other weights leave the file as it was")
        expect(back.read_bytes() == path.read_bytes(), "with the old weights back the file has other bytes")


@contextlib.contextmanager
def _saving_to(subject: Subject) -> Iterator[Path]:
    """Yield a path to save the model to, in a folder that is deleted when the block ends."""
    if subject.reload is None or not subject.backend.suffix:
        raise NotHereError("the model is no file that can be written and opened again")
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / f"model{subject.backend.suffix}"


def _reload(subject: Subject, path: Path) -> ModelBackend:
    if subject.reload is None:
        raise NotHereError("the model is no file that can be opened again")
    return subject.reload(path)
