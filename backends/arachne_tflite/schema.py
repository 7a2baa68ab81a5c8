"""The tables of TFLite's schema, version 3: their fields in order, with types and defaults.

A type is a number (`i8`, `u32`, `f32`), `text`, the name of a table, or one of these in brackets for a vector. `none`
is a field that was given up and may not be there, `None` a table that is not read; `union` is a table whose type the
field before it tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Field = tuple[str, str, Any]


def _fields(text: str) -> tuple[Field, ...]:
    """Read `name:type` or `name:type=default`, separated by blanks."""
    found = []
    for one in text.split():
        name, _, rest = one.partition(":")
        kind, _, default = rest.partition("=")
        number: Any = None
        if kind in NUMBERS:
            number = float(default or 0) if kind == "f32" else int(default or 0)
        found.append((name, kind, number))
    return tuple(found)


NUMBERS: Mapping[str, str] = {
    "i8": "<i1", "u8": "<u1", "bool": "<u1", "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8", "f32": "<f4",
}  # fmt: skip
"""The kinds of numbers, as NumPy calls them."""

TABLES: Mapping[str, Sequence[Field]] = {
    name: _fields(text)
    for name, text in {
        "Model": "version:u32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:text buffers:[Buffer] "
        "metadata_buffer:[i32] metadata:[Metadata] signature_defs:[SignatureDef] external_buffer_groups:[None] "
        "external_buffers:[None]",
        "OperatorCode": "deprecated_builtin_code:i8 custom_code:text version:i32=1 builtin_code:i32",
        "SubGraph": "tensors:[Tensor] inputs:[i32] outputs:[i32] operators:[Operator] name:text debug:i32=-1",
        "Tensor": "shape:[i32] type:i8 buffer:u32 name:text quantization:QuantizationParameters is_variable:bool "
        "sparsity:None shape_signature:[i32] has_rank:bool variant_tensors:[None] external_buffer:u32",
        "QuantizationParameters": "min:[f32] max:[f32] scale:[f32] zero_point:[i64] details_type:u8 details:None "
        "quantized_dimension:i32",
        "Buffer": "data:[u8] offset:u64 size:u64",
        "Operator": "opcode_index:u32 inputs:[i32] outputs:[i32] builtin_options_type:u8 builtin_options:union "
        "custom_options:[u8] custom_options_format:i8 mutating_variable_inputs:[u8] intermediates:[i32] "
        "large_custom_options_offset:u64 large_custom_options_size:u64 builtin_options_2_type:u8 "
        "builtin_options_2:None debug:i32=-1",
        "Metadata": "name:text buffer:u32",
        "SignatureDef": "inputs:[TensorMap] outputs:[TensorMap] signature_key:text deprecated:none subgraph_index:u32",
        "TensorMap": "name:text tensor_index:u32",
        "Conv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 activation:i8 dilation_w:i32=1 dilation_h:i32=1 "
        "bias_type:i8",
        "DepthwiseConv2DOptions": "padding:i8 stride_w:i32 stride_h:i32 multiplier:i32 activation:i8 dilation_w:i32=1 "
        "dilation_h:i32=1",
        "Pool2DOptions": "padding:i8 stride_w:i32 stride_h:i32 filter_w:i32 filter_h:i32 activation:i8",
        "FullyConnectedOptions": "activation:i8 weights_format:i8 keep_num_dims:bool asymmetric:bool bias_type:i8",
        "SoftmaxOptions": "beta:f32",
        "ConcatenationOptions": "axis:i32 activation:i8",
        "AddOptions": "activation:i8 pot_scale_int16:bool=1",
        "ResizeBilinearOptions": "new_height:none new_width:none align_corners:bool half_pixel_centers:bool",
        "ReshapeOptions": "new_shape:[i32]",
        "SpaceToDepthOptions": "block_size:i32",
        "MulOptions": "activation:i8",
        "PadOptions": "",
        "GatherOptions": "axis:i32 batch_dims:i32",
        "TransposeOptions": "",
        "ReducerOptions": "keep_dims:bool",
        "SubOptions": "activation:i8 pot_scale_int16:bool=1",
        "DivOptions": "activation:i8",
        "SqueezeOptions": "squeeze_dims:[i32]",
        "StridedSliceOptions": "begin_mask:i32 end_mask:i32 ellipsis_mask:i32 new_axis_mask:i32 shrink_axis_mask:i32 "
        "offset:bool",
        "ExpOptions": "",
        "SplitOptions": "num_splits:i32",
        "LogSoftmaxOptions": "",
        "CastOptions": "in_type:i8 out_type:i8",
        "DequantizeOptions": "",
        "MaximumMinimumOptions": "",
        "NegOptions": "",
        "PadV2Options": "",
        "SliceOptions": "",
        "TransposeConvOptions": "padding:i8 stride_w:i32 stride_h:i32 activation:i8 bias_type:i8",
        "ExpandDimsOptions": "",
        "ShapeOptions": "out_type:i8",
        "PowOptions": "",
        "PackOptions": "values_count:i32 axis:i32",
        "UnpackOptions": "num:i32 axis:i32",
        "SquareOptions": "",
        "ResizeNearestNeighborOptions": "align_corners:bool half_pixel_centers:bool",
        "LeakyReluOptions": "alpha:f32",
        "SquaredDifferenceOptions": "",
        "MirrorPadOptions": "mode:i8",
        "AbsOptions": "",
        "SplitVOptions": "num_splits:i32",
        "QuantizeOptions": "",
        "HardSwishOptions": "",
        "DepthToSpaceOptions": "block_size:i32",
        "BatchMatMulOptions": "adj_x:bool adj_y:bool asymmetric:bool",
        "GeluOptions": "approximate:bool",
    }.items()
}
"""The fields of each table, in the order of their slots."""

OPTIONS: Mapping[int, str] = {
    1: "Conv2DOptions", 2: "DepthwiseConv2DOptions", 5: "Pool2DOptions", 8: "FullyConnectedOptions",
    9: "SoftmaxOptions", 10: "ConcatenationOptions", 11: "AddOptions", 15: "ResizeBilinearOptions",
    17: "ReshapeOptions", 19: "SpaceToDepthOptions", 21: "MulOptions", 22: "PadOptions", 23: "GatherOptions",
    26: "TransposeOptions", 27: "ReducerOptions", 28: "SubOptions", 29: "DivOptions", 30: "SqueezeOptions",
    32: "StridedSliceOptions", 33: "ExpOptions", 35: "SplitOptions", 36: "LogSoftmaxOptions", 37: "CastOptions",
    38: "DequantizeOptions", 39: "MaximumMinimumOptions", 42: "NegOptions", 43: "PadV2Options", 48: "SliceOptions",
    49: "TransposeConvOptions", 52: "ExpandDimsOptions", 55: "ShapeOptions", 56: "PowOptions", 59: "PackOptions",
    64: "UnpackOptions", 66: "SquareOptions", 74: "ResizeNearestNeighborOptions", 75: "LeakyReluOptions",
    76: "SquaredDifferenceOptions", 77: "MirrorPadOptions", 78: "AbsOptions", 79: "SplitVOptions",
    89: "QuantizeOptions", 91: "HardSwishOptions", 94: "DepthToSpaceOptions", 101: "BatchMatMulOptions",
    116: "GeluOptions",
}  # fmt: skip
"""The table that an operator's `builtin_options` are, by the number before them."""

_OPERATORS = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
    LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
    CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE
    EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR
    ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
    RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND
    COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER
    CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT
    HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
    RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
"""
OPERATORS = tuple(_OPERATORS.split())
"""The names of the operators, by number; newer ones go without a name."""

DTYPES: Mapping[int, str] = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8", 10: "float64",
    15: "uint32", 16: "uint16",
}  # fmt: skip
"""The dtypes of tensors, by number; strings, resources and numbers of half a byte are not among them."""

OTHER_DTYPES: Mapping[int, str] = {
    5: "strings", 8: "complex numbers", 11: "complex numbers", 12: "uint64", 13: "resources", 14: "variants",
    17: "int4", 18: "bfloat16", 19: "int2", 20: "uint4", 21: "float8", 22: "float8",
}  # fmt: skip
"""The contents of tensors of all other types."""
