"""The command line as a person uses it: real files, real output, real exit codes."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from arachne.model.registry import load
from arachne.model.values import Address
from arachne.patch import Patch
from arachne.patch.in_memory import base_of
from tests.commands import Ran, arachne

pytestmark = pytest.mark.backend("torch")

DEMO = Path(__file__).parent.parent / "arachne" / "demo"
QUICK = ["--search", "de", "-O", "population=16", "-O", "generations=8"]


def in_a_process_of_its_own(*arguments: str, cwd: Path) -> Ran:
    command = [sys.executable, "-m", "arachne", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's model in all the shapes people have it in, and its data in two."""
    import torch
    from safetensors.torch import save_file
    from torch import nn

    folder = tmp_path_factory.mktemp("cli")
    shipped = load(DEMO / "digits.onnx")
    layers = OrderedDict(flat=nn.Flatten(), hidden=nn.Linear(64, 32), relu=nn.ReLU(), scores=nn.Linear(32, 10))
    network = nn.Sequential(layers)
    state = {
        f"{layer}.{name}": torch.from_numpy(values)
        for layer in ("hidden", "scores")
        for name, values in shipped.get_weights(layer).items()
    }
    network.load_state_dict(state)
    program = torch.export.export(network, (torch.zeros(4, 1, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    torch.export.save(program, folder / "digits.pt2")
    (folder / "original.pt2").write_bytes((folder / "digits.pt2").read_bytes())
    save_file(state, folder / "net.safetensors")
    torch.save(state, folder / "net.pt")
    (folder / "mine.py").write_text(
        "from collections import OrderedDict\n"
        "from torch import nn\n"
        "def make_net():\n"
        "    return nn.Sequential(OrderedDict(flat=nn.Flatten(), hidden=nn.Linear(64, 32), relu=nn.ReLU(),\n"
        "        scores=nn.Linear(32, 10)))\n"
    )
    with np.load(DEMO / "digits.npz") as data:
        x, y = data["x"], data["y"]
    np.savez(folder / "val.npz", x=x[:600], y=y[:600])
    np.savez(folder / "test.npz", x=x[600:], y=y[600:])
    return folder


@pytest.fixture(scope="module")
def fixed(folder: Path) -> tuple[Path, Ran]:
    words = ["--data", "val.npz", "--target", "*:7", "-O", "sparse=true", "-o", "fix", "--json"]
    ran = arachne("repair", "digits.pt2", *words, cwd=folder)
    assert ran.code == 0, ran.err
    return folder / "fix", ran


def test_scan_ranks_the_faults(folder: Path) -> None:
    ran = arachne("scan", "digits.pt2", "--data", "val.npz", "--json", cwd=folder)
    assert ran.code == 0
    counts = [fault["count"] for fault in ran.json["faults"]]
    assert counts == sorted(counts, reverse=True)
    assert {"target", "count", "share"} <= set(ran.json["faults"][0])
    assert 0.8 < ran.json["accuracy"] < 0.95
    assert ran.json["wildcards"][0]["target"] == "*:7"
    assert ran.json["wildcards"][0]["share"] > 0.5


def test_repair_writes_a_patch_a_model_and_a_result(fixed: tuple[Path, Ran]) -> None:
    fix, ran = fixed
    assert {"patch.json", "model.pt2", "result.json"} <= {path.name for path in fix.iterdir()}
    result = json.loads((fix / "result.json").read_text())
    assert ran.json == result
    wanted = {
        "schema",
        "verdict",
        "target",
        "seed",
        "backend",
        "accuracy",
        "weights",
        "generations",
        "seen",
        "held_out",
    }
    assert wanted <= set(result)
    assert {"localise", "search"} <= set(result["seconds"])
    assert result["peak_memory"] > 10 << 20
    part = {"negatives", "positives", "repaired", "broken", "repair_rate", "break_rate", "target_errors_before"}
    part |= {"target_errors_after", "accuracy_before", "accuracy_after"}
    assert part <= set(result["seen"])
    assert part <= set(result["held_out"])
    entries = json.loads((fix / "patch.json").read_text())["entries"]
    assert len(entries) == result["weights"]
    assert {"layer", "parameter", "index", "old", "new"} <= set(entries[0])


def test_the_input_model_is_never_modified(folder: Path, fixed: tuple[Path, Ran]) -> None:
    assert sha256(folder / "digits.pt2") == sha256(folder / "original.pt2")


def test_the_same_seed_writes_the_same_patch(folder: Path) -> None:
    texts = []
    for name in ("one", "two"):
        options = ["--data", "val.npz", "--target", "*:7", "--seed", "5", "-o", name, *QUICK]
        assert arachne("repair", "digits.pt2", *options, cwd=folder).code == 0
        texts.append((folder / name / "patch.json").read_bytes())
    assert texts[0] == texts[1]


def test_evaluate_gives_the_saved_models_numbers(folder: Path, fixed: tuple[Path, Ran]) -> None:
    options = ["--data", "test.npz", "--target", "*:7", "--patch", "fix/patch.json", "--json"]
    with_patch = arachne("evaluate", "digits.pt2", *options, cwd=folder).json
    patched = arachne("evaluate", "fix/model.pt2", "--data", "test.npz", "--json", cwd=folder).json
    assert not {"seen", "generations", "seconds"} & set(with_patch)
    assert with_patch["held_out"]["accuracy_after"] == patched["held_out"]["accuracy_before"] == patched["accuracy"]
    assert with_patch["held_out"]["repaired"] > 0


def test_a_stack_is_measured_by_the_targets_of_all_its_patches(folder: Path) -> None:
    targets = {"one.json": ["*:7"], "two.json": ["1:*", "*:7"], "bare.json": None, "other.json": ["cat:dog"]}
    backend = load(folder / "digits.pt2")
    for number, (name, target) in enumerate(targets.items()):
        provenance = {} if target is None else {"target": target}
        place = Address("scores", "bias", (number,))
        Patch.between(backend, [place], [0.25], provenance=provenance).save(folder / name)

    def evaluate(*patches: str) -> Ran:
        assert arachne("stack", *patches, "-o", "stack.json", "--force", cwd=folder).code == 0
        ran = arachne("evaluate", "digits.pt2", "--data", "test.npz", "--patch", "stack.json", "--json", cwd=folder)
        assert ran.code == 0, ran.err
        return ran

    both = evaluate("one.json", "two.json", "bare.json")
    assert "target: *:7, 1:*, as the patch records" in both.err
    assert [one["target"] for one in both.json["held_out"]["targets"]] == ["*:7", "1:*"]
    assert "target: *:*, as the patch records none" in evaluate("bare.json").err
    unread = evaluate("one.json", "other.json")
    assert "target: *:*, as the targets of the stacked patches do not fit (" in unread.err
    assert "cat" in unread.err
    copied = arachne("apply", "stack.json", "digits.pt2", "-o", "st.pt2", "--data", "test.npz", cwd=folder)
    assert "target: *:*, as the targets" in copied.err


def test_apply_and_revert_round_trip_to_the_same_members(folder: Path, fixed: tuple[Path, Ran]) -> None:
    assert arachne("apply", "fix/patch.json", "digits.pt2", "-o", "patched.pt2", cwd=folder).code == 0
    assert arachne("revert", "fix/patch.json", "patched.pt2", "-o", "again.pt2", cwd=folder).code == 0
    members = [{i.filename: i.CRC for i in zipfile.ZipFile(folder / n).infolist()} for n in ("digits.pt2", "again.pt2")]
    assert members[0] == members[1]
    patched = {i.filename: i.CRC for i in zipfile.ZipFile(folder / "patched.pt2").infolist()}
    differing = [name for name in patched if patched[name] != members[0][name]]
    assert differing
    assert all("weight" in name for name in differing)


@pytest.mark.parametrize("name", ["net.safetensors", "net.pt"])
def test_a_bare_state_dict_is_patched_without_code(folder: Path, fixed: tuple[Path, Ran], name: str) -> None:
    patched, again = f"patched_{name}", f"again_{name}"
    ran = arachne("apply", "fix/patch.json", name, "-o", patched, "--json", cwd=folder)
    assert ran.code == 0, ran.err
    before, after = (folder / name).read_bytes(), (folder / patched).read_bytes()
    assert len(before) == len(after)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == ran.json["bytes_changed"] > 0
    assert arachne("revert", "fix/patch.json", patched, "-o", again, cwd=folder).code == 0
    assert sha256(folder / again) == sha256(folder / name)


def test_a_factory_with_weights_is_repaired_into_the_same_kind_of_file(folder: Path) -> None:
    options = ["--data", "val.npz", "--target", "*:7", "-o", "made", *QUICK]
    ran = arachne("repair", "--model", "mine:make_net", "--weights", "net.safetensors", *options, cwd=folder)
    assert ran.code == 0, ran.err
    assert (folder / "made" / "model.safetensors").stat().st_size == (folder / "net.safetensors").stat().st_size


def test_localise_says_what_the_most_frequent_confusion_is(folder: Path) -> None:
    ran = arachne("localise", "digits.pt2", "--data", "val.npz", "--target", "top:1", "--json", cwd=folder)
    assert ran.code == 0, ran.err
    chosen = ran.json["target"]
    assert re.fullmatch(r"\d:7", chosen)
    assert f"target top:1: {chosen}\n" in ran.err


def test_a_patch_made_by_diff_names_its_base_as_a_repair_does(folder: Path, tmp_path: Path) -> None:
    backend = load(folder / "digits.pt2")
    layer = backend.layers[-1].name
    backend.set_weights(layer, "bias", backend.get_weights(layer)["bias"] + np.float32(0.5))
    backend.save(tmp_path / "after.pt2")
    ran = arachne("diff", folder / "digits.pt2", "after.pt2", "-o", "patch.json", "--json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    expected = base_of(load(folder / "digits.pt2")).content
    assert ran.json["base"]["content"] == expected
    assert Patch.load(tmp_path / "patch.json").base.patched_content == base_of(load(tmp_path / "after.pt2")).content


def test_localise_shows_and_draws_the_weights_behind_the_mistake(folder: Path) -> None:
    options = ["--data", "val.npz", "--target", "*:7", "--localiser", "bl", "--plot", "front.svg", "--json"]
    ran = arachne("localise", "digits.pt2", *options, cwd=folder)
    assert ran.code == 0, ran.err
    pixel = [s for s in ran.json["weights"] if s["layer"] == "hidden" and s["index"][1] == 0]
    assert len(pixel) >= 2
    assert "<svg" in (folder / "front.svg").read_text()


def test_apply_writes_nothing_when_the_copy_could_not_be_measured(folder: Path, fixed: tuple[Path, Ran]) -> None:
    inputs = np.load(folder / "val.npz")
    np.savez(folder / "narrow.npz", x=inputs["x"][..., :5], y=inputs["y"])
    ran = arachne("apply", "fix/patch.json", "digits.pt2", "-o", "late.pt2", "--data", "narrow.npz", cwd=folder)
    assert ran.code == 3
    assert not (folder / "late.pt2").exists()


def test_apply_tells_which_inputs_the_repair_has_seen(folder: Path, fixed: tuple[Path, Ran]) -> None:
    ran = arachne("apply", "fix/patch.json", "digits.pt2", "-o", "seen.pt2", "--data", "val.npz", "--json", cwd=folder)
    assert "the verdict comes from the other" in ran.err
    measured, promised = ran.json["measured"]["held_out"], ran.json["promised"]
    assert [measured[name] for name in ("repaired", "broken")] == [promised[name] for name in ("repaired", "broken")]


def test_top_says_what_it_chose(folder: Path) -> None:
    ran = arachne("repair", "digits.pt2", "--data", "val.npz", "--target", "top:1", *QUICK, cwd=folder)
    assert re.search(r"^target top:1: \d:\d$", ran.err, re.MULTILINE)


def test_backends_are_listed_with_their_state(folder: Path) -> None:
    listed = {backend["name"]: backend for backend in arachne("backends", "--json", cwd=folder).json["backends"]}
    assert listed["torch"]["available"]
    assert ".pt2" in listed["torch"]["files"]


def test_the_command_works_in_a_process_of_its_own(folder: Path) -> None:
    ran = in_a_process_of_its_own("scan", "digits.pt2", "--data", "val.npz", cwd=folder)
    assert ran.code == 0
    told = [line for line in ran.err.splitlines() if "forecast" not in line]
    assert told == [
        "--page scan.html shows the inputs behind this",
        "to repair the first of them:",
        "  arachne repair digits.pt2 --data val.npz --target cause:1 -o fix",
    ]
    assert "share of mistakes" in ran.out
    failed = in_a_process_of_its_own("scan", str(DEMO / "digits.onnx"), "--data", "none.npz", cwd=folder)
    assert (failed.code, failed.out) == (3, "")
    assert failed.err == "error: data 'none.npz' does not exist\n"


def test_json_is_alone_on_standard_output(folder: Path) -> None:
    options = ["--data", "val.npz", "--target", "*:7", *QUICK]
    ran = arachne("repair", "digits.pt2", *options, "--json", cwd=folder)
    assert json.loads(ran.out)["verdict"]
    assert "localised" in ran.err
    quiet = arachne("repair", "digits.pt2", *options, "--quiet", cwd=folder)
    assert quiet.err == ""
    assert "held out" in quiet.out


BAD = [
    (2, ["repair", "digits.pt2", "--data", "val.npz"], "missing option '--target' (the mistake: 6:0, cat:dog"),
    (2, ["repair", "digits.pt2", "--sed", "1"], "error: no option named '--sed'; did you mean '--seed'?\n"),
    (2, ["repair", "digits.pt2", "--data", "val.npz", "--target", "*:7", "--memory", "lots"], "such as 500MB or 2GiB"),
    (2, ["reapir"], "did you mean 'repair'?"),
    (2, ["repair", "--data", "val.npz", "--target", "6:0"], "give a model"),
    (2, ["repair", "digits.pt2", "--data", "val.npz", "--target", "66:0"], "66"),
    (
        2,
        ["localise", "digits.pt2", "--data", "val.npz", "--target", "*:7", "--include", "hiden"],
        "did you mean 'hidden'",
    ),
    (
        2,
        ["localise", "digits.pt2", "--data", "val.npz", "--target", "*:7", "--localiser", "xl"],
        "no localiser named 'xl'",
    ),
    (3, ["scan", "nothing.pt2", "--data", "val.npz"], "does not exist"),
    (3, ["scan", "digits.pt2", "--data", "nothing.npz"], "does not exist"),
    (3, ["scan", "val.npz", "--data", "val.npz"], "'val.npz' holds data, expected a model"),
    (3, ["scan", "broken.pt2", "--data", "val.npz"], "broken.pt2"),
    (3, ["scan", "digits.pt2", "--data", "shape.npz"], "shape"),
    (3, ["scan", "digits.pt2", "--data", "labels.npz"], "label 12"),
    (3, ["scan", "digits.pt2", "--data", "nan.npz"], "row 3"),
    (3, ["scan", "digits.pt2", "--data", "named.npz"], "give all names in order (--classes NAMES)\n"),
    (3, ["scan", "net.safetensors", "--data", "val.npz"], "module:factory"),
    (3, ["scan", "nothing", "--data", "val.npz"], "model 'nothing' does not exist"),
    (3, ["apply", "val.npz", "digits.pt2", "-o", "x.pt2"], "patch"),
    (
        3,
        ["apply", "note.json", "digits.pt2", "-o", "x.pt2"],
        "error: 'note.json': the patch is not valid JSON at line 1",
    ),
    (3, ["apply", "fix/patch.json", "val.npz", "-o", "x.pt2"], "'val.npz' holds data, expected a model"),
    (2, ["apply", "fix/patch.json", "digits.pt2", "-o", "x.onnx"], "its name must end in .pt2, got 'x.onnx'"),
    (3, ["repair", "digits.pt2", "--data", "val.npz", "--holdout", "val.npz", "--target", "*:7"], "also in the data"),
    (5, ["repair", "digits.pt2", "--data", "val.npz", "--target", "7:6"], "nothing to repair"),
]


@pytest.fixture(scope="module")
def bad(folder: Path, fixed: tuple[Path, Ran]) -> Path:
    (folder / "note.json").write_text("not a patch")
    with np.load(folder / "val.npz") as data:
        x, y = data["x"], data["y"]
    (folder / "broken.pt2").write_bytes((folder / "digits.pt2").read_bytes()[:9000])
    np.savez(folder / "shape.npz", x=x[:, :, :5], y=y)
    np.savez(folder / "labels.npz", x=x, y=np.where(np.arange(len(y)) == 7, 12, y))
    np.savez(folder / "named.npz", x=x, y=np.where(y > 4, "high", "low"))
    spoilt = x.copy()
    spoilt[3, 0, 0, 0] = np.nan
    np.savez(folder / "nan.npz", x=spoilt, y=y)
    return folder


@pytest.mark.parametrize(
    ("code", "arguments", "words"), BAD, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_mistakes_get_one_sentence_and_an_exit_code(bad: Path, code: int, arguments: list[str], words: str) -> None:
    ran = arachne(*arguments, cwd=bad)
    assert ran.code == code, ran.err
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""


def test_the_bare_command_shows_its_help_and_no_error(tmp_path: Path) -> None:
    ran = arachne(cwd=tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Usage: arachne")
    assert "  repair " in ran.out


def test_output_equal_to_the_input_is_refused_also_through_a_link(folder: Path, fixed: tuple[Path, Ran]) -> None:
    (folder / "link.pt2").symlink_to(folder / "digits.pt2")
    for name in ("digits.pt2", "link.pt2"):
        ran = arachne("apply", "fix/patch.json", "digits.pt2", "-o", name, cwd=folder)
        assert ran.code == 2
    assert sha256(folder / "digits.pt2") == sha256(folder / "original.pt2")


def test_a_patch_is_refused_by_a_model_it_was_not_made_for(folder: Path, fixed: tuple[Path, Ran]) -> None:
    ran = arachne("apply", "fix/patch.json", "fix/model.pt2", "-o", "twice.pt2", cwd=folder)
    assert ran.code == 3
    assert "already carries this patch" in ran.err
    assert not (folder / "twice.pt2").exists()


def test_a_folder_of_images_is_repaired_by_class_names(folder: Path) -> None:
    from PIL import Image

    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    with np.load(folder / "val.npz") as data:
        for number, (picture, label) in enumerate(zip(data["x"], data["y"], strict=True)):
            place = folder / "pictures" / names[label]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((picture[0] * 255).astype(np.uint8)).save(place / f"{number}.png")
    options = ["--data", "pictures", "--classes", ",".join(names), "--preprocess", "grey scale=1/255 layout=nchw"]
    ran = arachne("repair", "digits.pt2", *options, "--target", "*:seven", *QUICK, "--json", cwd=folder)
    assert ran.code == 0, ran.err
    assert ran.json["target"] == "*:seven"
    assert ran.json["held_out"]["accuracy_before"] > 0.8
    assert "numbered" not in ran.err
    sorted_names = arachne("scan", "digits.pt2", *options[:2], *options[4:], cwd=folder)
    assert "classes are numbered as in the data: 0 eight, 1 five, 2 four, " in sorted_names.err


def test_a_wrong_scale_is_caught_with_a_table_of_preprocessings(folder: Path) -> None:
    with np.load(folder / "val.npz") as data:
        np.savez(folder / "scaled.npz", x=data["x"][:, :, ::-1] - 3.0, y=data["y"])
    ran = arachne("repair", "digits.pt2", "--data", "scaled.npz", "--target", "top:1", cwd=folder)
    assert ran.code == 3
    assert "near chance" in ran.err
    assert "scale=" in ran.err
    scanned = arachne("scan", "digits.pt2", "--data", "scaled.npz", cwd=folder)
    assert "near chance" in scanned.err
    assert "arachne repair" not in scanned.err, "a model that looks sick is not to be repaired"
