"""The one table of plug-ins: backends, tasks, localisers, searchers, objectives and finders, ours and other people's.

A distribution joins with an entry point in one of the groups `arachne.backends`, `arachne.tasks`, `arachne.localisers`,
`arachne.searchers`, `arachne.objectives` and `arachne.finders`. A plug-in is imported when it is first asked for by
name.
"""

from __future__ import annotations

import functools
import importlib.metadata
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from arachne.errors import BackendUnavailableError, PluginUnavailableError, UsageError, did_you_mean


@dataclass(frozen=True)
class Table:
    """All plug-ins of one kind.

    Attributes:
        kind: What they are called: `backend`.
        group: Their entry-point group.
        ours: Arachne's own, where each is, as an entry point says it.
        aliases: Names that some of ours had before, and their names now; stored results may hold the old ones.
        extras: What has to be installed for one of ours: an extra of Arachne.
        unavailable: What is raised when one cannot be imported.
    """

    kind: str
    group: str
    ours: Mapping[str, str]
    extras: Mapping[str, str] = field(default_factory=dict)
    unavailable: type[PluginUnavailableError] = PluginUnavailableError
    aliases: Mapping[str, str] = field(default_factory=dict)

    def canonical(self, name: str) -> str:
        """The name that a plug-in has now, given that or an older one; other people's names stay."""
        return name if name in self._entries() else self.aliases.get(name.lower(), name)

    def names(self) -> list[str]:
        """Every plug-in there is, whether it can be imported or not."""
        return sorted(self._entries())

    def third_party(self) -> list[str]:
        """The plug-ins that do not come with Arachne."""
        return [name for name in self.names() if name not in self.ours]

    def get(self, name: str) -> Any:
        """The class of a plug-in.

        Raises:
            UsageError: There is none of that name.
            PluginUnavailableError: It cannot be imported; the message says what to install.
        """
        if name in self.ours:  # which no other distribution can replace, so that there is no need to look for any
            entries = {name: self._own(name)}
        else:
            entries = self._entries()
            name = self.canonical(name)
        name = name if name in entries else name.lower()
        if name not in entries:
            raise UsageError(f"no {self.kind} named '{name}'" + did_you_mean(name, sorted(entries)))
        try:
            return entries[name].load()
        except ImportError as error:
            raise self._explain(entries[name], error) from error
        except Exception as error:
            if name in self.ours:
                raise
            raise self._broken_error(entries[name], error) from error

    def origin(self, plugin: type[Any]) -> str | None:
        """The distribution that registered a class, such as `arachne-tally 1.0`; None for Arachne's own."""
        for entry in self._entries().values():
            # Whoever has an object of the class has imported it, so nothing needs to be imported to find out.
            if entry.dist is not None and getattr(sys.modules.get(entry.module), entry.attr, None) is plugin:
                return f"{entry.dist.name} {entry.dist.version}"
        return None

    def is_ours(self, plugin: type[Any]) -> bool:
        """Whether a class comes with Arachne."""
        return plugin.__module__.partition(".")[0] in {path.partition(".")[0] for path in self.ours.values()}

    def _entries(self) -> dict[str, EntryPoint]:
        installed = _entry_points(self.group, tuple(sys.path))
        # An installation of an older Arachne may still list our old names; they lead nowhere now.
        others = {one.name: one for one in installed if not (one.name in self.aliases and one.module in self._modules)}
        return {**others, **{name: self._own(name) for name in self.ours}}

    def _own(self, name: str) -> EntryPoint:
        return EntryPoint(name, self.ours[name], self.group)

    @property
    def _modules(self) -> set[str]:
        return {path.partition(":")[0] for path in self.ours.values()}

    def _explain(self, entry: EntryPoint, error: ImportError) -> ImportError:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "arachne", entry.module.partition(".")[0]):  # a bug in the plug-in, not a missing package
            return error if entry.name in self.ours else self._broken_error(entry, error)
        if not isinstance(error, ModuleNotFoundError):  # it is there, and a library does not load
            return self._broken_error(entry, error)
        return self.unavailable(self.lacking(entry.name, missing))

    def lacking(self, name: str, missing: str) -> str:
        """The sentence for a plug-in whose package is not installed: which, and how to get it."""
        hint = f'"arachne-repair[{self.extras[name]}]"' if name in self.extras else missing
        return f"{self.kind} '{name}' needs a package that is not installed ({missing}): pip install {hint}"

    def _broken_error(self, entry: EntryPoint, error: Exception) -> ImportError:
        owner = "" if entry.dist is None else f" of {entry.dist.name} {entry.dist.version}"
        return self.unavailable(
            f"{self.kind} '{entry.name}'{owner} cannot be imported ({type(error).__name__}: {error}); "
            "update or uninstall the package it comes from"
        )


@functools.cache
def _entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """A group's entry points on a path; kept, since every distribution there is looked at to find them."""
    return importlib.metadata.entry_points(group=group)


BACKENDS = Table(
    "backend",
    "arachne.backends",
    {
        "keras": "arachne_keras:KerasBackend",
        "onnx": "arachne_onnx:OnnxBackend",
        "tflite": "arachne_tflite:TfliteBackend",
        "torch": "arachne_torch:TorchBackend",
    },
    extras={"keras": "keras", "onnx": "onnx", "tflite": "tflite", "torch": "torch"},
    unavailable=BackendUnavailableError,
)
WEIGHT_FILES = Table(
    "backend",
    "arachne.weight_files",
    {
        "keras": "arachne_keras.io:open_weights",
        "onnx": "arachne_onnx.weights:OnnxWeightFile",
        "tflite": "arachne_tflite.weights:TfliteWeightFile",
        "torch": "arachne_torch.weight_readers:open_module_weights",
    },
    extras=BACKENDS.extras,
    unavailable=BackendUnavailableError,
)
"""Under the name of a backend of ours, the callable behind its `weight_file`, in a module without the rest of it."""

CONFORMANCE = Table(
    "conformance suite",
    "arachne.conformance",
    {
        "keras": "arachne_keras.conformance:KerasConformance",
        "onnx": "arachne_onnx.conformance:OnnxConformance",
        "tflite": "arachne_tflite.conformance:TfliteConformance",
        "torch": "arachne_torch.conformance:TorchConformance",
    },
    extras=BACKENDS.extras,
)
"""Under the name of its backend, the subclass of `arachne.testing.BackendConformance` that checks it."""

LOCALISERS = Table(
    "localiser",
    "arachne.localisers",
    {
        "all": "arachne.localise:Everything",
        "bl": "arachne.localise:Bidirectional",
        "contrast": "arachne.localise:Contrast",
        "fisher": "arachne.localise:Fisher",
        "gl": "arachne.localise:GradientLoss",
        "rs": "arachne.localise:RandomChoice",
        "spectrum": "arachne.localise:Spectrum",
    },
)
SEARCHERS = Table(
    "searcher",
    "arachne.searchers",
    {
        "apricot": "arachne.rivals:Apricot",
        "auto": "arachne.search:Pool",
        "bias": "arachne.search:BiasShift",
        "de": "arachne.search:DifferentialEvolution",
        "deepfault": "arachne.rivals:DeepFault",
        "erase": "arachne.search:Erase",
        "front": "arachne.search:Front",
        "gate": "arachne.search:Gate",
        "gates": "arachne.search:Gates",
        "last-layer": "arachne.search:LastLayer",
        "low-rank": "arachne.search:LowRank",
        "margin": "arachne.search:MarginSearch",
        "margin@conv": "arachne.search:MarginConv",
        "margin@embeddings": "arachne.search:MarginEmbeddings",
        "margin@fisher": "arachne.search:MarginFisher",
        "margin@hidden": "arachne.search:MarginHidden",
        "margin@wide": "arachne.search:MarginWide",
        "mode": "arachne.rivals:Mode",
        "norms": "arachne.search:Norms",
        "ridge": "arachne.rivals:Ridge",
        "rt": "arachne.rivals:Retrain",
        "tune": "arachne.rivals:Tune",
        "tune@anchored": "arachne.search:TuneAnchored",
        "tune@training": "arachne.search:TuneTraining",
    },
    aliases={
        "deep": "margin@conv",
        "hidden": "margin@hidden",
        "keep": "margin",
        "last": "last-layer",
        "sparing": "margin@fisher",
        "wide": "margin@wide",
        "words": "margin@embeddings",
    },
)
OBJECTIVES = Table(
    "objective",
    "arachne.objectives",
    {
        "gap": "arachne.fairness:AccuracyGap",
        "odds": "arachne.fairness:EqualisedOdds",
        "worst": "arachne.fairness:WorstGroup",
    },
)
FINDERS = Table(
    "finder",
    "arachne.finders",
    {
        "inputs": "arachne.causes.inputs:InputFinder",
        "metadata": "arachne.causes.metadata:MetadataFinder",
        "derived": "arachne.causes.derived:DerivedFinder",
        "clusters": "arachne.causes.clusters:ClusterFinder",
    },
)
TASKS = Table(
    "task",
    "arachne.tasks",
    {
        "binary": "arachne.tasks:Binary",
        "detection": "arachne.tasks:Detection",
        "multilabel": "arachne.tasks:Multilabel",
        "regression": "arachne.tasks:Regression",
        "rule": "arachne.tasks:RuleTask",
        "segmentation": "arachne.tasks:Segmentation",
        "single-label": "arachne.tasks:SingleLabel",
        "tokens": "arachne.tasks:Tokens",
    },
)

TABLES = (BACKENDS, CONFORMANCE, TASKS, LOCALISERS, SEARCHERS, OBJECTIVES, FINDERS)
