"""Every command on Keras files, as a person uses them: real files, real output, real exit codes."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("arachne_keras", exc_type=ImportError)

from arachne_keras import KerasBackend  # isort: skip  # before Keras: it settles what Keras runs on
import h5py
import keras

from arachne.io.files import sha256_of
from tests import commands
from tests.commands import Ran

pytestmark = [
    pytest.mark.backend("keras"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

QUICK = ["--search", "de", "-O", "population=24", "-O", "generations=16"]


def arachne(*arguments: str | Path, cwd: Path, code: int = 0) -> Ran:
    """Run a command and check its exit code."""
    ran = commands.arachne(*arguments, cwd=cwd)
    assert ran.code == code, ran.err
    return ran


CODE = """
import keras
from keras import layers as kl

def make_net():
    return keras.Sequential([
        keras.Input((9, 8, 2), name="image"),
        kl.Conv2D(6, 3, strides=2, padding="same", activation="relu", name="conv"),
        kl.GlobalAveragePooling2D(),
        kl.Dense(16, activation="relu", name="hidden"),
        kl.Dense(4, activation="softmax", name="head"),
    ])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was right before one of its weights was spoilt, in all of its formats, and labelled inputs."""
    folder = tmp_path_factory.mktemp("keras_cli")
    (folder / "my_keras_net.py").write_text(CODE)
    made: dict[str, Any] = {}
    exec(CODE, made)
    model, rng = made["make_net"](), np.random.default_rng(0)
    model.set_weights([(0.8 * rng.normal(size=w.shape)).astype(np.float32) for w in model.get_weights()])
    backend = KerasBackend.load(model)
    x = rng.normal(size=(400, 9, 8, 2)).astype(np.float32)
    scores = backend.forward(x)
    backend.set_weights("head", "bias", backend.get_weights("head")["bias"] - scores.mean(axis=0))
    y = backend.predict(x)
    np.savez(folder / "val.npz", x=x[:300], y=y[:300])
    np.savez(folder / "test.npz", x=x[300:], y=y[300:])
    (use,) = backend.activations(x, "head")
    weight, busiest = backend.get_weights("head")["weight"], use.entering["weight"].std(axis=0).argmax()
    weight[1, busiest] += 1
    backend.set_weights("head", "weight", weight)
    model.save(folder / "net.keras")
    model.save_weights(folder / "net.weights.h5")
    model.save(folder / "old.h5")
    return folder


@pytest.fixture(scope="module")
def fixed(folder: Path) -> Ran:
    options = ["--data", "val.npz", "--target", "*:1", *QUICK, "-o", "fix", "--json"]
    return arachne("repair", "net.keras", *options, cwd=folder)


def test_scan_lists_faults_and_layers(folder: Path) -> None:
    found = arachne("scan", "net.keras", "--data", "val.npz", "--json", cwd=folder).json
    assert found["wildcards"][0]["target"] == "*:1"
    assert found["backend"] == "keras"
    listed = arachne("scan", "net.keras", "--layers", "--json", cwd=folder).json
    assert [layer["name"] for layer in listed["layers"]] == ["conv", "hidden", "head"]


def test_localise_names_weights(folder: Path) -> None:
    found = arachne("localise", "net.keras", "--data", "val.npz", "--target", "*:1", "--json", cwd=folder).json
    assert {weight["layer"] for weight in found["weights"]} <= {"conv", "hidden", "head"}
    assert found["weights"]


def test_repair_writes_a_patched_model_that_evaluate_agrees_with(folder: Path, fixed: Ran) -> None:
    assert fixed.json["held_out"]["repaired"] > 0
    assert {path.name for path in (folder / "fix").iterdir()} >= {"patch.json", "model.keras", "result.json"}
    options = ["--data", "test.npz", "--json"]
    promised = arachne("evaluate", "net.keras", *options, "--patch", "fix/patch.json", cwd=folder).json
    saved = arachne("evaluate", "fix/model.keras", *options, cwd=folder).json
    assert promised["held_out"]["accuracy_after"] == saved["accuracy"]
    assert promised["held_out"]["repaired"] > 0


def test_apply_and_revert_give_back_every_byte(folder: Path, fixed: Ran) -> None:
    before = sha256_of(folder / "net.keras")
    arachne("apply", "fix/patch.json", "net.keras", "-o", "patched.keras", cwd=folder)
    assert sha256_of(folder / "patched.keras") == sha256_of(folder / "fix" / "model.keras") != before
    arachne("revert", "fix/patch.json", "patched.keras", "-o", "again.keras", cwd=folder)
    assert sha256_of(folder / "again.keras") == sha256_of(folder / "net.keras") == before


def test_patches_are_shown_compared_stacked_and_found_again(folder: Path, fixed: Ran) -> None:
    made = arachne("show", "fix/patch.json", "--json", cwd=folder).json
    assert len(made["entries"]) == fixed.json["weights"]
    told = arachne("diff", "net.keras", "fix/model.keras", "-o", "diff.json", "--json", cwd=folder).json
    assert told["entries"] == made["entries"]
    arachne("stack", "fix/patch.json", "diff.json", "-o", "stack.json", cwd=folder)
    for file, state in (("net.keras", "not carried"), ("fix/model.keras", "carried")):
        (row,) = arachne("log", file, "--patches", "fix", "--json", cwd=folder).json["patches"]
        assert row["state"] == state
    assert "--patches" in arachne("log", "net.keras", cwd=folder, code=2).err
    arachne("report", "fix", "-o", "page.html", cwd=folder)
    assert "head" in (folder / "page.html").read_text()


@pytest.mark.backend("onnx")
def test_a_patch_fits_the_export_of_its_model(folder: Path, fixed: Ran) -> None:
    if keras.backend.backend() == "tensorflow":
        pytest.importorskip("tf2onnx")
    told = arachne("convert", "net.keras", "-o", "net.onnx", "--data", "test.npz", "--json", cwd=folder).json
    assert told["same_predictions"] == told["inputs"]
    arachne("apply", "fix/patch.json", "net.onnx", "-o", "patched.onnx", cwd=folder)
    options = ["--data", "test.npz", "--json"]
    ours, theirs = (arachne("evaluate", f, *options, cwd=folder).json for f in ("fix/model.keras", "patched.onnx"))
    assert ours["accuracy"] == theirs["accuracy"]


def test_a_factory_with_weights_takes_every_command(folder: Path, fixed: Ran) -> None:
    net = ["--model", "my_keras_net:make_net", "--weights", "net.weights.h5"]
    data = ["--data", "val.npz"]
    assert arachne("scan", *net, *data, "--json", cwd=folder).json["wildcards"][0]["target"] == "*:1"
    arachne("localise", *net, *data, "--target", "*:1", cwd=folder)
    arachne("repair", *net, *data, "--target", "*:1", *QUICK, "-o", "made", cwd=folder)
    assert (folder / "made" / "patch.json").read_bytes() != b""
    patched = ["--model", "my_keras_net:make_net", "--weights", "made/model.weights.h5", "--json"]
    ours = arachne("evaluate", *patched, "--data", "test.npz", cwd=folder).json
    theirs = arachne("evaluate", "fix/model.keras", "--data", "test.npz", "--json", cwd=folder).json
    assert ours["accuracy"] == theirs["accuracy"]


def test_a_weight_file_is_patched_without_code_and_restored_to_the_byte(folder: Path, fixed: Ran) -> None:
    arachne("apply", "fix/patch.json", "net.weights.h5", "-o", "patched.weights.h5", cwd=folder)
    before, after = ((folder / name).read_bytes() for name in ("net.weights.h5", "patched.weights.h5"))
    assert 0 < sum(a != b for a, b in zip(before, after, strict=True)) <= 4 * fixed.json["weights"]
    arachne("revert", "fix/patch.json", "patched.weights.h5", "-o", "again.weights.h5", cwd=folder)
    assert (folder / "again.weights.h5").read_bytes() == before


def test_an_old_whole_model_is_repaired_when_it_is_trusted(folder: Path) -> None:
    options = ["--data", "val.npz", "--target", "*:1", *QUICK, "-o", "renewed"]
    assert "--trust-code" in arachne("repair", "old.h5", *options, cwd=folder, code=3).err
    arachne("repair", "old.h5", "--trust-code", *options, cwd=folder)
    arachne("evaluate", "renewed/model.keras", "--data", "test.npz", cwd=folder)


Write = Callable[[Path], object]


def change_archive(change: Callable[[dict[str, Any]], object]) -> Write:
    """The archive with its description changed."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(path.parent / "net.keras") as source, zipfile.ZipFile(path, "w") as target:
            for name in source.namelist():
                data = source.read(name)
                if name == "config.json":
                    config = json.loads(data)
                    change(config)
                    data = json.dumps(config).encode()
                target.writestr(name, data)

    return write


def without_config(path: Path) -> None:
    with zipfile.ZipFile(path.parent / "net.keras") as source, zipfile.ZipFile(path, "w") as target:
        target.writestr("model.weights.h5", source.read("model.weights.h5"))


def with_a_link(path: Path) -> None:
    with zipfile.ZipFile(path.parent / "net.keras") as source, zipfile.ZipFile(path, "w") as target:
        weights = io.BytesIO(source.read("model.weights.h5"))
        with h5py.File(weights, "r+") as file:
            file["layers/dense/vars/9"] = h5py.ExternalLink("/etc/other.h5", "/x")
        target.writestr("config.json", source.read("config.json"))
        target.writestr("model.weights.h5", weights.getvalue())


def layer(config: dict[str, Any], number: int) -> dict[str, Any]:
    found: dict[str, Any] = config["config"]["layers"][number]
    return found


def saved_program(path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").write_bytes(b"")


BAD: dict[str, tuple[str, Write, str]] = {
    "no zip": ("bad.keras", lambda path: path.write_bytes(b"no zip"), "not a .keras archive"),
    "no config": ("bad.keras", without_config, "lacks its member 'config.json'"),
    "a lambda": (
        "bad.keras",
        change_archive(lambda c: layer(c, 1).update(class_name="Lambda")),
        "'Lambda', which runs code",
    ),
    "a link": ("bad.keras", with_a_link, "a link 'layers/dense/vars/9' to something outside"),
    "another shape": (
        "bad.keras",
        change_archive(lambda c: layer(c, 3)["config"].update(units=17)),
        "Keras cannot build the model",
    ),
    "no classes": (
        "bad.keras",
        change_archive(lambda c: layer(c, 4)["config"].update(activation="sigmoid")),
        "several classes at once",
    ),
    "a program": ("saved", saved_program, "is a SavedModel"),
    "weights alone": (
        "bad.weights.h5",
        lambda path: path.write_bytes((path.parent / "net.weights.h5").read_bytes()),
        "module:factory",
    ),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_files_get_one_sentence_and_exit_code_three(name: str, folder: Path) -> None:
    file, write, sentence = BAD[name]
    write(folder / file)
    ran = arachne("scan", file, "--data", "val.npz", cwd=folder, code=3)
    assert sentence in ran.err
    assert ran.err.count("\n") == 1
    assert ran.out == ""


def test_weights_that_do_not_fit_their_factory_get_one_sentence(folder: Path) -> None:
    (folder / "my_wider_net.py").write_text(CODE.replace("Dense(16", "Dense(17"))
    net = ["--model", "my_wider_net:make_net", "--weights", "net.weights.h5"]
    ran = arachne("scan", *net, "--data", "val.npz", cwd=folder, code=3)
    assert "do not fit the model" in ran.err
    assert ran.err.count("\n") == 1
