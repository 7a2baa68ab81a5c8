"""Finds the backend for a name, a file or a model object.

`arachne.plugins.table` lists the backends. Nothing is imported before it is needed: a framework's object is recognised
by the name of its module, a file by its ending.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from arachne.errors import ArachneError, BackendUnavailableError, ModelError, UsageError
from arachne.io.identity import FileIdentity
from arachne.io.reading import ordinary_file
from arachne.model.weight_file import WeightFile
from arachne.plugins.table import BACKENDS, WEIGHT_FILES

if TYPE_CHECKING:
    from arachne.model.backend import ModelBackend

MAX_NAME_LENGTH = 10_000
"""Characters of the name of a layer or parameter; converters join a few hundred of them."""


@dataclass(frozen=True)
class KnownBackend:
    """Facts about one of our own backends that are needed before its framework is imported.

    Attributes:
        framework: The package that runs the models.
        suffixes: The file endings it reads.
        object_modules: The first part of the names of the modules its models' classes are from.
        needs: Packages, one of each group has to be installed.
    """

    framework: str
    suffixes: tuple[str, ...]
    object_modules: tuple[str, ...]
    needs: tuple[tuple[str, ...], ...]


KNOWN = {
    "onnx": KnownBackend("onnxruntime", (".onnx",), ("onnx",), (("onnx",), ("onnxruntime",))),
    "keras": KnownBackend(
        "keras", (".keras", ".h5", ".hdf5"), ("keras",), (("keras",), ("tensorflow", "torch", "jax"), ("h5py",))
    ),
    "tflite": KnownBackend(
        "ai-edge-litert", (".tflite",), (), (("onnx",), ("onnxruntime",), ("ai_edge_litert",), ("flatbuffers",))
    ),
    "torch": KnownBackend("torch", (".pt2", ".pt", ".pth", ".safetensors"), ("torch",), (("torch",), ("safetensors",))),
}
"""Our own backends. A third-party backend has these facts in the constants of its class."""


DATA = (".npz", ".npy", ".csv", ".parquet")
PICKLES = (".pkl", ".pickle", ".joblib", ".dill")


def names() -> list[str]:
    """Every registered backend, installed framework or not."""
    return BACKENDS.names()


@dataclass(frozen=True)
class BackendState:
    """Whether a backend can be used here.

    Attributes:
        name: Its name.
        suffixes: The file endings it reads; empty when a third party's is not installed.
        version: The framework and its installed version, when it is there.
        problem: What is missing, when it is not.
    """

    name: str
    suffixes: tuple[str, ...]
    version: str | None = None
    problem: str | None = None

    @property
    def available(self) -> bool:
        """Whether it can be used."""
        return self.problem is None


def states() -> list[BackendState]:
    """Every registered backend, and whether its packages are installed; none of our frameworks is imported."""
    return [_state_of_ours(name, KNOWN[name]) if name in KNOWN else _state(name) for name in names()]


def _state_of_ours(name: str, known: KnownBackend) -> BackendState:
    for group in known.needs:
        if not any(map(_is_installed, group)):
            return BackendState(name, known.suffixes, problem=BACKENDS.lacking(name, group[0]))
    try:
        found = f"{known.framework} {importlib.metadata.version(known.framework)}"
    except importlib.metadata.PackageNotFoundError:
        found = known.framework
    return BackendState(name, known.suffixes, version=found)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # a finder's own way to say no, and a module without a spec
        return False


def _state(name: str) -> BackendState:
    """State of a third-party backend (imports it)."""
    try:
        return BackendState(name, get(name).SUFFIXES, version="installed")
    except BackendUnavailableError as error:
        return BackendState(name, (), problem=str(error))


def get(name: str) -> type[ModelBackend]:
    """The class of a backend.

    Raises:
        UsageError: No backend of that name.
        BackendUnavailableError: Its framework is not installed; the message says how to get it.
    """
    return cast("type[ModelBackend]", BACKENDS.get(name))


def load(
    source: Any,
    *,
    backend: str | None = None,
    weights: str | Path | None = None,
    device: str | None = None,
    output: str | None = None,
    trust_code: bool = False,
    feeds: Mapping[str, Any] | None = None,
    expect_sha256: str | Mapping[str, str] | None = None,
    scores_suffice: bool = False,
) -> ModelBackend:
    """Open a model for repair.

    Args:
        source: A model file, `package.module:factory`, a model object of a framework, or a backend of your own.
        backend: The backend's name, where the source alone does not tell.
        weights: The weight file for a factory's model.
        device: Where to compute, in the framework's words (`cpu`, `cuda:0`).
        output: Which of several outputs holds the class scores.
        trust_code: Whether code inside a model file may run.
        feeds: Constants for inputs that are not in the data, such as `{"keep_prob": 1}`; a text, such as `1x3x320x320`,
            is the shape of an input whose file leaves sizes free.
        expect_sha256: The hash the file must have, the weight file where there is one; or a hash for each file, by its
            name from the folder, where weights lie beside a model.
        scores_suffice: Whether a model without layers is opened too, to be run and not repaired.

    Returns:
        A backend; a backend passed in comes back as it is.

    Raises:
        ModelError: Nothing that can be repaired, or another file than the expected one.
        UnsafeModelError: A file that would run code or reach outside its folder.
    """
    from arachne.model.backend import ModelBackend

    if isinstance(source, ModelBackend):
        return source
    if isinstance(source, (str, Path)):
        name = backend or name_for_file(Path(weights) if weights is not None else source)
        if ":" not in str(source) or Path(source).exists():
            source = existing_file(source, "model")
    else:
        name = backend or _for_object(source)
    file = None if weights is None else existing_file(weights, "weight file")
    hashes = _expected_hashes(file or source, expect_sha256)
    identity = _identify_file(file or source, hashes)
    found = get(name).load(source, weights=file, device=device, output=output, trust_code=trust_code)
    shapes = {name: value for name, value in (feeds or {}).items() if isinstance(value, str)}
    if shapes:
        found.fix_shapes({name: tuple(map(int, text.split("x"))) for name, text in shapes.items()})
    _check_names((name for info in found.layers for name in (info.name, *info.parameters)), file or source)
    if found.only_scores is not None and not scores_suffice:
        raise ModelError(f"{found.only_scores}; scan and evaluate work")
    if identity is not None:
        beside = found.describe().beside
        found.file_identity = identity.extended_by((file or source).parent / name for name in beside)
        found.file_identity.check_untouched()
        found.file_identity.check_expected(hashes)
    found.trusted_code = trust_code
    found.opened_with = {"backend": name, "device": device, "output": output, "trust_code": trust_code, "feeds": feeds}
    if isinstance(source, str):
        found.opened_with["factory"] = source
    constants = {name: np.asarray(value) for name, value in (feeds or {}).items() if name not in shapes}
    if constants:
        found.fix_inputs(constants)
    return found


def weight_file(path: str | Path) -> WeightFile:
    """Open the weights of a model file for patching, without the code that makes a model of them.

    Raises:
        ModelError: No such file, not a whole one, or one with a weight that is not finite.
    """
    path = existing_file(path, "model")
    identity = FileIdentity.of([path])
    file = _weight_opener(name_for_file(path))(path)
    identity = identity.extended_by(file.beside())
    identity.check_expected()
    _check_names((name for key in file.parameters() for name in key), path)
    file.check_finite()
    identity.check_untouched()
    file.file_identity = identity
    return file


def _weight_opener(name: str) -> Callable[[Path], WeightFile]:
    """The callable that opens weight files: of our own backends without importing what runs their models."""
    if name in WEIGHT_FILES.ours:
        return cast("Callable[[Path], WeightFile]", WEIGHT_FILES.get(name))
    return get(name).weight_file


def _check_names(names: Iterable[str], source: Any) -> None:
    """Refuse a model with a name that nobody gives a layer: patches and pages repeat it for every weight.

    Raises:
        ModelError: There is one.
    """
    longest = max(names, key=len, default="")
    if len(longest) > MAX_NAME_LENGTH:
        raise ModelError(
            f"'{source}' has a layer or parameter with a name of {len(longest):,} characters, more than "
            f"{MAX_NAME_LENGTH:,}: '{longest[:40]}…'"
        )


def files_beside(path: Path) -> Sequence[Path]:
    """Return the files beside a model that hold weights of it; none where it is no model."""
    try:
        return _weight_opener(name_for_file(path))(path).beside()
    except ArachneError:
        return ()


def _expected_hashes(source: Any, expected: str | Mapping[str, str] | None) -> Mapping[Path, str]:
    """Return the hashes that a user expects of the files of a model, by path."""
    if expected is None:
        return {}
    if not isinstance(source, Path):
        raise UsageError("a sha256 is expected of a file, and the model comes from none")
    named = {source.name: expected} if isinstance(expected, str) else expected
    return {source.parent / name: digest for name, digest in named.items()}


def _identify_file(source: Any, hashes: Mapping[Path, str]) -> FileIdentity | None:
    """Hash the file a model is about to be read from, and refuse another than the expected one."""
    if not isinstance(source, Path):
        return None
    identity = FileIdentity.of([source])
    identity.check_expected(hashes)
    return identity


def existing_file(path: str | Path, what: str) -> Path:
    """The path, if a file is there.

    Raises:
        ModelError: Nothing is there, or a directory, or a pipe or device, which may never end.
    """
    path = Path(path)
    if (path / "saved_model.pb").exists():
        raise ModelError(
            f"{what} '{path}' is a SavedModel, a program without layers to repair; save the model as .keras where it "
            "was made, or convert the program to .onnx with tf2onnx"
        )
    return ordinary_file(path, what, ModelError)


def name_for_file(path: str | Path) -> str:
    """The name of the backend that reads files with this ending.

    Raises:
        ModelError: None does.
        UsageError: It is no file but the name of a factory.
    """
    text = str(path)
    if ":" in text and not Path(text).exists():
        raise UsageError(
            f"'{text}' names code; give its weights too, or say which backend it is for", argument="weights"
        )
    if Path(text).is_dir() or not Path(text).suffix:
        existing_file(text, "model")  # which says what a folder is, and that a file is not there
    suffix = Path(text).suffix.lower()
    for name, known in KNOWN.items():
        if suffix in known.suffixes:
            return name
    for name in BACKENDS.third_party():
        if suffix in get(name).SUFFIXES:
            return name
    existing_file(text, "model")  # a name that was mistyped in its ending
    endings = sorted({ending for known in KNOWN.values() for ending in known.suffixes})
    if suffix in DATA:
        raise ModelError(
            f"'{Path(text).name}' holds data, expected a model: {', '.join(endings)}; are the two swapped?"
        )
    if suffix in PICKLES:
        raise ModelError(
            f"'{Path(text).name}' is a pickle, and opening one runs code; write scikit-learn models to .onnx with "
            "skl2onnx or to .skops for a backend of your own, torch models as a state dict to .pt"
        )
    raise ModelError(f"no backend reads '{Path(text).name}' (ending '{suffix}'); known endings: {', '.join(endings)}")


def _for_object(model: Any) -> str:
    # From the object's own class upwards: a Keras model that runs on torch is a torch module too, further up.
    modules = list(dict.fromkeys(base.__module__.partition(".")[0] for base in type(model).__mro__))
    for module in modules:
        for name, known in KNOWN.items():
            if module in known.object_modules:
                return name
    for name in BACKENDS.third_party():
        if set(modules) & set(get(name).OBJECT_MODULES):
            return name
    raise ModelError(
        f"no backend takes a model of type '{type(model).__module__}.{type(model).__qualname__}'; available: "
        + ", ".join(names())
    )
