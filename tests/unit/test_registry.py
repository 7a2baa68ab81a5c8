from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from arachne.errors import ModelError, UsageError
from arachne.model import registry
from arachne.testing import ReferenceBackend, mlp

WITHOUT_TORCH = """
import sys
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)
sys.meta_path.insert(0, NotInstalled())
from arachne.cli import run
sys.exit(run({arguments!r}))
"""


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = WITHOUT_TORCH.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_a_missing_framework_is_one_sentence_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"anything")
    ran = without_torch("scan", str(tmp_path / "net.pt2"), "--data", "x.npz")
    assert ran.returncode == 4
    assert ran.stderr == (
        "error: backend 'torch' needs a package that is not installed (torch): pip install \"arachne-repair[torch]\"\n"
    )


def test_the_list_of_backends_says_what_to_install() -> None:
    ran = without_torch("backends")
    assert ran.returncode == 0
    assert '"arachne-repair[torch]"' in " ".join(ran.stdout.split())


def test_an_unknown_backend_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no backend named 'pytorch'; did you mean 'torch'"):
        registry.get("pytorch")


def test_a_backend_comes_back_as_it_is() -> None:
    backend = ReferenceBackend(mlp([2, 3, 2]))
    assert registry.load(backend) is backend


def test_an_object_nobody_knows_is_refused_by_its_type() -> None:
    with pytest.raises(ModelError, match=r"no backend takes a model of type 'builtins\.dict'"):
        registry.load({})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("none.pt2", "does not exist"),
        ("none.txt", "does not exist"),
        (".", "is a directory"),
        (__file__, "no backend reads 'test_registry.py'"),
    ],
)
def test_a_path_that_is_no_model_is_refused(source: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        registry.load(source, backend="torch" if source.endswith("pt2") else None)


def test_code_without_weights_needs_the_backends_name() -> None:
    with pytest.raises(UsageError, match="names code"):
        registry.load("package.module:make")
