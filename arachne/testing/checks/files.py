"""Files: what is saved is what was there, and a file's weights can be read and replaced by address."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from arachne.errors import ModelError, UnknownLayerError
from arachne.model.backend import ModelBackend, WeightFile
from arachne.testing.checks.suite import MakeBackend, Specimen, Suite, assert_close
from arachne.testing.networks import Network


class FileChecks(Suite):
    """`save`, `load`, `weight_file`."""

    def reload(self, path: Path, backend: ModelBackend, network: Network) -> ModelBackend:
        """Load what `backend` saved; overridden where a file alone does not make a model."""
        return type(backend).load(path)

    def test_a_file_tells_its_weights_by_address(self, specimen: Specimen, tmp_path: Path) -> None:
        """Every parameter in the canonical layout and the file's dtype, without the code that makes a model of them."""
        file = self._open_weights(specimen, self._save(specimen, tmp_path))
        assert set(file.parameters()) >= set(specimen.all_weights())
        others = {layer for layer, _ in set(file.parameters()) - set(specimen.all_weights())}
        assert others <= {name for name, layer in specimen.network.layers.items() if layer.STATISTICS}
        for (layer, parameter), values in specimen.all_weights().items():
            np.testing.assert_array_equal(file.read(layer, parameter), values)
            assert file.dtype(layer, parameter) == specimen.backend.info(layer).parameters[parameter].dtype
        with pytest.raises(UnknownLayerError, match="no_such_layer"):
            file.read("no_such_layer", "weight")

    def test_a_rewritten_file_holds_the_new_weights(self, specimen: Specimen, tmp_path: Path) -> None:
        """A copy of the file with these parameters replaced and everything else as it was."""
        path = self._save(specimen, tmp_path)
        content = path.read_bytes()
        weights = specimen.other_weights(specimen.layers[-1])
        copy = path.with_name("copy" + path.suffix)
        self._open_weights(specimen, path).rewrite(copy, weights)
        assert path.read_bytes() == content
        rewritten = self._open_weights(specimen, copy)
        for key, values in specimen.all_weights().items():
            np.testing.assert_array_equal(rewritten.read(*key), weights.get(key, values), err_msg=".".join(key))
        for key, values in weights.items():
            specimen.backend.set_weights(*key, values)
        again = self.reload(copy, specimen.backend, specimen.network)
        assert_close(again.forward(specimen.inputs), specimen.backend.forward(specimen.inputs), "scores of the copy")

    def test_a_file_that_holds_no_model_is_refused(self, make_backend: MakeBackend, tmp_path: Path) -> None:
        """Nothing this backend can repair is a `ModelError`."""
        specimen = self.build(make_backend, "mlp")
        path = self._save(specimen, tmp_path)
        whole = path.read_bytes()
        for content in (b"", b"not a model at all", whole[: len(whole) // 2]):
            path.write_bytes(content)
            with pytest.raises(ModelError):
                self.reload(path, specimen.backend, specimen.network)

    def _save(self, specimen: Specimen, folder: Path) -> Path:
        if not specimen.backend.suffix:
            pytest.skip(f"backend '{specimen.backend.NAME}' declares no SUFFIXES, so it has no files")
        path = folder / f"model{specimen.backend.suffix}"
        specimen.backend.save(path)
        return path

    def _open_weights(self, specimen: Specimen, path: Path) -> WeightFile:
        if type(specimen.backend).weight_file.__func__ is ModelBackend.weight_file.__func__:  # type: ignore[attr-defined]
            pytest.skip(f"backend '{specimen.backend.NAME}' does not define weight_file")
        return type(specimen.backend).weight_file(path)
