"""Why some of a model's parameters cannot be repaired, in sentences that a user can act on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from torch import nn

from arachne_torch.derived import DerivedWeight
from arachne_torch.layers import KINDS, Layer
from arachne_torch.tensor_ids import tensors_in
from arachne_torch.watch import Call

PARAMETRISED = (
    "a parametrisation makes the weight from it that allows only some weights (such as spectral norm or orthogonal "
    "matrices); call torch.nn.utils.parametrize.remove_parametrizations first, which keeps the weight as it is"
)
OLD_SPECTRAL_NORM = (
    "spectral norm makes the weight from it, which allows only some weights; call torch.nn.utils.remove_spectral_norm "
    "first, which keeps the weight as it is"
)
MIXED = "its layer mixes the inputs of a batch with each other"
SAME = "its layer gives one result for the whole batch, which cannot be split by input"
UNUSED = "no call of the forward pass uses it"


def unreached_parameters(
    module: nn.Module,
    layers: Mapping[str, Layer],
    calls: Sequence[Call] | None,
    mixed: Collection[str] = (),
    derived: Mapping[str, DerivedWeight] | None = None,
) -> dict[str, str]:
    """The reason for every parameter that belongs to no layer.

    Args:
        module: The model.
        layers: Its layers.
        calls: The calls of one pass; None before there was one.
        mixed: Layers that were found and cannot be repaired.
        derived: The weights that are computed from parameters and can be set.
    """
    reached = {slice_.name for name, layer in layers.items() if name not in mixed for slice_ in layer.stored.values()}
    reached |= {name for weight, found in (derived or {}).items() if weight in reached for name in found.originals}
    named, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    users: dict[int, str] = {}
    for call in calls or ():
        for tensor in tensors_in((call.args, call.kwargs)):
            if next(tensors_in(call.result), None) is not None:
                users.setdefault(id(tensor), call.name)
    in_mixed = {slice_.name for name in mixed for slice_ in layers[name].stored.values()}
    reasons = {}
    for name, tensor in named.items():
        member = name.rpartition(".")[2]
        if name in reached:
            continue
        if not tensor.is_floating_point():
            dtype = str(tensor.dtype).removeprefix("torch.")
            reasons[name] = f"it is stored as {dtype}, and only floating-point weights are repaired"
        elif name in in_mixed:
            reasons[name] = MIXED
        elif ".parametrizations." in f".{name}":
            reasons[name] = PARAMETRISED
        elif member.endswith("_orig") and f"{name.removesuffix('_orig')}_u" in buffers:
            reasons[name] = OLD_SPECTRAL_NORM
        elif calls is None:
            reasons[name] = "no layer that is known without running the model uses it; give data to find out more"
        elif users.get(id(tensor)) in KINDS:
            reasons[name] = f"the weight it is used with by '{users[id(tensor)]}' is computed, not stored"
        elif id(tensor) in users:
            reasons[name] = f"it is used by '{users[id(tensor)]}', which is no layer Arachne knows"
        else:
            reasons[name] = UNUSED
    return reasons
