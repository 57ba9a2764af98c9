"""What pip installs: the package, the ranges of what it needs, and its extras."""

from pathlib import Path

from setuptools import find_packages, setup

_README = Path(__file__).with_name("README.md")

_TORCH = ["torch>=2.4"]
_TENSORFLOW = ['tensorflow>=2.16; python_version < "3.14"']
_JAX = ["jax>=0.6"]
_PANDAS = ["pandas>=2.2"]
_IMAGES = ["pillow>=10", "simplejpeg>=1.7"]
_PROGRESS = ["tqdm>=4.60"]
_PLOT = ["matplotlib>=3.7"]
_CLI = ["click>=8.1", "rich>=13"]
_METRICS = ["prometheus_client>=0.19"]

setup(
    name="pyloader_delta",
    version="0.1.0",
    description="Streams Delta Lake tables and folders of chunk files into PyTorch, TensorFlow, JAX, NumPy and Arrow.",
    long_description=_README.read_text(encoding="utf-8") if _README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["pyloader_delta", "pyloader_delta.*"]),
    package_data={"pyloader_delta": ["py.typed"]},
    install_requires=["numpy>=1.26", "pyarrow>=18", "deltalake>=1.0", "obstore>=0.12", "cloudpickle>=3.0"],
    extras_require={
        "torch": _TORCH,
        "tensorflow": _TENSORFLOW,
        "jax": _JAX,
        "pandas": _PANDAS,
        "images": _IMAGES,
        "cli": _CLI,
        "progress": _PROGRESS,
        "plot": _PLOT,
        "metrics": _METRICS,
        "all": [*_TORCH, *_TENSORFLOW, *_JAX, *_PANDAS, *_IMAGES, *_PROGRESS, *_PLOT, *_METRICS, *_CLI],
        "dev": [
            "pytest>=8.4",
            "pytest-xdist>=3.6",
            "hypothesis>=6.100",
            "psutil>=5.9",
            "nbclient>=0.10",
            "ipykernel>=6.29",
            "ruff",
            "mypy",
        ],
    },
    entry_points={"console_scripts": ["pyloader-delta = pyloader_delta.cli:main"]},
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
