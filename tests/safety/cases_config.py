"""Settings: `arachne.toml` in the working folder, and options that ask for too much."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tests.safety import valid
from tests.safety.case import Case

Maker = Callable[[Path], list[str]]
EVIL = "open('CANARY', 'w').close()\ndef make(*_): open('CANARY', 'w').close()\n"


def settings(content: str | bytes, *argv: str, name: str = "arachne.toml") -> Maker:
    """A folder with settings nobody named."""

    def make(folder: Path) -> list[str]:
        valid.model(folder)
        valid.data(folder)
        (folder / "evil.py").write_text(EVIL)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return list(argv or ("scan", "net.onnx", "--data", "data.npz"))

    return make


REPAIR = ("repair", "net.onnx", "--data", "data.npz", "--target", "top:1")
LOCALISE = ("localise", "net.onnx", "--data", "data.npz", "--target", "top:1")

TYPES: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "that-is-no-toml": ("data = ", ()),
    "that-is-not-utf8": (b"data = '\xff'", ()),
    "of-zero-bytes": (bytes(100), ()),
    "of-brackets-without-end": ("a = " + "[" * 100_000, ()),
    "of-dots-without-end": ("a" + ".a" * 100_000 + " = 1", ()),
    "with-a-number-of-5000-digits": ("seed = " + "9" * 5000, LOCALISE),
    "with-a-table-as-a-value": ("scan = 5", ()),
    "with-a-table-as-a-text": ("scan = 'x'", ()),
    "with-a-table-as-a-list": ("scan = [1]", ()),
    "with-a-date-as-data": ("data = 2020-01-01", ("scan", "net.onnx")),
    "with-a-time-as-data": ("data = 07:32:00", ("scan", "net.onnx")),
    "with-a-list-as-data": ("data = ['a', 'b']", ("scan", "net.onnx")),
    "with-a-truth-as-data": ("data = true", ("scan", "net.onnx")),
    "with-an-object-as-data": ("[scan]\ndata = {a = 1}", ("scan", "net.onnx")),
    "with-a-list-as-classes": ("classes = [1, 2]", ()),
    "with-a-list-as-seed": ("seed = [1]", LOCALISE),
    "with-a-date-as-seed": ("seed = 2020-01-01T00:00:00Z", LOCALISE),
    "with-a-truth-as-seed": ("seed = true", LOCALISE),
    "with-a-list-of-lists-as-target": ("target = [['a']]", ("repair", "net.onnx", "--data", "data.npz")),
    "with-a-list-of-dates-as-target": ("target = [2020-01-01]", ("repair", "net.onnx", "--data", "data.npz")),
    "with-a-truth-as-target": ("target = true", ("repair", "net.onnx", "--data", "data.npz")),
    "with-a-text-as-a-flag": ("quiet = 'yes'", ()),
    "with-a-number-as-a-flag": ("quiet = 1", ()),
    "with-a-list-as-a-flag": ("json = [true]", ()),
    "with-a-zero-byte-in-data": ('data = "a\\u0000b"', ("scan", "net.onnx")),
    "with-a-zero-byte-in-classes": ('classes = "a\\u0000b"', ()),
    "with-a-date-as-an-option": ("[repair.option]\ncount = 2020-01-01", REPAIR),
    "with-a-list-of-objects-as-an-option": ("[repair.option]\ncount = [{a = 1}]", REPAIR),
    "with-a-zero-byte-in-an-option": ('[repair.option]\ncount = "1\\u0000"', REPAIR),
    "with-options-as-a-number": ("[repair]\noption = 5", REPAIR),
    "with-a-list-as-device": ("device = ['cpu']", ()),
    "with-an-object-as-preprocess": ("[scan]\npreprocess = {scale = 1}", ()),
}

NUMBERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "with-an-endless-seed": ("seed = inf", LOCALISE),
    "with-a-seed-that-is-none": ("seed = nan", LOCALISE),
    "with-an-alpha-that-is-none": ("alpha = nan", REPAIR),
    "with-an-alpha-of-infinity": ("alpha = inf", REPAIR),
    "with-a-seed-of-text": ("seed = 'x'", LOCALISE),
    "with-an-unknown-option": ("[scan]\nevil = 1", ()),
}

CODE: dict[str, tuple[str, tuple[str, ...]]] = {
    "that-trusts-code": ("trust-code = true", ()),
    "that-names-a-factory": ("model = 'evil:make'", ("scan", "--data", "data.npz")),
    "that-names-a-factory-for-scan": ("[scan]\nmodel = 'evil:make'", ("scan", "--data", "data.npz")),
    "that-names-a-model-that-is-code": ("model-file = 'evil:make'", ("scan", "--data", "data.npz")),
    "that-prepares-by-code": ("preprocess = 'evil:make'", ()),
    "that-prepares-by-code-among-steps": ("preprocess = 'scale=1/255 evil:make'", ()),
    "that-trusts-code-in-repair": ("[repair]\ntrust-code = true", REPAIR),
    "that-writes-a-log-elsewhere": ("log-file = '../home/.bashrc'", ()),
    "that-writes-a-log-to-an-absolute-place": ("log-file = '/tmp/arachne-evil-log'", ()),
    "that-writes-a-page-elsewhere": ("[scan]\npage = '../page.html'", ()),
    "that-writes-results-elsewhere": ("out = '../out'", REPAIR),
    "that-draws-elsewhere": ("plot = '/tmp/arachne-evil.png'", LOCALISE),
    "that-joins-a-cluster": ("cluster = 'tcp://127.0.0.1:9'", ()),
    "that-joins-a-cluster-by-a-file": ("[scan]\ncluster = 'arachne.toml'", ()),
    "that-joins-a-cluster-under-a-hidden-name": ("'' = 1\n\"cl\\u0075ster\" = 'tcp://127.0.0.1:9'", ()),
    "that-joins-a-cluster-in-an-inline-table": ("repair = {seed = 1, cluster = 'tcp://127.0.0.1:9'}", REPAIR),
    "that-starts-workers": ("workers = 100000", ()),
    "that-tracks-elsewhere": ("track = ['tensorboard:/tmp/arachne-evil-runs']", REPAIR),
    "that-tracks-here": ("track = ['tensorboard:runs']", REPAIR),
    "that-tracks-on-a-server": ("[repair]\ntrack = ['mlflow:http://127.0.0.1:9']", REPAIR),
    "that-resumes": ("[repair]\nresume = true\nout = 'fix'", REPAIR),
    "that-replaces": ("force = true", (*REPAIR, "-o", "fix")),
    "that-reads-elsewhere": ("[repair]\nholdout = '/etc/passwd'", REPAIR),
    "that-names-a-searcher-of-others": ("search = 'strange'", REPAIR),
    "that-names-a-searcher-of-others-behind-o": ("[repair.option]\nmembers = ['strange']", REPAIR),
    "that-sets-an-option-of-others": ("[repair]\noption = ['strange.rounds=1']", REPAIR),
    "that-accepts-for-the-user": ("accept-near-chance = true", REPAIR),
    "that-names-other-settings": ("config = '../arachne.toml'", ()),
}


def _link(folder: Path) -> list[str]:
    argv = settings("log-file = 'link/.bashrc'")(folder)
    (folder / "link").symlink_to("/tmp")
    return argv


def _pipe(folder: Path) -> list[str]:
    argv = settings("")(folder)
    (folder / "arachne.toml").unlink()
    os.mkfifo(folder / "arachne.toml")
    return argv


def _device(folder: Path) -> list[str]:
    argv = settings("")(folder)
    (folder / "arachne.toml").unlink()
    (folder / "arachne.toml").symlink_to("/dev/zero")
    return argv


def _named_pipe(folder: Path) -> list[str]:
    argv = settings("")(folder)
    os.mkfifo(folder / "my.toml")
    return [*argv, "--config", "my.toml"]


CASES = [
    *(Case(f"settings-{name}", "config", "type", settings(text, *argv)) for name, (text, argv) in TYPES.items()),
    *(
        Case(f"settings-{name}", "config", "value", settings(text, *argv), exits=(2, 3))
        for name, (text, argv) in NUMBERS.items()
    ),
    *(Case(f"settings-{name}", "config", "code", settings(text, *argv)) for name, (text, argv) in CODE.items()),
    Case("settings-that-write-through-a-link", "config", "code", _link),
    Case("settings-that-are-a-pipe", "config", "pipe", _pipe),
    Case("settings-that-link-to-an-endless-device", "config", "pipe", _device),
    Case("settings-that-were-named-and-are-a-pipe", "config", "pipe", _named_pipe),
    *(
        Case(
            f"memory-of-{size}",
            "config",
            "hang",
            settings("", *REPAIR, "--memory", size),
            exits=(0, 2, 3),
        )
        for size in ("1KB", "0KB", "1", "100KB")
    ),
]
