"""The one thing that pyproject.toml cannot say: the native kernel is built where Rust is, and left out where it is not.

Without cargo, or where the build fails, the install succeeds all the same and `simhash/native.py` says why NumPy does
the work.
"""

from setuptools import setup

try:
    from setuptools_rust import Binding, RustExtension
except ImportError:  # an install without build isolation, in an environment without it
    setup()
else:
    kernel = RustExtension(
        "simhash._native",
        path="native/Cargo.toml",
        binding=Binding.PyO3,
        debug=False,  # an editable install would be built without optimisation
        optional=True,
        py_limited_api=True,
    )
    # One wheel serves this Python and every later one, as the kernel does.
    setup(rust_extensions=[kernel], options={"bdist_wheel": {"py_limited_api": "cp311"}})
