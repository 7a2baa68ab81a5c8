"""The operators an exported program may use: those that are deterministic and touch only their own memory.

An operator that is not listed is refused. Left out on purpose: uninitialised memory (`empty`), tensors made from
unchecked indices (`_sparse_coo_tensor_unsafe`, `set_`, `resize_`,
`_reshape_alias`), random numbers, files, loops without an end (`while_loop`), and everything that only backward passes,
other devices or other formats of tensors need.
"""

from __future__ import annotations

import re

NUMBER_BY_NUMBER = """
    abs absolute acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min clip copysign cos cosh deg2rad div
    divide elu eq erf erfc erfinv exp exp2 expm1 fill float_power floor floor_divide fmax fmin fmod frac gcd ge gelu glu
    greater greater_equal gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot isfinite isinf isnan isneginf
    isposinf ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 log_sigmoid logaddexp logaddexp2
    logical_and logical_not logical_or logical_xor logit lt masked_fill maximum minimum mish mul multiply nan_to_num ne
    neg negative not_equal positive pow prelu _prelu_kernel rad2deg reciprocal relu relu6 remainder round rsqrt rsub
    selu sgn sigmoid sign signbit silu sin sinc sinh softplus softshrink special_erf special_expit special_ndtr sqrt
    square sub subtract tan tanh threshold true_divide trunc where xlogy
"""

PRODUCTS = """
    addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul conv1d conv2d conv3d conv_transpose1d conv_transpose2d
    conv_transpose3d convolution _convolution cosine_similarity dot einsum inner kron linalg_matmul linalg_multi_dot
    linalg_vecdot linear matmul mm mv outer scaled_dot_product_attention _scaled_dot_product_attention_math
    _scaled_dot_product_flash_attention_for_cpu _trilinear vdot gru lstm rnn_relu rnn_tanh gru_cell lstm_cell
    rnn_relu_cell rnn_tanh_cell _native_multi_head_attention _transformer_encoder_layer_fwd cdist _cdist_forward
    _euclidean_dist pairwise_distance pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
"""

SUMS_AND_NORMS = """
    aminmax all amax amin any argmax argmin argsort cummax cummin cumprod cumsum logcumsumexp logsumexp max mean median
    min mode nanmean nanmedian nansum norm linalg_norm linalg_vector_norm frobenius_norm prod sort std std_mean sum
    sum_to_size topk kthvalue var var_mean count_nonzero softmax _softmax log_softmax _log_softmax special_softmax
    special_log_softmax batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
    native_batch_norm instance_norm layer_norm native_layer_norm group_norm native_group_norm rms_norm _fused_rms_norm
    _weight_norm _weight_norm_interface renorm
"""

WINDOWS = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d col2im im2col
    constant_pad_nd grid_sampler grid_sampler_2d grid_sampler_3d affine_grid_generator max_pool1d
    max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices pad
    _pad_circular _pad_enum reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa unfold
"""

MOVED = """
    adjoint alias atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to bucketize cat chunk clone
    column_stack combinations concat concatenate contiguous copy copy_ detach detach_ diag diag_embed diagflat diagonal
    dsplit dstack embedding expand expand_as flatten flip fliplr flipud gather hsplit hstack index index_add index_copy
    index_fill index_put index_select isin item _local_scalar_dense lift_fresh_copy lift_fresh masked_scatter
    masked_select mH mT matrix_H meshgrid moveaxis movedim mvlgamma narrow narrow_copy nonzero nonzero_numpy numpy_T
    one_hot permute ravel repeat repeat_interleave reshape reshape_as resolve_conj resolve_neg roll rot90 scatter
    scatter_add scatter_reduce searchsorted select select_scatter slice slice_scatter split split_with_sizes squeeze
    stack swapaxes swapdims t take take_along_dim tensor_split tile to _to_copy _to_cpu transpose tril triu tril_indices
    triu_indices type_as unbind unflatten unsafe_chunk unsafe_split unsafe_split_with_sizes _unsafe_view unsqueeze
    view view_as view_copy vsplit vstack zero _pack_padded_sequence _pad_packed_sequence _shape_as_tensor
    diagonal_copy expand_copy permute_copy select_copy slice_copy squeeze_copy t_copy transpose_copy unsqueeze_copy
    split_copy unbind_copy alias_copy detach_copy
"""

MADE = """
    arange eye full full_like linspace logspace new_full new_ones new_zeros ones ones_like scalar_tensor zeros
    zeros_like hann_window hamming_window
"""

TURNED_OFF = "dropout feature_dropout alpha_dropout feature_alpha_dropout native_dropout"
"""Random operators, which are turned off in an exported program before it runs."""

ASKED = """
    sym_size sym_stride sym_numel sym_storage_offset size stride numel dim is_floating_point _assert_async
    _assert_scalar sym_constrain_range sym_constrain_range_for_size _assert_tensor_metadata
"""

ALLOWED = frozenset(
    " ".join([NUMBER_BY_NUMBER, PRODUCTS, SUMS_AND_NORMS, WINDOWS, MOVED, MADE, TURNED_OFF, ASKED]).split()
)
"""Operators of `aten`; each also in its variant that works in place."""

_ATEN = re.compile(r"torch\.ops\.aten\.((?!__)\w+)\.([A-Za-z]\w*)", re.ASCII)
_OTHERS = re.compile(
    r"torch\.ops\.aten\.__(and|or|xor|lshift|rshift)__\.[A-Za-z]\w*"
    r"|torch\.ops\.quantized_decomposed\.(de)?quantize_per_(tensor|channel|token)\.[A-Za-z]\w*"
    r"|torch\.ops\.prims\.(convert_element_type|broadcast_in_dim|iota|view_of|device_put)\.default"
    r"|torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|pos|eq|ne|lt|le|gt|ge|and_|or_|not_|xor)"
    r"|math\.(ceil|floor|trunc|sqrt)|torch\.sym_(int|float|max|min|not|ite|sum|sqrt)|torch\._sym_sqrt",
    re.ASCII,
)


def is_allowed(target: str) -> bool:
    """Whether a program may call an operator of this name, such as `torch.ops.aten.relu.default`."""
    found = _ATEN.fullmatch(target)
    if found is None:
        return bool(_OTHERS.fullmatch(target))
    name, overload = found.groups()
    return (name in ALLOWED or name.removesuffix("_") in ALLOWED) and not overload.endswith("out")
