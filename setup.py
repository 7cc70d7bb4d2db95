"""The compiled core, which setup.cfg has no place for; everything else is there."""

import sysconfig

from setuptools import Extension, setup

# A build for threads without a global lock has no limited API: Python's own loops are used there.
if sysconfig.get_config_var("Py_GIL_DISABLED"):
    setup()
else:
    core = Extension(
        "hermes.protocol._core",
        ["hermes/protocol/_core.c"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        py_limited_api=True,
        optional=True,  # without a compiler the installation is as good, only slower
    )
    setup(ext_modules=[core], options={"bdist_wheel": {"py_limited_api": "cp311"}})
