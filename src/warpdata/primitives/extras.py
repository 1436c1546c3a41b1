"""Optional libraries, imported when they are first needed."""

from __future__ import annotations

import importlib
from typing import Any

from warpdata.errors import MissingExtraError

__all__ = ["DISTRIBUTION", "require"]

DISTRIBUTION = "warpdata-lake"
"""Name of this project on a package index, where `warpdata` is another project. A test compares pyproject.toml."""

_DISTRIBUTIONS = {
    "PIL": "Pillow",
    "av": "PyAV",
    "faiss": "faiss-cpu",
    "ml_dtypes": "ml-dtypes",
    "sklearn": "scikit-learn",
}
"""Names on PyPI, where the module has another."""


def require(module: str, *, purpose: str, extra: str | None = None, install: str | None = None) -> Any:
    """Import an optional module, such as `PIL.Image`, or raise `MissingExtraError`.

    `purpose` begins the message: "`purpose` needs Pillow, which is not installed". The hint installs
    `DISTRIBUTION[extra]`, or else the requirement `install`, or else the library itself.
    """
    try:
        # Not sys.modules: it has a module while another thread still executes it.
        return importlib.import_module(module)
    except MissingExtraError:
        raise
    except (ImportError, OSError) as error:  # OSError: a shared library of the module does not load
        package = module.partition(".")[0]
        library = _DISTRIBUTIONS.get(package, package)
        is_absent = isinstance(error, ModuleNotFoundError) and error.name in (None, package, module)
        state = "is not installed" if is_absent else f"cannot be imported: {error}"
        wanted = f"'{DISTRIBUTION}[{extra}]'" if extra else install or library
        raise MissingExtraError(f"{purpose} needs {library}, which {state}", hint=f"pip install {wanted}") from error
