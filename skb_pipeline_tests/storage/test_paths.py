from pathlib import Path

import pytest

from skb_pipeline.storage.paths import UnsafeNameError, check_dataset_name, inside, skb_home


@pytest.mark.parametrize("name", ["hpo", "a", "0-x_y", "a" * 40])
def test_safe_names_pass(name: str) -> None:
    assert check_dataset_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "../../etc", "/abs", "a/../../b", "CON", "a" * 41, "-a", "a|b", "a,b", "a b", "ä", "a\n", "..."]
)
def test_unsafe_names_are_refused(name: str) -> None:
    with pytest.raises(UnsafeNameError):
        check_dataset_name(name)


@pytest.mark.parametrize("parts", [("..", "x"), ("/etc",), ("a", "../../b")])
def test_paths_do_not_leave_the_root(tmp_path: Path, parts: tuple[str, ...]) -> None:
    with pytest.raises(UnsafeNameError):
        inside(tmp_path / "root", *parts)


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeNameError):
        inside(root, "link", "secret")


def test_home_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKB_HOME", str(tmp_path / "elsewhere"))
    assert skb_home() == tmp_path / "elsewhere"
