"""A patch as text: readable, stable, and refused when it was tampered with."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from arachne.errors import PatchError
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.patch.schema import check, schema
from arachne.testing import ReferenceBackend, mlp, shared_layer

ADDRESSES = [Address("fc2", "weight", (0, 3)), Address("fc1", "bias", (2,)), Address("fc2", "weight", (2, 7))]


@pytest.fixture
def patch() -> Patch:
    backend = ReferenceBackend(mlp([4, 8, 3]))
    return Patch.between(backend, ADDRESSES, [0.5, -0.25, 1.0], provenance={"target": "6:0", "seed": np.int64(3)})


def test_text_has_one_line_per_weight_with_decimals_beside_bits(patch: Patch) -> None:
    lines = [line.strip().rstrip(",") for line in patch.to_json().splitlines() if '"new_bits"' in line]
    first = json.loads(lines[0])
    assert len(lines) == 3
    assert list(first) == ["layer", "parameter", "index", "dtype", "old", "new", "old_bits", "new_bits"]
    assert (first["layer"], first["parameter"], first["index"]) == ("fc1", "bias", [2])
    assert (first["new"], first["new_bits"]) == (-0.25, "be800000")


def test_order_is_that_of_the_model_whatever_order_was_asked_for() -> None:
    backend = ReferenceBackend(mlp([4, 8, 3]))
    forwards = Patch.between(backend, ADDRESSES, [0.5, -0.25, 1.0])
    backwards = Patch.between(backend, ADDRESSES[::-1], [1.0, -0.25, 0.5])
    assert forwards.to_json() == backwards.to_json()


def test_a_review_sees_the_evidence_first_and_hashes_behind_the_weights(patch: Patch) -> None:
    seen = {"rows": "eNoBcQCO", "hashes": "AAECAwQ="}
    told = Patch(
        patch.entries,
        patch.base,
        {"data": {"name": "x.npz", "sha256": "0" * 64, "inputs": 4, "seen": seen}},
        {"heading": "removed (95.2 %)"},
    )
    assert list(json.loads(told.to_json())) == ["schema", "evidence", "entries", "base", "fingerprints", "provenance"]
    assert Patch.from_json(told.to_json()).provenance == told.provenance


def test_the_digest_of_a_patch_is_that_of_earlier_versions(patch: Patch) -> None:
    backend = ReferenceBackend(mlp([4, 8, 3]))
    bare = Patch.between(backend, ADDRESSES, [0.5, -0.25, 1.0])
    lines = [line.strip().rstrip(",") for line in bare.to_json().splitlines() if '"new_bits"' in line]
    base = '{\n    "file": null,\n    "sha256": null,\n    "backend": null,\n    "tensors": []\n  }'
    entries = "[\n" + ",\n".join(f"    {line}" for line in lines) + "\n  ]"
    parts = ['"schema": "arachne.patch/1"', f'"base": {base}', f'"entries": {entries}', '"provenance": {}']
    text = "{\n  " + ",\n  ".join([*parts, '"evidence": {}']) + "\n}\n"
    assert patch.digest == bare.digest == hashlib.sha256(text.encode()).hexdigest()


def test_git_shows_what_a_patch_changes_by_textconv(patch: Patch, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, capture_output=True, check=True
        )
        return done.stdout.decode()

    git("init", "-q")
    (tmp_path / ".gitattributes").write_text("patch.json diff=arachne\n")
    git("config", "diff.arachne.textconv", f"{sys.executable} -m arachne show --all")
    patch.save(tmp_path / "patch.json")
    git("add", ".")
    git("commit", "-qm", "a")
    Patch(patch.entries[1:], replace(patch.base, tensors=patch.base.tensors[1:])).save(tmp_path / "patch.json")
    changed = git("diff").splitlines()
    assert "-3 weights in 2 tensors" in changed
    assert "+2 weights in 1 tensor" in changed
    assert not [line for line in changed if "sha256" in line or "bits" in line]


def test_text_survives_reading_and_writing(patch: Patch, tmp_path: Path) -> None:
    patch.save(tmp_path / "patch.json")
    again = Patch.load(tmp_path / "patch.json")
    assert again.entries == patch.entries
    assert again.base == patch.base
    assert again.to_json() == patch.to_json() == (tmp_path / "patch.json").read_text()


def test_shared_layer_says_how_often_it_is_used() -> None:
    backend = ReferenceBackend(shared_layer())
    name = next(info.name for info in backend.layers if info.uses > 1)
    made = Patch.between(backend, [Address(name, "weight", (0, 0))], [0.5])
    assert json.loads(made.to_json())["base"]["tensors"][0]["uses"] == 2
    assert Patch.from_json(made.to_json()).base.tensors[0].uses == 2


def test_text_satisfies_the_published_schema(patch: Patch) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    document = json.loads(patch.to_json())
    assert jsonschema.Draft202012Validator(schema()).is_valid(document)


def set_at(*path: str | int) -> Callable[[Any], Callable[[Any], None]]:
    def with_value(value: Any) -> Callable[[Any], None]:
        def edit(document: Any) -> None:
            for step in path[:-1]:
                document = document[step]
            document[path[-1]] = value

        return edit

    return with_value


def drop_at(*path: str | int) -> Callable[[Any], None]:
    def edit(document: Any) -> None:
        for step in path[:-1]:
            document = document[step]
        del document[path[-1]]

    return edit


AGAINST_SCHEMA = {
    "an entry without bits": drop_at("entries", 0, "old_bits"),
    "an unknown key": set_at("entries", 0, "colour")("red"),
    "a text as value": set_at("entries", 0, "new")("0.5"),
    "a boolean as index": set_at("entries", 0, "index", 0)(True),
    "a negative index": set_at("entries", 0, "index", 0)(-1),
    "an unknown dtype": set_at("entries", 0, "dtype")("int4"),
    "bits that are none": set_at("entries", 0, "new_bits")("xyz"),
    "a hash that is none": set_at("base", "tensors", 0, "sha256")("abc"),
    "no entries": drop_at("entries"),
    "entries of another kind": set_at("entries")({}),
    "a list as evidence": set_at("evidence")([]),
    "an empty dimension": set_at("base", "tensors", 0, "shape")([0]),
}


@pytest.mark.parametrize("edit", AGAINST_SCHEMA.values(), ids=AGAINST_SCHEMA)
def test_own_check_refuses_what_the_schema_refuses(patch: Patch, edit: Callable[[Any], None]) -> None:
    document = json.loads(patch.to_json())
    check(copy.deepcopy(document))
    edit(document)
    assert not jsonschema.Draft202012Validator(schema()).is_valid(document)
    with pytest.raises(PatchError):
        check(document)
    with pytest.raises(PatchError):
        Patch.from_json(json.dumps(document))


BY_HAND = {
    "decimal and bits disagree": (set_at("entries", 0, "new")(0.75), "edited by hand"),
    "bits are those of NaN": (set_at("entries", 0, "new_bits")("7fc00000"), "not finite"),
    "bits of another width": (set_at("entries", 0, "new_bits")("3c00"), "not those of a float32"),
    "a value out of range": (set_at("entries", 0, "new")(1e39), "edited by hand"),
    "an index outside": (set_at("entries", 0, "index")([8]), "outside a tensor of shape"),
    "an index of another rank": (set_at("entries", 0, "index")([2, 0]), "outside a tensor of shape"),
    "another dtype": (set_at("base", "tensors", 0, "dtype")("float64"), "but its base says float64"),
    "an unlisted tensor": (set_at("entries", 0, "layer")("fc9"), "does not list"),
    "no hash at all": (
        lambda d: d["base"]["tensors"][0].update(sha256=None, patched_sha256=None),
        "neither before nor after",
    ),
    "a weight twice": (lambda d: d["entries"].append(d["entries"][0]), r"changes fc1.bias\[2\] twice"),
    "an untouched tensor": (drop_at("entries", 0), "changes nothing in it"),
    "a tensor twice": (lambda d: d["base"]["tensors"].append(d["base"]["tensors"][0]), "twice"),
    "a newer version": (set_at("schema")("arachne.patch/2"), "use an Arachne that reads version 2"),
    "another schema": (set_at("schema")("something else"), "this is no patch"),
}


@pytest.mark.parametrize(("edit", "message"), BY_HAND.values(), ids=BY_HAND)
def test_patch_that_contradicts_itself_is_refused(patch: Patch, edit: Callable[[Any], object], message: str) -> None:
    document = json.loads(patch.to_json())
    edit(document)
    with pytest.raises(PatchError, match=message) as caught:
        Patch.from_json(json.dumps(document))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "1e999"])
def test_numbers_json_does_not_have_are_refused(patch: Patch, constant: str) -> None:
    text = patch.to_json().replace("-0.25", constant)
    with pytest.raises(PatchError, match=r"finite|out of range"):
        Patch.from_json(text)


def test_every_truncation_is_refused(patch: Patch) -> None:
    text = patch.to_json().rstrip()
    for end in range(0, len(text), 7):
        with pytest.raises(PatchError):
            Patch.from_json(text[:end])


def test_key_given_twice_is_refused(patch: Patch) -> None:
    text = patch.to_json().replace('"dtype": "float32", "old"', '"dtype": "float32", "dtype": "float32", "old"', 1)
    with pytest.raises(PatchError, match="'dtype' twice"):
        Patch.from_json(text)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"null", b"[" * 100_000, b'{"schema": ' + b"9" * 5000])
def test_file_that_is_no_patch_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(PatchError):
        Patch.load(tmp_path / "x.json")


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(PatchError, match=r"is a directory|does not exist"):
            Patch.load(path)


@pytest.mark.parametrize("evidence", [{"p": float("nan")}, {"model": object()}])
def test_evidence_that_json_cannot_hold_is_refused(patch: Patch, evidence: dict[str, Any]) -> None:
    with pytest.raises(PatchError, match="plain JSON"):
        patch.with_evidence(evidence).to_json()
