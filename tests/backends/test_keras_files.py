"""Keras files: the honest are changed by a few bytes, the hostile end in one sentence before Keras reads them."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from arachne.decisions.losses import cross_entropy

pytest.importorskip("arachne_keras", exc_type=ImportError)

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import keras
from keras import layers as kl

import arachne
from arachne.errors import InputError, ModelError, UnsafeModelError, UsageError
from arachne.model.values import Address
from arachne.patch import Patch
from arachne_keras import environment

pytestmark = [
    pytest.mark.backend("keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

Members = dict[str, bytes]


def make() -> Any:
    keras.utils.set_random_seed(0)
    hidden = kl.Dense(5, activation="relu", name="hidden")
    return keras.Sequential([keras.Input((4,)), hidden, kl.Dense(3, activation="softmax", name="head")])


def make_wider() -> Any:
    return keras.Sequential([keras.Input((4,)), kl.Dense(6, name="hidden"), kl.Dense(3, name="head")])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    make().save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


def members(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, content: Members, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def patch_of(backend: KerasBackend) -> Patch:
    places = [Address("hidden", "weight", (2, 3)), Address("head", "weight", (1, 4)), Address("head", "bias", (0,))]
    return Patch.between(backend, places, [0.25, -1.5, 0.125])


def test_a_patch_changes_the_bytes_of_its_weights_and_a_checksum(path: Path, tmp_path: Path) -> None:
    backend = KerasBackend.load(path)
    patch = patch_of(backend)
    there, back = tmp_path / "there.keras", tmp_path / "back.keras"
    written = patch.apply_file(KerasBackend.weight_file(path), there, reopen=KerasBackend.weight_file)
    assert written.bytes_changed is not None
    assert written.bytes_changed <= 3 * 4 + 2 * 4  # three float32 weights, the checksum in its two places
    before, after = members(path), members(there)
    assert {name for name in before if before[name] != after[name]} == {"model.weights.h5"}
    patch.revert_file(KerasBackend.weight_file(there), back, reopen=KerasBackend.weight_file)
    assert back.read_bytes() == path.read_bytes()
    inputs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    patched = KerasBackend.load(there)
    with patch.apply_temporarily(backend):
        np.testing.assert_allclose(patched.forward(inputs), backend.forward(inputs), atol=1e-6)
    own = keras.saving.load_model(there)
    assert keras.ops.convert_to_numpy(own.get_layer("hidden").kernel)[3, 2] == 0.25


def test_a_packed_archive_keeps_every_other_member(path: Path, tmp_path: Path) -> None:
    packed = write(tmp_path / "packed.keras", members(path), zipfile.ZIP_DEFLATED)
    patch = patch_of(KerasBackend.load(packed))
    there, back = tmp_path / "there.keras", tmp_path / "back.keras"
    patch.apply_file(KerasBackend.weight_file(packed), there, reopen=KerasBackend.weight_file)
    patch.revert_file(KerasBackend.weight_file(there), back, reopen=KerasBackend.weight_file)
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members(packed).items()}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in members(back).items()} == hashes


def test_a_saved_model_is_a_copy_of_its_file(path: Path, tmp_path: Path) -> None:
    backend = KerasBackend.load(path)
    backend.save(tmp_path / "same.keras")
    assert (tmp_path / "same.keras").read_bytes() == path.read_bytes()
    backend.set_weights("head", "bias", np.array([1, 2, 3], np.float32))
    backend.save(tmp_path / "other.keras")
    np.testing.assert_array_equal(KerasBackend.load(tmp_path / "other.keras").get_weights("head")["bias"], [1, 2, 3])
    with pytest.raises(ModelError, match="never overwritten"):
        backend.save(path)


def test_weights_come_with_a_factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "my_keras_factory.py").write_text(
        "import keras\n\n\ndef make(width=5):\n    return keras.Sequential([keras.Input((4,)), "
        "keras.layers.Dense(width, name='hidden'), keras.layers.Dense(3, name='head')])\n\n\n"
        "def wider():\n    return make(6)\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    model = make()
    model.save_weights(tmp_path / "model.weights.h5")
    backend = arachne.load("my_keras_factory:make", weights=tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(
        backend.get_weights("hidden")["weight"], keras.ops.convert_to_numpy(model.get_layer("hidden").kernel.value).T
    )
    backend.set_weights("head", "bias", np.array([1, 2, 3], np.float32))
    backend.save(tmp_path / "patched.weights.h5")
    again = arachne.load("my_keras_factory:make", weights=tmp_path / "patched.weights.h5")
    np.testing.assert_array_equal(again.get_weights("head")["bias"], [1, 2, 3])
    with pytest.raises(ModelError, match=r"the weights in 'model.weights.h5' do not fit the model"):
        arachne.load("my_keras_factory:wider", weights=tmp_path / "model.weights.h5")
    with pytest.raises(ModelError, match="holds weights alone"):
        arachne.load(tmp_path / "model.weights.h5")
    model.save(tmp_path / "model.keras")
    with pytest.raises(UsageError, match="need a model or a factory"):
        KerasBackend.load(tmp_path / "model.keras", weights=tmp_path / "model.weights.h5")


def many_layers() -> Any:
    image = keras.Input((8, 8, 2))
    value = kl.SeparableConv2D(3, 3, name="separable")(kl.Conv2D(4, 3, use_bias=False, name="conv")(image))
    value = kl.Conv2DTranspose(4, 2, name="up")(kl.DepthwiseConv2D(2, depth_multiplier=2, name="each")(value))
    value = kl.Reshape((-1, 4))(kl.BatchNormalization(name="batch")(value))
    value = kl.Bidirectional(kl.LSTM(3, return_sequences=True), name="both")(value)
    value = kl.LayerNormalization(name="layer")(kl.MultiHeadAttention(2, 5, name="attention")(value, value))
    value = kl.Bidirectional(kl.GRU(3), name="gru")(value)
    inner = keras.Sequential([keras.Input((6,)), kl.Dense(5, name="one"), kl.Dense(4, name="two")], name="inner")
    return keras.Model(image, kl.Dense(3, name="head")(inner(value)))


def test_a_weight_file_names_its_layers_itself(tmp_path: Path) -> None:
    model, rng = many_layers(), np.random.default_rng(0)
    model.set_weights([rng.normal(size=w.shape).astype(np.float32) for w in model.get_weights()])
    model.save(tmp_path / "net.keras")
    model.save_weights(tmp_path / "net.weights.h5")
    whole, alone = (KerasBackend.weight_file(tmp_path / name) for name in ("net.keras", "net.weights.h5"))
    assert set(whole.parameters()) == set(alone.parameters())
    for key in whole.parameters():
        np.testing.assert_array_equal(alone.read(*key), whole.read(*key), err_msg=".".join(key))
    changed = whole.read("gru/forward_gru", "bias_hh") + 1
    alone.rewrite(tmp_path / "new.weights.h5", {("gru/forward_gru", "bias_hh"): changed})
    model.load_weights(tmp_path / "new.weights.h5")
    np.testing.assert_array_equal(KerasBackend.load(model).get_weights("gru/forward_gru")["bias_hh"], changed)


@pytest.mark.parametrize(
    ("where", "shape", "sentence"),
    [
        ("layers/dense/vars/0", (3,), "does not hold 'layers/dense' as Keras stores"),
        ("layers/lstm/cell/vars/1", (0, 12), "does not hold 'layers/lstm/cell' as Keras stores"),
        ("layers/dense/vars/x", (3, 3), "does not hold 'layers/dense' as Keras stores"),
        ("layers/mine/vars/0", (3, 3), "names no layers"),
        ("weights", (3, 3), "names no layers"),
    ],
)
def test_a_weight_file_that_makes_no_sense_is_refused(
    where: str, shape: tuple[int, ...], sentence: str, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "odd.weights.h5", "w") as file:
        if "cell" in where:
            file.create_dataset("layers/lstm/cell/vars/0", (3, 12), "f4")
        file.create_dataset(where, shape, "f4")
    with pytest.raises(ModelError, match=sentence):
        KerasBackend.weight_file(tmp_path / "odd.weights.h5")


def config_with(change: Callable[[Any], None]) -> Callable[[Members], Members]:
    def apply_change(content: Members) -> Members:
        config = json.loads(content["config.json"])
        change(config)
        return {**content, "config.json": json.dumps(config).encode()}

    return apply_change


def layer(config: Any) -> Any:
    return config["config"]["layers"][1]


def hdf5_with(change: Callable[[Any], None]) -> Callable[[Members], Members]:
    def apply_change(content: Members) -> Members:
        data = io.BytesIO(content["model.weights.h5"])
        with h5py.File(data, "r+") as file:
            change(file)
        return {**content, "model.weights.h5": data.getvalue()}

    return apply_change


def replace_file(file: Any, link: Any) -> None:
    del file["layers/dense/vars/0"]
    file["layers/dense/vars/0"] = link


def kept_elsewhere(file: Any) -> None:
    del file["layers/dense/vars/0"]
    file.create_dataset("layers/dense/vars/0", (4, 5), "f4", external=[("/etc/hostname", 0, 80)])


def bomb(file: Any) -> None:
    file.create_dataset("layers/dense/vars/9", (1 << 30,), "f4", chunks=(1 << 20,), compression="gzip")


HOSTILE: dict[str, tuple[Callable[[Members], Members], str]] = {
    "a lambda": (
        config_with(
            lambda c: layer(c).update(class_name="Lambda", config={"name": "l", "function": ["4wE=", None, None]})
        ),
        "'Lambda', which runs code",
    ),
    "marshalled code": (
        config_with(
            lambda c: layer(c)["config"].update(activation={"class_name": "__lambda__", "config": {"value": "4w"}})
        ),
        "'__lambda__', which carries code",
    ),
    "a custom layer": (
        config_with(lambda c: layer(c).update(module="mine", class_name="Evil", registered_name="mine>Evil")),
        "'mine.Evil', which is no layer of Keras' own",
    ),
    "a registered name": (
        config_with(lambda c: layer(c).update(registered_name="mine>Dense")),
        "the custom object 'mine>Dense'",
    ),
    "a function of the standard library": (
        config_with(
            lambda c: layer(c)["config"].update(
                activation={"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}
            )
        ),
        "the function 'os.system'",
    ),
    "a helper of Keras that downloads": (
        config_with(lambda c: layer(c).update(module="keras.utils", class_name="get_file", registered_name=None)),
        "'keras.utils.get_file'",
    ),
    "a table read by name": (
        config_with(lambda c: layer(c).update(class_name="StringLookup", config={"vocabulary": "/etc/passwd"})),
        "may read files by name",
    ),
    "a program from elsewhere": (config_with(lambda c: layer(c).update(class_name="TFSMLayer")), "loads a program"),
    "no model": (lambda content: {**content, "config.json": b"[]"}, "describes no model"),
    "no JSON": (lambda content: {**content, "config.json": b"{"}, "cannot be read"),
    "JSON without end": (
        lambda content: {**content, "config.json": b"[" * 200_000},
        "cannot be read|nested too deeply",
    ),
    "no config": (lambda content: {n: d for n, d in content.items() if n != "config.json"}, "lacks its member"),
    "no weights": (lambda content: {n: d for n, d in content.items() if n != "model.weights.h5"}, "lacks its member"),
    "weights that are none": (lambda content: {**content, "model.weights.h5": b"HDF"}, "no readable HDF5"),
    "a link into another file": (
        hdf5_with(lambda file: replace_file(file, h5py.ExternalLink("/tmp/other.h5", "/x"))),
        "a link 'layers/dense/vars/0'",
    ),
    "a soft link": (
        hdf5_with(lambda file: replace_file(file, h5py.SoftLink("/layers"))),
        "a link 'layers/dense/vars/0'",
    ),
    "a tensor kept elsewhere": (hdf5_with(kept_elsewhere), "in another file"),
    "a group in itself": (
        hdf5_with(lambda file: file["layers"].__setitem__("again", file["layers"])),
        "back to itself",
    ),
    "weights that grow": (hdf5_with(bomb), "would grow"),
    "weights of another shape": (
        config_with(lambda c: layer(c)["config"].update(units=7)),
        "Keras cannot build the model",
    ),
    "a member outside": (lambda content: {**content, "../outside": b""}, "reaches outside"),
    "an absolute member": (lambda content: {**content, "/etc/cron.d/x": b""}, "reaches outside"),
}


@pytest.mark.parametrize("name", list(HOSTILE))
def test_hostile_files_are_refused_in_one_sentence(
    name: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, sentence = HOSTILE[name]
    if name != "weights of another shape":  # the one case that only Keras can see

        def never(*args: Any, **kwargs: Any) -> None:
            raise AssertionError("Keras read the file before it was refused")

        monkeypatch.setattr(keras.saving, "load_model", never)
    hostile = write(tmp_path / "hostile.keras", change(members(path)))
    with pytest.raises(InputError, match=sentence) as caught:
        KerasBackend.load(hostile)
    assert caught.value.exit_code == 3
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError):
        KerasBackend.weight_file(hostile)


def test_damaged_archives_are_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    start = whole.index(b"\x89HDF")
    damaged = bytearray(whole)
    damaged[start + 12000] ^= 0xFF
    for content, sentence in (
        (b"", "not a .keras archive"),
        (b"not a zip at all", "not a .keras archive"),
        (whole[: len(whole) // 2], "not a .keras archive"),
        (bytes(damaged), "checksum of 'model.weights.h5' is wrong"),
    ):
        (tmp_path / "damaged.keras").write_bytes(content)
        with pytest.raises(ModelError, match=sentence):
            KerasBackend.load(tmp_path / "damaged.keras")


def test_a_member_that_grows_is_refused(path: Path, tmp_path: Path) -> None:
    bomb_path = tmp_path / "bomb.keras"
    with zipfile.ZipFile(bomb_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members(path).items():
            archive.writestr(name, data)
        with archive.open("assets/bomb", "w") as stream:
            for _ in range(300):
                stream.write(bytes(1 << 20))
    with pytest.raises(UnsafeModelError, match="would grow"):
        KerasBackend.load(bomb_path)


def test_old_whole_models_need_trust(tmp_path: Path) -> None:
    old = tmp_path / "old.h5"
    make().save(old)
    with pytest.raises(UnsafeModelError, match=r"old \.h5 format"):
        KerasBackend.load(old)
    with pytest.raises(ModelError, match="only read"):
        KerasBackend.weight_file(old)
    backend = KerasBackend.load(old, trust_code=True)
    assert backend.suffix == ".keras"
    backend.save(tmp_path / "new.keras")
    inputs = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(KerasBackend.load(tmp_path / "new.keras").forward(inputs), backend.forward(inputs))


def test_a_folder_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="SavedModel"):
        KerasBackend.load(tmp_path)


def test_every_allowed_kind_of_network_is_let_through(tmp_path: Path) -> None:
    given = keras.Input((6, 4))
    value = kl.Bidirectional(kl.GRU(3, return_sequences=True, kernel_regularizer=keras.regularizers.L2(0.1)))(given)
    value = kl.MultiHeadAttention(2, 3)(value, value) + value
    value = kl.Activation(keras.activations.gelu)(kl.TimeDistributed(kl.Dense(4, activation="relu"))(value))
    value = keras.ops.mean(value[:, 1:], axis=1)
    inner = keras.Sequential([keras.Input((4,)), kl.Dense(4, kernel_constraint=keras.constraints.NonNeg())])
    model = keras.Model(given, keras.ops.softmax(kl.Dense(3)(kl.Dropout(0.5)(inner(value)))))
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(), ["accuracy"])
    model.save(tmp_path / "model.keras")
    inputs = np.random.default_rng(0).normal(size=(3, 6, 4)).astype(np.float32)
    scores = KerasBackend.load(tmp_path / "model.keras").forward(inputs)
    np.testing.assert_allclose(scores, KerasBackend.load(model).forward(inputs), atol=1e-6)


def test_importing_the_backend_leaves_nothing_in_the_home_and_says_nothing(path: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(path, home / "model.keras")
    code = (
        "import arachne, keras, os; backend = arachne.load('model.keras'); "
        "print(keras.backend.backend(), 'KERAS_HOME' in os.environ, backend.describe().framework)"
    )
    # Keras looks for matplotlib, which keeps a list of fonts in the home of whoever imports it.
    variables = {"HOME": str(home), "PATH": "/usr/bin:/bin", "MPLCONFIGDIR": str(tmp_path / "fonts")}
    done = subprocess.run(
        [sys.executable, "-c", f"import arachne_keras; {code}"],
        cwd=home, env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tensorflow False keras 3")
    assert done.stderr == ""
    assert [entry.name for entry in home.iterdir()] == ["model.keras"]


def test_the_framework_is_chosen_from_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"torch": True, "jax": True}
    monkeypatch.setattr(importlib.util, "find_spec", there.get)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    assert environment.choose_framework() == "torch"
    (tmp_path / "keras.json").write_text('{"backend": "tensorflow"}')  # as Keras itself writes it
    assert environment.choose_framework() == "torch"
    (tmp_path / "keras.json").write_text('{"backend": "jax"}')
    assert environment.choose_framework() is None
    there.clear()
    with pytest.raises(ImportError, match="tensorflow, torch, jax"):
        environment.choose_framework()
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    assert environment.choose_framework() is None


def test_a_lambda_runs_when_the_user_trusts_the_file(tmp_path: Path) -> None:
    given = keras.Input((4,))
    doubled = kl.Lambda(lambda x: x * 2, output_shape=(4,), name="doubled")(given)
    model = keras.Model(given, kl.Dense(3, name="head")(doubled))
    path = tmp_path / "lambda.keras"
    model.save(path)
    with pytest.raises(UnsafeModelError, match="use --trust-code"):
        KerasBackend.load(path)
    backend = KerasBackend.load(path, trust_code=True)
    inputs = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(backend.forward(inputs), keras.ops.convert_to_numpy(model(inputs)), atol=1e-6)
    backend.set_weights("head", "bias", np.array([1, 2, 3], np.float32))
    backend.save(tmp_path / "patched.keras")
    again = KerasBackend.load(tmp_path / "patched.keras", trust_code=True)
    np.testing.assert_array_equal(again.get_weights("head")["bias"], [1, 2, 3])


@pytest.mark.parametrize(
    ("policy", "crosses"), [("float64", "float64"), ("float16", "float16"), ("bfloat16", "float32")]
)
def test_weights_keep_the_dtype_they_are_stored_in(policy: str, crosses: str, tmp_path: Path) -> None:
    layers = [kl.Dense(5, activation="tanh", name="hidden", dtype=policy), kl.Dense(3, name="head", dtype=policy)]
    softmax = kl.Activation("softmax", dtype=policy)
    keras.Sequential([keras.Input((4,)), *layers, softmax]).save(tmp_path / "model.keras")
    backend = KerasBackend.load(tmp_path / "model.keras")
    weight = backend.get_weights("head")["weight"]
    assert (backend.info("head").parameters["weight"].dtype, str(weight.dtype)) == (policy, crosses)
    weight[0, 0] = 1 / 3 if policy == "float64" else 0.375
    backend.set_weights("head", "weight", weight)
    backend.save(tmp_path / "new.keras")
    file = KerasBackend.weight_file(tmp_path / "new.keras")
    assert file.dtype("head", "weight") == policy
    np.testing.assert_array_equal(file.read("head", "weight"), weight)
    np.testing.assert_array_equal(KerasBackend.load(tmp_path / "new.keras").get_weights("head")["weight"], weight)


def test_a_model_of_doubles_is_computed_in_doubles() -> None:
    layers = [kl.Dense(5, activation="tanh", name="hidden"), kl.Dense(3, activation="softmax", name="head")]
    for one in layers:
        one.dtype_policy = keras.DTypePolicy("float64")
    backend = KerasBackend.load(keras.Sequential([keras.Input((4,), dtype="float64"), *layers]))
    inputs, labels = np.random.default_rng(0).normal(size=(6, 4)), np.arange(6) % 3
    w, v = backend.get_weights("hidden"), backend.get_weights("head")
    hidden = np.tanh(inputs @ w["weight"].T + w["bias"])
    scores = hidden @ v["weight"].T + v["bias"]
    np.testing.assert_allclose(backend.forward(inputs), scores, atol=1e-6)
    (use,) = backend.activations(inputs, "head")
    # On torch, Keras' own matrix product is only as exact as float32.
    exact = 1e-12 if keras.backend.backend() == "tensorflow" else 1e-6
    np.testing.assert_allclose(use.entering["weight"], hidden, rtol=0, atol=exact)
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(3)[labels]
    gradient = backend.weight_gradients(inputs, cross_entropy(labels))["head", "weight"]
    np.testing.assert_allclose(gradient, wanted.T @ hidden / 6, atol=1e-6)
    changed = v["weight"] + 1e-3
    cut = backend.cut(inputs, ["head"])
    np.testing.assert_allclose(
        cut.scores_with({("head", "weight"): changed}), hidden @ changed.T + v["bias"], atol=1e-6
    )
