"""From what a user calls a model to the files: local paths, pulled models, hub ids."""

import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import errors

from noria.config.errors import ModelError
from noria.loaders.gguf_checkpoint import GgufCheckpoint
from noria.loaders.hub import HubId, parse_hub_id
from noria.loaders.pull import KNOWN_MODELS, KnownModel
from noria.loaders.resolve import locate, open_checkpoint
from noria.loaders.safetensors_checkpoint import SafetensorsCheckpoint
from support_gguf import MINUTE_SHAPE, MINUTE_TOKENS, write_tiny_gguf
from support_safetensors import write_tiny_directory


@pytest.fixture(autouse=True)
def no_network(monkeypatch, tmp_path):
    """The hub must not be asked, unless a test says so; the working directory is an empty one."""

    def fail(*args, **kwargs):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    empty = tmp_path / "here"
    empty.mkdir()
    monkeypatch.chdir(empty)


def write_gguf(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tiny_gguf(path, shape=MINUTE_SHAPE, tokens=MINUTE_TOKENS)
    return path


def refusal(model, revision=None) -> str:
    with pytest.raises(ModelError) as caught:
        locate(model, revision)
    return str(caught.value)


def test_a_gguf_file_is_opened(tmp_path):
    path = write_gguf(tmp_path / "model.gguf")
    checkpoint = open_checkpoint(str(path))
    assert isinstance(checkpoint, GgufCheckpoint) and checkpoint.path == str(path)


def test_a_gguf_file_may_have_another_ending(tmp_path):
    path = write_gguf(tmp_path / "model.gguf").rename(tmp_path / "model.bin")
    assert isinstance(open_checkpoint(str(path)), GgufCheckpoint)


def test_a_safetensors_directory_is_opened(tmp_path):
    write_tiny_directory(tmp_path / "model")
    checkpoint = open_checkpoint(str(tmp_path / "model"))
    assert isinstance(checkpoint, SafetensorsCheckpoint) and checkpoint.path == str(tmp_path / "model")


def test_relative_and_home_paths_are_paths(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "here" / "org" / "model.gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("org/model.gguf", "./org/model.gguf", "org", "~/here/org/model.gguf", "~/here/org"):
        assert os.path.samefile(locate(name), path)


def test_a_directory_with_one_gguf_model_means_that_model(tmp_path):
    path = write_gguf(tmp_path / "one" / "model.gguf")
    assert locate(str(tmp_path / "one")) == path


def test_the_parts_of_one_gguf_model_count_once(tmp_path):
    for number in (1, 2):
        write_gguf(tmp_path / "one" / f"m-0000{number}-of-00002.gguf")
    assert locate(str(tmp_path / "one")).name == "m-00001-of-00002.gguf"


def test_a_directory_with_several_gguf_models_is_refused_with_their_names(tmp_path):
    write_gguf(tmp_path / "several" / "a.gguf")
    write_gguf(tmp_path / "several" / "b.gguf")
    assert "holds several GGUF models, name one of them: a.gguf, b.gguf" in refusal(str(tmp_path / "several"))


def test_a_directory_without_a_model_is_refused_with_what_it_holds(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "holds no model" in refusal(str(tmp_path / "empty"))
    assert refusal(str(tmp_path / "empty")).endswith("found nothing")
    for name in ("config.json", "pytorch_model.bin"):
        (tmp_path / "empty" / name).write_bytes(b"")
    assert refusal(str(tmp_path / "empty")).endswith("found config.json, pytorch_model.bin")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 something else"])
def test_a_file_that_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    assert str(path) in refusal(str(path))


@pytest.mark.parametrize(
    "model",
    [
        "",
        "nothing",
        "/no/such/model",
        "./org/name",
        "../name",
        "~/name",
        "~nosuchuser/name",
        "org/model.gguf",
        "model.gguf",
        "a/b/c",
        "org/",
        "/",
        "org/na me",
        "org/name:model.bin",
        "org/..",
        "org/name:../x.gguf",
        "a\0b",
        "x" * 5000,
        "org/" + "y" * 5000 + ":z",
    ],
)
def test_what_is_neither_a_path_nor_a_name_nor_a_hub_id_is_refused(model, tmp_path, monkeypatch):
    message = refusal(model)
    assert str(message)
    assert len(message) < 500


def test_a_known_name_that_was_not_pulled_says_how_to(tmp_path, monkeypatch):
    monkeypatch.setenv("NORIA_CACHE", str(tmp_path))
    assert "smollm2 is not on this machine yet; get it by: noria pull smollm2" in refusal("smollm2")


def test_a_pulled_model_is_opened_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setenv("NORIA_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "cache" / "models" / "toy.gguf")
    monkeypatch.setitem(KNOWN_MODELS, "toy", KnownModel("p", "1", 1, "toy.gguf", path.stat().st_size, ""))
    assert isinstance(open_checkpoint("toy"), GgufCheckpoint)


def test_a_local_directory_goes_before_a_known_name_and_a_hub_id(tmp_path):
    for name in ("smollm2", "org/name"):
        path = write_gguf(tmp_path / "here" / name / "model.gguf")
        assert os.path.samefile(locate(name), path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("org/name", HubId("org/name")),
        ("Qwen/Qwen3-1.7B", HubId("Qwen/Qwen3-1.7B")),
        ("a_b/c.d_e-f", HubId("a_b/c.d_e-f")),
        ("org/name:m.Q4_0.gguf", HubId("org/name", "m.Q4_0.gguf")),
        ("org/name:sub/m.gguf", HubId("org/name", "sub/m.gguf")),
        ("org", None),
        ("org/name/more", None),
        ("org/name:", None),
        ("org/name:m.bin", None),
        ("org/name:../m.gguf", None),
        (".org/name", None),
        ("org/name\n", None),
    ],
)
def test_hub_ids(text, expected):
    assert parse_hub_id(text) == expected


def test_a_repository_is_fetched_with_only_the_needed_files(tmp_path, monkeypatch):
    write_tiny_directory(tmp_path / "snapshot")
    calls = []

    def download(repo_id, **options):
        calls.append((repo_id, options))
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert isinstance(open_checkpoint("org/name", "v2"), SafetensorsCheckpoint)
    ((repo, options),) = calls
    assert (repo, options["revision"]) == ("org/name", "v2")
    names = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "chat_template.jinja",
        "additional_chat_templates/rag.jinja",
        "consolidated.safetensors",
        "original/model.safetensors",
        "pytorch_model.bin",
        "README.md",
        "onnx/model.onnx",
        "model.gguf",
    ]
    kept = list(
        huggingface_hub.utils.filter_repo_objects(
            names, allow_patterns=options["allow_patterns"], ignore_patterns=options["ignore_patterns"]
        )
    )
    assert kept == names[:6]


def test_a_gguf_file_of_a_repository_is_fetched_with_all_its_parts(tmp_path, monkeypatch):
    wanted = []

    def download(repo_id, **options):
        wanted.append(options["allow_patterns"])
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    path = write_gguf(tmp_path / "q4" / "m-00001-of-00002.gguf")
    assert locate("org/name:q4/m-00001-of-00002.gguf") == path
    assert wanted == [["q4/m-00001-of-00002.gguf", "q4/m-00002-of-00002.gguf"]]
    assert "no file other.gguf in the repository" in refusal("org/name:other.gguf")


RESPONSE = SimpleNamespace(request=None, headers={})  # all that these errors look at


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.GatedRepoError("x", response=RESPONSE), "org/name: access is restricted; accept its terms"),
        (
            errors.RepositoryNotFoundError("x", response=RESPONSE),
            "no such local path, and no such repository",
        ),
        (errors.RevisionNotFoundError("x", response=RESPONSE), "the repository has no such revision"),
        (
            errors.HfHubHTTPError("500 broken\nlong", response=RESPONSE),
            "could not be fetched from the hub: 500",
        ),
        (errors.LocalEntryNotFoundError("no route"), "could not be fetched from the hub: no route"),
        (errors.HFValidationError("bad name"), "could not be fetched from the hub: bad name"),
        (errors.HTTPError("refused"), "could not be fetched from the hub: refused"),
        (OSError("disk full"), "could not be fetched from the hub: disk full"),
    ],
)
def test_what_the_hub_refuses_is_explained(monkeypatch, error, words):
    def download(*args, **options):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert words in refusal("org/name")


def test_the_revision_is_named_in_errors(monkeypatch):
    def download(*args, **options):
        raise errors.RevisionNotFoundError("x", response=RESPONSE)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert "org/name (revision v9): the repository has no such revision" in refusal("org/name", "v9")


def write_hub_cache(home, repo, fill) -> None:
    """A repository as huggingface_hub keeps it: a snapshot and a reference to it."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    root = home / "hub" / f"models--{repo.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text(commit)
    fill(root / "snapshots" / commit)


def run_offline(home, model) -> str:
    """What the format of the opened model is, or the error, in a process with HF_HUB_OFFLINE=1."""
    code = (
        "import sys\n"
        "from noria.config.errors import ModelError\n"
        "from noria.loaders.resolve import open_checkpoint\n"
        "try:\n"
        "    print(open_checkpoint(sys.argv[1]).format)\n"
        "except ModelError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_HUB_CACHE", None)
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-c", code, model]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_offline_the_hub_s_cache_is_used(tmp_path):
    write_hub_cache(tmp_path, "org/tensors", write_tiny_directory)
    write_hub_cache(tmp_path, "org/files", lambda snapshot: write_gguf(snapshot / "m.gguf"))
    assert run_offline(tmp_path, "org/tensors") == "safetensors\n"
    assert run_offline(tmp_path, "org/files:m.gguf") == "gguf\n"
    shutil.rmtree(tmp_path / "hub" / "models--org--tensors")
    message = run_offline(tmp_path, "org/tensors")
    assert "not (completely) in the hub's cache on this machine; HF_HUB_OFFLINE forbids" in message
