"""One real or composed case of each task, repaired by one typed command in ONNX, PyTorch and Keras."""
