"""`BackendConformance`: the contract of `ModelBackend` as a pytest suite, for authors of backends to subclass."""

from __future__ import annotations

from arachne.testing.checks.cuts import CutChecks
from arachne.testing.checks.fitting import FitChecks
from arachne.testing.checks.forward import ForwardChecks
from arachne.testing.checks.gradients import GradientChecks
from arachne.testing.checks.model import ModelChecks
from arachne.testing.checks.weights import WeightChecks


class BackendConformance(WeightChecks, ForwardChecks, GradientChecks, FitChecks, CutChecks, ModelChecks):
    """Whether a backend keeps the contract; the docstring of each test is the sentence it checks.

    A subclass provides one fixture, `make_backend`: a function from a network spec to the backend under test, holding
    that network with exactly those weights. The spec lists nodes in order of execution (`arachne.testing.nodes` says
    what each computes); weights are in the canonical layout, inputs are `(n, features)` or `(n, channels, *axes)`. Keep
    the layers' names. For a framework that has dense layers and relus alone, a whole test file reads:

        import jaxlike
        import pytest
        from arachne_jaxlike import JaxlikeBackend

        from arachne.testing import BackendConformance, Network, UnsupportedNetworkError
        from arachne.testing.nodes import Dense, Relu


        def build(network: Network) -> JaxlikeBackend:
            if len(network.inputs) > 1:
                raise UnsupportedNetworkError("a graph has one input")
            graph = jaxlike.Graph(network.inputs)
            for node in network.nodes:
                if isinstance(node, Dense):
                    graph.add(jaxlike.Linear(node.weight.T, node.bias), name=node.name, inputs=node.sources)
                elif isinstance(node, Relu):
                    graph.add(jaxlike.Relu(), name=node.name, inputs=node.sources)
                else:
                    raise UnsupportedNetworkError(f"no {type(node).__name__} yet")
            return JaxlikeBackend(graph)


        class TestJaxlike(BackendConformance):
            @pytest.fixture
            def make_backend(self):
                return build

    What a backend cannot do is declared, and shows as a skip with its reason:

    - networks it cannot hold: `make_backend` raises `UnsupportedNetworkError` with the reason. A function that refuses
      nodes it does not know, as above, stays right when a later version of the suite adds networks;
    - single networks, and hand-made ones like them, by name: `UNSUPPORTED`, from a name in
      `arachne.testing.checks.specimens` to the reason;
    - no gradients: `SUPPORTS_GRADIENTS = False` in the backend;
    - no training: leave `SUPPORTS_FIT = False` in the backend;
    - a cut that cannot continue from outputs: `continues_from_outputs = False` in the cut;
    - no files: no `SUFFIXES` in the backend; no `weight_file`: leave it undefined.

    What it should do and does not yet goes into `EXPECTED_FAILURES`, from a test's name to the reason; such a test is
    shown as an expected failure, and fails once it passes, so that the list stays true.

    Where a saved file alone does not make a model (it takes a factory, say), override `reload`.
    """
