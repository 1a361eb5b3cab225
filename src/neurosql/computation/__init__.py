"""What a generator computes, written down as a list of plain steps that programs without torch can follow.

`recording` watches a generator at work and writes its steps down, whatever backbone it has; `steps` says what steps
there are. `onnx_file` and `packed` write them for an ONNX runtime and for a page in the browser.
"""
