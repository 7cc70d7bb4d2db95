"""`python -m hermes.config` prints the reference of all settings: docs/configuration.md."""

import sys

from hermes.config.reference import reference

if __name__ == "__main__":
    sys.stdout.write(reference())
