"""Hostile Keras models: descriptions in zips, and HDF5 files."""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.safety import valid
from tests.safety.case import Case, canary
from tests.safety.cases_torch import ARCHIVES
from tests.safety.lazy import Lazy

h5py: Any = Lazy("h5py")

CONFIG, WEIGHTS = "config.json", "model.weights.h5"
SCAN = ["scan", "net.keras", "--data", "data.npz"]
FACTORY = ("scan", *valid.FACTORY, "--backend", "keras", "--weights", "net.weights.h5", "--data", "data.npz")


def repack(path: Path, change: Callable[[dict[str, bytes]], object], **options: Any) -> None:
    """The archive with changed members, its checksums right."""
    with zipfile.ZipFile(path) as file:
        found = {name: file.read(name) for name in file.namelist()}
    change(found)
    with zipfile.ZipFile(path, "w", **options) as file:
        for name, data in found.items():
            file.writestr(name, data)


def _members(change: Callable[[dict[str, bytes], Path], object], **options: Any) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.keras_model(folder)
        repack(path, lambda found: change(found, folder), **options)
        return SCAN

    return make


def _describe(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], list[str]]:
    """A changed description; `{}` in its text is the canary's path."""

    def apply_change(found: dict[str, bytes], folder: Path) -> None:
        description = json.loads(found[CONFIG])
        result = change(description)
        text = result if isinstance(result, str) else json.dumps(description)
        found[CONFIG] = text.replace("{canary}", str(canary(folder))).encode("utf-8", "surrogatepass")

    return _members(apply_change)


def layer(number: int = 2, **fields: Any) -> Callable[[Path], list[str]]:
    """Other fields in the description of a layer."""
    return _describe(lambda config: config["config"]["layers"][number].update(fields))


def setting(number: int = 2, **settings: Any) -> Callable[[Path], list[str]]:
    """Other settings of a layer, the hidden one unless told."""
    return _describe(lambda config: config["config"]["layers"][number]["config"].update(settings))


def add_layer(name: str, module: str = "keras.layers", **settings: Any) -> Callable[[Path], list[str]]:
    """One more layer in front."""

    def change(config: dict[str, Any]) -> None:
        made = {"module": module, "class_name": name, "config": {"name": "evil", **settings}, "registered_name": None}
        config["config"]["layers"].insert(1, made)

    return _describe(change)


def _many_layers(config: dict[str, Any]) -> None:
    one = config["config"]["layers"][2]
    for number in range(4000):
        other = copy.deepcopy(one)
        other["config"]["name"] = f"hidden{number}"
        config["config"]["layers"].insert(2, other)


def _wide(units: int) -> Callable[[dict[str, Any]], None]:
    """A layer of a width that the stored weights do not have, with everything about it in step."""

    def change(config: dict[str, Any]) -> None:
        hidden, last = config["config"]["layers"][2:4]
        hidden["config"]["units"] = units
        last["build_config"] = {"input_shape": [None, units]}

    return change


def _lambda(config: dict[str, Any]) -> None:
    code = {"class_name": "__lambda__", "config": {"value": "4wAAAAA=", "defaults": None, "closure": None}}
    made = {"module": "keras.layers", "class_name": "Lambda", "config": {"name": "evil", "function": code}}
    config["config"]["layers"].insert(1, {**made, "registered_name": None})


DESCRIPTIONS: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "lambda": ("code", _describe(_lambda)),
    "lambda-by-another-name": ("code", layer(2, class_name="Lambda")),
    "program-from-elsewhere": ("code", add_layer("TFSMLayer", filepath="{canary}")),
    "torch-module": ("code", add_layer("TorchModuleWrapper", module="keras.layers")),
    "jax-function": ("code", add_layer("JaxLayer")),
    "vocabulary-file": ("code", add_layer("StringLookup", vocabulary="/etc/passwd")),
    "vocabulary-of-text": ("code", add_layer("TextVectorization", vocabulary="/etc/passwd")),
    "class-of-os": ("code", add_layer("system", module="os")),
    "class-of-builtins": ("code", add_layer("eval", module="builtins")),
    "class-of-subprocess": ("code", add_layer("Popen", module="subprocess", args="touch {canary}")),
    "class-of-keras-utils": ("code", add_layer("get_file", module="keras.utils", origin="file:///etc/passwd")),
    "class-inside-keras": ("code", add_layer("load_model", module="keras.src.saving.saving_api")),
    "registered-object": ("code", layer(2, registered_name="evil>Layer")),
    "function-of-os": ("code", setting(activation={"module": "os", "class_name": "function", "config": "system",
                                                   "registered_name": "function"})),
    "function-get": ("code", setting(activation={"module": "builtins", "class_name": "function", "config": "get",
                                                 "registered_name": "function"})),
    "bare-layer": ("code", layer(2, class_name="Layer")),
    "operation-with-a-function": ("code", add_layer("Map", module="keras.src.ops.core")),
    "class-that-is-a-dict": ("type", layer(2, class_name={"a": 1})),
    "class-that-is-a-list": ("type", layer(2, class_name=["Dense"])),
    "class-that-is-a-number": ("type", layer(2, class_name=5)),
    "class-that-is-nothing": ("type", layer(2, class_name=None)),
    "module-that-is-a-dict": ("type", layer(2, module={})),
    "registered-name-that-is-a-dict": ("type", layer(2, registered_name={})),
    "settings-that-are-text": ("type", layer(2, config="units")),
    "settings-that-are-nothing": ("type", layer(2, config=None)),
    "units-negative": ("type", setting(units=-8)),
    "units-zero": ("type", setting(units=0)),
    "units-that-are-text": ("type", setting(units="eight")),
    "units-that-are-a-list": ("type", setting(units=[8])),
    "units-that-are-real": ("type", setting(units=8.5)),
    "units-unknown": ("type", setting(units=None)),
    "unknown-activation": ("type", setting(activation="evil")),
    "unknown-setting": ("type", setting(evil=True)),
    "unknown-dtype": ("type", setting(dtype="float99")),
    "unknown-initialiser": ("type", setting(kernel_initializer="evil")),
    "name-with-a-slash": ("type", setting(name="a/../b")),
    "name-that-is-a-dict": ("type", setting(name={})),
    "layers-that-are-text": ("type", _describe(lambda config: config["config"].update(layers="Dense"))),
    "no-layers": ("type", _describe(lambda config: config["config"].update(layers=[]))),
    "layer-that-is-a-number": ("type", _describe(lambda config: config["config"]["layers"].append(7))),
    "layer-that-holds-nothing": ("type", _describe(lambda config: config["config"]["layers"].append({}))),
    "no-settings": ("type", _describe(lambda config: config.pop("config") and None)),
    "no-class": ("type", _describe(lambda config: config.pop("class_name") and None)),
    "a-layer-for-a-model": ("type", _describe(lambda config: config.update(
        config["config"]["layers"][2]) or None)),
    "input-of-another-shape": ("type", _describe(
        lambda config: config["config"]["layers"][0]["config"].update(batch_shape=[None, 3]))),
    "input-of-text": ("type", _describe(
        lambda config: config["config"]["layers"][0]["config"].update(batch_shape="wide"))),
    "a-list": ("type", _describe(lambda config: "[]")),
    "a-number": ("type", _describe(lambda config: "7")),
    "no-json": ("damaged", _describe(lambda config: json.dumps(config)[:-5])),
    "nothing": ("damaged", _describe(lambda config: "")),
    "nested-deeply": ("type", _describe(lambda config: '{"a":' * 100_000)),
    "a-key-twice": ("type", _describe(lambda config: json.dumps(config).replace("{", '{"a": 1, "a": 2, ', 1))),
    "lone-surrogate": ("type", setting(name="\ud800")),
    "number-of-five-thousand-digits": ("type", _describe(
        lambda config: json.dumps(config).replace('"units": 8', '"units": ' + "9" * 5000))),
    "number-of-a-hundred-digits": ("type", _describe(
        lambda config: json.dumps(config).replace('"units": 8', '"units": ' + "9" * 100))),
    "infinite-number": ("type", _describe(lambda config: json.dumps(config).replace('"units": 8', '"units": 1e999'))),
    "ten-million-lists": ("memory", _describe(lambda config: '{"class_name": [' + "[]," * 10_000_000 + "[]]}")),
    "layer-of-seven-gigabytes": ("memory", setting(units=27_000_000)),
    "layer-of-seven-gigabytes-in-step": ("memory", _describe(_wide(27_000_000))),
    "layer-of-one-gigabyte": ("memory", _describe(_wide(3_600_000))),
    "layer-of-petabytes": ("memory", setting(units=10**12)),
    "table-of-a-billion-rows": ("memory", add_layer("Embedding", input_dim=10**9, output_dim=64)),
    "convolution-of-gigabytes": ("memory", add_layer("Conv2D", filters=10**8, kernel_size=[3, 3], padding="same")),
    "recurrent-layer-of-gigabytes": ("memory", add_layer("TimeDistributed", layer={
        "module": "keras.layers", "class_name": "Dense", "config": {"units": 10**9}, "registered_name": None})),
    "pictures-made-large": ("memory", add_layer("UpSampling2D", size=[10_000, 10_000])),
    "pictures-with-wide-borders": ("memory", add_layer("ZeroPadding2D", padding=[30_000, 30_000])),
    "pictures-resized": ("memory", add_layer("Resizing", height=60_000, width=60_000)),
    "numbers-repeated": ("memory", _describe(lambda config: config["config"]["layers"].insert(2, {
        "module": "keras.layers", "class_name": "RepeatVector", "config": {"n": 10**8}, "registered_name": None}))),
    "four-thousand-layers": ("hang", _describe(_many_layers)),
}  # fmt: skip


# HDF5


def _h5(change: Callable[[Any], object]) -> Callable[[bytes], bytes]:
    """An HDF5 file changed by the library."""

    def apply_change(content: bytes) -> bytes:
        stream = io.BytesIO(content)
        with h5py.File(stream, "r+") as file:
            change(file)
        return stream.getvalue()

    return apply_change


def _first(file: Any) -> tuple[Any, str]:
    """The group that holds the first weight, and the weight's name in it."""
    found: list[str] = []
    file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
    path = sorted(found)[0]
    return file[path.rpartition("/")[0]], path.rpartition("/")[2]


def instead(make: Callable[[Any, str], object]) -> Callable[[bytes], bytes]:
    """Something else in the place of the first weight."""

    def change(file: Any) -> None:
        group, name = _first(file)
        del group[name]
        make(group, name)

    return _h5(change)


def number(value: float) -> Callable[[bytes], bytes]:
    """A weight with one number that is none."""

    def change(file: Any) -> None:
        group, name = _first(file)
        values = np.array(group[name])
        values.reshape(-1)[3] = value
        group[name][...] = values

    return _h5(change)


def _deep(file: Any) -> None:
    group = file
    for step in range(3000):
        group = group.create_group(f"g{step % 10}")


def _many(file: Any) -> None:
    group, name = _first(file)
    for step in range(20_000):
        group[f"{step + 10}"] = group[name]


def _cut(part: int) -> Callable[[bytes], bytes]:
    return lambda content: content[: len(content) * part // 8]


FILES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "weight-of-forty-gigabytes": ("memory", instead(
        lambda group, name: group.create_dataset(name, (10**5, 10**5), "f4", chunks=(1000, 1000)))),
    "weight-of-petabytes": ("memory", instead(
        lambda group, name: group.create_dataset(name, (10**8, 10**7), "f4", chunks=(1000, 1000)))),
    "weight-packed-a-thousandfold": ("memory", instead(
        lambda group, name: group.create_dataset(name, data=np.zeros((30_000, 1000), "f4"), compression="gzip"))),
    "link-outside": ("outside", instead(
        lambda group, name: group.__setitem__(name, h5py.ExternalLink("/etc/passwd", "/")))),
    "soft-link": ("outside", instead(lambda group, name: group.__setitem__(name, h5py.SoftLink("/evil")))),
    "link-to-itself": ("outside", instead(lambda group, name: group.__setitem__(name, h5py.SoftLink(group.name)))),
    "group-in-itself": ("type", instead(lambda group, name: group.__setitem__("again", group))),
    "weight-in-another-file": ("outside", instead(lambda group, name: group.create_dataset(
        name, (64, 8), "f4", external=[("/etc/passwd", 0, 2048)]))),
    "weight-of-text": ("type", instead(lambda group, name: group.create_dataset(name, data=["a", "b"]))),
    "weight-of-objects": ("type", instead(lambda group, name: group.create_dataset(
        name, (4,), h5py.special_dtype(vlen=np.dtype("f4"))))),
    "weight-of-references": ("type", instead(lambda group, name: group.create_dataset(name, (4,), h5py.ref_dtype))),
    "weight-of-complex-numbers": ("type", instead(lambda group, name: group.create_dataset(name, (64, 8), "c8"))),
    "weight-of-another-shape": ("type", instead(lambda group, name: group.create_dataset(name, (3, 3), "f4"))),
    "weight-without-numbers": ("type", instead(lambda group, name: group.create_dataset(name, (0, 8), "f4"))),
    "group-for-a-weight": ("type", instead(lambda group, name: group.create_group(name))),
    "no-weight": ("type", instead(lambda group, name: None)),
    "no-groups": ("type", _h5(lambda file: file.clear())),
    "three-thousand-groups-deep": ("type", _h5(_deep)),
    "weight-named-with-text": ("type", instead(lambda group, name: group.create_dataset("evil", (64, 8), "f4"))),
    "infinity": ("not finite", number(np.inf)),
    "minus-infinity": ("not finite", number(-np.inf)),
    "nan": ("not finite", number(np.nan)),
    **{f"cut-to-{part}-of-8": ("damaged", _cut(part)) for part in range(8)},
    "zeros": ("damaged", lambda content: bytes(len(content))),
    "text": ("damaged", lambda content: b"no model\n" * 100),
    "signature-alone": ("damaged", lambda content: b"\x89HDF\r\n\x1a\n"),
    "version-of-tomorrow": ("damaged", lambda content: content[:8] + b"\x63" + content[9:]),
    "root-behind-the-end": ("damaged", lambda content: content[:64] + b"\xff" * 16 + content[80:]),
    "size-of-offsets-wrong": ("damaged", lambda content: content[:13] + b"\x63\x63" + content[15:]),
}  # fmt: skip


def _weights(change: Callable[[bytes], bytes]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.keras_model(folder, "net.weights.h5")
        path.write_bytes(change(path.read_bytes()))
        return list(FACTORY)

    return make


def _diff(change: Callable[[bytes], bytes]) -> Callable[[Path], list[str]]:
    """The file against itself as it was, for which no code of the network is needed."""

    def make(folder: Path) -> list[str]:
        path = folder / valid.keras_model(folder, "net.weights.h5")
        (folder / "good.weights.h5").write_bytes(path.read_bytes())
        path.write_bytes(change(path.read_bytes()))
        return ["diff", "good.weights.h5", "net.weights.h5", "-o", "difference.json"]

    return make


def _inside(change: Callable[[bytes], bytes]) -> Callable[[Path], list[str]]:
    return _members(lambda found, folder: found.update({WEIGHTS: change(found[WEIGHTS])}))


def _archive(change: Callable[[bytes, Path], bytes]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        path = folder / valid.keras_model(folder)
        path.write_bytes(change(path.read_bytes(), folder))
        return SCAN

    return make


def _pipe(name: str, argv: list[str]) -> Callable[[Path], list[str]]:
    def make(folder: Path) -> list[str]:
        valid.data(folder)
        valid.keras_model(folder, name)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        return argv

    return make


def _old(folder: Path) -> list[str]:
    """A whole model in the old format."""
    valid.data(folder)
    with h5py.File(folder / "net.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": []}})
    return ["scan", "net.h5", "--data", "data.npz"]


OF_TORCH = [
    "packed-a-thousandfold",
    "member-outside",
    "member-with-a-drive",
    "absolute-member",
    "several-roots",
    "without-a-pickle",
    "without-a-storage",
    "storage-too-short",
    "big-endian",
    "byte-order-that-is-noise",
    "one-name-for-two-members",
]
"""Attacks on archives that need torch's own members, or have a twin below."""

MEMBERS: dict[str, Callable[[Path], list[str]]] = {
    "packed-a-thousandfold": _members(
        lambda found, folder: found.update({"big": bytes(300 << 20)}), compression=zipfile.ZIP_DEFLATED
    ),
    "many-members-packed": _members(
        lambda found, folder: found.update({f"big{n}": bytes(30 << 20) for n in range(8)}),
        compression=zipfile.ZIP_DEFLATED,
    ),
    "member-outside": _members(lambda found, folder: found.update({"../../evil": b"x"})),
    "absolute-member": _members(lambda found, folder: found.update({"/etc/evil": b"x"})),
    "without-a-description": _members(lambda found, folder: found.pop(CONFIG)),
    "without-weights": _members(lambda found, folder: found.pop(WEIGHTS)),
}

CASES = [
    *(Case(f"keras-{name}", "keras", attack, make) for name, (attack, make) in DESCRIPTIONS.items()),
    *(Case(f"keras-weights-{name}", "keras", attack, _inside(make)) for name, (attack, make) in FILES.items()),
    *(Case(f"h5-{name}", "h5", attack, _weights(make)) for name, (attack, make) in FILES.items()),
    *(
        Case(f"h5-{name}-in-diff", "h5", attack, _diff(make))
        for name, (attack, make) in FILES.items()
        if attack in ("memory", "outside", "not finite")
    ),
    *(Case(f"keras-archive-{name}", "keras", "archive", make) for name, make in MEMBERS.items()),
    *(
        Case(f"keras-archive-{name}", "keras", "archive", _archive(change))
        for name, change in ARCHIVES.items()
        if name not in OF_TORCH
    ),
    Case("keras-pipe", "keras", "pipe", _pipe("net.keras", SCAN)),
    Case("h5-pipe", "h5", "pipe", _pipe("net.weights.h5", list(FACTORY))),
    Case("h5-whole-model-of-the-old-format", "h5", "code", _old),
]
