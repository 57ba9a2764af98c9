"""A loader as another library takes its data: one module a library, imported only where it is asked for."""
