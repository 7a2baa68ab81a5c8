"""The file layer: the one package that creates, replaces and removes files, by open descriptors instead of by path."""
