"""Settings of all tests, made before ray is imported."""

import os

os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
