"""The systems of the paper's section 5: Hermes, and its peers where they are installed.

Each module has a `running(directory)`, a context manager that starts a broker with all its files
below that directory and yields a `System` to publish to and to consume from.
"""
