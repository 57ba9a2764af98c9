"""Programs to run and to copy: each trains a model from a table or a folder of files. Begin with `examples.demo`."""
