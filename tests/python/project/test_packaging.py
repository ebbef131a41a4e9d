"""The built packages: what the wheel holds, and that the sdist installs without Node."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest

REPO = Path(os.environ.get("HLOSCOPE_REPOSITORY") or Path(__file__).resolve().parents[3])

# What makes hloscope work once installed and is not Python.
DATA = (
    "share/jupyter/labextensions/hloscope/package.json",
    "share/jupyter/labextensions/hloscope/install.json",
    "share/jupyter/labextensions/hloscope/schemas/hloscope/explorer.json",
    "etc/jupyter/jupyter_server_config.d/hloscope.json",
)
FILES = (
    "hloscope/static/explorer.js",
    "hloscope/static/plan.js",
    "hloscope/py.typed",
    "hloscope/lab/child.py",
)


def built(pattern: str) -> Path:
    found = sorted((REPO / "dist").glob(pattern), key=lambda p: p.stat().st_mtime)
    if not found:
        pytest.skip(f"no {pattern} in dist/: build it with python -m build --no-isolation")
    return found[-1]


def hardware_files() -> list[str]:
    package = REPO / "python"
    found = [p.relative_to(package).as_posix() for p in package.rglob("*.toml")]
    assert found
    return found


def install(wheel: Path, python: Path, env: dict[str, str]) -> None:
    """With uv or pip, and with no network."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    command = (
        [uv, "pip", "install", "--offline", "--python", str(python)]
        if uv
        else [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index"]
    )
    subprocess.run([*command, "-q", "--no-deps", str(wheel)], env=env, check=True)


def test_the_wheel_holds_everything() -> None:
    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        names = set(wheel.namelist())
    data = {n.partition(".data/data/")[2] for n in names}
    assert set(DATA) <= data
    assert {*FILES, *hardware_files()} <= names
    assert not [n for n in names if "/tests/" in n or n.endswith((".ts", ".pyc"))]


def test_licences_of_bundled_code_travel_with_it() -> None:
    """ISC asks for its notice in all copies: the wheel, the extension, every saved page."""
    lab = "share/jupyter/labextensions/hloscope/static/third-party-licenses.json"
    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        named = {n.rpartition("/licenses/")[2]: n for n in wheel.namelist() if "/licenses/" in n}
        assert {"LICENSE", "THIRD-PARTY-LICENSES.txt"} <= set(named)
        ours = wheel.read(named["THIRD-PARTY-LICENSES.txt"]).decode()
        assert ours == (REPO / "THIRD-PARTY-LICENSES.txt").read_text()
        (name,) = [n for n in wheel.namelist() if n.endswith(lab)]
        packages = json.loads(wheel.read(name))["packages"]
        assert {"flatbush", "flatqueue"} <= {p["name"] for p in packages}
        texts = [ours, wheel.read("hloscope/static/explorer.js").decode()]
    for package in packages:
        assert all(package["extractedText"] in text for text in texts), package["name"]


def test_the_bill_of_materials_travels_with_it_and_names_all_that_is_bundled() -> None:
    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        (name,) = [n for n in wheel.namelist() if ".dist-info/sboms/" in n]
        listed = json.loads(wheel.read(name))
        (lab,) = [n for n in wheel.namelist() if n.endswith("third-party-licenses.json")]
        bundled = json.loads(wheel.read(lab))["packages"]
    assert listed["specVersion"] == "1.6"
    assert listed["metadata"]["component"]["version"] == built("hloscope-*.whl").name.split("-")[1]
    found = {c["name"]: c for c in listed["components"]}
    assert set(found) == {p["name"] for p in bundled}
    locked = json.loads((REPO / "package-lock.json").read_text())["packages"]
    for package in bundled:
        component = found[package["name"]]
        assert component["version"] == package["versionInfo"]
        assert component["licenses"] == [{"license": {"id": package["licenseId"]}}]
        (digest,) = component["hashes"]
        assert digest["alg"] == "SHA-512"
        encoded = base64.b64encode(bytes.fromhex(digest["content"])).decode()
        assert locked[f"node_modules/{package['name']}"]["integrity"] == f"sha512-{encoded}"
    ours = (REPO / "THIRD-PARTY-LICENSES.txt").read_text()
    heads = re.findall(r"^(\S+) \([\w.-]+\)$", ours, re.M)
    assert set(heads) == set(found)


def test_what_is_installed_is_locked_by_its_hash() -> None:
    for lock in (REPO / "requirements").glob("*.txt"):
        packages = re.split(r"\n(?=\S)", lock.read_text().strip())
        assert len(packages) > 20, lock.name
        for package in packages:
            assert re.match(r"[\w.-]+==\S+", package), f"{lock.name}: {package}"
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", package), f"{lock.name}: {package}"


def test_workflows_name_actions_by_commit() -> None:
    """A tag can be moved to other code, a commit cannot."""
    used = [
        (workflow.name, line)
        for workflow in (REPO / ".github" / "workflows").glob("*.yml")
        for line in re.findall(r"uses: (.*)", workflow.read_text())
    ]
    assert len(used) >= 8
    for name, line in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+(\.\d+)+", line), (name, line)


def test_metadata() -> None:
    import email

    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
        about = email.message_from_bytes(wheel.read(name))
        (lab,) = [n for n in wheel.namelist() if n.endswith("labextensions/hloscope/package.json")]
        extension = json.loads(wheel.read(lab))
    source = (REPO / "python/hloscope/__init__.py").read_text()
    assert f'__version__ = "{about["Version"]}"' in source
    assert extension["version"] == about["Version"]
    labels = {u.partition(",")[0] for u in about.get_all("Project-URL")}
    assert {"Homepage", "Issues", "Documentation", "Changelog"} <= labels
    assert about["Author"]
    assert "Framework :: Jupyter :: JupyterLab :: Extensions :: Prebuilt" in about.get_all(
        "Classifier"
    )
    assert about["Description-Content-Type"] == "text/markdown"


def test_the_extension_names_files_that_exist() -> None:
    """package.json of the prebuilt extension points at its entry, which is in the wheel."""
    folder = "share/jupyter/labextensions/hloscope"
    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        data = {n.partition(".data/data/")[2]: n for n in wheel.namelist()}
        about = json.loads(wheel.read(data[f"{folder}/package.json"]))
    assert f"{folder}/{about['jupyterlab']['_build']['load']}" in data


def test_the_settings_offer_colourings_and_the_chips_of_the_hardware_file() -> None:
    schema = "share/jupyter/labextensions/hloscope/schemas/hloscope/explorer.json"
    with zipfile.ZipFile(built("hloscope-*.whl")) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith(schema)]
        settings = json.loads(wheel.read(name))["properties"]
        chips = tomllib.loads(wheel.read("hloscope/hardware/chips.toml").decode())
    expected = {"": "from the capture"} | {k: v["label"] for k, v in chips.items()}
    assert {o["const"]: o["title"] for o in settings["hardware"]["oneOf"]} == expected
    assert {"family", "scope", "seconds"} <= {o["const"] for o in settings["colorBy"]["oneOf"]}


def test_the_sdist_has_no_machine_in_it() -> None:
    with tarfile.open(built("hloscope-*.tar.gz")) as sdist:
        names = [n.partition("/")[2] for n in sdist.getnames()]
    tops = {n.partition("/")[0] for n in names}
    assert not tops & {"node_modules", "dist", ".cache", "site", "tests", "shared"}
    assert not [top for top in tops if top.startswith(".venv")]


def test_kept_programs_do_not_say_where_they_were_made(repo: Path) -> None:
    """A program names its files, so a picture of it would differ where those files are found."""
    made = re.compile(rb"(/[^\"\s]*)/tests/(?:golden|corpus|python)/")
    kept = [p for p in (repo / "tests" / "golden").rglob("*") if p.is_file()]
    texts = {p: p.read_bytes() for p in kept}
    found = {
        (p.name, root.decode())
        for p, text in texts.items()
        for root in made.findall(gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text)
    }
    assert found  # there are programs with paths, all from nowhere
    assert {root for _, root in found} == {"/home/programs", "/src"}


def test_the_sdist_installs_without_node(tmp_path: Path) -> None:
    """Into an empty environment, with a path that has neither node nor npm."""
    sdist = built("hloscope-*.tar.gz")
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    env = {**os.environ, "PATH": str(venv / "bin")}
    assert shutil.which("node", path=env["PATH"]) is None
    unpacked = tmp_path / "source"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked)
    (source,) = unpacked.iterdir()
    # by this environment's hatchling, so that nothing is downloaded
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=source,
        env=env,
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    install(wheel, venv / "bin" / "python", env)
    assert not [name for name in DATA if not (venv / name).is_file()]
    (packages,) = venv.glob("lib/python*/site-packages")
    assert not [n for n in (*FILES, *hardware_files()) if not (packages / n).is_file()]
    assert (packages / "hloscope/static/explorer.js").stat().st_size > 50_000
    # numpy and the like from this environment, behind what was just installed
    (packages / "behind.pth").write_text(str(Path(np.__file__).resolve().parents[1]))
    run = {"env": env, "capture_output": True, "text": True}
    where = subprocess.run(
        [venv / "bin" / "python", "-c", "import hloscope; print(hloscope.__file__)"], **run
    )
    assert where.stdout.strip() == str(packages / "hloscope" / "__init__.py"), where.stderr
    version = subprocess.run([venv / "bin" / "hloscope", "--version"], **run)
    assert version.stdout == f"hloscope {wheel.name.split('-')[1]}\n", version.stderr
