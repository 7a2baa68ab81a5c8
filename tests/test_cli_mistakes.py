"""The mistakes that a new user types: each gets one sentence that says what to do, and an exit code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.commands import arachne

pytestmark = pytest.mark.backend("onnx")
DEMO = Path(__file__).parent.parent / "arachne" / "demo"
FUSED = "com.microsoft.nchwc"
HERE = "digits.onnx --data digits.npz"

MISTAKES: dict[str, tuple[int, str]] = {
    f"scn {HERE}": (2, "no command named 'scn'; did you mean 'scan'?"),
    "scan": (2, "give a model: a file, or --model MODULE:FACTORY with --weights FILE"),
    "scan digits.onnx": (2, "give --data: labelled inputs whose mistakes are listed, or --layers to list layers"),
    "scan digits.onnx --dta digits.npz": (2, "no option named '--dta'; did you mean '--data'?"),
    "scan digitz.onnx --data digits.npz": (3, "model 'digitz.onnx' does not exist; did you mean 'digits.onnx'?"),
    "scan digits.onnx --data digit.npz": (3, "data 'digit.npz' does not exist; did you mean 'digits.npz'?"),
    "scan digits.npz --data digits.onnx": (3, "'digits.npz' holds data, expected a model: .*; are the two swapped\\?"),
    "scan cut.onnx --data digits.npz": (3, "'cut.onnx' is no ONNX model, or it was cut short"),
    "scan model.pkl --data digits.npz": (3, "'model.pkl' is a pickle, and opening one runs code; write .* skl2onnx"),
    "scan model.xyz --data digits.npz": (3, "no backend reads 'model.xyz' \\(ending '.xyz'\\); known endings: "),
    "scan net:make --data digits.npz": (2, "'net:make' names code; give its weights too, .*--weights FILE"),
    "scan digits.onnx --model net:make --data digits.npz": (2, "--model net:make .* write --weights digits.onnx"),
    "scan digits.onnx --data text.npz": (3, "cannot read 'text.npz' as npz: it is no archive, or it was cut short"),
    "scan digits.onnx --data zero.npz": (3, "'zero.npz' is empty: it has no bytes"),
    "scan digits.onnx --data index.csv": (3, "column 1 of 'index.csv' has no name, .* index=False"),
    "scan digits.onnx --data gap.csv": (3, "column 'a' of 'gap.csv' has no value in row 1; fill it as in training"),
    "scan boxes.onnx --data digits.npz": (3, "name the task that reads them, detection if it is a detector"),
    "scan fused.onnx --data digits.npz": (3, "use the file from before it was optimised"),
    "scan digits.onnx --data empty.npz": (3, "the data has no inputs"),
    "scan digits.onnx --data few.npz": (3, "array 'x' of 'few.npz' has 899 rows, but 'y' has 10"),
    "scan digits.onnx --data shape.npz": (3, "takes arrays of shape \\(n, 1, 8, 8\\), got \\(899, 1, 7, 8\\)"),
    "scan digits.onnx --data high.npz": (3, "the classes 0 to 9; the labels go from 1 to 10: subtract 1"),
    f"scan {HERE} --preprocess scal=1/255": (2, "no preprocessing step 'scal'; did you mean 'scale'?"),
    f"scan {HERE} --task multilable": (2, "no task named 'multilable'; did you mean 'multilabel'?"),
    f"scan {HERE} --output fix": (
        2,
        "has no output 'fix'; available: .*; a place to write to is given with -o",
    ),
    f"scan {HERE} --device gpu": (2, "no device named 'gpu' in onnxruntime; did you mean 'cpu'?"),
    f"repair {HERE}": (2, "missing option '--target'"),
    f"repair {HERE} --target 7-3": (2, "target '7-3' is not of a known form; did you mean '7:3'?"),
    f"repair {HERE} --target 7": (2, "target '7' is one class of a mistake: '\\*:7' is anything read as it"),
    f"repair {HERE} --target seven:3": (2, "no class named 'seven'; available: 0, 1, 2"),
    f"repair {HERE} --target 7:12": (2, "no class '12': the model has the classes 0 to 9"),
    f"repair {HERE} --target 7:7": (2, "target '7:7' has the same class on both sides, so it is no mistake"),
    f"repair {HERE} --target causse:1": (2, "target 'causse:1' is not of a known form; did you mean 'cause:1'?"),
    f"repair {HERE} --target 0:1": (5, "none of 899 inputs shows '0:1', so there is nothing to repair"),
    f"repair {HERE} --target 7:0": (5, "shows '7:0', so there is nothing to repair; 12 show '0:7'"),
    f"repair {HERE} --target cause:9": (2, "no 'cause:9': the mistakes in this data have 1 common cause"),
    f"repair {HERE} --target *:7 --budget 1%": (2, "no option named '--budget'; did you mean '--max-break'?"),
    f"scan {HERE} --budget 1%": (2, "no option named '--budget'$"),
    f"repair {HERE} --target *:7 --max-break 5x": (2, "expected a share such as 0.5% or 0.005, got '5x'"),
    f"repair {HERE} --target *:7 --search margn": (2, "no searcher named 'margn'; did you mean 'margin'?"),
    f"repair {HERE} --target *:7 --localiser contrst": (2, "no localiser named 'contrst'; did you mean 'contrast'?"),
    f"repair {HERE} --target *:7 -O generatons=3": (
        2,
        "has an option 'generatons'; available: members, effort, sparse, max_weights, copies",
    ),
    f"repair {HERE} --target *:7 --fail-if brokn>1": (2, "brokn"),
    f"repair {HERE} --target *:7 --fail-if class_drop[seven]>1%": (2, "names a class or group that does not exist"),
    f"repair {HERE} --target *:7 --seed x": (2, "invalid value for '--seed': 'x' is not a whole number"),
    f"repair {HERE} --target *:7 --seed -1": (2, "invalid value for '--seed': -1 is less than 0"),
    f"repair {HERE} --target *:7 --alpha x": (2, "invalid value for '--alpha': 'x' is not a number"),
    "repair digits.onnx --target *:7": (
        2,
        "missing option '--data' (labelled inputs: npz with x and y, a folder of images",
    ),
    f"repair {HERE} --target *:7 -o digits.onnx": (2, "inputs are never written over; choose another name"),
    f"repair {HERE} --target *:7 --include hiden": (2, "the model has no layer 'hiden'; did you mean 'hidden'?"),
    "apply patch.json digits.onnx -o new.onnx": (3, "'patch.json': this is no patch: expected \"schema\""),
    "apply none.json digits.onnx -o new.onnx": (3, "patch 'none.json' does not exist"),
    "apply digits.onnx patch.json -o new.onnx": (3, "is no patch: it is not text; the patch comes before the model"),
    "scan digits.onnx digits.npz": (2, "unexpected extra argument \\(digits.npz\\); data comes behind --data"),
    "scan --model net.py --weights w.pt --data digits.npz": (2, "got 'net.py'; write net:NAME, with the function"),
    "scan --model digits.onnx --data digits.npz": (2, "got 'digits.onnx'; a model file is given without --model"),
    "choose patch.json": (3, "'patch.json' is a file, expected a folder that a repair was saved to; did you mean '.'?"),
    "choose nofolder": (3, "folder 'nofolder' does not exist"),
    "choose .": (3, "'.' has no result.json; expected a folder that a repair was saved to"),
    "convert digits.onnx -o new.onnx": (2, "'digits.onnx' is an ONNX file already"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's files, and what becomes of them."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name in ("digits.onnx", "digits.npz"):
        shutil.copyfile(DEMO / name, folder / name)
    with np.load(folder / "digits.npz") as data:
        x, y = data["x"], data["y"]
    np.savez(folder / "empty.npz", x=x[:0], y=y[:0])
    np.savez(folder / "few.npz", x=x, y=y[:10])
    np.savez(folder / "shape.npz", x=x[:, :, :7], y=y)
    np.savez(folder / "high.npz", x=x, y=y + 1)
    (folder / "cut.onnx").write_bytes((DEMO / "digits.onnx").read_bytes()[:500])
    (folder / "text.npz").write_text("hello")
    (folder / "model.pkl").write_bytes(b"x")
    (folder / "model.xyz").write_bytes(b"x")
    (folder / "patch.json").write_text('{"a": 1}')
    (folder / "zero.npz").touch()
    (folder / "index.csv").write_text(",a,label\n0,1,0\n1,2,1\n")
    (folder / "gap.csv").write_text("a,label\n1,0\n,1\n")
    mean = helper.make_node("ReduceMean", ["image"], ["boxes"], axes=[1], keepdims=0)
    _write_model(folder / "boxes.onnx", [mean], [])
    _write_model(folder / "fused.onnx", [helper.make_node("Conv", ["image"], ["boxes"], domain=FUSED)], [FUSED])
    return folder


def _write_model(path: Path, nodes: list[onnx.NodeProto], domains: list[str]) -> None:
    given = helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])
    found = helper.make_tensor_value_info("boxes", onnx.TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    graph = helper.make_graph(nodes, "model", [given], [found])
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_gets_one_helpful_sentence(typed: str, folder: Path) -> None:
    code, sentence = MISTAKES[typed]
    ran = arachne(*typed.split(), cwd=folder)
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    assert (ran.code, ran.out, len(errors)) == (code, "", 1), ran.err
    assert ran.err.rstrip().splitlines()[-1] == errors[0]
    assert "Traceback" not in ran.err
    assert not ran.err.startswith("model: "), "nothing looks begun"
    assert says(sentence, errors[0]), errors[0]


def says(pattern: str, text: str) -> bool:
    """Whether a text has these very words, or a pattern."""
    return pattern in text or re.search(pattern, text) is not None
