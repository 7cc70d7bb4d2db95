"""One file per measurement: each has a `measure(settings)` that returns rows."""
